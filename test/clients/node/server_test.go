package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// nodeServer is a node API server over a store in memory. The store outlives the server.
type nodeServer struct {
	t      testing.TB
	socket string
	store  *countingStore
	server *server.Server
	done   sync.WaitGroup
}

// countingStore counts the callers that wait for the lock "l". It learns of the first caller when
// the server watches the lock's key.
type countingStore struct {
	store.Store
	waiting atomic.Int32
}

func (s *countingStore) Watch(ctx context.Context, w store.Watch, tell func([]store.Change)) error {
	if slices.ContainsFunc(w.Keys, func(key string) bool { return strings.HasSuffix(key, "/l") }) {
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
	}
	return s.Store.Watch(ctx, w, tell)
}

func newServer(t testing.TB) *nodeServer {
	s := &nodeServer{t: t, socket: filepath.Join(t.TempDir(), "s"), store: &countingStore{Store: store.NewMemory(1024)}}
	s.start()
	t.Cleanup(func() {
		s.kill()
		s.done.Wait()
		poll.Until(t, patience, "the clients' goroutines to end", func() bool { return ours() == 0 }, stacks)
	})
	return s
}

// patience is the time limit for events that must happen.
const patience = 20 * time.Second

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func wantCode(t *testing.T, err error, codes ...node.Code) {
	t.Helper()
	if !slices.Contains(codes, node.CodeOf(err)) {
		t.Errorf("the error is %v (%q), want one of %q", err, node.CodeOf(err), codes)
	}
}

// ours counts the goroutines of the client library. It leaves out the goroutines of tests.
func ours() int {
	n := 0
	for _, s := range strings.Split(stacks(), "\n\n") {
		if strings.Contains(s, "client/node.(*Client)") && !strings.Contains(s, "testing.tRunner") {
			n++
		}
	}
	return n
}

func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

func (s *nodeServer) start() {
	s.t.Helper()
	_ = os.Remove(s.socket)
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // The next server's socket has the same path.
	made := server.New(server.Config{Store: s.store, Name: "test", Node: "here", Namespace: "default"})
	s.server = made
	s.done.Go(func() { _ = made.Serve(l) })
}

// kill ends the server, which loses everything except the store.
func (s *nodeServer) kill() { _ = s.server.Close() }

func (s *nodeServer) connect(cfg node.Config) *node.Client {
	s.t.Helper()
	cfg.Socket = s.socket
	c, err := node.Connect(s.t.Context(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ctx)
	})
	return c
}

func TestKeys(t *testing.T) {
	c := newServer(t).connect(node.Config{})
	ctx := soon(t)
	if it, err := c.Get(ctx, "k"); err != nil || it.Found || it.Value != nil || it.Version != node.Never {
		t.Fatal(it, err)
	}
	v, err := c.Put(ctx, "k", []byte("blue"))
	if err != nil {
		t.Fatal(err)
	}
	if it, err := c.Get(ctx, "k", node.Eventual()); err != nil || string(it.Value) != "blue" || it.Version != v {
		t.Error(it, err)
	}
	it, swapped, err := c.CAS(ctx, "k", v, []byte{0xff, 0})
	if err != nil || !swapped || !it.Version.Newer(v) {
		t.Error(it, swapped, err)
	}
	if it, swapped, err = c.CAS(ctx, "k", v, nil); err != nil || swapped || !slices.Equal(it.Value, []byte{0xff, 0}) {
		t.Error(it, swapped, err)
	}
	if _, swapped, err = c.CAS(ctx, "empty", node.Never, nil); err != nil || !swapped {
		t.Error(swapped, err)
	}
	if it, err = c.Get(ctx, "empty"); err != nil || !it.Found || it.Value == nil || len(it.Value) != 0 {
		t.Error(it, err)
	}
	for _, by := range []int64{1, 41, -1 << 62} {
		if _, _, err := c.Increment(ctx, "n", by); err != nil {
			t.Error(err)
		}
	}
	if it, err = c.Get(ctx, "n"); err != nil || string(it.Value) != fmt.Sprint(42-1<<62) {
		t.Error(it, err)
	}
	if _, deleted, err := c.Delete(ctx, "k", node.IfVersion(v)); err != nil || deleted {
		t.Error(deleted, err)
	}
	if it, deleted, err := c.Delete(ctx, "k"); err != nil || !deleted || it.Found {
		t.Error(it, deleted, err)
	}
	items, err := c.GetMany(ctx, slices.Repeat([]string{"k", "n", "empty"}, 100))
	if err != nil || len(items) != 300 || items[297].Found || !items[298].Found || items[299].Key != "empty" {
		t.Error(items, err)
	}
	if it, err := c.Get(ctx, "n", node.In("other")); err != nil || it.Found {
		t.Error(it, err)
	}
	_, err = c.Put(ctx, "k", make([]byte, 2000))
	wantCode(t, err, node.CodeTooLarge)
	if c.Info().Server != "test" || c.Info().Node != "here" {
		t.Error(c.Info())
	}
}

