package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/client/etcd/etcderrors"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

// asked counts the requests to each member of a cluster by method.
type asked struct {
	mu sync.Mutex
	n  map[string]map[string]int
}

// adjust makes a member count the requests that it gets.
func (a *asked) adjust(e *embed.Config) {
	name := e.Name
	e.GRPCAdditionalServerOptions = append(e.GRPCAdditionalServerOptions, grpc.ChainUnaryInterceptor(
		func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			a.mu.Lock()
			if a.n == nil {
				a.n = map[string]map[string]int{}
			}
			if a.n[name] == nil {
				a.n[name] = map[string]int{}
			}
			a.n[name][info.FullMethod]++
			a.mu.Unlock()
			return handle(ctx, request)
		}))
}

// of returns how many requests of a method each member has got, and resets these counts.
func (a *asked) of(members int, method string) (counts []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range members {
		m := a.n[fmt.Sprint("m", i)]
		counts = append(counts, m[method])
		delete(m, method)
	}
	return counts
}

// The tested requests, by etcd's method and a label. writes change something. reads are
// linearizable reads of one key. others are all other requests.
var (
	writes = map[string]func(context.Context, *clientv3.Client) error{
		putMethod: func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, "k", "v")
			return err
		},
		deleteMethod: func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Delete(ctx, "d")
			return err
		},
		txnMethod: func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Txn(ctx).Then(clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpPut("t", "v")})).Commit()
			return err
		},
		"/etcdserverpb.Lease/LeaseGrant": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Grant(ctx, 60)
			return err
		},
	}
	reads = map[string]func(context.Context, *clientv3.Client) error{
		rangeMethod: func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Get(ctx, "k")
			return err
		},
		rangeMethod + " of a revision": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Get(ctx, "k", clientv3.WithRev(2))
			return err
		},
	}
	others = map[string]func(context.Context, *clientv3.Client) error{
		rangeMethod + " without asking who leads": func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Get(ctx, "k", clientv3.WithSerializable())
			return err
		},
		txnMethod: func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Txn(ctx).Then(clientv3.OpGet("k"), clientv3.OpTxn(nil, nil, nil)).Commit()
			return err
		},
	}
)

