package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/etcd/etcderrors"
	"github.com/netcraq/netcraq/client/etcd/guardedshell"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/service"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/client/refchain"
	"github.com/netcraq/netcraq/client/refchain/refadmin"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/test/histories"
)

// world is the test's environment. It has an etcd server, a chain, and a controller that says where
// the chain is.
type world struct {
	t          testing.TB
	endpoint   string
	chain      *refchain.Chain
	controller *refadmin.Controller
	store      placement.Store
	placer     *client.Client // the client that placement uses to reach the chain

	mu   sync.Mutex
	next wire.Key
	at   map[string]placement.Entry
}

func newWorld(t testing.TB, cfg refchain.Config) *world {
	t.Helper()
	cfg.Profile, cfg.ChainID = wire.Profile1024, 1
	w := &world{t: t, endpoint: etcdtest.Start(t), next: 1 << 24, at: map[string]placement.Entry{}}
	var err error
	if w.chain, err = refchain.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.chain.Close()
		for _, v := range w.chain.Violations() {
			t.Error(v)
		}
	})
	w.controller = refadmin.New(1000, w.chain)
	t.Cleanup(w.controller.Close)
	w.store = placement.Store{KV: etcdtest.Client(t, w.endpoint), Prefix: placement.DefaultPrefix}
	w.placer, err = client.New(t.Context(), client.Config{Addresses: w.chain.Addresses(),
		Profile: wire.Profile1024, Sessions: client.StaticSessions(client.Session{ID: 4000, NextRequest: 1})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.placer.Close() })
	return w
}