// List and ListPage return each key once, in order, with its version, and continue over pages.
func TestList(t *testing.T) {
	c := newServer(t).connect(node.Config{})
	ctx := soon(t)
	want := map[string]node.Version{}
	var names []string
	for i := range 300 {
		name := fmt.Sprintf("conf/%03d", i)
		v, err := c.Put(ctx, name, []byte(name))
		if err != nil {
			t.Fatal(err)
		}
		want[name], names = v, append(names, name)
	}
	if _, err := c.Put(ctx, "other", nil); err != nil {
		t.Fatal(err)
	}
	for what, opts := range map[string][]node.Option{"all": nil, "keys only": {node.KeysOnly()},
		"small pages": {node.PageSize(7)}} {
		var found []string
		for i, err := range c.List(ctx, "conf/", opts...) {
			if err != nil {
				t.Fatal(err)
			}
			value := i.Key
			if what == "keys only" {
				value = ""
			}
			found = append(found, i.Key)
			if !i.Found || i.Err != nil || string(i.Value) != value || i.Version != want[i.Key] {
				t.Errorf("%s: %+v", what, i)
			}
		}
		if !slices.Equal(found, names) {
			t.Errorf("%s: %q", what, found)
		}
	}
	page, err := c.ListPage(ctx, "conf/", "")
	if err != nil || len(page.Items) != 100 || page.Cursor == "" {
		t.Fatal(len(page.Items), page.Cursor, err)
	}
	page, err = c.ListPage(ctx, "conf/", page.Cursor, node.PageSize(1))
	if err != nil || len(page.Items) != 1 || page.Items[0].Key != "conf/100" {
		t.Error(page, err)
	}
	_, err = c.ListPage(ctx, "other", page.Cursor)
	wantCode(t, err, node.CodeInvalidArgument)
	_, err = c.ListPage(ctx, "", "", node.PageSize(257))
	wantCode(t, err, node.CodeTooLarge)
	for _, err := range c.List(ctx, "\xff") {
		wantCode(t, err, node.CodeInvalidArgument)
	}
}