// TestWritesToLeader checks that writes and linearizable reads of one key go to the leader, also
// after the leader has changed. Other reads go to all members in turn.
func TestWritesToLeader(t *testing.T) {
	t.Parallel()
	a := new(asked)
	c := etcdtest.New(t, 3, etcdtest.Options{Adjust: a.adjust})
	direct := etcdtest.Client(t, c.Endpoints()...)
	type way struct {
		name string
		started
	}
	var all []way
	for _, relay := range []bool{true, false} {
		for name, served := range ways {
			u, err := Dial(UpstreamConfig{Endpoints: c.Endpoints()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { u.Close() })
			cfg := Config{Upstream: u, Relay: relay}
			if served {
				cfg.KV = newForwarder(u)
			}
			all = append(all, way{fmt.Sprint(name, ", relay ", relay),
				beginAs(t, cfg, UpstreamConfig{}, "http", transport.TLSInfo{})})
		}
	}
	for range 2 {
		i := c.Leader()
		leader := c.Endpoints()[i]
		for _, way := range all {
			eventually(t, way.name+" knows who leads", func() bool { return way.upstream.Leader() == leader })
			client := etcdtest.Client(t, way.Endpoint)
			if _, err := client.Get(t.Context(), "connected"); err != nil {
				t.Fatal(err)
			}
			for method, write := range writes {
				eventually(t, way.name+" is connected to it", func() bool { // until then, writes may go to any member
					a.of(3, method)
					if err := write(t.Context(), client); err != nil {
						t.Fatal(err)
					}
					return a.of(3, method)[i] == 1
				})
				for range 6 {
					if err := write(t.Context(), client); err != nil {
						t.Fatal(err)
					}
				}
				if n := a.of(3, method); n[i] != 6 {
					t.Errorf("%s: of 6 writes (%s) members had %v, and %d leads", way.name, method, n, i)
				}
			}
			six := func(what string, read func(context.Context, *clientv3.Client) error) []int {
				method, _, _ := strings.Cut(what, " ")
				a.of(3, method)
				for range 6 {
					if err := read(t.Context(), client); err != nil {
						t.Fatal(err)
					}
				}
				return a.of(3, method)
			}
			for what, read := range reads {
				if n := six(what, read); n[i] != 6 {
					t.Errorf("%s: of 6 reads (%s) members had %v, and %d leads", way.name, what, n, i)
				}
			}
			for what, read := range others {
				if n := six(what, read); !slices.Equal(n, []int{2, 2, 2}) {
					t.Errorf("%s: of 6 reads (%s) members had %v", way.name, what, n)
				}
			}
			// sized reads a key and checks which members get the read. That depends on the size of
			// the key's previous answer.
			sized := func(key string, bytes int, toLeader bool, opts ...clientv3.OpOption) {
				t.Helper()
				if _, err := client.Put(t.Context(), key, strings.Repeat("v", bytes)); err != nil {
					t.Fatal(err)
				}
				read := func(ctx context.Context, c *clientv3.Client) error {
					_, err := c.Get(ctx, key, opts...)
					return err
				}
				if err := read(t.Context(), client); err != nil {
					t.Fatal(err)
				}
				want := []int{2, 2, 2}
				if toLeader {
					want = []int{0, 0, 0}
					want[i] = 6
				}
				if n := six(rangeMethod, read); !slices.Equal(n, want) {
					t.Errorf("%s: of 6 reads of %d bytes (%s, %d options) members had %v, and %d leads", way.name, bytes, key, len(opts), n, i)
				}
			}
			for range 2 {
				sized("sized", 2*smallAnswer, false)
				sized("sized", 1, true)
				sized("ranged", 2*smallAnswer, false, clientv3.WithPrefix())
				sized("ranged", 1, true, clientv3.WithPrefix())
			}
			sized("sized", 2*smallAnswer, true, clientv3.WithPrefix(), clientv3.WithKeysOnly())
			way.upstream.reading.Store(mostLeaderReads) // the leader already has its maximum number of reads
			for what, read := range reads {
				if n := six(what, read); !slices.Equal(n, []int{2, 2, 2}) {
					t.Errorf("%s: of 6 reads (%s), too many for the one that leads, members had %v", way.name, what, n)
				}
			}
			if n := way.upstream.reading.Swap(0); n != mostLeaderReads {
				t.Errorf("%s: %d reads are counted that have ended", way.name, n-mostLeaderReads)
			}
			way.upstream.readsInTurn.Store(true)
			for what, read := range reads {
				if n := six(what, read); !slices.Equal(n, []int{2, 2, 2}) {
					t.Errorf("%s: of 6 reads (%s) that are to go in turn members had %v", way.name, what, n)
				}
			}
			way.upstream.readsInTurn.Store(false)
		}
		next := (i + 1) % 3
		s, err := direct.Status(t.Context(), c.Endpoints()[next])
		if err != nil {
			t.Fatal(err)
		}
		at := etcdtest.Client(t, leader)
		if _, err := at.MoveLeader(t.Context(), s.Header.MemberId); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLeaderKilled kills the leader, which gets all writes. The outcome of writes in progress is
// unknown. No write may be executed twice. Later writes must continue at the new leader.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	const writers = 4
	for name, served := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := etcdtest.New(t, 3, etcdtest.Options{})
			g := beginWay(t, served, c.Endpoints()...)
			i := c.Leader()
			eventually(t, "it is known who leads", func() bool { return g.upstream.Leader() == c.Endpoints()[i] })
			var done, unknown [writers]atomic.Int64
			stop := make(chan struct{})
			var writing sync.WaitGroup
			for n := range writers {
				client := etcdtest.Client(t, g.Endpoint)
				writing.Go(func() {
					for k := 0; ; k++ {
						select {
						case <-stop:
							return
						default:
						}
						ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
						_, err := client.Put(ctx, fmt.Sprint("killed/", n), strconv.Itoa(k))
						cancel()
						if err == nil {
							done[n].Add(1)
							continue
						}
						unknown[n].Add(1)
						if code := etcderrors.Code(err); code != codes.Unavailable && !errors.Is(err,
							context.DeadlineExceeded) {
							t.Errorf("%v", err)
						}
					}
				})
			}
			each := func(more int64) func() bool {
				var from [writers]int64
				for n := range writers {
					from[n] = done[n].Load()
				}
				return func() bool {
					for n := range writers {
						if done[n].Load() < from[n]+more {
							return false
						}
					}
					return true
				}
			}
			eventually(t, "writes are done", each(5))
			c.Kill(i)
			eventually(t, "writes go on", each(5))
			eventually(t, "they go to the successor", func() bool { return g.upstream.Leader() == c.Endpoints()[c.Leader()] })
			eventually(t, "writes are done there", each(5))
			close(stop)
			writing.Wait()
			direct := etcdtest.Client(t, c.Endpoints()[c.Leader()])
			for n := range writers {
				r, err := direct.Get(t.Context(), fmt.Sprint("killed/", n))
				if err != nil || len(r.Kvs) != 1 {
					t.Fatal(r, err)
				}
				least, most := done[n].Load(), done[n].Load()+unknown[n].Load()
				if v := r.Kvs[0].Version; v < least || v > most {
					t.Errorf("writer %d: %d writes were done, of %d it is not known, and etcd executed %d", n, least, most-least, v)
				}
			}
		})
	}
}

