package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// metricOf returns the value of an etcd's metric, summed over all labels. All etcds of a process
// share their metrics.
func metricOf(t testing.TB, endpoint, name string) int {
	t.Helper()
	_, page := get(t, http.DefaultClient, endpoint+"/metrics")
	sum, found := 0.0, false
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(page, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum, found = sum+n, true
	}
	if !found {
		t.Fatalf("etcd has no metric %s", name)
	}
	return int(sum)
}

const watchersMetric = "etcd_debugging_mvcc_watcher_total"

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	poll.Until(t, 20*time.Second, what, so)
}

// watchMany opens watches of one key on streams of several clients. It returns the channels that
// receive their events.
func watchMany(t testing.TB, endpoint string, clients, streams, each int, key string,
	opts ...clientv3.OpOption) []clientv3.WatchChan {
	t.Helper()
	var all []clientv3.WatchChan
	for range clients {
		c := etcdtest.Client(t, endpoint)
		for i := range streams {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "stream", strconv.Itoa(i)) // opens a separate stream
			for range each {
				all = append(all, c.Watch(ctx, key, append([]clientv3.OpOption{clientv3.WithCreatedNotify()},
					opts...)...))
			}
		}
	}
	for _, ch := range all {
		if r := <-ch; !r.Created || r.Err() != nil {
			t.Fatalf("%v, %v", r, r.Err())
		}
	}
	return all
}

// TestWatchesAtEtcd checks that many watches of one key become a few watches at etcd. The watches
// start now, after the revision that their clients have read, or in the past. Each watch must get
// each event once. After all watches have ended, none may be left at etcd.
func TestWatchesAtEtcd(t *testing.T) {
	c := etcdtest.New(t, 1, etcdtest.Options{})
	direct := etcdtest.Client(t, c.Endpoints()...)
	g := begin(t, Config{}, c.Endpoints()...)
	before := metricOf(t, c.Endpoints()[0], watchersMetric)
	put := func(key string) int64 {
		r, err := direct.Put(t.Context(), key, "v")
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Revision
	}
	for _, at := range []struct {
		name   string
		start  func(last int64) int64 // returns the start revision, given the key's last revision
		events int
	}{
		{"now", func(int64) int64 { return 0 }, 2},
		{"next", func(last int64) int64 { return last + 2 }, 2},
		{"past", func(last int64) int64 { return last + 1 }, 2},
		{"earlier", func(last int64) int64 { return last }, 3},
	} {
		last := put("k")
		put("other")
		t.Run(at.name, func(t *testing.T) {
			all := watchMany(t, g.Endpoint, 3, 2, 150, "k", clientv3.WithRev(at.start(last)))
			eventually(t, fmt.Sprint(len(all), " watches are few at etcd"), func() bool {
				return metricOf(t, c.Endpoints()[0], watchersMetric)-before <= 3
			})
			put("k")
			put("k")
			for i, ch := range all {
				last := int64(0)
				for seen := 0; seen < at.events; {
					r, ok := <-ch
					if !ok || r.Err() != nil {
						t.Fatalf("watch %d ended: %v", i, r.Err())
					}
					for _, e := range r.Events {
						if seen++; e.Kv.ModRevision <= last || seen > at.events {
							t.Fatalf("watch %d: event %d is of revision %d, after %d", i, seen, e.Kv.ModRevision, last)
						}
						last = e.Kv.ModRevision
					}
				}
			}
		})
		eventually(t, "no watch is left at etcd", func() bool { return metricOf(t, c.Endpoints()[0], watchersMetric) <= before })
		eventually(t, "the gateway has none", func() bool {
			g.hub.mu.Lock()
			defer g.hub.mu.Unlock()
			g.hub.streamsMu.Lock()
			defer g.hub.streamsMu.Unlock()
			return len(g.hub.groups)+len(g.hub.streams) == 0
		})
	}
}

// TestUnansweredQuestions makes progress requests that etcd does not answer, because one watch of
// the stream is behind. A later watch can be shared only after one more answer for each such
// request. The gateway must wait for these answers at constant intervals, not at doubling ones.
func TestUnansweredQuestions(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 1, etcdtest.Options{})
	direct := etcdtest.Client(t, c.Endpoints()...)
	g := begin(t, Config{}, c.Endpoints()...)
	one := etcdtest.Client(t, g.Endpoint)
	one.Watch(t.Context(), "other")
	eventually(t, "the first watch is there", func() bool { etcd, _ := g.hub.count(); return etcd == 1 })
	g.hub.mu.Lock()
	for _, group := range g.hub.groups {
		for w := range group.alone {
			w.stream.mu.Lock()
			w.stream.sent += 10 // with doubling intervals these requests would take 42 s
			w.stream.mu.Unlock()
		}
	}
	g.hub.mu.Unlock()
	first, err := direct.Put(t.Context(), "k", "v")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := direct.Put(t.Context(), "unseen", "v"); err != nil {
		t.Fatal(err)
	}
	for _, of := range []*clientv3.Client{one, etcdtest.Client(t, g.Endpoint)} {
		of.Watch(t.Context(), "k", clientv3.WithRev(first.Header.Revision+1)) // the watch's progress is unknown
	}
	eventually(t, "the two watches of k are one", func() bool {
		etcd, clients := g.hub.count()
		return etcd == 2 && clients == 3
	})
}

