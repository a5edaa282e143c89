package share

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

// log is a source with numbered records, which grows.
type log struct {
	mu      sync.Mutex
	n       uint64
	changed chan struct{}
	value   string
	broken  atomic.Bool
	reads   atomic.Uint64 // number of records that all readers together got
	opened  atomic.Uint64
}

func newLog() *log { return &log{changed: make(chan struct{})} }

func (l *log) grow(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += n
	close(l.changed)
	l.changed = make(chan struct{})
}

var errBroken = errors.New("the source is broken")

func (l *log) open() (endpoint.Source, error) {
	l.opened.Add(1)
	if l.broken.Load() {
		return nil, errBroken
	}
	return &cursor{l}, nil
}

type cursor struct{ *log }

func (c *cursor) Close() error { return nil }

func (c *cursor) Read(ctx context.Context, from exactlyonce.Position, most int) (all []endpoint.Record,
	to exactlyonce.Position,
	err error) {
	for {
		c.mu.Lock()
		n, changed := c.n, c.changed
		c.mu.Unlock()
		if c.broken.Load() {
			return nil, from, errBroken
		}
		if n > from.Seq {
			for i := from.Seq + 1; i <= min(n, from.Seq+uint64(most)); i++ {
				all = append(all, endpoint.Record{Key: fmt.Sprint(i), Value: []byte(fmt.Sprint(i) + c.value),
					Version: i,
					At:      exactlyonce.Position{Epoch: "e", Seq: i}})
			}
			c.reads.Add(uint64(len(all)))
			return all, all[len(all)-1].At, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, from, nil
		}
	}
}

// gapped is a log that reports missing history when it is first read at its end.
type gapped struct {
	cursor
	gap string
}

func (g *gapped) Gap() string { return g.gap }

func (g *gapped) Read(ctx context.Context, from exactlyonce.Position, most int) ([]endpoint.Record,
	exactlyonce.Position, error) {
	if from.Seq == 5 && g.gap == "" {
		g.gap = "something"
		return nil, from, nil
	}
	return g.cursor.Read(ctx, from, most)
}

// TestGap checks that a worker learns once what is missing in a source, before a record comes. This
// must hold whether the worker shares a session, reads windows, or reads the source itself.
func TestGap(t *testing.T) { synctest.Test(t, gapIsTold) }

func gapIsTold(t *testing.T) {
	for _, interval := range []time.Duration{0, 10 * time.Millisecond} {
		l, groups := newLog(), New()
		l.grow(5)
		open := func() (endpoint.Source, error) { return &gapped{cursor: cursor{l}}, nil }
		for _, from := range []uint64{5, 4} { // the position of the second worker is not in the group's session
			m, err := groups.Join(t.Context(), "k", "n", interval, "", "", 100, open)
			if err != nil {
				t.Fatal(err)
			}
			at := exactlyonce.Position{Epoch: "e", Seq: from}
			for at.Seq < 5 {
				if at, err = follow(t.Context(), m, at, 100, func(uint64) {}); err != nil {
					t.Fatal(err)
				}
			}
			poll.Until(t, 30*time.Second, "the gap is told", func() bool {
				if at, err = follow(t.Context(), m, at, 100, func(uint64) {}); err != nil {
					t.Fatal(err)
				}
				return m.Gap() == "something"
			})
			began := time.Now()
			_, err = follow(t.Context(), m, at, 100, func(uint64) {})
			if err != nil || time.Since(began) < 40*time.Millisecond {
				t.Errorf("interval %v, from %d: what was told is told again at once: %v", interval, from, err)
			}
			defer m.Close()
		}
	}
}

// readOn reads the records after a position. It returns none if that takes longer than 50 ms.
func readOn(ctx context.Context, m *Member, from exactlyonce.Position, most int) ([]endpoint.Record,
	exactlyonce.Position, error) {
	c, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	records, to, err := m.Read(c, from, most)
	if err != nil {
		return nil, from, err
	}
	for i, r := range records {
		if r.Version != from.Seq+1+uint64(i) {
			return nil, from, fmt.Errorf("record %d behind %v is %d", i, from, r.Version)
		}
	}
	return records, to, nil
}

