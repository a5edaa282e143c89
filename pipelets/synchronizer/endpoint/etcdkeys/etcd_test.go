package etcdkeys_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/etcdkeys"
)

func start(t *testing.T, cfg embedded.Config) (string, *clientv3.Client) {
	t.Helper()
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	cfg.LogLevel = "fatal"
	s, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return s.Endpoint(), c
}

func sink(t *testing.T, address string) *etcdkeys.Sink {
	t.Helper()
	s, err := etcdkeys.NewSink(pipeletapi.Etcd{Endpoints: []string{address}, Prefix: "out/"}, nil, nil, "default/p/x", true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func state(n uint64) exactlyonce.State {
	return exactlyonce.State{Position: exactlyonce.Position{Epoch: "e", Seq: n}, Rows: n}
}

func rows(n, size int) (all []endpoint.Row) {
	for i := range n {
		all = append(all, endpoint.Row{Key: fmt.Sprint(i), Value: []byte(strings.Repeat("x", size))})
	}
	return all
}

// TestTooLarge checks that a batch with more rows or bytes than a transaction permits gets a
// TooLarge error, and that nothing is written. The batch may be a single row.
func TestTooLarge(t *testing.T) {
	address, c := start(t, embedded.Config{})
	s := sink(t, address)
	if _, err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, batch := range [][]endpoint.Row{rows(128, 1), rows(100, 20<<10), rows(100, 30<<10), rows(1, 3<<20)} {
		err := s.Commit(t.Context(), state(0), state(1), batch)
		if exactlyonce.KindOf(err) != exactlyonce.TooLarge {
			t.Errorf("%d rows of %d bytes: %v", len(batch), len(batch[0].Value), err)
		}
	}
	if r, err := c.Get(t.Context(), "", clientv3.WithPrefix()); err != nil || len(r.Kvs) > 0 {
		t.Errorf("%v, %v", r, err)
	}
	if err := s.Commit(t.Context(), state(0), state(1), rows(127, 10)); err != nil {
		t.Error(err)
	}
}

// TestFullDisk checks that an exhausted disk quota is reported, and that the sink continues when
// there is room again.
func TestFullDisk(t *testing.T) {
	address, c := start(t, embedded.Config{Adjust: func(c *embed.Config) { c.QuotaBackendBytes = 4 << 20 }})
	s := sink(t, address)
	if _, err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	n := uint64(0)
	for ; err == nil && n < 100; n++ {
		err = s.Commit(t.Context(), state(n), state(n+1), rows(10, 50<<10))
	}
	n--
	if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(err.Error(), "disk quota is used up") {
		t.Fatalf("after %d: %v", n, err)
	}
	// The transaction that exhausts the quota is executed, although etcd reports it as refused.
	// Therefore another attempt finds a different state.
	if err := s.Commit(t.Context(), state(n), state(n+1), nil); err == nil {
		t.Error("a batch that was refused can be written twice")
	}
	got, err := s.Open(t.Context())
	if err != nil || got != state(n) && got != state(n+1) {
		t.Fatalf("%v, %v, want %v or the next one", got, err, state(n))
	}
	n = got.Rows
	r, err := c.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), r.Header.Revision); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // wait, because compaction frees space with a delay
	if _, err := c.Defragment(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), state(n), state(n+1), rows(1, 10)); err != nil {
		t.Error(err)
	}
}

const readWrite = clientv3.PermissionType(clientv3.PermReadWrite)