// Transact writes either all of its keys or none of them. If it writes none, it says why.
func TestTransact(t *testing.T) {
	s := newServer(t)
	c := s.connect(node.Config{})
	ctx := soon(t)
	binary := []byte{0xFF, 0}
	got, err := c.Transact(ctx, node.Transaction{
		Compare: []node.Comparison{node.IsAbsent("a"), node.HasVersion("b", node.Never)},
		Write: []node.Write{node.PutKey("a", []byte("1 < 2")), node.PutKey("b", binary), node.PutKey("c", nil),
			node.DeleteKey("never")}})
	want := []node.Version{"1.1", "1.1", "1.1", node.Never}
	if err != nil || !got.Done || len(got.Failed) > 0 || !slices.Equal(got.Versions, want) {
		t.Fatal(got, err)
	}
	values := []node.Comparison{node.HasValue("a", []byte("1 < 2")), node.HasValue("b", binary),
		node.HasValue("c", nil)}
	got, err = c.Transact(ctx, node.Transaction{Compare: values})
	if err != nil || !got.Done || len(got.Versions) > 0 {
		t.Error(got, err)
	}
	big := []byte(strings.Repeat("x", 1000))
	var fails []node.Comparison
	for i := range 40 {
		name := fmt.Sprint("big", i)
		if _, err := c.Put(ctx, name, big); err != nil {
			t.Fatal(err)
		}
		fails = append(fails, node.IsAbsent(name))
	}
	fails = append(fails, node.HasValue("never", nil), node.HasVersion("c", "7.7"))
	got, err = c.Transact(ctx, node.Transaction{Compare: append(values[:2:2], fails...),
		Write: []node.Write{node.DeleteKey("a")}})
	if err != nil || got.Done || len(got.Failed) != len(fails) {
		t.Fatal(got, err)
	}
	for i, item := range got.Failed {
		want := node.Item{Key: fmt.Sprint("big", i), Found: true, Version: "1.1"}
		switch {
		case i < 32:
			want.Value = big
		case i == 40:
			want = node.Item{Key: "never", Version: node.Never}
		case i == 41:
			want = node.Item{Key: "c", Found: true, Version: "1.1"}
		}
		if item.Key != want.Key || item.Found != want.Found || item.Version != want.Version ||
			string(item.Value) != string(want.Value) {
			t.Errorf("%d: %.100v, want %.100v", i, item, want)
		}
	}
	if item, err := c.Get(ctx, "a"); err != nil || !item.Found {
		t.Error("a transaction that was not done has deleted a key", err)
	}

	lease, err := c.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	bound := node.Transaction{Write: []node.Write{node.PutKey("a", []byte("x"), node.WithLease(lease.ID)), node.DeleteKey("b")}}
	if got, err := c.Transact(ctx, bound); err != nil || !got.Done {
		t.Error(got, err)
	}
	free := node.Transaction{Compare: []node.Comparison{node.IsAbsent("a")}, Write: []node.Write{node.PutKey("a", nil)}}
	if got, err := c.Transact(ctx, free, node.In("elsewhere")); err != nil || !got.Done {
		t.Error(got, err)
	}
	if item, err := c.Get(ctx, "a"); err != nil || item.Lease != lease.ID {
		t.Error(item, err)
	}
	for _, x := range []node.Transaction{{}, {Write: []node.Write{node.PutKey("k", nil), node.DeleteKey("k")}},
		{Compare: []node.Comparison{{}}}, {Write: []node.Write{{}}}, {Write: []node.Write{node.DeleteKey("\xff")}},
		{Compare: []node.Comparison{node.IsAbsent("\xff")}}, {Compare: []node.Comparison{node.HasVersion("k", "new")}}} {
		_, err := c.Transact(ctx, x)
		wantCode(t, err, node.CodeInvalidArgument)
	}
	for _, n := range []int{64, 65} {
		_, err := c.Transact(ctx, node.Transaction{Compare: slices.Repeat(values[:1], n)})
		if want := map[int]node.Code{64: node.CodeInvalidArgument, 65: node.CodeTooLarge}[n]; node.CodeOf(err) != want {
			t.Errorf("%d comparisons of one key: %v", n, err)
		}
	}
}

