package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// newForwarder makes a key-value service that forwards all requests to etcd. It is package guarded
// without placed keys.
func newForwarder(u *Upstream) pb.KVServer {
	return forwarded{Forward(u, hotkeys.NewMetrics(hotkeys.Bounds{}, nil))}
}

// ways are the two modes of the key-value service: the gateway forwards its requests, or serves
// them itself.
var ways = map[string]bool{"passed": false, "served": true}

// beginWay starts a gateway. It forwards the key-value service to etcd, or serves it with
// newForwarder.
func beginWay(t testing.TB, served bool, endpoints ...string) started {
	t.Helper()
	u, err := Dial(UpstreamConfig{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	cfg := Config{Upstream: u}
	if served {
		cfg.KV = newForwarder(u)
	}
	return begin(t, cfg, endpoints...)
}

// TestConcurrency checks that clientv3's mutex and election work between two clients at two
// gateways.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	for name, served := range ways {
		t.Run(name, func(t *testing.T) {
			c := etcdtest.New(t, 1, etcdtest.Options{})
			concurrencyWorks(t, beginWay(t, served, c.Endpoints()...).Endpoint,
				beginWay(t, served, c.Endpoints()...).Endpoint)
		})
	}
}

func concurrencyWorks(t *testing.T, endpoints ...string) {
	t.Helper()
	var sessions []*concurrency.Session
	for _, endpoint := range endpoints {
		s, err := concurrency.NewSession(etcdtest.Client(t, endpoint), concurrency.WithTTL(10))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		sessions = append(sessions, s)
	}
	inside, sum := 0, 0
	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(func() {
			m := concurrency.NewMutex(s, "/mutex")
			for range 10 {
				if err := m.Lock(t.Context()); err != nil {
					t.Error(err)
					return
				}
				if inside++; inside != 1 {
					t.Error("two are inside")
				}
				sum++
				inside--
				if err := m.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if sum != 20 {
		t.Errorf("%d were inside, want 20", sum)
	}
	m := concurrency.NewMutex(sessions[0], "/mutex")
	if err := m.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := concurrency.NewMutex(sessions[1], "/mutex").TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("a second lock: %v, want %v", err, concurrency.ErrLocked)
	}

	first, second := concurrency.NewElection(sessions[0], "/election"), concurrency.NewElection(sessions[1], "/election")
	if err := first.Campaign(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	won := make(chan error, 1)
	go func() { won <- second.Campaign(t.Context(), "two") }()
	observed := second.Observe(t.Context())
	if r := <-observed; string(r.Kvs[0].Value) != "one" {
		t.Errorf("%s leads, want one", r.Kvs[0].Value)
	}
	sessions[0].Close() // ends the session's lease, and so the client's leadership
	if err := <-won; err != nil {
		t.Fatal(err)
	}
	if r, err := second.Leader(t.Context()); err != nil || string(r.Kvs[0].Value) != "two" {
		t.Errorf("leader: %v, %v; want two", r, err)
	}
}

// TestLarge checks that values up to etcd's limit pass, and that etcd's own error refuses larger
// values. Answers larger than gRPC's default limit must also pass.
func TestLarge(t *testing.T) {
	for name, served := range ways {
		t.Run(name, func(t *testing.T) {
			cluster := etcdtest.New(t, 1, etcdtest.Options{})
			g := beginWay(t, served, cluster.Endpoints()...)
			direct := etcdtest.ClientWith(t, clientv3.Config{Endpoints: cluster.Endpoints(),
				MaxCallSendMsgSize: 16 << 20})
			through := etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{g.Endpoint},
				MaxCallSendMsgSize: 16 << 20})
			for i, size := range []int{1 << 20, 1 << 20, 1 << 20, 1<<20 + 400<<10, 1 << 20} {
				if _, err := through.Put(t.Context(), fmt.Sprint("k", i), strings.Repeat("v", size)); err != nil {
					t.Errorf("%d bytes: %v", size, err)
				}
			}
			r, err := through.Get(t.Context(), "k", clientv3.WithPrefix())
			if err != nil || len(r.Kvs) != 5 || len(r.Kvs[3].Value) != 1<<20+400<<10 {
				t.Errorf("5 MiB at once: %v", err)
			}
			for _, size := range []int{1536<<10 + 1, 1900 << 10, 3 << 20} {
				_, want := direct.Put(t.Context(), "big", strings.Repeat("v", size))
				_, got := through.Put(t.Context(), "big", strings.Repeat("v", size))
				if want == nil || got == nil || got.Error() != want.Error() {
					t.Errorf("%d bytes: %v; etcd itself says %v", size, got, want)
				}
			}
		})
	}
}

// TestWatches opens hundreds of watches on one connection. Each watch must get the changes of its
// own key, in order.
func TestWatches(t *testing.T) {
	const watches, changes = 300, 5
	c := etcdtest.New(t, 1, etcdtest.Options{})
	g := begin(t, Config{}, c.Endpoints()...)
	client := etcdtest.Client(t, g.Endpoint)
	var channels []clientv3.WatchChan
	for i := range watches {
		// Half of the watches use separate streams, because etcd's client opens one stream for each
		// different metadata.
		ctx := t.Context()
		if i%2 == 0 {
			ctx = clientv3.WithRequireLeader(metadata.AppendToOutgoingContext(ctx, "stream", fmt.Sprint(i)))
		}
		ch := client.Watch(ctx, fmt.Sprintf("w%03d", i), clientv3.WithCreatedNotify(), clientv3.WithPrevKV())
		if r := <-ch; !r.Created {
			t.Fatalf("watch %d: %v", i, r)
		}
		channels = append(channels, ch)
	}
	for n := range changes {
		for i := range watches {
			if _, err := client.Put(t.Context(), fmt.Sprintf("w%03d", i), fmt.Sprint(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, ch := range channels {
		for n := 0; n < changes; {
			r := <-ch
			if r.Err() != nil {
				t.Fatal(r.Err())
			}
			for _, e := range r.Events {
				if want := fmt.Sprintf("w%03d", i); string(e.Kv.Key) != want ||
					string(e.Kv.Value) != fmt.Sprint(n) || n > 0 && string(e.PrevKv.Value) != fmt.Sprint(n-1) {
					t.Errorf("watch %d: %v, want %s = %d", i, e, want, n)
				}
				n++
			}
		}
	}
	r, err := client.Get(t.Context(), "w000")
	if err != nil || g.Newest().Revision() != r.Header.Revision || r.Header.Revision != 1+watches*changes {
		t.Errorf("newest revision %d, etcd's %d, want %d", g.Newest().Revision(), r.Header.Revision, 1+watches*changes)
	}
}

// TestWatchCompacted watches from a compacted revision. etcd cancels the watch, and the client must
// get etcd's own answer.
func TestWatchCompacted(t *testing.T) {
	c := etcdtest.New(t, 1, etcdtest.Options{})
	client := etcdtest.Client(t, begin(t, Config{}, c.Endpoints()...).Endpoint)
	for range 5 {
		if _, err := client.Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Compact(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	r := <-client.Watch(t.Context(), "k", clientv3.WithRev(2))
	if !errors.Is(r.Err(), rpctypes.ErrCompacted) || r.CompactRevision != 4 {
		t.Errorf("%v, compact revision %d", r.Err(), r.CompactRevision)
	}
}

// TestSnapshot checks that a snapshot through the gateway is complete. A complete snapshot ends
// with etcd's hash.
func TestSnapshot(t *testing.T) {
	c := etcdtest.New(t, 1, etcdtest.Options{})
	client := etcdtest.Client(t, begin(t, Config{}, c.Endpoints()...).Endpoint)
	for i := range 20 {
		if _, err := client.Put(t.Context(), fmt.Sprint(i), strings.Repeat("x", 100<<10)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || len(b) < 2<<20 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if sum := sha256.Sum256(b[:len(b)-sha256.Size]); !bytes.Equal(sum[:], b[len(b)-sha256.Size:]) {
		t.Error("it is not what etcd has hashed")
	}
}

// TestMembers configures a gateway to report its own addresses as the members' addresses. A client
// that synchronizes its endpoints must stay at the gateway.
func TestMembers(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 3, etcdtest.Options{})
	own := begin(t, Config{}, c.Endpoints()...)
	client := etcdtest.Client(t, own.Endpoint)
	if err := client.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, want := slices.Clone(client.Endpoints()), c.Endpoints()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("without addresses to advertise: %v, want etcd's own %v", got, want)
	}
	advertised := begin(t, Config{AdvertiseClientURLs: []string{own.Endpoint}}, c.Endpoints()...)
	client = etcdtest.Client(t, advertised.Endpoint)
	r, err := client.MemberList(t.Context())
	if err != nil || len(r.Members) != 3 || r.Header.ClusterId == 0 {
		t.Fatalf("%v, %v", r, err)
	}
	for _, m := range r.Members {
		if !slices.Equal(m.ClientURLs, []string{own.Endpoint}) || !strings.HasPrefix(m.Name, "m") ||
			len(m.PeerURLs) != 1 {
			t.Errorf("%v", m)
		}
	}
	if err := client.Sync(t.Context()); err != nil || !slices.Contains(client.Endpoints(), own.Endpoint) {
		t.Errorf("%v, %v", client.Endpoints(), err)
	}
	if _, err := client.Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
}

// TestRestart stops and restarts the etcd behind the gateway. Clients wait until their own deadline
// and then continue, including watches and leases.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 1, etcdtest.Options{})
	g := begin(t, Config{}, c.Endpoints()...)
	client := etcdtest.Client(t, g.Endpoint)
	if _, err := client.Put(t.Context(), "k", "1"); err != nil {
		t.Fatal(err)
	}
	lease, err := client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := client.KeepAlive(t.Context(), lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	<-alive
	watch := client.Watch(t.Context(), "k", clientv3.WithCreatedNotify())
	<-watch
	stopped := make(chan struct{})
	go func() { // an open watch delays etcd's end by seconds
		c.Stop(0)
		close(stopped)
	}()
	<-stopped
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := client.Put(short, "k", "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without etcd: %v, want %v", err, context.DeadlineExceeded)
	}
	c.Start(0)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err = client.Put(ctx, "k", "2"); err != nil {
		t.Fatalf("20 s after etcd is back: %v", err)
	}
	for seen, deadline := "", time.After(20*time.Second); seen != "2"; {
		select {
		case r := <-watch:
			if r.Err() != nil || len(r.Events) == 0 {
				t.Fatalf("the watch ended: %v", r.Err())
			}
			seen = string(r.Events[len(r.Events)-1].Kv.Value)
		case <-deadline:
			t.Fatal("the watch has not seen the write")
		}
	}
	if r, err := client.KeepAliveOnce(t.Context(), lease.ID); err != nil || r.TTL != 60 {
		t.Errorf("the lease: %v, %v", r, err)
	}
	if r, err := client.Get(t.Context(), "k"); err != nil || g.Newest().Revision() != r.Header.Revision {
		t.Errorf("newest revision %d, %v, %v", g.Newest().Revision(), r, err)
	}
}

// TestNoQuorum stops the majority of etcd's members. Errors must be etcd's own, and serializable
// reads must work. Nothing may hang longer than with etcd itself.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 3, etcdtest.Options{})
	// once returns a client that makes only one attempt, so that its first error shows.
	once := func(endpoint string) *clientv3.Client {
		return etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{endpoint}, MaxUnaryRetries: 1})
	}
	direct, through := once(c.Endpoints()[0]), once(begin(t, Config{}, c.Endpoints()[0]).Endpoint)
	if _, err := through.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	c.Stop(1)
	c.Stop(2)
	calls := map[string]func(*clientv3.Client, context.Context) error{
		"put": func(c *clientv3.Client, ctx context.Context) error {
			_, err := c.Put(ctx, "k", "v")
			return err
		},
		"get": func(c *clientv3.Client, ctx context.Context) error {
			_, err := c.Get(ctx, "k")
			return err
		},
		"get with leader": func(c *clientv3.Client, ctx context.Context) error {
			_, err := c.Get(clientv3.WithRequireLeader(ctx), "k")
			return err
		},
		"grant": func(c *clientv3.Client, ctx context.Context) error {
			_, err := c.Grant(ctx, 60)
			return err
		},
	}
	var wg sync.WaitGroup
	for name, call := range calls {
		wg.Go(func() {
			var both sync.WaitGroup
			var want, got error
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			both.Go(func() { want = call(direct, ctx) })
			both.Go(func() { got = call(through, ctx) })
			both.Wait()
			if want == nil || got == nil || got.Error() != want.Error() {
				t.Errorf("%s: %v; etcd itself says %v", name, got, want)
			}
		})
	}
	wg.Wait()
	if r, err := through.Get(t.Context(), "k", clientv3.WithSerializable()); err != nil || len(r.Kvs) != 1 {
		t.Errorf("a serializable read: %v, %v", r, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := through.Get(ctx, "k"); status.Code(err) != codes.DeadlineExceeded && !errors.Is(err,
		context.DeadlineExceeded) || time.Since(began) > 2*time.Second {
		t.Errorf("a read with 100 ms: %v after %v", err, time.Since(began))
	}
}

// TestLeaderChange kills the leader of three members while clients write through the gateway. No
// acknowledged write may be lost, revisions must not go back, and the gateway must continue.
func TestLeaderChange(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 3, etcdtest.Options{})
	g := begin(t, Config{}, c.Endpoints()...)
	client := etcdtest.Client(t, g.Endpoint)
	stop := make(chan struct{})
	var mu sync.Mutex
	acked := map[string]int64{}
	after := 0 // number of writes after the leader's death
	dead := false
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			last := int64(0)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				key := fmt.Sprintf("%d-%d", w, i)
				r, err := client.Put(ctx, key, "v")
				cancel()
				if err != nil {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				if r.Header.Revision <= last {
					t.Errorf("revision %d after %d", r.Header.Revision, last)
				}
				last = r.Header.Revision
				mu.Lock()
				acked[key] = last
				if dead {
					after++
				}
				mu.Unlock()
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	leader := c.Leader()
	c.Stop(leader)
	if now := c.Leader(); now == leader {
		t.Fatal("the leader is the same")
	}
	mu.Lock()
	dead = true
	mu.Unlock()
	written := func() int {
		mu.Lock()
		defer mu.Unlock()
		return after
	}
	poll.Until(t, 15*time.Second, "50 writes after the leader's death", func() bool {
		return written() > 50
	}, func() string { return fmt.Sprint(written()) })
	close(stop)
	wg.Wait()
	r, err := client.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]int64{}
	for _, kv := range r.Kvs {
		there[string(kv.Key)] = kv.ModRevision
	}
	for key, revision := range acked {
		if there[key] != revision {
			t.Errorf("%s was acknowledged at revision %d; etcd has it at %d", key, revision, there[key])
		}
	}
	if got := g.Newest().Revision(); got != r.Header.Revision {
		t.Errorf("newest revision %d, etcd's is %d", got, r.Header.Revision)
	}
	t.Logf("%d writes acknowledged, %d after the leader's death", len(acked), after)
}