// TestRefused checks that a user without write permission gets a clear error. Permission can then
// be granted without a restart.
func TestRefused(t *testing.T) {
	address, c := start(t, embedded.Config{})
	ctx := t.Context()
	for _, err := range []error{
		second(c.UserAdd(ctx, "root", "r")), second(c.UserGrantRole(ctx, "root", "root")),
		second(c.UserAdd(ctx, "guest", "g")), second(c.RoleAdd(ctx, "guest")), second(c.UserGrantRole(ctx, "guest", "guest")),
		second(c.RoleGrantPermission(ctx, "guest", etcdkeys.StatePrefix, etcdkeys.StatePrefix+"\xff", readWrite)),
		second(c.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	anonymous := sink(t, address)
	if _, err := anonymous.Open(ctx); exactlyonce.KindOf(err) != exactlyonce.Refused {
		t.Errorf("without a name: %v", err)
	}
	guest, err := etcdkeys.NewSink(pipeletapi.Etcd{Endpoints: []string{address}, Prefix: "out/", Secret: "s"},
		secrets{"username": []byte("guest"), "password": []byte("g")}, nil, "default/p/x", true)
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	if _, err := guest.Open(ctx); err != nil {
		t.Fatal(err)
	}
	if err := guest.Commit(ctx, state(0), state(1), rows(1, 1)); exactlyonce.KindOf(err) != exactlyonce.Refused ||
		!strings.Contains(err.Error(), "permission denied") {
		t.Errorf("a guest: %v", err)
	}
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Username: "root", Password: "r",
		Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := root.RoleGrantPermission(ctx, "guest", "out/", "out0", readWrite); err != nil {
		t.Fatal(err)
	}
	if got, err := guest.Open(ctx); err != nil || got != (exactlyonce.State{}) {
		t.Fatal(got, err)
	}
	if err := guest.Commit(ctx, state(0), state(1), rows(1, 1)); err != nil {
		t.Error(err)
	}
}

// TestRestored checks a source whose etcd is restored from an older copy of its data, with the same
// cluster id. The source must report the restoration and the remedy, whether it reads during the
// restoration or starts after it.
func TestRestored(t *testing.T) {
	dir, client := t.TempDir(), testport.Free(t)
	run := func(data string, puts int) *embedded.Server {
		t.Helper()
		s, err := embedded.Start(t.Context(), embedded.Config{DataDir: data, Client: client, LogLevel: "fatal"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i := range puts {
			if _, err := c.Put(t.Context(), fmt.Sprint("in/", i), "x"); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	before, after := filepath.Join(dir, "before"), filepath.Join(dir, "after")
	run(before, 20).Close()
	if err := os.CopyFS(after, os.DirFS(before)); err != nil {
		t.Fatal(err)
	}
	s := run(before, 40)
	open := func() *etcdkeys.Source {
		t.Helper()
		source, err := etcdkeys.NewSource(pipeletapi.Etcd{Endpoints: []string{s.Endpoint()}, Prefix: "in/"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { source.Close() })
		return source
	}
	running := open()
	_, at, err := running.Read(t.Context(), exactlyonce.Position{}, 100)
	if err != nil || at.Seq != 61 {
		t.Fatal(at, err)
	}
	s.Close()
	s = run(after, 1)
	for name, source := range map[string]*etcdkeys.Source{"running": running, "new": open()} {
		poll.Nil(t, 20*time.Second, name, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			records, _, err := source.Read(ctx, at, 100)
			if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(err.Error(), "at revision 22, and revision 61") ||
				!strings.Contains(err.Error(), "another name") {
				return fmt.Errorf("%d records, %w", len(records), err)
			}
			return nil
		})
	}
}

// TestKeysOfBytes checks that keys of arbitrary bytes arrive, even if a worker ends between keys of
// the same revision.
func TestKeysOfBytes(t *testing.T) {
	address, c := start(t, embedded.Config{})
	ctx := t.Context()
	var ops []clientv3.Op
	for i := range 127 {
		ops = append(ops, clientv3.OpPut("in/"+string([]byte{byte(129 + i)}), fmt.Sprint(i)))
	}
	if _, err := c.Txn(ctx).Then(ops...).Commit(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // run two workers, one after the other
		source, err := etcdkeys.NewSource(pipeletapi.Etcd{Endpoints: []string{address}, Prefix: "in/"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		out := sink(t, address)
		was, err := out.Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		until, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		records, to, err := source.Read(until, was.Position, 100)
		if err != nil {
			t.Fatal(err)
		}
		next := exactlyonce.State{Position: to, Rows: was.Rows + uint64(len(records))}
		if err := out.Commit(ctx, was, next, endpoint.Rows(records)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := c.Get(ctx, "out/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != len(ops) {
		t.Fatalf("%d of %d keys have arrived, %v", len(r.Kvs), len(ops), err)
	}
	for i, kv := range r.Kvs {
		if want := "out/" + string([]byte{byte(129 + i)}); string(kv.Key) != want || string(kv.Value) != fmt.Sprint(i) {
			t.Errorf("%q has %s, want %q with %d", kv.Key, kv.Value, want, i)
		}
	}
}

func second[T any](_ T, err error) error { return err }

type secrets map[string][]byte

func (s secrets) Read(context.Context, string) (map[string][]byte, error) { return s, nil }