// TestSharedWatchesRefused checks that if etcd refuses a client's watch, the client does not get
// its events through another client's equal watch. A watch that starts before a compacted revision
// is cancelled, even if another client has all events since then.
func TestSharedWatchesRefused(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 1, etcdtest.Options{})
	direct := etcdtest.Client(t, c.Endpoints()...)
	g := begin(t, Config{}, c.Endpoints()...)
	first, err := direct.Put(t.Context(), "k", "1")
	if err != nil {
		t.Fatal(err)
	}
	shared := watchMany(t, g.Endpoint, 2, 1, 2, "k")
	eventually(t, "the watches are shared", func() bool { etcd, clients := g.hub.count(); return etcd == 1 && clients == 4 })
	for range 3 {
		if first, err = direct.Put(t.Context(), "k", "2"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := direct.Compact(t.Context(), first.Header.Revision); err != nil {
		t.Fatal(err)
	}
	client := etcdtest.Client(t, g.Endpoint)
	for r := range client.Watch(t.Context(), "k", clientv3.WithRev(1)) {
		if !errors.Is(r.Err(), rpctypes.ErrCompacted) || r.CompactRevision != first.Header.Revision {
			t.Errorf("a watch of what is compacted: %v, %+v", r.Err(), r)
		}
	}
	bothPermitted := []struct{ user, role, key, end string }{
		{"root", "root", "", ""},
		{"reader", "reader", "k", ""},
		{"other", "other", "l", ""},
	}
	for _, u := range bothPermitted {
		for _, err := range []error{
			second(direct.UserAdd(t.Context(), u.user, "p")), second(direct.RoleAdd(t.Context(), u.role)),
			second(direct.UserGrantRole(t.Context(), u.user, u.role)),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if u.key != "" {
			if _, err := direct.RoleGrantPermission(t.Context(), u.role, u.key, u.end, clientv3.PermissionType(
				clientv3.PermRead)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := direct.AuthEnable(t.Context()); err != nil {
		t.Fatal(err)
	}
	watch := func(user string) clientv3.WatchResponse {
		cfg := clientv3.Config{Endpoints: []string{g.Endpoint}}
		if user != "" {
			cfg.Username, cfg.Password = user, "p"
		}
		return <-etcdtest.ClientWith(t, cfg).Watch(t.Context(), "k", clientv3.WithCreatedNotify())
	}
	for user, want := range map[string]error{"reader": nil, "root": nil, "other": rpctypes.ErrPermissionDenied,
		"": rpctypes.ErrUserEmpty} {
		r := watch(user)
		if want == nil && (r.Err() != nil || !r.Created) || want != nil && (r.Err() == nil ||
			!strings.Contains(r.Err().Error(), rpctypes.ErrorDesc(want))) {
			t.Errorf("%q: %v, want %v", user, r.Err(), want)
		}
	}
	// A client that has lost the permission to read gets no new watch. Its older watches continue,
	// as at etcd.
	token := etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{g.Endpoint}, Username: "reader", Password: "p"})
	before := []clientv3.WatchChan{token.Watch(t.Context(), "k", clientv3.WithCreatedNotify()),
		token.Watch(t.Context(), "k", clientv3.WithCreatedNotify())}
	for _, ch := range before {
		if r := <-ch; r.Err() != nil {
			t.Fatal(r.Err())
		}
	}
	root := etcdtest.ClientWith(t, clientv3.Config{Endpoints: c.Endpoints(), Username: "root", Password: "p"})
	if _, err := root.RoleRevokePermission(t.Context(), "reader", "k", ""); err != nil {
		t.Fatal(err)
	}
	if r := <-token.Watch(t.Context(), "k", clientv3.WithCreatedNotify()); r.Err() == nil {
		t.Error("a watch is given to one who may no longer read the key, because an older one is there")
	}
	for _, ch := range shared {
		if r := <-ch; r.Err() != nil || len(r.Events) == 0 {
			t.Errorf("a shared watch: %v, %+v", r.Err(), r)
		}
	}
}

func second[A any](_ A, err error) error { return err }

// TestSharedWatchesEnd checks that clients that require a leader do not share watches with other
// clients, and learn if there is no leader. When a stream at etcd ends, the streams of all clients
// that share it end.
func TestSharedWatchesEnd(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 3, etcdtest.Options{})
	g := begin(t, Config{}, c.Endpoints()[0])
	open := func(md ...string) pb.Watch_WatchClient {
		s, err := pb.NewWatchClient(dialRaw(t, g.Endpoint)).Watch(metadata.AppendToOutgoingContext(t.Context(), md...))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(
			&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
				CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}},
		); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Recv(); err != nil || !r.Created {
			t.Fatal(r, err)
		}
		return s
	}
	leader := []string{rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader}
	plain, led := []pb.Watch_WatchClient{open(), open(), open()}, []pb.Watch_WatchClient{open(leader...),
		open(leader...), open(leader...)}
	eventually(t, "the watches are shared", func() bool { etcd, clients := g.hub.count(); return etcd == 2 && clients == 6 })
	c.Kill(1)
	c.Kill(2)
	for _, s := range led {
		if r, err := s.Recv(); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader) {
			t.Errorf("without a leader: %v, %v", r, err)
		}
	}
	if etcd, clients := g.hub.count(); clients < 3 || etcd < 1 {
		t.Errorf("the others' watches ended, too: %d", clients)
	}
	c.Kill(0)
	for _, s := range plain {
		if r, err := s.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("without etcd: %v, %v", r, err)
		}
	}
	eventually(t, "no watch is left", func() bool { etcd, clients := g.hub.count(); return etcd == 0 && clients == 0 })
}

