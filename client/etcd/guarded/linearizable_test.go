package guarded

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/etcderrors"
	"github.com/netcraq/netcraq/test/histories"
)

// envLinearizable is the environment variable that sets how long TestLinearizable runs, as a Go
// duration.
const envLinearizable = "NETCRAQ_LINEARIZABLE"

// refused reports whether an error means that nothing was executed.
func refused(err error) bool {
	return etcderrors.Definite(err) || strings.Contains(err.Error(), "nothing was written")
}

// lossy is an etcd client that loses some answers to transactions, and delivers some transactions
// late.
type lossy struct {
	pb.KVClient
	p float64
}

func (l lossy) Txn(ctx context.Context, r *pb.TxnRequest, o ...grpc.CallOption) (*pb.TxnResponse, error) {
	if rand.Float64() >= l.p {
		return l.KVClient.Txn(ctx, r, o...)
	}
	if rand.IntN(2) == 0 {
		l.KVClient.Txn(ctx, r, o...)
	} else {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		time.AfterFunc(time.Duration(rand.IntN(200))*time.Millisecond, func() {
			defer cancel()
			l.KVClient.Txn(late, r, o...)
		})
	}
	return nil, status.Error(codes.Unavailable, "the answer is lost")
}

// Histories through two gateways in front of a real etcd are linearizable in keys, values, versions
// and revisions. The slots lose messages and deliver them late, keys are placed and removed, and
// gateways die and are replaced.
//
// The slots are either in memory, which loses and delays a CAS as a whole, or in a chain over UDP,
// where packets are lost, duplicated and reordered.
func TestLinearizable(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		testLinearizable(t, func(t *testing.T) (testSlots, func(*testing.T) Slots) {
			m := newMemory(64)
			m.setFaults(0.02)
			return m, func(*testing.T) Slots { return m }
		})
	})
	t.Run("chain", func(t *testing.T) {
		testLinearizable(t, func(t *testing.T) (testSlots, func(*testing.T) Slots) {
			c := newUDPChain(t)
			return c, c.network
		})
	})
}

// testLinearizable runs rounds of TestLinearizable. world makes the slots of a round. It also
// returns a function that gives each gateway its own access to the slots.
func testLinearizable(t *testing.T, world func(*testing.T) (testSlots, func(*testing.T) Slots)) {
	_, total := testSizes()
	if testing.Short() {
		total = time.Second
	}
	if text := os.Getenv(envLinearizable); text != "" {
		var err error
		if total, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", envLinearizable, err)
		}
	}
	// Rounds are short, because the time to check a history grows faster than its length.
	const round = 3 * time.Second
	endpoint := startEtcd(t)
	var sum struct{ operations, unanswered, hits, headers, moves, kills int }
	for end, n := time.Now().Add(total), 0; time.Now().Before(end); n++ {
		keys := make([]string, 6)
		for i := range keys {
			keys[i] = fmt.Sprintf("%d/%d", n, i)
		}
		slots, of := world(t)
		etcd := connect(t, endpoint)
		p := newPlacement(etcd, slots)
		p.next = wire.Key(n) << 12
		var gateways [2]atomic.Pointer[liveGateway]
		begin := func(i int) {
			gateways[i].Store(newLive(t, endpoint, of(t), func(c *Config) {
				c.Patience = 3 * time.Second
				c.Etcd = lossy{c.Etcd, 0.01}
			}))
		}
		begin(0)
		begin(1)
		since, err := etcd.Get(t.Context(), "since")
		if err != nil {
			t.Fatal(err)
		}
		h := histories.New(refused)
		ctx, stop := context.WithTimeout(t.Context(), round)
		var wg sync.WaitGroup
		for c := range 6 {
			wg.Go(func() {
				h.Client(ctx, c, func() pb.KVServer { return gateways[c%2].Load() }, keys)
			})
		}
		wg.Go(func() { // this goroutine places and removes keys
			r := rand.New(rand.NewPCG(uint64(n), 1))
			for ctx.Err() == nil {
				k := keys[r.IntN(len(keys))]
				if _, ok := p.at[k]; ok {
					p.remove(t, k)
				} else {
					p.place(t, k)
				}
				sum.moves++
				time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
			}
		})
		hits := 0
		wg.Go(func() { // this goroutine kills gateways
			for i := n; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(900 * time.Millisecond):
				}
				old := gateways[i%2].Load()
				begin(i % 2)
				wg.Go(old.kill)
				hits += old.hitCount()
				sum.kills++
			}
		})
		wg.Wait()
		stop()
		for i := range gateways {
			hits += gateways[i].Load().hitCount()
			gateways[i].Load().kill()
		}
		sum.hits += hits
		operations, unanswered := h.Count()
		sum.operations += operations
		sum.unanswered += unanswered
		if err := h.Check(time.Minute); err != nil {
			t.Fatalf("round %d: %v", n, err)
		}
		headers, err := h.CheckHeaders(t.Context(), etcd, since.Header.Revision)
		if err != nil {
			t.Fatalf("round %d: %v", n, err)
		}
		sum.headers += headers
	}
	t.Logf("%d operations, %d of them without an answer; %d reads were answered by the network; what %d say of a revision is so; %d placements and removals, %d gateways died", sum.operations, sum.unanswered, sum.hits, sum.headers,
		sum.moves, sum.kills)
	// On a busy machine, the slots may answer no read within a short time, because etcd answers
	// each read that takes more than 5 ms.
	if sum.moves == 0 || sum.operations < 20 || sum.hits == 0 && total >= 10*time.Second {
		t.Error("too little happened")
	}
}
