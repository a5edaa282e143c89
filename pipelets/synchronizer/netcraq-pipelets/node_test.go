package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
)

// door is a node API server. Its store, which is in memory, and its folder with streams outlive the
// server.
type door struct {
	t      *testing.T
	socket string
	store  *counted
	dir    string

	mu     sync.Mutex
	server *server.Server
	done   chan struct{}
}

// newDoor starts a server, and makes the processes of this test use it.
func newDoor(t *testing.T) *door {
	d := &door{t: t, socket: filepath.Join(t.TempDir(), "s"), store: &counted{Memory: store.NewMemory(1024)},
		dir: filepath.Join(t.TempDir(), "streams")}
	t.Setenv("NETCRAQ_NODE_SOCKET", d.socket)
	d.start()
	t.Cleanup(d.kill)
	return d
}

func (d *door) start() {
	d.t.Helper()
	_ = os.Remove(d.socket)
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		d.t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	d.server = server.New(server.Config{Store: d.store, Name: "test", Node: "here", Namespace: "default",
		Streams: &broker.Options{Dir: d.dir}})
	d.done = make(chan struct{})
	go func(s *server.Server, done chan struct{}) {
		defer close(done)
		_ = s.Serve(l)
	}(d.server, d.done)
}

// kill ends the server. Its store and its folder remain.
func (d *door) kill() {
	_ = d.server.Close()
	<-d.done
}