// TestLeaderAuthentication enables etcd's authentication, under which only users may query the
// leader. A gateway without a user must report that once, and send its writes to all members in
// turn.
func TestLeaderAuthentication(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 3, etcdtest.Options{})
	direct := etcdtest.Client(t, c.Endpoints()...)
	for _, step := range []func() error{
		func() error { _, err := direct.UserAdd(t.Context(), "root", "pw"); return err },
		func() error { _, err := direct.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := direct.UserAdd(t.Context(), "gateway", "pw2"); return err },
		func() error { _, err := direct.AuthEnable(t.Context()); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(user, password string) (*Upstream, *syncbuffer.Buffer) {
		log := new(syncbuffer.Buffer)
		u, err := Dial(UpstreamConfig{Endpoints: c.Endpoints(), User: user, Password: password,
			Log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { u.Close() })
		return u, log
	}
	named, log := begin("gateway", "pw2")
	eventually(t, "who has a name knows who leads", func() bool { return named.Leader() == c.Endpoints()[c.Leader()] })
	eventually(t, "the log says it once", func() bool {
		return strings.Count(log.String(), "writes go to the member that leads") == 1
	})
	const refusal = "etcd does not say which member leads"
	for _, password := range []string{"", "wrong"} {
		user := ""
		if password != "" {
			user = "gateway"
		}
		u, log := begin(user, password)
		eventually(t, "the log says that it is refused", func() bool { return strings.Count(log.String(), refusal) == 1 })
		for range 3 { // further queries must not log the refusal again
			u.leader.doubt()
			time.Sleep(2 * leaderSoonest)
		}
		if u.Leader() != "" || strings.Count(log.String(), refusal) != 1 {
			t.Errorf("user %q: %q leads, and the log says %d times that it is refused", user, u.Leader(), strings.Count(log.String(), refusal))
		}
	}
	// The gateway replaces a token that etcd does not know any more.
	old := "no.1"
	named.token.Store(&old)
	if yes, refused, err := named.leads(t.Context(), c.Endpoints()[c.Leader()]); !yes || refused || err != nil {
		t.Errorf("with an old token: leads %v, refused %v, %v", yes, refused, err)
	}
}

// electorate is a fake set of etcd members that can be asked whether they lead.
type electorate struct {
	mu          sync.Mutex
	endpoints   []string
	leader      string
	silent      map[string]bool
	calls, most int // number of calls, and maximum number of concurrent calls
	now         int
}

func (m *electorate) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.endpoints
}

func (m *electorate) leads(ctx context.Context, endpoint string) (yes, refused bool, err error) {
	m.mu.Lock()
	m.calls++
	m.now++
	m.most = max(m.most, m.now)
	yes, silent := m.leader == endpoint, m.silent[endpoint]
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.now--
		m.mu.Unlock()
	}()
	if silent {
		<-ctx.Done()
		return false, false, ctx.Err()
	}
	return yes, false, nil
}