// follow reads records as a worker does. It calls each with the number of each record.
func follow(ctx context.Context, m *Member, from exactlyonce.Position, most int,
	each func(n uint64)) (exactlyonce.Position, error) {
	records, to, err := readOn(ctx, m, from, most)
	if err != nil {
		return from, err
	}
	rows, _, err := m.Run(ctx, records, "")
	if err != nil {
		return from, err
	}
	for _, r := range rows {
		var n uint64
		if _, err := fmt.Sscan(r.Key, &n); err != nil {
			return from, err
		}
		each(n)
	}
	return to, nil
}

// TestEachOnce checks workers that are fast or slow, and that end and come back at their position.
// The source fails now and then. Each worker must get each record once, in order.
func TestEachOnce(t *testing.T) {
	const records, workers = 30000, 12
	l := newLog()
	groups := New()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			query, step := "", uint64(1)
			if w%3 > 0 {
				query, step = "SELECT key, value FROM src WHERE version % 2 = 0", 2
			}
			var at exactlyonce.Position
			next := step
			var m *Member
			for at.Seq < records {
				var err error
				if m == nil {
					if m, err = groups.Join(t.Context(), "k", "n", 0, query, "", 100, l.open); err != nil {
						t.Error(err)
						return
					}
				}
				most := 100
				if rng.IntN(10) == 0 {
					most = 1 + rng.IntN(100)
				}
				to, err := follow(t.Context(), m, at, most, func(n uint64) {
					if n != next {
						t.Errorf("worker %d got %d, want %d", w, n, next)
					}
					next = n + step
				})
				switch {
				case errors.Is(err, errBroken):
					time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
				case err != nil:
					t.Errorf("worker %d: %v", w, err)
					return
				}
				at = to
				if rng.IntN(200) == 0 {
					m.Close()
					m = nil
				}
				if w == 0 {
					time.Sleep(time.Millisecond)
				} else if rng.IntN(500) == 0 {
					time.Sleep(200 * time.Millisecond)
				}
			}
			if next != records+step {
				t.Errorf("worker %d is at %d", w, next)
			}
			if m != nil {
				m.Close()
			}
		})
	}
	rng := rand.New(rand.NewPCG(2, 2))
	for n := uint64(0); n < records; {
		some := min(uint64(1+rng.IntN(300)), records-n)
		l.grow(some)
		n += some
		if rng.IntN(50) == 0 {
			l.broken.Store(true)
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			l.broken.Store(false)
		}
		time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
	}
	all.Wait()
	if len(groups.all) != 0 {
		t.Errorf("%d groups are left", len(groups.all))
	}
	t.Logf("%d records to %d workers: %.2f times were read", records, workers, float64(l.reads.Load())/records)
}

// TestOnce checks that workers that start together read the source only once. A batch must be
// loaded once for all their flows, and equal flows must run once.
func TestOnce(t *testing.T) {
	const workers, batches = 20, 50
	l := newLog()
	groups := New()
	members := make([]*Member, workers)
	at := make([]exactlyonce.Position, workers)
	for w := range members {
		query := fmt.Sprintf("SELECT key, %d AS value FROM src", w%4)
		var err error
		if members[w], err = groups.Join(t.Context(), "k", "n", 0, query, "", 100, l.open); err != nil {
			t.Fatal(err)
		}
		defer members[w].Close()
	}
	engine := members[0].group.engines["n"][0]
	loads, runs := engine.Loads.Load(), engine.Runs.Load()
	for range batches {
		l.grow(10)
		var all sync.WaitGroup
		for w, m := range members {
			all.Go(func() {
				begin := at[w]
				for at[w] == begin && !t.Failed() {
					to, err := follow(t.Context(), m, at[w], 100, func(uint64) {})
					if err != nil {
						t.Error(err)
					}
					at[w] = to
				}
			})
		}
		all.Wait()
	}
	if n := l.reads.Load(); n != 10*batches {
		t.Errorf("%d records were read, want %d", n, 10*batches)
	}
	if n := engine.Loads.Load() - loads; n != batches {
		t.Errorf("%d batches were loaded, want %d", n, batches)
	}
	if n := engine.Runs.Load() - runs; n != 4*batches {
		t.Errorf("flows were run %d times, want %d", n, 4*batches)
	}
	if n := l.opened.Load(); n != 1 {
		t.Errorf("the source was opened %d times", n)
	}
}

