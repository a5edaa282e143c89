package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/etcd/guarded"
	"github.com/netcraq/netcraq/client/etcd/guardedshell"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotclient"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/etcd-monitor/gateway"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/test/histories"
	"github.com/netcraq/netcraq/test/system/lab"
)

// envGateways sets the duration of TestGateways, as a Go duration.
const envGateways = "NETCRAQ_LINEARIZABLE"

// hits counts the reads that the switches answered, for all gateways.
type hits struct {
	*hotkeys.Metrics
	n *atomic.Int64
}

func (h hits) Hit() { h.n.Add(1) }

// etcdGateway is the key-value service of a gateway. A host sends the gateway's packets to the
// switches.
type etcdGateway struct {
	*guarded.Server
	kill   func()
	prompt *atomic.Int64 // reads that the gateway answered without waiting
}

// Range answers a read in the same way as the gateway's relay does.
func (g *etcdGateway) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if answer, ok := g.RangeNow(r); ok {
		g.prompt.Add(1)
		return answer, nil
	}
	return g.Server.Range(ctx, r)
}

// startEtcdGateway starts a gateway. sessions is the first of its 16 writer sessions.
func startEtcdGateway(nw *lab.Network, at *lab.Host, endpoints []string, sessions uint16,
	hit, prompt *atomic.Int64) *etcdGateway {
	t := nw.T
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	must(err)
	follower, err := placement.Follow(t.Context(), etcd, placement.DefaultPrefix, nil)
	must(err)
	cfg := client.Config{Addresses: []netip.AddrPort{netip.AddrPortFrom(lab.ServiceAddr, wire.Port)},
		Profile: wire.Profile1024, Retransmit: slotclient.Retransmit}
	for i := 1; i <= nw.Layout.N; i++ {
		cfg.Addresses = append(cfg.Addresses, netip.AddrPortFrom(lab.SwitchAddr(i), wire.Port))
	}
	var own []client.Session
	for i := range uint16(16) {
		own = append(own, client.Session{ID: sessions + i, NextRequest: 1})
	}
	cfg.Sessions = client.StaticSessions(own...)
	var c *client.Client
	must(at.Inside(func() { c, err = client.New(t.Context(), cfg) }))
	must(err)
	slots := slotclient.NewNetwork(nil)
	slots.Set(3, c, wire.Profile1024.ValueBytes())
	seals := seal.NewKeys(etcd, placement.DefaultPrefix)
	ensuring, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(seals.Ensure(ensuring))
	leases := guardedshell.NewLeases(etcd, placement.DefaultPrefix, 2*time.Second, nil)
	work := guardedshell.NewGoroutines()
	g := &etcdGateway{Server: guarded.New(guarded.Config{
		Etcd: pb.NewKVClient(etcd.ActiveConnection()), Slots: slots, Directory: follower, Sessions: leases,
		Newest: &gateway.Newest{},
		Codec:  slotcodec.NewLibrary(etcd, placement.DefaultPrefix), Seals: seals, Runtime: work,
		Observer: hits{hotkeys.NewMetrics(hotkeys.Bounds{}, nil), hit}, Prefix: placement.DefaultPrefix,
		Patience: 5 * time.Second,
	}), prompt: prompt}
	var once sync.Once
	g.kill = func() {
		once.Do(func() { // This ends the gateway as a crash would, without a shutdown.
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

// faultsEach is the number of faults in each round of TestGateways. A switch, a gateway and a
// member of etcd fail, in any order.
const faultsEach = 3

// tally is the sum over all rounds of TestGateways.
type tally struct {
	rounds, operations, unanswered, moves int
	hits                                  int64 // reads that the switches answered
	// reads that the switches answered after the last fault of a round
	after  int64
	prompt int64 // reads that the switches answered without waiting
}

// In TestGateways, two gateways in front of an etcd of three members read and write keys, which are
// placed in real switches and removed again. Meanwhile one gateway, one switch and one etcd member
// fail. A new gateway replaces the failed one, and the etcd member comes back. The clients' history
// must be linearizable in keys, values, versions and revisions. `make gateways` is the long run.
func TestGateways(t *testing.T) {
	if !lab.InNamespace(t) {
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
	var sum tally
	for begun := time.Now(); sum.rounds == 0 || time.Since(begun) < total; sum.rounds++ {
		if !t.Run(strconv.Itoa(sum.rounds), func(t *testing.T) {
			testGateways(t, uint64(sum.rounds), round, &sum)
		}) {
			return
		}
	}
	t.Logf("%d rounds: %d operations, %d of them without an answer; the network answered %d reads, %d of them after the faults, %d without waiting; %d placements and removals", sum.rounds, sum.operations, sum.unanswered, sum.hits, sum.after, sum.prompt, sum.moves)
	// In a single round on a busy machine, the switches may answer no read after two of three
	// switches have failed, because etcd answers a read if a switch takes more than 5 ms.
	if sum.operations < 20 || sum.moves == 0 || sum.hits == 0 || sum.rounds > 2 && sum.after == 0 {
		t.Error("too little happened")
	}
}

func testGateways(t *testing.T, seed uint64, round time.Duration, sum *tally) {
	etcd := etcdtest.New(t, 3, etcdtest.Options{})
	// When a member fails, the test breaks the connections of its proxy, as the end of a process
	// would do.
	var members []*lab.Proxy
	var endpoints []string
	for _, e := range etcd.Endpoints() {
		p := lab.StartProxy(t, strings.TrimPrefix(e, "http://"))
		members, endpoints = append(members, p), append(endpoints, "http://"+p.Addr)
	}
	l := lab.Line(3, 1000)
	l.Links = append(l.Links, [2]int{3, 1}) // These links make a second path around each switch.
	l.Chains[0].Patience = 300
	l.Profile = wire.Profile1024
	nw := lab.NewNetwork(t, "auto", l)
	r := nw.StartController("state")
	r.WaitReady()
	registry := placement.Store{KV: etcdtest.Client(t, endpoints...), Prefix: placement.DefaultPrefix}

	var hit, prompt atomic.Int64
	var gateways [2]atomic.Pointer[etcdGateway]
	for i := range gateways {
		gateways[i].Store(startEtcdGateway(nw, nw.Hosts[2*i], endpoints, uint16(100+100*i), &hit, &prompt))
	}
	// etcd refuses none of these requests. So after any other error, a write may have been
	// executed.
	h := histories.New(func(err error) bool { return strings.Contains(err.Error(), "nothing was written") })
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
		random := rand.New(rand.NewPCG(seed, 9))
		for ctx.Err() == nil {
			if move(ctx, r.API, registry, keys[random.IntN(len(keys))]) == nil {
				moves++
			}
			time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		}
	})

	random := rand.New(rand.NewPCG(seed, 10))
	faults := [faultsEach]func() string{
		func() string {
			i := 1 + random.IntN(l.N)
			nw.KillSwitch(i)
			return fmt.Sprintf("switch %d", i)
		},
		func() string {
			i := random.IntN(2)
			old := gateways[i].Load()
			gateways[i].Store(startEtcdGateway(nw, nw.Hosts[2*i], endpoints, 300, &hit, &prompt))
			wg.Go(old.kill)
			return fmt.Sprintf("gateway %d", i)
		},
		func() string {
			i, what := etcd.Leader(), "the leading member"
			if seed%2 == 1 {
				i, what = (i+1)%3, "a following member"
			}
			members[i].SetCut(true)
			wg.Go(func() {
				etcd.Kill(i)
				time.Sleep(round / 10)
				etcd.Start(i)
				members[i].SetCut(false)
			})
			return what
		},
	}
	// The time between the first and the last seventh of the round is divided into three parts. One
	// fault begins in each part, at the part's beginning or somewhat later. Each fault is over
	// before the next one begins. The order of the faults differs from round to round.
	begun := time.Now()
	died := make([]string, 0, faultsEach)
	for n, f := range random.Perm(faultsEach) {
		at := round/7 + time.Duration(n)*round*5/(7*faultsEach) + time.Duration(random.Int64N(int64(round/14)))
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(begun.Add(at))):
		}
		after := time.Since(begun).Seconds()
		died = append(died, fmt.Sprintf("%s after %.1f s", faults[f](), after))
	}
	before := hit.Load()
	wg.Wait()
	for i := range gateways {
		wg.Go(gateways[i].Load().kill)
	}
	wg.Wait()
	operations, unanswered := h.Count()
	checking := time.Now()
	if err := h.Check(2 * time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := h.CheckHeaders(t.Context(), etcdtest.Client(t, etcd.Endpoints()...), 1); err != nil {
		t.Error(err)
	}
	t.Logf("%s died; %d operations, %d of them without an answer; the network answered %d reads, %d of them after that; %d placements and removals; checked in %.1f s",
		strings.Join(died, ", "), operations, unanswered, hit.Load(), hit.Load()-before, moves,
		time.Since(checking).Seconds())
	sum.operations += operations
	sum.unanswered += unanswered
	sum.moves += moves
	sum.hits += hit.Load()
	sum.prompt += prompt.Load()
	sum.after += hit.Load() - before
}

// move places a key, or removes the key if etcd or the switches have any part of it. If the answer
// to a move was lost, the move may be half done. The next move of the key completes it.
func move(ctx context.Context, network *admin.Client, registry placement.Store, key string) error {
	entries, _, _, err := registry.List(ctx)
	if err != nil {
		return err
	}
	slots, err := network.Directory(ctx, "etcd:"+key, false)
	if err != nil {
		return err
	}
	e, there := entries[key]
	if len(slots) == 0 && !there {
		k, err := network.AddKey(ctx, "main", admin.KeySpec{Name: "etcd:" + key, Value: []byte(slotcodec.Unsealed)})
		if err != nil {
			return err
		}
		made, err := network.Directory(ctx, "etcd:"+key, true)
		if err != nil {
			return err
		}
		for _, at := range made {
			for _, s := range at.State {
				if at.KeyID == k.KeyID && s.Status == "OK" && s.Version == s.Newest &&
					string(s.Value) == slotcodec.Unsealed {
					_, err = registry.Put(ctx, key, placement.Entry{ID: k.KeyID, Chain: "main", Version: s.Version})
					return err
				}
			}
		}
		return fmt.Errorf("no member says in which version the slot of %q was made: %+v", key, made)
	}
	if len(slots) > 0 { // Remove the key from the switches first.
		if err := network.RemoveKey(ctx, "main", "etcd:"+key); err != nil {
			return err
		}
	}
	if !there {
		return nil
	}
	return registry.Delete(ctx, key, e.Mod)
}