func TestWatches(t *testing.T) {
	s := newServer(t)
	c := s.connect(node.Config{})
	ctx := soon(t)
	v, _ := c.Put(ctx, "a/1", []byte("old"))
	w, err := c.Watch(ctx, node.WatchConfig{Prefix: new("a/"), After: map[string]node.Version{"a/1": v}})
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, value string) {
		t.Helper()
		if _, err := c.Put(ctx, key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	next := func(key, value string) {
		t.Helper()
		if e, err := w.Next(ctx); err != nil || e.Key != key || string(e.Value) != value {
			t.Fatalf("%+v, %v; want %s: %s", e, err, key, value)
		}
	}
	put("b/1", "not this one")
	put("a/1", "new")
	next("a/1", "new")
	// After the next connection, the watch reports what changed while there was no connection.
	s.kill()
	other := store.Key{Namespace: "default", Name: "a/2"}
	s.start()
	put(other.Name, "late")
	next("a/2", "late")
	if _, _, err := c.Delete(ctx, "a/1"); err != nil {
		t.Fatal(err)
	}
	if e, err := w.Next(ctx); err != nil || e.Found || e.Key != "a/1" {
		t.Error(e, err)
	}
}

// Each increment that succeeded was executed exactly once. Few increments have an unknown outcome.
// Both hold while the server is killed again and again.
func TestServerIsKilled(t *testing.T) {
	s := newServer(t)
	c := s.connect(node.Config{})
	var sure, unsure atomic.Int64
	var wg sync.WaitGroup
	over := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				_, _, err := c.Increment(soon(t), "n", 1)
				switch node.CodeOf(err) {
				case "":
					sure.Add(1)
				case node.CodeOutcomeUnknown:
					unsure.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	for range 10 {
		at := sure.Load()
		poll.Until(t, patience, "increments", func() bool { return sure.Load() > at+50 || t.Failed() })
		s.kill()
		s.start()
	}
	close(over)
	wg.Wait()
	n, _, err := c.Increment(soon(t), "n", 0)
	if err != nil || n < sure.Load() || n > sure.Load()+unsure.Load() {
		t.Errorf("%d, %v; %d were done, and %d may have been", n, err, sure.Load(), unsure.Load())
	}
	t.Logf("%d done, %d unknown", sure.Load(), unsure.Load())
}

// When a server shuts down, its successor takes over. No call fails, and no call is executed twice.
func TestServerIsReplaced(t *testing.T) {
	s := newServer(t)
	c := s.connect(node.Config{})
	var done atomic.Int64
	var wg sync.WaitGroup
	over := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if _, _, err := c.Increment(soon(t), "n", 1); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	for range 5 {
		at := done.Load()
		poll.Until(t, patience, "increments", func() bool { return done.Load() > at+50 || t.Failed() })
		old := s.server
		s.start() // the next server listens before the old one shuts down
		if err := old.Shutdown(soon(t)); err != nil {
			t.Error(err)
		}
	}
	close(over)
	wg.Wait()
	if n, _, err := c.Increment(soon(t), "n", 0); err != nil || n != done.Load() {
		t.Errorf("%d, %v; %d were done", n, err, done.Load())
	}
}

func TestLocks(t *testing.T) {
	s := newServer(t)
	a, b := s.connect(node.Config{}), s.connect(node.Config{})
	ctx := soon(t)
	held, err := a.Lock(ctx, "l", node.TTL(2*time.Second))
	if err != nil || held.Token() == 0 || held.Name() != "l" || held.Lease() == "" {
		t.Fatal(held, err)
	}
	_, err = b.Lock(ctx, "l", node.Wait(0))
	wantCode(t, err, node.CodeNotHeld)
	_, err = b.Lock(ctx, "l", node.Wait(20*time.Millisecond))
	wantCode(t, err, node.CodeNotHeld)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err = b.Lock(short, "l"); node.CodeOf(err) != node.CodeTimeout && node.CodeOf(err) != node.CodeNotHeld {
		t.Error(err)
	}
	var wg sync.WaitGroup
	var other *node.Held
	wg.Go(func() {
		if other, err = b.Lock(ctx, "l"); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-held.Lost():
		t.Error("it was lost:", held.Err())
	default:
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if other.Token() <= held.Token() {
		t.Errorf("token %d after %d", other.Token(), held.Token())
	}
	<-held.Lost()
	if held.Err() != nil || held.Release(ctx) != nil {
		t.Error("what was given back was not lost")
	}
	if again, err := a.Lock(ctx, "other", node.TTL(2*time.Second)); err != nil || again.Lease() != held.Lease() {
		t.Error("the lease is not used again:", again, err)
	}
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, err := a.Lock(ctx, "l"); err != nil {
		t.Error("after its holder was closed:", err)
	}
}

// endsAfter is a context that ends at the n-th call of Err.
type endsAfter struct {
	context.Context
	end  context.CancelFunc
	left atomic.Int32
}

func (c *endsAfter) Err() error {
	if c.left.Add(-1) == 0 {
		c.end()
	}
	return c.Context.Err()
}

// A wait for a lock that ends between any two of its steps returns an error, and not an empty lock.
func TestLockAtItsEnd(t *testing.T) {
	s := newServer(t)
	a, b := s.connect(node.Config{}), s.connect(node.Config{})
	if _, err := a.Lock(soon(t), "l"); err != nil {
		t.Fatal(err)
	}
	for n := range int32(40) {
		soon, cancel := context.WithTimeout(soon(t), 50*time.Millisecond)
		ctx := &endsAfter{Context: soon, end: cancel}
		ctx.left.Store(n + 1)
		if held, err := b.Lock(ctx, "l"); held != nil || err == nil {
			t.Fatal(n, held, err)
		}
		cancel()
	}
}

// A lock outlives the connection that acquired it, because the client keeps its lease alive. The
// client reports the loss of a lock.
func TestLockOutlivesTheConnection(t *testing.T) {
	s := newServer(t)
	c := s.connect(node.Config{})
	ctx := soon(t)
	held, err := c.Lock(ctx, "l", node.TTL(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	s.kill()
	s.start()
	// This is longer than the time to live, so the client must keep the lease alive.
	time.Sleep(2500 * time.Millisecond)
	if err := held.Err(); err != nil {
		t.Fatal(err)
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}

	held, err = c.Lock(ctx, "l", node.TTL(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	s.kill() // No other server takes over.
	select {
	case <-held.Lost():
		wantCode(t, held.Err(), node.CodeNotHeld)
	case <-ctx.Done():
		t.Fatal("the loss is not told")
	}
	wantCode(t, held.Release(ctx), node.CodeNotHeld)
	s.start()
	if _, err = c.Lock(ctx, "l", node.TTL(time.Second)); err != nil {
		t.Error(err)
	}
}

func TestLockIsRevoked(t *testing.T) {
	s := newServer(t)
	c := s.connect(node.Config{})
	ctx := soon(t)
	held, err := c.Lock(ctx, "l", node.TTL(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Revoke(ctx, held.Lease()); err != nil {
		t.Fatal(err)
	}
	<-held.Lost()
	wantCode(t, held.Err(), node.CodeNotHeld)
}

// A caller that waits for a lock while the server is killed continues to wait at the next server,
// and acquires the lock when it is free. A caller that gave up does not acquire it.
func TestWaitingForALock(t *testing.T) {
	s := newServer(t)
	a, b := s.connect(node.Config{}), s.connect(node.Config{})
	ctx := soon(t)
	held, err := a.Lock(ctx, "l", node.TTL(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := b.Lock(short, "l")
		wantCode(t, err, node.CodeCanceled, node.CodeOutcomeUnknown)
	})
	waits := func() bool { return s.store.waiting.Load() == 1 }
	nobody := func() bool { return s.store.waiting.Load() == 0 }
	poll.Until(t, patience, "somebody to wait", waits)
	cancel()
	wg.Wait()
	poll.Until(t, patience, "nobody to wait", nobody)
	wg.Go(func() {
		other, err := b.Lock(ctx, "l")
		if err != nil || other.Token() <= held.Token() {
			t.Error(other, err)
		}
	})
	poll.Until(t, patience, "somebody to wait", waits)
	s.kill()
	poll.Until(t, patience, "nobody to wait", nobody)
	s.start()
	poll.Until(t, patience, "somebody to wait", waits)
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestElectionsAndSemaphores(t *testing.T) {
	s := newServer(t)
	c := s.connect(node.Config{})
	ctx := soon(t)
	if l, err := c.Leader(ctx, "e"); err != nil || l.Found {
		t.Error(l, err)
	}
	h, err := c.Campaign(ctx, "e", "it is me")
	if err != nil {
		t.Fatal(err)
	}
	if l, err := c.Leader(ctx, "e"); err != nil || l.Value != "it is me" || l.Token != h.Token() {
		t.Error(l, err)
	}
	_, err = c.Campaign(ctx, "e", "me, too", node.Wait(0))
	wantCode(t, err, node.CodeNotHeld)
	if err := h.Release(ctx); err != nil {
		t.Error(err)
	}
	var permits []*node.Held
	for range 2 {
		p, err := c.Acquire(ctx, "s", 2)
		if err != nil {
			t.Fatal(err)
		}
		permits = append(permits, p)
	}
	_, err = c.Acquire(ctx, "s", 2, node.Wait(0))
	wantCode(t, err, node.CodeNotHeld)
	if err := permits[1].Release(ctx); err != nil {
		t.Error(err)
	}
	if _, err = c.Acquire(ctx, "s", 2, node.Wait(0)); err != nil {
		t.Error(err)
	}
}

func TestLeases(t *testing.T) {
	c := newServer(t).connect(node.Config{})
	ctx := soon(t)
	l, err := c.Grant(ctx, 700*time.Millisecond)
	if err != nil || l.TTL != 700*time.Millisecond {
		t.Fatal(l, err)
	}
	if _, err := c.Put(ctx, "k", []byte("v"), node.WithLease(l.ID)); err != nil {
		t.Fatal(err)
	}
	if it, err := c.Get(ctx, "k"); err != nil || it.Lease != l.ID {
		t.Error(it, err)
	}
	if again, err := c.KeepAlive(ctx, l.ID); err != nil || again != l {
		t.Error(again, err)
	}
	if err := c.Revoke(ctx, l.ID); err != nil {
		t.Error(err)
	}
	if it, err := c.Get(ctx, "k"); err != nil || it.Found {
		t.Error(it, err)
	}
	_, err = c.KeepAlive(ctx, l.ID)
	wantCode(t, err, node.CodeLeaseGone)
	if !errors.Is(err, &node.Error{Code: node.CodeLeaseGone}) {
		t.Error(err)
	}
}

func TestServices(t *testing.T) {
	s := newServer(t)
	a, b := s.connect(node.Config{}), s.connect(node.Config{})
	ctx := soon(t)
	w, err := b.WatchService(ctx, "web")
	if err != nil {
		t.Fatal(err)
	}
	addresses := func() []string {
		t.Helper()
		list, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		found := []string{}
		for _, i := range list {
			found = append(found, i.Address)
		}
		return found
	}
	until := func(want ...string) {
		t.Helper()
		for {
			found := addresses()
			slices.Sort(found)
			if slices.Equal(found, want) {
				return
			}
		}
	}
	one, err := a.RegisterService(ctx, "web", "h:1", node.TTL(time.Second))
	if err != nil || one.Instance() == "" {
		t.Fatal(one, err)
	}
	two, err := a.RegisterService(ctx, "web", "h:2", node.Named("two"))
	if err != nil || two.Instance() != "two" {
		t.Fatal(two, err)
	}
	until("h:1", "h:2")
	if list, err := b.GetService(ctx, "web", node.Nearest()); err != nil || len(list) != 2 {
		t.Error(list, err)
	}
	if err := two.Deregister(ctx); err != nil {
		t.Error(err)
	}
	until("h:1")
	// An instance that lost its lease is registered again.
	if err := b.Revoke(ctx, one.Lease()); err != nil {
		t.Error(err)
	}
	until()
	until("h:1")
	if err := a.Close(ctx); err != nil {
		t.Error(err)
	}
	until()
}

// Callers come and go, some of them give up, and each gets the answer to its own request.
func TestReadersInTurn(t *testing.T) {
	s := newServer(t)
	c := s.connect(node.Config{})
	if _, err := c.Put(soon(t), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if (n+i)%7 == 0 {
					time.AfterFunc(50*time.Microsecond, cancel)
				}
				got, err := c.Get(ctx, "k")
				if err != nil && ctx.Err() == nil || err == nil && string(got.Value) != "v" {
					t.Error(got, err)
				}
				cancel()
				if i%50 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkGet(b *testing.B) {
	c := newServer(b).connect(node.Config{})
	ctx := b.Context()
	if _, err := c.Put(ctx, "key", []byte("value")); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Get(ctx, "key"); err != nil {
			b.Fatal(err)
		}
	}
}
