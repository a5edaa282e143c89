package controller_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/controlplane/admin/api"
	"github.com/netcraq/netcraq/controlplane/placed"
	slotcell "github.com/netcraq/netcraq/etcd-monitor/cell"
	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/etcd-monitor/gateway"
	"github.com/netcraq/netcraq/etcd-monitor/guarded"
	"github.com/netcraq/netcraq/etcd-monitor/heat"
	"github.com/netcraq/netcraq/etcd-monitor/histories"
	"github.com/netcraq/netcraq/wire"
)

// envGateways is how long TestGateways goes on; a Go duration.
const envGateways = "NETCRAQ_LINEARIZABLE"

// inside does something in the network namespace of a host: sockets that it opens stay there.
func (h *host) inside(do func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		return err
	}
	defer here.Close()
	there, err := netns.GetFromPid(h.cmd.Process.Pid)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := netns.Set(there); err != nil {
		return err
	}
	defer netns.Set(here)
	do()
	return nil
}

// hits counts the reads that the network answered, for all gateways.
type hits struct {
	*heat.Metrics
	n *atomic.Int64
}

func (h hits) Hit() { h.n.Add(1) }

// etcdGateway is a gateway's key-value service whose packets are sent by a host.
type etcdGateway struct {
	*guarded.Server
	kill func()
}

// startEtcdGateway starts one. sessions is the first of 16 writer sessions of its own.
func (nw *network) startEtcdGateway(at *host, endpoint string, sessions uint16, hit *atomic.Int64) *etcdGateway {
	t := nw.t
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	must(err)
	follower, err := placed.Follow(t.Context(), etcd, placed.DefaultPrefix, nil)
	must(err)
	cfg := client.Config{Addresses: []netip.AddrPort{netip.AddrPortFrom(serviceAddr, wire.Port)}, Profile: wire.Profile128, Retransmit: guarded.Retransmit}
	for i := 1; i <= nw.layout.n; i++ {
		cfg.Addresses = append(cfg.Addresses, netip.AddrPortFrom(switchAddr(i), wire.Port))
	}
	var own []client.Session
	for i := range uint16(16) {
		own = append(own, client.Session{ID: sessions + i, NextRequest: 1})
	}
	cfg.Sessions = client.StaticSessions(own...)
	var c *client.Client
	must(at.inside(func() { c, err = client.New(t.Context(), cfg) }))
	must(err)
	slots := guarded.NewNetwork(nil)
	slots.Set(3, c, wire.Profile128.ValueBytes())
	leases := guarded.NewLeases(etcd, placed.DefaultPrefix, 2*time.Second, nil)
	work := guarded.NewGoroutines()
	g := &etcdGateway{Server: guarded.New(guarded.Config{
		Etcd: pb.NewKVClient(etcd.ActiveConnection()), Slots: slots, Directory: follower, Sessions: leases, Newest: &gateway.Newest{},
		Codec: slotcell.NewLibrary(etcd, placed.DefaultPrefix), Runtime: work, Observer: hits{heat.NewMetrics(heat.Bounds{}, nil), hit}, Prefix: placed.DefaultPrefix, Patience: 5 * time.Second,
	})}
	var once sync.Once
	g.kill = func() {
		once.Do(func() { // as a crash: nothing is brought to its end
			c.Close()
			etcd.Close()
			work.Close()
			follower.Close()
			leases.Close()
		})
	}
	t.Cleanup(g.kill)
	return g
}

// TestGateways: two gateways before an etcd read and write keys that are placed in real switches and removed again, while one of the gateways and one of the switches die. What their clients see is linearizable in
// keys, values, versions and revisions.
func TestGateways(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	total := 9 * time.Second
	if text := os.Getenv(envGateways); text != "" {
		var err error
		if total, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", envGateways, err)
		}
	}
	const round = 9 * time.Second
	for begun, n := time.Now(), 0; n == 0 || time.Since(begun) < total; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) { testGateways(t, uint64(n), round) })
		if t.Failed() {
			return
		}
	}
}

func testGateways(t *testing.T, seed uint64, round time.Duration) {
	etcd, err := embedded.Start(t.Context(), embedded.Config{DataDir: t.TempDir(), LogOutput: filepath.Join(t.TempDir(), "log"), LogLevel: "error"})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	l := line(3, 1000)
	l.chains[0].patience = 300
	nw := newNetwork(t, "auto", l)
	r := nw.startController("state")
	r.waitReady()
	defer r.stop()
	own, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()

	var hit atomic.Int64
	var gateways [2]atomic.Pointer[etcdGateway]
	for i := range gateways {
		gateways[i].Store(nw.startEtcdGateway(nw.hosts[2*i], etcd.Endpoint(), uint16(100+100*i), &hit))
	}
	h := histories.New(func(err error) bool {
		return status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Canceled || strings.Contains(err.Error(), "nothing was written")
	})
	keys := []string{"a", "b", "c", "d", "e"}
	ctx, stop := context.WithTimeout(t.Context(), round)
	defer stop()
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			h.Client(ctx, c, func() pb.KVServer { return gateways[c%2].Load() }, keys)
		})
	}
	moves := 0
	wg.Go(func() {
		placement := placed.Store{KV: own, Prefix: placed.DefaultPrefix}
		random := rand.New(rand.NewPCG(seed, 9))
		at := map[string]placed.Entry{}
		for ctx.Err() == nil {
			key := keys[random.IntN(len(keys))]
			e, there := at[key]
			var err error
			if !there {
				var k *api.Key
				if k, err = r.api.AddKey(ctx, "main", api.KeySpec{Name: "etcd:" + key, Value: []byte{byte(slotcell.Clear)}}); err == nil {
					at[key], err = placement.Put(ctx, key, placed.Entry{ID: wire.Key(k.KeyID), Chain: "main"})
				}
			} else if err = r.api.RemoveKey(ctx, "main", "etcd:"+key); err == nil {
				err = placement.Delete(ctx, key, e.Mod)
				delete(at, key)
			}
			if err == nil {
				moves++
			} else if ctx.Err() == nil && errors.Is(err, placed.ErrChanged) {
				t.Error(err)
			}
			time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		}
	})
	sleep := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	sleep(round / 4)
	nw.killSwitch(1)
	sleep(round / 3)
	old := gateways[0].Load()
	gateways[0].Store(nw.startEtcdGateway(nw.hosts[0], etcd.Endpoint(), 300, &hit))
	old.kill()
	before := hit.Load()
	wg.Wait()
	for i := range gateways {
		gateways[i].Load().kill()
	}
	operations, unanswered := h.Count()
	t.Logf("%d operations, %d of them without an answer; the network answered %d reads, %d of them after a switch and a gateway had died; %d placements and removals", operations, unanswered, hit.Load(), hit.Load()-before, moves)
	if err := h.Check(time.Minute); err != nil {
		t.Error(err)
	}
	if hit.Load() == before || moves < 4 {
		t.Error("too little happened")
	}
}
