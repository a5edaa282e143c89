package coordination

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// crooked is a clock that runs rate times as fast as the real clock, with another origin. Its
// timers run `timers` times as fast as the clock.
type crooked struct {
	begin        time.Time
	rate, timers float64
}

func (c crooked) Now() time.Time {
	return time.Unix(int64(c.rate*1e6), 0).Add(time.Duration(float64(time.Since(c.begin)) * c.rate))
}

func (c crooked) AfterFunc(d time.Duration, f func()) func() bool {
	// Round up. If the callback came too early, the caller would wait again for a time of 0,
	// forever.
	return time.AfterFunc(time.Duration(float64(d)/c.rate/c.timers)+1, f).Stop
}

// faults describes the faults of a store. Each kind of fault has a probability.
type faults struct {
	refuse  float64       // probability of CodeUnavailable for a call that is not executed
	silent  float64       // probability of CodeOutcomeUnknown for a call that is executed
	nothing float64       // probability of CodeOutcomeUnknown for a call that is not executed
	late    float64       // probability of CodeOutcomeUnknown for a call that is executed later
	delay   time.Duration // maximum delay before and after the execution of a call
	later   time.Duration // maximum delay of a late execution
}

// faulty is a server's access to the store, with faults.
type faulty struct {
	store.Store
	mu     sync.Mutex
	rand   *rand.Rand
	faults faults
	dead   bool // whether the server was killed
	// transacts says whether the store has transactions. Some stores do not.
	transacts bool
}

func (f *faulty) set(to faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = to
}

func (f *faulty) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
}

// fate decides at random what happens to a call.
func (f *faulty) fate() (p float64, is faults, before, after, later time.Duration, dead bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := func(most time.Duration) time.Duration {
		if most <= 0 {
			return 0
		}
		return time.Duration(f.rand.Int64N(int64(most)))
	}
	return f.rand.Float64(), f.faults, d(f.faults.delay), d(f.faults.delay), d(f.faults.later), f.dead
}

func nap(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// call executes a call, or causes the fault that fate has chosen. A killed server gets no more
// answers.
func (f *faulty) call(ctx context.Context, writes bool, do func(ctx context.Context) error) error {
	p, is, before, after, later, dead := f.fate()
	if dead {
		<-ctx.Done()
		return ctx.Err()
	}
	nap(ctx, before)
	if p -= is.refuse; p < 0 {
		return &nodeapi.Error{Code: nodeapi.CodeUnavailable, Message: "the chain does not answer"}
	}
	unknown := &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown, Message: "the answer is lost"}
	if writes {
		if p -= is.nothing; p < 0 {
			nap(ctx, after)
			return unknown
		}
		if p -= is.late; p < 0 {
			time.AfterFunc(later, func() { _ = do(context.Background()) })
			return unknown
		}
		if p -= is.silent; p < 0 {
			_ = do(context.Background())
			nap(ctx, after)
			return unknown
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := do(context.Background())
	nap(ctx, after)
	return err
}

func (f *faulty) Get(ctx context.Context, key store.Key, eventual bool) (item store.Item, err error) {
	failed := f.call(ctx, false, func(ctx context.Context) error {
		item, err = f.Store.Get(ctx, key, eventual)
		return err
	})
	return item, failed
}

func (f *faulty) Put(ctx context.Context, key store.Key, value []byte) (wire.Version, error) {
	var version wire.Version
	var mu sync.Mutex
	err := f.call(ctx, true, func(ctx context.Context) error {
		v, err := f.Store.Put(ctx, key, value)
		mu.Lock()
		defer mu.Unlock()
		version = v
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return version, err
}

func (f *faulty) compare(ctx context.Context, do func(ctx context.Context) (store.Item, bool, error)) (store.Item,
	bool, error) {
	var item store.Item
	var done bool
	var mu sync.Mutex
	err := f.call(ctx, true, func(ctx context.Context) error {
		i, d, err := do(ctx)
		mu.Lock()
		defer mu.Unlock()
		item, done = i, d
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		return store.Item{}, false, err
	}
	return item, done, nil
}

func (f *faulty) CompareAndSwap(ctx context.Context, key store.Key, v wire.Version, value []byte) (store.Item, bool,
	error) {
	return f.compare(ctx, func(ctx context.Context) (store.Item, bool, error) {
		return f.Store.CompareAndSwap(ctx, key, v, value)
	})
}

func (f *faulty) CompareAndDelete(ctx context.Context, key store.Key, v wire.Version) (store.Item, bool, error) {
	return f.compare(ctx, func(ctx context.Context) (store.Item, bool, error) {
		return f.Store.CompareAndDelete(ctx, key, v)
	})
}

func (f *faulty) Transact(ctx context.Context, t store.Transaction) (store.Transacted, error) {
	var out store.Transacted
	var mu sync.Mutex
	err := f.call(ctx, true, func(ctx context.Context) error {
		done, err := f.Store.Transact(ctx, t)
		mu.Lock()
		defer mu.Unlock()
		out = done
		return err
	})
	if err != nil {
		return store.Transacted{}, err
	}
	mu.Lock()
	defer mu.Unlock()
	return out, nil
}

func (f *faulty) Transacts(string, wire.Version) bool { return f.transacts }

func (f *faulty) Delete(ctx context.Context, key store.Key) (version wire.Version, err error) {
	item, _, err := f.compare(ctx, func(ctx context.Context) (store.Item, bool, error) {
		v, err := f.Store.Delete(ctx, key)
		return store.Item{Version: v}, true, err
	})
	return item.Version, err
}

func (f *faulty) List(ctx context.Context, ns, prefix string) (keys []store.Key, err error) {
	failed := f.call(ctx, false, func(ctx context.Context) error {
		keys, err = f.Store.List(ctx, ns, prefix)
		return err
	})
	return keys, failed
}

// Watch fails like other calls, and also ends sometimes.
func (f *faulty) Watch(ctx context.Context, w store.Watch, tell func([]store.Change)) error {
	if err := f.call(ctx, false, func(context.Context) error { return nil }); err != nil {
		return err
	}
	_, is, _, _, _, _ := f.fate()
	if is.refuse > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
	}
	return f.Store.Watch(ctx, w, func(changes []store.Change) {
		_, is, before, _, _, dead := f.fate()
		if dead {
			return
		}
		if is.delay > 0 {
			nap(ctx, before)
		}
		tell(changes)
	})
}

// server is a server of a node. It has a Service, and a faulty access to the store.
type server struct {
	name string
	*Service
	view  *faulty
	clock Clock
}

func newServer(name string, shared store.Store, rate, timers float64, random *rand.Rand) *server {
	v := &faulty{Store: shared, rand: random, transacts: random.IntN(2) == 0}
	clock := crooked{time.Now(), rate, timers}
	return &server{name, New(v, Options{Clock: clock, Node: name, Sweep: -1}), v, clock}
}

// kill ends a server as a power failure does. Afterwards it sends nothing.
func (s *server) kill() {
	s.view.kill()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Close(ctx)
}

// kept returns all keys in a store that have a value.
func kept(m *store.Memory, ns string) map[string]cell.Cell {
	out := map[string]cell.Cell{}
	keys, _ := m.List(context.Background(), ns, "")
	for _, k := range keys {
		if item, _ := m.Get(context.Background(), k, false); item.Found {
			c, err := cell.Decode(item.Value)
			if err != nil {
				c = cell.Cell{Kind: 0x0F, Value: item.Value}
			}
			out[k.Name] = c
		}
	}
	return out
}
