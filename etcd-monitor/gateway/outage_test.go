package gateway

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// beginGRPCProxy starts etcd's own proxy until the test ends, as "etcd grpc-proxy start" does.
func beginGRPCProxy(t testing.TB, endpoints ...string) string {
	t.Helper()
	c := etcdtest.ClientWith(t, clientv3.Config{Endpoints: endpoints, DialOptions: []grpc.DialOption{
		grpc.WithUnaryInterceptor(grpcproxy.AuthUnaryClientInterceptor), grpc.WithStreamInterceptor(
			grpcproxy.AuthStreamClientInterceptor),
	}})
	s := grpc.NewServer()
	keys, _ := grpcproxy.NewKvProxy(c)
	watches, _ := grpcproxy.NewWatchProxy(c.Ctx(), zap.NewNop(), c)
	leases, _ := grpcproxy.NewLeaseProxy(c.Ctx(), c)
	pb.RegisterKVServer(s, keys)
	pb.RegisterWatchServer(s, watches)
	pb.RegisterLeaseServer(s, leases)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return "http://" + l.Addr().String()
}

// TestOutage stops etcd and restarts it within the clients' timeouts. Clients must see the same
// behaviour through a gateway, directly, and through etcd's own proxy. A write that begins during
// the outage waits and is executed. A write in progress may have an unknown outcome. No write may
// be executed twice.
func TestOutage(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 1, etcdtest.Options{})
	ways := map[string]string{
		"etcd": c.Endpoints()[0], "grpc-proxy": beginGRPCProxy(t, c.Endpoints()...),
		"passed": beginWay(t, false, c.Endpoints()...).Endpoint, "served": beginWay(t, true, c.Endpoints()...).Endpoint,
	}
	w := &world{t: t, cluster: c, slots: etcdtest.NewSlots(), metrics: hotkeys.NewMetrics(
		hotkeys.Bounds{}, nil)}
	for _, key := range []string{"placed", "placed/begun"} {
		if _, err := (placement.Store{KV: etcdtest.Client(t, c.Endpoints()...),
			Prefix: placement.DefaultPrefix}).Put(t.Context(), key, w.slots.Add()); err != nil {
			t.Fatal(err)
		}
	}
	ways["placed"] = w.gateway()
	type outcome struct {
		way           string
		done, unknown int
		first         time.Duration // duration of the write that began during the outage
		err           error         // error of this write, or an error that the outage does not explain
	}
	outcomes := make(chan outcome)
	gone, stop := make(chan struct{}), make(chan struct{})
	for way, endpoint := range ways {
		client, other := etcdtest.Client(t, endpoint), etcdtest.Client(t, endpoint)
		for _, c := range []*clientv3.Client{client, other} { // both clients connect before etcd stops
			if _, err := c.Get(t.Context(), way); err != nil {
				t.Fatal(way, err)
			}
		}
		go func() {
			o := outcome{way: way}
			begun := make(chan struct{})
			go func() {
				defer close(begun)
				<-gone
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				began := time.Now()
				_, err := other.Put(ctx, way+"/begun", "x")
				o.first, o.err = time.Since(began), err
			}()
			for i := 0; ; i++ {
				select {
				case <-stop:
					<-begun
					outcomes <- o
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				if _, err := client.Put(ctx, way, strconv.Itoa(i)); err == nil {
					o.done++
				} else if o.unknown++; status.Code(err) != codes.Unavailable &&
					!errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", way, err)
				}
				cancel()
			}
		}()
	}
	time.Sleep(200 * time.Millisecond)
	c.Stop(0)
	close(gone)
	time.Sleep(time.Second)
	c.Start(0)
	time.AfterFunc(2*time.Second, func() { close(stop) })
	direct := etcdtest.Client(t, c.Endpoints()...)
	for range ways {
		o := <-outcomes
		if o.err != nil || o.first < 500*time.Millisecond {
			t.Errorf("%s: a write that was begun while etcd was gone: %v after %v", o.way, o.err, o.first)
		}
		r, err := direct.Get(t.Context(), o.way)
		if err != nil {
			t.Fatal(err)
		}
		version := r.Kvs[0].Version
		if version < int64(o.done) || version > int64(o.done+o.unknown) || o.done == 0 {
			t.Errorf("%s: of %d writes %d were done and of %d it is not known, and etcd has %d", o.way, o.done+o.unknown, o.done, o.unknown, version)
		}
		if o.unknown > 2 { // one write in progress when etcd stopped, and one at an etcd that is starting
			t.Errorf("%s: of %d writes it is not known whether they were done; only one can have been under way", o.way, o.unknown)
		}
		t.Logf("%s: %d writes done, %d unknown, %d executed; the first waited for %v", o.way, o.done, o.unknown, version, o.first)
		if r, err = direct.Get(t.Context(), o.way+"/begun"); err != nil || len(r.Kvs) != 1 || r.Kvs[0].Version != 1 {
			t.Errorf("%s: the write that was begun while etcd was gone was executed as %v, %v", o.way, r, err)
		}
	}
}

// slowKeys is a key-value service that gives up waiting for its writes before they are done.
type slowKeys struct {
	forwarded
	writes atomic.Int32
	code   codes.Code
}

func (s *slowKeys) Put(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
	s.writes.Add(1)
	return nil, status.Error(s.code, "the service's own patience is at its end")
}

// TestImpatience checks the errors of a gateway that has stopped waiting for etcd. etcd's client
// resends a write after DeadlineExceeded or Canceled, unless its own context is done. So the
// gateway must not return these errors, because etcd may still execute the first write.
func TestImpatience(t *testing.T) {
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Canceled} {
		u, err := Dial(UpstreamConfig{Endpoints: []string{testport.Free(t)}})
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		keys := &slowKeys{code: code}
		client := etcdtest.Client(t, begin(t, Config{Upstream: u, KV: keys}).Endpoint)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := client.Put(ctx, "k", "v"); status.Code(err) != codes.Unavailable {
			t.Errorf("%v: the client hears %v", code, err)
		}
		if n := keys.writes.Load(); n != 1 {
			t.Errorf("%v: the client sent its write %d times", code, n)
		}
	}
}

// TestShutdownWithoutEtcd checks that requests that wait for etcd do not delay a gateway's end.
func TestShutdownWithoutEtcd(t *testing.T) {
	for way, served := range ways {
		g := beginWay(t, served, testport.Free(t))
		client := etcdtest.Client(t, g.Endpoint)
		answers := make(chan error, 1)
		go func() {
			_, err := client.Put(t.Context(), "k", "v")
			answers <- err
		}()
		time.Sleep(200 * time.Millisecond)
		select {
		case err := <-answers:
			t.Errorf("%s: the write did not wait for etcd: %v", way, err)
			continue
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		g.Shutdown(ctx)
		if d := time.Since(began); d > 4*time.Second {
			t.Errorf("%s: it took %v", way, d)
		}
		if err := <-answers; !errors.Is(err, rpctypes.ErrStopped) {
			t.Errorf("%s: what waited hears %v, want %v", way, err, rpctypes.ErrStopped)
		}
	}
}