func (m *electorate) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// TestLeaderFinder checks that a leader that does not answer is dropped after at most two seconds.
// Only one query may be in progress at a time. A failed write causes a query soon, but many
// failures cause at most ten queries a second. With one endpoint there are no queries.
func TestLeaderFinder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &electorate{endpoints: []string{"a", "b", "c"}, leader: "b", silent: map[string]bool{}}
		f := newLeaderFinder(nil, m.all, m.leads)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.run(ctx) })
		want := func(leader string) {
			t.Helper()
			synctest.Wait()
			if got := f.leader(); got != leader {
				t.Fatalf("%q leads, want %q", got, leader)
			}
		}
		want("b")
		m.set(func() { m.calls = 0 })
		time.Sleep(10 * time.Second)
		want("b")
		if m.calls < 9 || m.calls > 11 {
			t.Errorf("it was asked %d times in 10 s", m.calls)
		}
		m.set(func() { m.silent["b"] = true })
		time.Sleep(leaderEvery + leaderWait + time.Millisecond)
		want("")
		m.set(func() { m.leader = "c" })
		time.Sleep(leaderEvery + leaderWait + time.Millisecond) // the finder may ask b before c
		want("c")
		m.set(func() { m.leader = "a"; m.calls = 0 })
		for range 1000 {
			f.doubt()
			time.Sleep(time.Millisecond)
		}
		want("a")
		if m.calls > 10+2 { // two more queries may follow c's loss of the leadership
			t.Errorf("it was asked %d times in 1 s", m.calls)
		}
		m.set(func() { m.endpoints = []string{"b", "c"}; m.silent["b"] = false; m.leader = "" })
		time.Sleep(leaderEvery + time.Millisecond)
		want("")
		m.set(func() { m.endpoints = []string{"c"}; m.leader = "c" })
		time.Sleep(leaderEvery + time.Millisecond)
		m.set(func() { m.calls = 0 })
		time.Sleep(10 * time.Second)
		want("")
		if m.calls != 0 {
			t.Errorf("a single member was asked %d times", m.calls)
		}
		if m.most != 1 {
			t.Errorf("%d calls were outstanding at a time", m.most)
		}
		cancel()
		running.Wait()
	})
}

// leading is a member that leads.
type leading struct {
	pb.UnimplementedMaintenanceServer
	id uint64
}

func (l *leading) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{MemberId: l.id}, Leader: 1}, nil
}

// TestChoice checks that a call reaches the chosen member, however the member's endpoint is
// written. A member without a connection must get no call.
func TestChoice(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	serve := func(network, address string, id uint64) string {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		pb.RegisterMaintenanceServer(s, &leading{id: id})
		go s.Serve(l)
		t.Cleanup(s.Stop)
		return l.Addr().String()
	}
	leader, other := serve("tcp", "127.0.0.1:0", 1), serve("tcp", "127.0.0.1:0", 2)
	serve("unix", "leader.sock:1", 1)
	absolute := filepath.Join(dir, "leader.sock:1")
	for _, endpoint := range []string{leader, "http://" + leader, "unix://" + absolute, "unix://leader.sock:1",
		"unix:leader.sock:1"} {
		u, err := Dial(UpstreamConfig{Endpoints: []string{endpoint, "http://" + other}, InTurn: true})
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		eventually(t, endpoint+" says that it leads", func() bool {
			yes, _, _ := u.leads(t.Context(), endpoint)
			return yes
		})
		eventually(t, "the other one says whether it leads", func() bool {
			yes, _, err := u.leads(t.Context(), "http://"+other)
			if yes {
				t.Errorf("with %s: the other one leads", endpoint)
			}
			return err == nil
		})
		if _, _, err := u.leads(t.Context(), "http://127.0.0.1:1"); status.Code(err) != codes.Unavailable {
			t.Errorf("with %s: nobody says %v", endpoint, err)
		}
	}
}
