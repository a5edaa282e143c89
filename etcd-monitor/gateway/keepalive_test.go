package gateway

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

const renewalsMetric = "etcd_debugging_lease_renewed_total"

func keepAliveStream(t testing.TB, endpoint string) pb.Lease_LeaseKeepAliveClient {
	t.Helper()
	s, err := pb.NewLeaseClient(dialRaw(t, endpoint)).LeaseKeepAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// keepAlive sends a request on a stream, and waits for the answer.
func keepAlive(s pb.Lease_LeaseKeepAliveClient, id int64) (*pb.LeaseKeepAliveResponse, error) {
	if err := s.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
		return nil, err
	}
	return s.Recv()
}

// TestKeepAlives checks that a lease of many clients is renewed ten times a second, and that a
// lease's only client never waits. Each client gets etcd's answer to a renewal after its own
// request. So a client learns that a lease was revoked before its request.
func TestKeepAlives(t *testing.T) {
	c := etcdtest.New(t, 1, etcdtest.Options{})
	g := begin(t, Config{}, c.Endpoints()...)
	direct := etcdtest.Client(t, c.Endpoints()...)
	lease, err := direct.Grant(t.Context(), 30)
	if err != nil {
		t.Fatal(err)
	}
	before := metricOf(t, c.Endpoints()[0], renewalsMetric)
	var asking sync.WaitGroup
	var asked atomic.Int32
	var revoked atomic.Bool
	began := time.Now()
	stop := make(chan struct{})
	for range 40 {
		s := keepAliveStream(t, g.Endpoint)
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
				gone := revoked.Load()
				r, err := keepAlive(s, int64(lease.ID))
				if err != nil || r.ID != int64(lease.ID) || r.TTL != 30 && r.TTL != 0 || r.Header.GetClusterId() == 0 {
					t.Errorf("%v, %v", r, err)
					return
				}
				if gone && r.TTL != 0 {
					t.Errorf("the lease was revoked before the request, and is said to live for %d s", r.TTL)
				}
				asked.Add(1)
			}
		})
	}
	time.Sleep(time.Second)
	eventually(t, "a hundred requests are answered", func() bool { return asked.Load() >= 100 })
	renewed, want := metricOf(t, c.Endpoints()[0], renewalsMetric)-before, int(time.Since(began)/keepPace)+3
	if renewed > want {
		t.Errorf("of %d requests %d renewals were made, want %d at most", asked.Load(), renewed, want)
	}
	t.Logf("%d requests were answered from %d renewals", asked.Load(), renewed)
	if _, err := direct.Revoke(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	revoked.Store(true)
	time.Sleep(300 * time.Millisecond)
	close(stop)
	asking.Wait()

	own, err := direct.Grant(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	alone := keepAliveStream(t, g.Endpoint)
	began = time.Now()
	for range 20 {
		if r, err := keepAlive(alone, int64(own.ID)); err != nil || r.TTL != 20 {
			t.Fatal(r, err)
		}
	}
	if d := time.Since(began); d > keepPace*10 {
		t.Errorf("20 keep-alives of one client took %v", d)
	}
	eventually(t, "streams that are not used are closed", func() bool {
		alone.CloseSend()
		g.keeper.mu.Lock()
		defer g.keeper.mu.Unlock()
		return len(g.keeper.streams) <= 1 // the raw streams that are still open use one of the keeper's streams
	})
}

// TestKeepAliveStreams checks that answers come in the order of the requests, also for many leases
// on one stream. The gateway has few streams to etcd, however many clients there are. When a stream
// to etcd ends, the streams of its clients end, too.
func TestKeepAliveStreams(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 1, etcdtest.Options{})
	g := begin(t, Config{}, c.Endpoints()...)
	direct := etcdtest.Client(t, c.Endpoints()...)
	var ids []int64
	for i := range 40 {
		l, err := direct.Grant(t.Context(), int64(20+i))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, int64(l.ID))
	}
	var streams []pb.Lease_LeaseKeepAliveClient
	for range 20 {
		s := keepAliveStream(t, g.Endpoint)
		streams = append(streams, s)
		for _, id := range append(ids, 12345) {
			if err := s.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, s := range streams {
		for i, id := range append(ids, 12345) {
			want := int64(20 + i)
			if id == 12345 { // this lease does not exist
				want = 0
			}
			if r, err := s.Recv(); err != nil || r.ID != id || r.TTL != want {
				t.Fatalf("answer %d: %v, %v; want lease %d with %d s", i, r, err, id, want)
			}
		}
	}
	g.keeper.mu.Lock()
	if n := len(g.keeper.streams); n > keepStreams {
		t.Errorf("%d streams to etcd", n)
	}
	g.keeper.mu.Unlock()
	if err := streams[0].CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := streams[0].Recv(); fmt.Sprint(err) != "EOF" {
		t.Errorf("after the client's last request: %v", err)
	}
	c.Kill(0)
	for _, s := range streams[1:] {
		if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("without etcd: %v", err)
		}
	}
}

// TestKeepAliveLeader checks that a stream that requires a leader ends when etcd has none, even if
// the stream has kept no lease alive yet. Other streams must continue.
func TestKeepAliveLeader(t *testing.T) {
	c := etcdtest.New(t, 3, etcdtest.Options{})
	g := begin(t, Config{}, c.Endpoints()[0])
	without := keepAliveStream(t, g.Endpoint)
	with, err := pb.NewLeaseClient(dialRaw(t, g.Endpoint)).LeaseKeepAlive(clientv3.WithRequireLeader(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() {
		_, err := with.Recv()
		ended <- err
	}()
	c.Kill(1)
	c.Kill(2)
	select {
	case err := <-ended:
		if rpctypes.ErrorDesc(err) != rpctypes.ErrNoLeader.Error() {
			t.Errorf("it ended with %v, want %v", err, rpctypes.ErrNoLeader)
		}
	case <-time.After(15 * time.Second):
		t.Error("it goes on though etcd has no leader")
	}
	go func() {
		_, err := without.Recv()
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Errorf("that which asked for no leader ended with %v", err)
	case <-time.After(100 * time.Millisecond):
	}
}
