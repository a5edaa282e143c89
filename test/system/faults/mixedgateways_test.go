package faults

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/before"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/test/histories"
	"github.com/netcraq/netcraq/test/system/lab"
)

// TestMixedGateways upgrades two gateways and a controller from the last release to this version,
// one after the other, and then downgrades them. Meanwhile etcd's clients read and write, and keys
// are placed in the switches and removed. Between the steps, gateways of both releases serve the
// same etcd and chain, with a controller of either release. The clients' history must be
// linearizable in keys, values, versions and revisions. The test logs the longest wait of each
// step.
func TestMixedGateways(t *testing.T) {
	before.Build(t, "./controlplane/cmd/netcraq-controller", "./etcd-monitor/cmd/etcd-monitor")
	if lab.InNamespace(t) {
		mixedGateways(t)
	}
}

// asked is a gateway process of one release, with a connection for clients.
type asked struct {
	pb.KVClient
	etcd *clientv3.Client
	lab.Process
	*answers
}

// answers has the times of the answers to reads and writes.
type answers struct {
	mu            sync.Mutex
	reads, writes []int64 // Unix times in nanoseconds, in order
}

// call makes one request. Callers repeat it at the rate of a busy client.
func call[Q, A any](ctx context.Context, g *asked, to *[]int64, q Q, do func(Q) (A, error)) (A, error) {
	time.Sleep(5 * time.Millisecond)
	a, err := do(q)
	if err == nil {
		g.mu.Lock()
		*to = append(*to, time.Now().UnixNano())
		g.mu.Unlock()
	} else if ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond) // wait, because the gateway is being replaced
	}
	return a, err
}

func (g *asked) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	return call(ctx, g, &g.reads, q, func(q *pb.RangeRequest) (*pb.RangeResponse, error) {
		return g.KVClient.Range(ctx, q)
	})
}

func (g *asked) Put(ctx context.Context, q *pb.PutRequest) (*pb.PutResponse, error) {
	return call(ctx, g, &g.writes, q, func(q *pb.PutRequest) (*pb.PutResponse, error) { return g.KVClient.Put(ctx, q) })
}

func (g *asked) DeleteRange(ctx context.Context, q *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return call(ctx, g, &g.writes, q, func(q *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
		return g.KVClient.DeleteRange(ctx, q)
	})
}

func (g *asked) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	return call(ctx, g, &g.writes, q, func(q *pb.TxnRequest) (*pb.TxnResponse, error) { return g.KVClient.Txn(ctx, q) })
}

func (g *asked) Compact(ctx context.Context, q *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return g.KVClient.Compact(ctx, q)
}

// networkReads matches the metric that counts the reads that switches answered.
var networkReads = regexp.MustCompile(`(?m)^etcd_monitor_reads_total\{.*"network".*\} (\S+)$`)