// TestSlowWatch checks that a client that does not read delays no other client. The gateway must
// keep only a bounded number of its unread bytes.
func TestSlowWatch(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 1, etcdtest.Options{})
	g := begin(t, Config{}, c.Endpoints()...)
	g.hub.waiting = 1 << 20
	direct := etcdtest.Client(t, c.Endpoints()...)
	open := func(prev bool) pb.Watch_WatchClient {
		s, err := pb.NewWatchClient(dialRaw(t, g.Endpoint)).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte("k"),
				PrevKv: prev}}})
		if r, err := s.Recv(); err != nil || !r.Created {
			t.Fatal(r, err)
		}
		return s
	}
	const writes = 60
	for prev, want := range map[bool]int{false: writes, true: 1} {
		fast, slow := open(prev), open(prev)
		eventually(t, "they are shared", func() bool { etcd, clients := g.hub.count(); return etcd < clients })
		was := g.hub.slow.Load()
		for i := range writes {
			if _, err := direct.Put(t.Context(), "k", strings.Repeat(strconv.Itoa(i%10), 64<<10)); err != nil {
				t.Fatal(err)
			}
			if r, err := fast.Recv(); err != nil || len(r.Events) != 1 {
				t.Fatal("the fast one: ", r, err)
			}
		}
		if !prev && g.hub.slow.Load() == was {
			t.Error("nobody was too slow")
		}
		seen := 0
		for seen < want {
			r, err := slow.Recv()
			if err != nil {
				t.Fatalf("the slow one, after %d events: %v", seen, err)
			}
			for _, e := range r.Events {
				if want := strconv.Itoa(seen % 10)[0]; e.Kv.Value[0] != want {
					t.Fatalf("event %d is %c", seen, e.Kv.Value[0])
				}
				seen++
			}
		}
		if !prev {
			continue
		}
		for { // this stream must end, because etcd may omit previous values of a restarted watch
			if _, err := slow.Recv(); err != nil {
				if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "too slowly") {
					t.Error(err)
				}
				break
			}
		}
	}
}

// TestSharedWatchesReserved checks that a shared watch of a range with reserved keys shows these
// keys to no client, and continues after them.
func TestSharedWatchesReserved(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 1, etcdtest.Options{})
	direct := etcdtest.Client(t, c.Endpoints()...)
	g := begin(t, Config{Reserved: reserved.With("/netcraq/")}, c.Endpoints()...)
	all := watchMany(t, g.Endpoint, 3, 1, 1, "", clientv3.WithFromKey())
	eventually(t, "the watches are shared", func() bool { etcd, clients := g.hub.count(); return etcd == 1 && clients == 3 })
	for _, op := range []clientv3.Op{
		clientv3.OpPut("/netcraq/gateway/x", "secret"), clientv3.OpPut("a", "1"), clientv3.OpDelete("/netcraq/gateway/x"),
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("/netcraq/y", "secret"), clientv3.OpPut("b", "2")}, nil),
	} {
		if _, err := direct.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	for i, ch := range all {
		var seen []string
		for len(seen) < 2 {
			r := <-ch
			if r.Err() != nil || len(r.Events) == 0 {
				t.Fatalf("watch %d: %+v, %v", i, r, r.Err())
			}
			for _, e := range r.Events {
				seen = append(seen, string(e.Kv.Key))
			}
		}
		if !slices.Equal(seen, []string{"a", "b"}) {
			t.Errorf("watch %d saw %q", i, seen)
		}
	}
	// The gateway refuses a watch of only reserved keys to each client.
	for range 2 {
		if r := <-etcdtest.Client(t, g.Endpoint).Watch(t.Context(), "/netcraq/gateway/x"); r.Err() == nil {
			t.Errorf("a watch of a reserved key: %+v", r)
		}
	}
}