// place places a key in the chain.
func (w *world) place(key string) placement.Entry {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	w.chain.Place(w.next)
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	r, err := w.placer.Put(ctx, w.next, []byte(slotcodec.Unsealed))
	if err != nil {
		w.t.Fatal(err)
	}
	e, err := w.store.Put(ctx, key, placement.Entry{ID: uint32(w.next), Chain: "a", Version: uint64(r.Version)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.at[key] = e
	return e
}

func (w *world) move(key string) {
	w.mu.Lock()
	e, there := w.at[key]
	delete(w.at, key)
	w.mu.Unlock()
	if !there {
		w.place(key)
		return
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	if _, err := w.placer.Delete(ctx, wire.Key(e.ID)); err != nil {
		w.t.Error(err)
	}
	if err := w.store.Delete(ctx, key, e.Mod); err != nil {
		w.t.Error(err)
	}
}

// use returns an etcd client that uses the network, and the Client that it uses for its keys.
func (w *world) use() (*clientv3.Client, *Client) {
	w.t.Helper()
	c := etcdtest.Client(w.t, w.endpoint)
	n, err := Use(w.t.Context(), c, Config{Controller: w.controller.URL()})
	if err != nil {
		w.t.Fatal(err)
	}
	return c, n
}

// until repeats a read of a key until the switches answer it.
func (w *world) until(c clientv3.KV, n *Client, key string) {
	w.t.Helper()
	before := n.Stats().Network
	poll.Until(w.t, 20*time.Second, "the network answers reads of "+key, func() bool {
		if _, err := c.Get(w.t.Context(), key); err != nil {
			w.t.Fatal(err)
		}
		return n.Stats().Network > before
	})
}

// TestUse checks that writes of one program are visible to another program's reads from the
// switches. The programs use clientv3's own interfaces, and packages that are built on them.
func TestUse(t *testing.T) {
	w := newWorld(t, refchain.Config{Members: 3})
	ctx := t.Context()
	w.place("/k")
	one, n := w.use()
	other, m := w.use()
	if _, err := one.Put(ctx, "/k", "1"); err != nil {
		t.Fatal(err)
	}
	w.until(other, m, "/k")
	got, err := other.Get(ctx, "/k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "1" || got.Kvs[0].Version != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	plain := etcdtest.Client(t, w.endpoint)
	if at, err := plain.Get(ctx, "/k"); err != nil || at.Kvs[0].ModRevision != got.Kvs[0].ModRevision {
		t.Errorf("etcd has %v (%v), the network said %v", at, err, got)
	}
	// A watch that begins with the next revision gets only the later events.
	watch := other.Watch(ctx, "/k", clientv3.WithRev(got.Header.Revision+1))
	txn, err := one.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("/k"), "=", got.Kvs[0].ModRevision)).
		Then(clientv3.OpPut("/k", "2")).Commit()
	if err != nil || !txn.Succeeded {
		t.Fatal(txn, err)
	}
	if r := <-watch; r.Err() != nil || len(r.Events) != 1 || string(r.Events[0].Kv.Value) != "2" {
		t.Errorf("%+v", r)
	}
	if got, err := other.Get(ctx, "/k"); err != nil || string(got.Kvs[0].Value) != "2" {
		t.Errorf("%v, %v", got, err)
	}
	// Package concurrency is built on the KV of its client.
	s, err := concurrency.NewSession(one)
	if err != nil {
		t.Fatal(err)
	}
	lock := concurrency.NewMutex(s, "/lock")
	if err := errors.Join(lock.Lock(ctx), lock.Unlock(ctx), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := concurrency.NewSTM(one, func(stm concurrency.STM) error {
		stm.Put("/k", stm.Get("/k")+"3")
		return nil
	}); err != nil {
		t.Error(err)
	}
	w.until(other, m, "/k")
	if got, err := other.Get(ctx, "/k"); err != nil || string(got.Kvs[0].Value) != "23" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := one.Delete(ctx, "/k"); err != nil {
		t.Error(err)
	}
	if got, err := other.Get(ctx, "/k"); err != nil || len(got.Kvs) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if n.Stats().Writes["done"] < 4 {
		t.Errorf("%+v", n.Stats())
	}
	if err := one.Close(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestHidden checks that a program cannot see the project's own keys, just as through a gateway.
func TestHidden(t *testing.T) {
	w := newWorld(t, refchain.Config{})
	w.place("/k")
	c, _ := w.use()
	ctx := t.Context()
	if _, err := c.Get(ctx, placement.DefaultPrefix+"placed/k"); !errors.Is(err, rpctypes.ErrPermissionDenied) &&
		status.Code(err) != codes.PermissionDenied {
		t.Errorf("a read of a reserved key: %v", err)
	}
	all, err := c.Get(ctx, "", clientv3.WithPrefix())
	if err != nil || len(all.Kvs) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	r := <-c.Watch(ctx, DefaultControllers, clientv3.WithPrefix())
	if !r.Canceled || r.Err() == nil || !strings.Contains(r.Err().Error(), DefaultControllers) {
		t.Errorf("a watch of reserved keys: %+v, %v", r, r.Err())
	}
	watch := c.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if r := <-watch; !r.Created {
		t.Fatalf("%+v", r)
	}
	if _, err := w.store.KV.Put(ctx, DefaultControllers+"leader", "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(ctx, "/mine", "x"); err != nil {
		t.Fatal(err)
	}
	if r := <-watch; len(r.Events) != 1 || string(r.Events[0].Kv.Key) != "/mine" {
		t.Errorf("%+v", r)
	}
}

// TestRefused checks that New fails for a program that lacks a right, and the error names the
// right.
func TestRefused(t *testing.T) {
	w := newWorld(t, refchain.Config{})
	ctx := t.Context()
	fails := func(c *clientv3.Client, cfg Config, want string) {
		t.Helper()
		if n, err := New(ctx, c, cfg); err == nil {
			n.Close()
			t.Errorf("it began; want %q", want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	root := etcdtest.Client(t, w.endpoint)
	fails(root, Config{}, "Config.Controller")
	fails(clientv3.NewCtxClient(ctx), Config{Controller: "x"}, "no connection to etcd")
	closed := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusUnauthorized)
		rw.Write(admin.MarshalError(&admin.Error{Code: admin.CodePermissionDenied, Message: "no token"}))
	}))
	defer closed.Close()
	fails(root, Config{Controller: closed.URL}, "Config.Token")

	cfg := Config{Controller: w.controller.URL()}
	for _, err := range []error{
		second(root.RoleAdd(ctx, "root")), second(root.UserAdd(ctx, "root", "r")),
		second(root.UserGrantRole(ctx, "root", "root")), second(root.UserAdd(ctx, "app", "a")),
		second(root.RoleAdd(ctx, "app")), second(root.UserGrantRole(ctx, "app", "app")),
		second(root.RoleGrantPermission(ctx, "app", "/app/", "/app0", clientv3.PermissionType(clientv3.PermReadWrite))),
		second(root.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	fails(etcdtest.Client(t, w.endpoint), cfg, "who has no name")
	app := etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{w.endpoint}, Username: "app", Password: "a"})
	fails(app, cfg, "refuses user app")
	// If the user has the right, New succeeds. etcd checks the user's permissions, so etcd answers
	// its reads.
	admin := etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{w.endpoint}, Username: "root", Password: "r"})
	if _, err := admin.RoleGrantPermission(ctx, "app", placement.DefaultPrefix,
		clientv3.GetPrefixRangeEnd(placement.DefaultPrefix),
		clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
		t.Fatal(err)
	}
	w.store.KV = admin
	w.place("/app/k")
	w.place("/other")
	n, err := Use(ctx, app, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.Put(ctx, "/app/k", "v"); err != nil {
		t.Error(err)
	}
	for range 3 {
		if got, err := app.Get(ctx, "/app/k"); err != nil || string(got.Kvs[0].Value) != "v" {
			t.Error(got, err)
		}
		if _, err := app.Get(ctx, "/other"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Error(err)
		}
	}
	if s := n.Stats(); s.Network != 0 || s.Forwarded["closed"] == 0 {
		t.Errorf("%+v", s)
	}
}

func second[A any](_ A, err error) error { return err }

// TestCloseLeavesNothing checks that after the etcd client is closed, no goroutine of this package
// and no connection to the controller remains. The same holds after New has failed.
func TestCloseLeavesNothing(t *testing.T) {
	w := newWorld(t, refchain.Config{Members: 3})
	ctx := t.Context()
	w.place("/k")
	ours := func() (n int) {
		b := make([]byte, 4<<20)
		for g := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
			if strings.Contains(g, "net/http.(*persistConn)") || !strings.Contains(g, t.Name()) &&
				strings.Contains(g, "/netcraq/client") && !strings.Contains(g, "refchain") {
				n++
			}
		}
		return n
	}
	before := ours()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{w.endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	n, err := Use(ctx, c, Config{Controller: w.controller.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(ctx, "/k", "v"); err != nil {
		t.Fatal(err)
	}
	w.until(c, n, "/k")
	if got := ours(); got <= before {
		t.Fatalf("%d goroutines before, %d while it is used: this test sees none", before, got)
	}
	c.Close()
	poll.Until(t, 20*time.Second, "all goroutines have ended", func() bool { return ours() <= before })

	root := etcdtest.Client(t, w.endpoint)
	for _, err := range []error{
		second(root.UserAdd(ctx, "root", "r")), second(root.UserGrantRole(ctx, "root", "root")),
		second(root.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New(ctx, etcdtest.Client(t, w.endpoint), Config{Controller: w.controller.URL()}); err == nil {
		t.Error("it began without a right")
	}
	poll.Until(t, 20*time.Second, "all goroutines have ended", func() bool { return ours() <= before })
}

// TestDenied checks that if the switches do not let a program's host write, its writes fail and
// write nothing, and the key stays in the network. If its host may not even read, etcd answers its
// reads.
func TestDenied(t *testing.T) {
	w := newWorld(t, refchain.Config{Members: 3})
	ctx := t.Context()
	e := w.place("/k")
	c, n := w.use()
	if _, err := c.Put(ctx, "/k", "before"); err != nil {
		t.Fatal(err)
	}
	w.until(c, n, "/k")
	here := netip.MustParseAddr("127.0.0.1")
	w.chain.SetRealm(wire.Key(e.ID), 7)
	w.chain.SetPrincipal(here, 3)
	w.chain.Grant(3, 7, true, false)
	began := time.Now()
	_, err := c.Put(ctx, "/k", "after")
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("a write that the switches refuse: %v", err)
	}
	if d := time.Since(began); d > service.Patience/2 {
		t.Errorf("it took %v", d)
	}
	if got, err := c.Get(ctx, "/k"); err != nil || string(got.Kvs[0].Value) != "before" {
		t.Error(got, err)
	}
	w.chain.Grant(3, 7, false, false)
	if got, err := c.Get(ctx, "/k"); err != nil || string(got.Kvs[0].Value) != "before" {
		t.Error(got, err)
	}
	if n.Stats().Missed["denied"] == 0 {
		t.Errorf("%+v", n.Stats())
	}
	if asked := w.controller.Asked("POST /v1/placement/evictions"); asked != 0 {
		t.Errorf("the controller was asked %d times to take the key out", asked)
	}
	w.chain.Grant(3, 7, true, true)
	if _, err := c.Put(ctx, "/k", "after"); err != nil {
		t.Error(err)
	}
}

// In TestMixed, some programs use this package, and others use a gateway. The network loses and
// reorders packets, keys are placed and removed, and programs and gateways crash in turn. The
// programs' histories must be linearizable in keys, values, versions and revisions.
func TestMixed(t *testing.T) {
	total := 6 * time.Second
	if testing.Short() {
		total = 2 * time.Second
	}
	w := newWorld(t, refchain.Config{Members: 3, Loss: 0.01, Duplicate: 0.01, Delay: 300 * time.Microsecond, Seed: 1})
	keys := []string{"a", "b", "c", "d", "e"}
	for _, k := range keys[:3] {
		w.place(k)
	}
	since, err := w.store.KV.Get(t.Context(), "since")
	if err != nil {
		t.Fatal(err)
	}
	// way is one way in which a program reaches etcd. It has the service that gets the requests,
	// and a function that ends the service as a crash would.
	type way struct {
		pb.KVServer
		kill func()
	}
	var network atomic.Uint64
	connect := func() *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{w.endpoint}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	program := func() *way {
		c := connect()
		n, err := New(t.Context(), c, Config{Controller: w.controller.URL()})
		if err != nil {
			t.Fatal(err)
		}
		return &way{histories.Through(n), sync.OnceFunc(func() {
			network.Add(n.Stats().Network)
			// closing the connection first makes this a crash, because nothing can be completed
			c.Close()
			n.Close()
		})}
	}
	gateway := func() *way {
		c := connect()
		s, err := service.Open(t.Context(), service.Config{Own: c, Nobody: c,
			Etcd: pb.NewKVClient(c.ActiveConnection()), Newest: new(guardedshell.Newest),
			Prefix:     placement.DefaultPrefix,
			Controller: admin.NewClient(w.controller.URL()), Owner: "gateway", Keeper: true})
		if err != nil {
			t.Fatal(err)
		}
		return &way{s.Server, sync.OnceFunc(func() {
			c.Close()
			s.Close()
		})}
	}
	kinds := []func() *way{program, gateway, program}
	ways := make([]atomic.Pointer[way], len(kinds))
	for i, make := range kinds {
		ways[i].Store(make())
	}
	h := histories.New(func(err error) bool {
		return etcderrors.Definite(err) || strings.Contains(err.Error(), "nothing was written")
	})
	ctx, stop := context.WithTimeout(t.Context(), total)
	defer stop()
	var wg sync.WaitGroup
	for c := range 6 {
		wg.Go(func() {
			h.Client(ctx, c, func() pb.KVServer { return ways[c%len(ways)].Load() }, keys)
		})
	}
	wg.Go(func() {
		r := rand.New(rand.NewPCG(1, 1))
		for ctx.Err() == nil {
			w.move(keys[r.IntN(len(keys))])
			time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		}
	})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(900 * time.Millisecond):
			}
			n := i % len(ways)
			old := ways[n].Load()
			ways[n].Store(kinds[n]())
			wg.Go(old.kill)
		}
	})
	wg.Wait()
	for i := range ways {
		ways[i].Load().kill()
	}
	operations, unanswered := h.Count()
	if err := h.Check(2 * time.Minute); err != nil {
		t.Error(err)
	}
	headers, err := h.CheckHeaders(t.Context(), etcdtest.Client(t, w.endpoint), since.Header.Revision)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d operations, %d of them without an answer; the network answered %d reads of the programs; what %d say of a revision is so", operations, unanswered, network.Load(), headers)
	if operations < 20 {
		t.Error("too little happened")
	}
}

func ExampleUse() {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"10.0.0.1:2379"}})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	ctx := context.Background()
	if _, err := Use(ctx, c, Config{Controller: "10.0.0.1:20036", Token: "/etc/netcraq/token"}); err != nil {
		panic(err)
	}
	r, err := c.Get(ctx, "/config/leader") // the switches answer this read if the key is placed
	fmt.Println(r, err)
}