// hitsOf returns the number of reads that switches have answered for a gateway.
func hitsOf(t *testing.T, address string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, m := range networkReads.FindAllSubmatch(b, -1) {
		n, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func mixedGateways(t *testing.T) {
	etcd := etcdtest.New(t, 1, etcdtest.Options{})
	target := strings.TrimPrefix(etcd.Endpoints()[0], "http://")
	l := upgradeRing()
	l.Profile = wire.Profile1024
	nw := lab.NewNetwork(t, "auto", l)
	former := os.Getenv(before.Env)
	type binaries struct{ controller, gateway string }
	old := binaries{filepath.Join(former, "netcraq-controller"), filepath.Join(former, "etcd-monitor")}
	now := binaries{lab.Built(t, "controlplane/cmd/netcraq-controller"), lab.Built(t, "etcd-monitor/cmd/etcd-monitor")}
	topology := upgradeTopology(nw)
	c := nw.RunController(old.controller, topology, "state.json")
	c.WaitReady()

	hosts := [2]int{1, 3}
	var there [2]string
	for i, h := range hosts {
		here, address := nw.Beside(h)
		lab.Forward(t, here.String()+":2379", target)
		there[i] = address.String()
	}
	var seen [2]answers
	var gateways [2]atomic.Pointer[asked]
	hits := 0.0
	start := func(i int, r binaries) {
		t.Helper()
		name := fmt.Sprintf("gateway%d", i+1)
		g := &asked{answers: &seen[i]}
		g.Process = nw.Run(hosts[i], name, r.gateway, "--endpoints", "http://"+strings.TrimSuffix(there[i], "2")+"1:2379",
			"--controller", "unix://"+filepath.Join(nw.Dir(), "controller.sock"),
			"--listen-client-urls", "http://"+there[i]+":2379", "--metrics-addr", there[i]+":2382")
		var err error
		g.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{"http://" + there[i] + ":2379"}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.etcd.Close() })
		g.KVClient = pb.NewKVClient(g.etcd.ActiveConnection())
		poll.Until(t, 60*time.Second, name+" answers", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := g.KVClient.Range(ctx, &pb.RangeRequest{Key: []byte("there")})
			return err == nil
		}, func() string {
			b, _ := os.ReadFile(filepath.Join(nw.Dir(), name+".log"))
			return string(b)
		})
		gateways[i].Store(g)
	}
	start(0, old)
	start(1, old)

	// If a client cannot connect, its write was not executed.
	h := histories.New(func(err error) bool {
		return strings.Contains(err.Error(), "nothing was written") || strings.Contains(err.Error(), "Error while dialing")
	})
	keys := []string{"a", "b", "c", "d", "e", "f", "g"}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { h.Client(ctx, i, func() pb.KVServer { return gateways[i%2].Load() }, keys) })
	}
	var moves atomic.Int64
	registry := placement.Store{KV: etcdtest.Client(t, etcd.Endpoints()...), Prefix: placement.DefaultPrefix}
	// All controllers of a network have the same admin address, so one client reaches all of them.
	network := c.API
	wg.Go(func() {
		random := rand.New(rand.NewPCG(1, 9))
		for ctx.Err() == nil {
			if move(ctx, network, registry, keys[random.IntN(len(keys))]) == nil {
				moves.Add(1)
			}
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		}
	})
	var spans []span
	step := func(what string, do func()) {
		t.Helper()
		begin := time.Now()
		do()
		// Switches must answer reads of both gateways.
		was := [2]float64{hitsOf(t, there[0]+":2382"), hitsOf(t, there[1]+":2382")}
		poll.Until(t, 60*time.Second, what+": the network answers reads of both gateways", func() bool {
			return hitsOf(t, there[0]+":2382") > was[0] && hitsOf(t, there[1]+":2382") > was[1]
		}, c.History)
		time.Sleep(time.Second)
		steady := hitsOf(t, there[0]+":2382") + hitsOf(t, there[1]+":2382") - was[0] - was[1]
		spans = append(spans, span{what, begin, time.Now()})
		hits += steady
	}
	gateway := func(what string, i int, r binaries) {
		t.Helper()
		step(fmt.Sprintf("gateway %d: %s", i+1, what), func() {
			gateways[i].Load().Stop()
			start(i, r)
		})
	}
	controllers := func(what string, r binaries) {
		t.Helper()
		step("controller: "+what, func() {
			replaceController(nw, c, r.controller, topology)
			c.WaitReady()
		})
	}
	step("all of before", func() {})
	gateway("up, by the controller of before", 0, now)
	gateway("up, by the controller of before", 1, now)
	controllers("up", now)
	gateway("down", 0, old)
	gateway("down", 1, old)
	gateway("up", 0, now)
	controllers("down, with a gateway of each", old)
	stop()
	wg.Wait()
	operations, unanswered := h.Count()
	if err := h.Check(4 * time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := h.CheckHeaders(t.Context(), etcdtest.Client(t, etcd.Endpoints()...), 1); err != nil {
		t.Error(err)
	}
	t.Logf("%d operations, %d of them without an answer; %d placements and removals; the network answered %.0f reads in the steps' steady seconds",
		operations, unanswered, moves.Load(), hits)
	for _, s := range spans {
		write, read := 0.0, 0.0
		for i := range seen {
			write = max(write, lab.LongestGap(seen[i].writes, s.from, s.to))
			read = max(read, lab.LongestGap(seen[i].reads, s.from, s.to))
		}
		t.Logf("%-45s longest that a gateway's clients were without a write %5.0f ms, without a read %5.0f ms",
			s.what, write, read)
	}
	if operations < 500 || moves.Load() < 10 {
		t.Error("too little happened")
	}
}