func (d *door) connect() *node.Client {
	d.t.Helper()
	c, err := node.Connect(d.t.Context(), node.Config{})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// counted is a store that records the order in which keys are written.
type counted struct {
	*store.Memory
	mu    sync.Mutex
	order []string
}

func (c *counted) CompareAndSwap(ctx context.Context, key store.Key, v wire.Version, value []byte) (store.Item,
	bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	it, swapped, err := c.Memory.CompareAndSwap(ctx, key, v, value)
	if swapped && strings.HasPrefix(key.Name, "out/") {
		c.order = append(c.order, key.Name)
	}
	return it, swapped, err
}

var prefixed = []clientv3.OpOption{clientv3.WithPrefix()}

const head = "apiVersion: netcraq.io/v1alpha1\nkind: Pipelet\nmetadata: {name: %s}\nspec:\n  eoio: true\n"

// TestKillNode copies numbered records from an etcd into keys of a chain and into a stream. It also
// copies them from that stream into another etcd. Meanwhile it kills workers, the etcds and the
// node API's server. Each record must arrive once.
func TestKillNode(t *testing.T) {
	from, to, d := newServer(t), newServer(t), newDoor(t)
	c := d.connect()
	if _, err := c.OpenStream(t.Context(), "s", &nodeapi.StreamConfig{ObjectBytes: 16 << 10, Objects: 1024}); err != nil {
		t.Fatal(err)
	}
	const flow = "  flow: SELECT key, value FROM src WHERE value::BIGINT %% 2 = 0\n"
	first := newWorkers(t, file(t, head+flow+`
  src: [{etcd: {endpoints: [%q], prefix: load/}}]
  dst: [{chain: {namespace: default, prefix: out/}}, {stream: {namespace: default, name: s}}]
`, "p1", from.Endpoint))
	second := newWorkers(t, file(t, head+`
  src: [{stream: {namespace: default, name: s}}]
  dst: [{etcd: {endpoints: [%q], prefix: out/}}]
`, "p2", to.Endpoint))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	numbered := make(chan int, 1)
	go func() { numbered <- number(ctx, from, "load/") }()
	servers, doors := 0, 0
	end := time.Now().Add(killsFor(t))
	for time.Now().Before(end) || first.kills == 0 || second.kills == 0 || doors == 0 {
		first.step()
		second.step()
		switch rand.IntN(6) {
		case 0:
			d.kill()
			d.start()
			doors++
		case 1:
			s := []*etcdServer{from, to}[rand.IntN(2)]
			s.Kill()
			s.Start()
			servers++
		}
		time.Sleep(time.Duration(50+rand.IntN(900)) * time.Millisecond)
	}
	cancel()
	first.settle()
	second.settle()
	n := <-numbered
	want := (n + 1) / 2
	logs := func() string { return first.out.String() + second.out.String() }
	poll.Nil(t, 90*time.Second, "the chain's keys", func() error {
		d.store.mu.Lock()
		defer d.store.mu.Unlock()
		for i, got := range d.store.order {
			if w := fmt.Sprintf("out/%08d", 2*i); got != w {
				t.Fatalf("write %d is %s, want %s", i, got, w)
			}
		}
		if len(d.store.order) != want {
			return fmt.Errorf("%d of %d", len(d.store.order), want)
		}
		return nil
	}, logs)
	poll.Nil(t, 90*time.Second, "the etcd behind the stream", func() error {
		got := arrivals(t, to, "out/")
		for i, k := range got {
			if w := fmt.Sprintf("%020d=%d", i, 2*i); k != w {
				t.Fatalf("record %d is %s, want %s", i, k, w)
			}
		}
		if len(got) != want {
			return fmt.Errorf("%d of %d", len(got), want)
		}
		return nil
	}, logs)
	for i := 0; i < n; i += 2 * 97 {
		key := fmt.Sprintf("out/%08d", i)
		if it, err := c.Get(t.Context(), key); err != nil || string(it.Value) != fmt.Sprint(i) {
			t.Fatalf("%s: %v, %v", key, it, err)
		}
	}
	t.Logf("%d records; workers killed %d and %d times, etcds %d, the node API %d", n, first.kills, second.kills, servers, doors)
	if first.kills == 0 || second.kills == 0 || doors == 0 || n < 100 {
		t.Error("too little happened")
	}
}

// TestChainAsSource checks that a chain's keys arrive when they change. This includes changes and
// deletions while no worker runs.
func TestChainAsSource(t *testing.T) {
	to, d := newServer(t), newDoor(t)
	c := d.connect()
	text := fmt.Sprintf(head+`
  src: [{chain: {namespace: default, prefix: conf/}}]
  dst: [{etcd: {endpoints: [%q], prefix: out/}}]
`, "p1", to.Endpoint)
	put := func(key, value string) {
		t.Helper()
		if _, err := c.Put(t.Context(), "conf/"+key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want string) {
		t.Helper()
		poll.Nil(t, 30*time.Second, want, func() error {
			r, err := to.Client.Get(t.Context(), "out/", prefixed...)
			if err != nil {
				return err
			}
			var got []string
			for _, kv := range r.Kvs {
				got = append(got, fmt.Sprintf("%s=%s(%d)", strings.TrimPrefix(string(kv.Key), "out/"), kv.Value, kv.Version))
			}
			if g := strings.Join(got, " "); g != want {
				return fmt.Errorf("it is %s", g)
			}
			return nil
		})
	}
	put("a", "1")
	put("b", "1")
	put("gone", "1")
	w := newWorkers(t, file(t, "%s", text))
	w.step()
	is("a=1(1) b=1(1) gone=1(1)")
	put("a", "2")
	is("a=2(2) b=1(1) gone=1(1)")
	for len(w.running) > 0 {
		w.running[0].Process.Kill()
		w.running[0].Wait()
		w.running = w.running[1:]
	}
	if _, _, err := c.Delete(t.Context(), "conf/gone"); err != nil {
		t.Fatal(err)
	}
	put("b", "2")
	put("new", "1")
	d.kill()
	d.start()
	w.step()
	is("a=2(2) b=2(2) new=1(1)") // the key a is not written again
}

// TestAtLeastOnce checks that without eoio a record arrives at least once. If a worker dies after
// it wrote rows but before it wrote the position, the next worker writes the rows again. Two
// workers that run at once both write.
func TestAtLeastOnce(t *testing.T) {
	from, to := newServer(t), newServer(t)
	w := newWorkers(t, file(t, strings.Replace(head, "true", "false", 1)+`
  src: [{etcd: {endpoints: [%q], prefix: load/}}]
  dst: [{etcd: {endpoints: [%q], prefix: out/}}]
`, "p1", from.Endpoint, to.Endpoint))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	numbered := make(chan int, 1)
	go func() { numbered <- number(ctx, from, "load/") }()
	for range 40 {
		w.step()
		time.Sleep(time.Duration(50+rand.IntN(150)) * time.Millisecond)
	}
	cancel()
	w.settle()
	n := <-numbered
	again := int64(0)
	poll.Nil(t, time.Minute, "all records", func() error {
		r, err := to.Client.Get(t.Context(), "out/", prefixed...)
		if err != nil {
			return err
		}
		if again = 0; len(r.Kvs) != n {
			return fmt.Errorf("%d of %d", len(r.Kvs), n)
		}
		for _, kv := range r.Kvs {
			again += kv.Version - 1
		}
		return nil
	}, w.out.String)
	t.Logf("%d records, none missing; %d were written again, with %d kills", n, again, w.kills)
}