// TestSlow checks that a worker that is too slow for the ring reads the source itself, and then
// returns to the group. The size of the ring must be bounded, and so must reading ahead of all
// workers.
func TestSlow(t *testing.T) { synctest.Test(t, slowWorker) }

func slowWorker(t *testing.T) {
	l := newLog()
	l.value = string(make([]byte, 10<<10))
	groups := New()
	join := func() *Member {
		m, err := groups.Join(t.Context(), "k", "n", 0, "", "", 100, l.open)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	fast, lame := join(), join()
	var a, b exactlyonce.Position
	step := func(m *Member, at *exactlyonce.Position) {
		t.Helper()
		to, err := follow(t.Context(), m, *at, 100, func(uint64) {})
		if err != nil {
			t.Fatal(err)
		}
		*at = to
	}
	l.grow(100)
	step(fast, &a)
	step(lame, &b)
	const records = 4 * ringBytes / (10 << 10)
	l.grow(records)
	// As long as no worker reads, the session must not read the source to its end.
	synctest.Wait()
	if n := l.reads.Load(); n > 100+records/4 {
		t.Errorf("%d of %d records were read ahead of all", n, records)
	}
	for a.Seq < records+100 {
		step(fast, &a)
	}
	s := fast.group.session
	s.mu.Lock()
	if s.bytes > ringBytes+(1<<20) || len(s.after) > len(s.records)+1 {
		t.Errorf("the ring has %d bytes, %d records, %d positions", s.bytes, len(s.records), len(s.after))
	}
	s.mu.Unlock()
	for b.Seq < records+100 {
		step(lame, &b)
	}
	if lame.Own == 0 || lame.Own > records || lame.own != nil {
		t.Errorf("it has read %d records for itself of %d (and still does: %v)", lame.Own, records, lame.own != nil)
	}
	if fast.Own != 0 {
		t.Errorf("the other one has read %d for itself", fast.Own)
	}
	own := lame.Own
	l.grow(10)
	step(lame, &b)
	if lame.Own != own {
		t.Error("it does not come back to the others")
	}
}

// TestSlowFlow checks that a slow flow delays the other flows only once.
func TestSlowFlow(t *testing.T) {
	l := newLog()
	groups := New()
	join := func(query string) *Member {
		m, err := groups.Join(t.Context(), "k", "n", 0, query, "", 100, l.open)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	const heavy = `SELECT key, (SELECT sum(a.range * b.range % 7) FROM range(20000) a, range(2000) b) AS value FROM src`
	slow1, quick := join("SELECT key, value FROM ("+heavy+") WHERE value IS NOT NULL"), join("SELECT key, value FROM src")
	var a, b exactlyonce.Position
	l.grow(1)
	var err error
	if a, err = follow(t.Context(), slow1, a, 100, func(uint64) {}); err != nil {
		t.Fatal(err)
	}
	if b, err = follow(t.Context(), quick, b, 100, func(uint64) {}); err != nil {
		t.Fatal(err)
	}
	l.grow(1)
	done := make(chan time.Duration)
	go func() {
		begin := time.Now()
		if _, err := follow(t.Context(), slow1, a, 100, func(uint64) {}); err != nil {
			t.Error(err)
		}
		done <- time.Since(begin)
	}()
	time.Sleep(20 * time.Millisecond)
	begin := time.Now()
	if _, err := follow(t.Context(), quick, b, 100, func(uint64) {}); err != nil {
		t.Fatal(err)
	}
	took, other := time.Since(begin), <-done
	if slow1.alone == nil || took > other/2 {
		t.Errorf("alone %v; the quick one took %v beside %v", slow1.alone != nil, took, other)
	}
}

// TestRefused checks that a position that the source refuses delays only its worker.
func TestRefused(t *testing.T) {
	l := newLog()
	groups := New()
	open := func() (endpoint.Source, error) { return &picky{cursor{l}}, nil }
	join := func() *Member {
		m, err := groups.Join(t.Context(), "k", "n", 0, "", "", 100, open)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	bad, good := join(), join()
	l.grow(5)
	for range 3 {
		if _, _, err := bad.Read(t.Context(), exactlyonce.Position{Epoch: "other", Seq: 3},
			100); exactlyonce.KindOf(err) != exactlyonce.Refused {
			t.Fatalf("%v", err)
		}
	}
	var at exactlyonce.Position
	poll.Until(t, 5*time.Second, "the other one's records", func() bool {
		at, _ = follow(t.Context(), good, at, 100, func(uint64) {})
		return at.Seq == 5
	})
}

type picky struct{ cursor }

func (p *picky) Read(ctx context.Context, from exactlyonce.Position, most int) ([]endpoint.Record,
	exactlyonce.Position, error) {
	if from.Epoch == "other" {
		return nil, from, exactlyonce.Errorf(exactlyonce.Refused, "another cluster")
	}
	return p.cursor.Read(ctx, from, most)
}

// TestMergedAgain checks a flow that is slow for some batches. It must get its own DuckDB, which
// its workers give up when it has been quick for a while. The required time must grow each time.
func TestMergedAgain(t *testing.T) {
	l := newLog()
	groups := New()
	query := "SELECT key, list_sum(list_transform(range(length(value)), x -> x * x % 7))::VARCHAR AS value FROM src"
	var members [2]*Member
	var at [2]exactlyonce.Position
	for i := range members {
		var err error
		if members[i], err = groups.Join(t.Context(), "k", "n", 0, query, "", 100, l.open); err != nil {
			t.Fatal(err)
		}
		defer members[i].Close()
	}
	batch := func(value string) {
		t.Helper()
		l.mu.Lock()
		l.value = value
		l.mu.Unlock()
		l.grow(1)
		for i, m := range members {
			for begin := at[i]; at[i] == begin; {
				var err error
				if at[i], err = follow(t.Context(), m, at[i], 100, func(uint64) {}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	alone := func() bool { return members[0].alone != nil || members[1].alone != nil }
	large := strings.Repeat("x", 8<<20)
	batches := 0
	for range 2 {
		batch(large)
		if batch("x"); !alone() {
			t.Fatal("a flow that takes long is in the group's DuckDB")
		}
		before := batches
		for batches = 0; alone(); batches++ {
			if batches > 20*calm {
				t.Fatalf("after %d quick batches the flow has a DuckDB of its own", batches)
			}
			batch("x")
		}
		if batches < calm/2 || batches <= before {
			t.Errorf("the flow is merged after %d quick batches, the time before after %d", batches, before)
		}
	}
}

// TestNamespaces checks that equal flows of two namespaces run in two processes, over a source that
// is read once. A record that crashes one of the processes must be an error only for the flow of
// that namespace.
func TestNamespaces(t *testing.T) {
	l := newLog()
	l.value = strings.Repeat("[", 400<<10) + strings.Repeat("]", 400<<10)
	groups := New()
	join := func(namespace, query string) *Member {
		m, err := groups.Join(t.Context(), "k", namespace, 0, query, "", 100, l.open)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	const quick = "SELECT key, length(value) AS value FROM src"
	// this expression drops the number at the beginning of the value
	const deep = "SELECT key, json_structure(value[2:]) AS value FROM src"
	bad, good, same := join("a", deep), join("b", quick), join("a", quick)
	g := bad.group
	if len(g.flows) != 3 || len(g.engines) != 2 || g.engines["a"][0] == g.engines["b"][0] {
		t.Errorf("%d flows in %d namespaces' processes", len(g.flows), len(g.engines))
	}
	loads := g.engines["b"][0].Loads.Load()
	l.grow(1)
	var none exactlyonce.Position
	if _, err := follow(t.Context(), bad, none, 100, func(uint64) {}); exactlyonce.KindOf(err) != exactlyonce.Wrong ||
		!strings.Contains(err.Error(), "its process ended") {
		t.Errorf("a flow that overflows a stack: %v", err)
	}
	for _, m := range []*Member{good, same} {
		if at, err := follow(t.Context(), m, none, 100, func(uint64) {}); err != nil || at.Seq != 1 {
			t.Errorf("namespace %s: at %v, %v", m.namespace, at, err)
		}
	}
	if n := g.engines["b"][0].Loads.Load() - loads; n != 1 || l.opened.Load() != 1 {
		t.Errorf("the batch was loaded %d times for the other namespace, the source was opened %d times", n, l.opened.Load())
	}
	if !g.flows[flowKey{"a", deep}].alone {
		t.Error("the flow that ended a process is still in the one of its namespace's other flows")
	}
}
