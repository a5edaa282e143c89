package coordination

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// lateNews is a store whose reads and watches deliver their results with a delay.
type lateNews struct {
	store.Store
	mu         *sync.Mutex
	random     *rand.Rand
	get, watch time.Duration // maximum delays of reads and watches
}

func (l *lateNews) late(ctx context.Context, most time.Duration) {
	if most > 0 {
		l.mu.Lock()
		d := time.Duration(l.random.Int64N(int64(most)))
		l.mu.Unlock()
		nap(ctx, d)
	}
}

func (l *lateNews) Get(ctx context.Context, key store.Key, eventual bool) (store.Item, error) {
	item, err := l.Store.Get(ctx, key, eventual)
	l.late(ctx, l.get)
	return item, err
}

func (l *lateNews) Watch(ctx context.Context, w store.Watch, tell func([]store.Change)) error {
	return l.Store.Watch(ctx, w, func(changes []store.Change) {
		l.late(ctx, l.watch)
		tell(changes)
	})
}

// TestServicesWithLateNews checks a server that gets news from the store late. It must never report
// an instance that has been dead for longer than its time to live, and must report the instances
// that are alive.
func TestServicesWithLateNews(t *testing.T) {
	const ttl = 4 * time.Second
	for _, late := range []lateNews{{}, {watch: ttl}, {get: ttl / 8}, {get: ttl / 8, watch: 2 * ttl}} {
		t.Run(fmt.Sprintf("reads %v, watches %v", late.get, late.watch), func(t *testing.T) {
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) { instanceThatDies(t, seed, late, ttl) })
			}
		})
	}
}

// TestOwnServicesAtOnce checks that a server immediately knows the instances that it has registered
// or removed itself, even if the news of its own writes arrives late.
func TestOwnServicesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &lateNews{Store: store.NewMemory(64), mu: new(sync.Mutex), random: rand.New(rand.NewPCG(1, 45)),
			watch: 4 * time.Second}
		s := New(late, Options{Node: "here", Sweep: -1})
		ctx, stop := context.WithCancel(t.Context())
		defer s.Close(ctx)
		defer stop()
		lease, err := s.Grant(ctx, "ns", nodeapi.GrantData{TTLMillis: 60_000})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 20 {
			i := nodeapi.ServiceData{Service: "s", Instance: fmt.Sprint("i", n%3), Lease: lease.Lease}
			if _, err := s.RegisterService(ctx, "ns", nil, i); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			a, err := s.GetService(ctx, "ns", nodeapi.GetServiceData{Service: "s"})
			if err != nil || len(a.Instances) != 1 || a.Instances[0].Instance != i.Instance {
				t.Fatalf("registered for the %d. time: %v, %v", n+1, a, err)
			}
			if err := s.DeregisterService(ctx, "ns", nil, i); err != nil {
				t.Fatal(err)
			}
			if a, err := s.GetService(ctx, "ns", nodeapi.GetServiceData{Service: "s"}); err != nil || len(a.Instances) != 0 {
				t.Fatalf("taken back for the %d. time: %v, %v", n+1, a, err)
			}
		}
	})
}

// instanceThatDies keeps an instance alive at one server for some time. Meanwhile it queries
// another server for the instance.
func instanceThatDies(t *testing.T, seed uint64, late lateNews, ttl time.Duration) {
	random := rand.New(rand.NewPCG(seed, 44))
	shared := store.NewMemory(64)
	late.Store, late.mu, late.random = shared, new(sync.Mutex), rand.New(rand.NewPCG(seed, 45))
	here, there := New(shared, Options{Node: "here", Sweep: -1}), New(&late, Options{Node: "there", Sweep: -1})
	ctx, stop := context.WithCancel(t.Context())
	defer here.Close(ctx)
	defer there.Close(ctx)
	defer stop()
	lease, err := here.Grant(ctx, "ns", nodeapi.GrantData{TTLMillis: int(ttl.Milliseconds())})
	if err != nil {
		t.Fatal(err)
	}
	i := nodeapi.ServiceData{Service: "s", Instance: "i", Lease: lease.Lease}
	if _, err := here.RegisterService(ctx, "ns", nil, i); err != nil {
		t.Fatal(err)
	}
	var gone, told time.Time
	begin, seen := time.Now(), 0
	life := time.Duration(random.Int64N(int64(3 * ttl)))
	go func() {
		for ; time.Since(begin) < life; time.Sleep(ttl / 3) {
			if _, err := here.KeepAlive(ctx, "ns", nodeapi.LeaseData{Lease: lease.Lease}); err != nil {
				t.Error(err)
			}
			gone = time.Now()
		}
	}()
	for time.Since(begin) < life+3*ttl {
		synctest.Wait()
		try, cancel := context.WithTimeout(ctx, ttl/8)
		asked := time.Now()
		if a, err := there.GetService(try, "ns", nodeapi.GetServiceData{Service: "s"}); err == nil && len(a.Instances) > 0 {
			seen++
			told = asked
		}
		cancel()
		time.Sleep(ttl / 40)
	}
	if after := told.Sub(gone); seen > 0 && after > ttl {
		t.Errorf("seed %d: it was told of when asked for %v after it was kept alive for the last time", seed, after)
	}
	if life > 2*ttl && seen == 0 {
		t.Errorf("seed %d: it was never told of, although it was kept alive for %v", seed, life)
	}
}
