package share

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netcraq/netcraq/pipelets/exactlyonce"
)

// joinWindows makes a worker that reads windows and has a flow, because only workers with a flow
// get windows in parts. The flow is not compiled, because these tests do not run it. It would run
// in a separate process, which ignores the fake clock of the test.
func joinWindows(ctx context.Context, groups *Groups, interval time.Duration, l *log) (*Member, error) {
	m, err := groups.Join(ctx, "k", "n", interval, "", "", 100, l.open)
	if err == nil {
		m.query = "SELECT key, value FROM src"
	}
	return m, err
}

// windowed reads the next window or a part of a window, and returns its number of records.
func windowed(t *testing.T, m *Member, at *exactlyonce.Position, most int) (n int, part bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	records, to, err := m.Read(ctx, *at, most)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range records {
		if r.Version != at.Seq+1+uint64(i) {
			t.Fatalf("record %d behind %v is %d", i, *at, r.Version)
		}
	}
	*at = to
	return len(records), m.Part()
}

// TestWindows checks that the records between two ticks are one batch, however they arrive, and
// that all workers have the same ticks.
func TestWindows(t *testing.T) { synctest.Test(t, windowsOfAll) }

func windowsOfAll(t *testing.T) {
	const interval = time.Second
	l := newLog()
	groups := New()
	var members [3]*Member
	var at [3]exactlyonce.Position
	for i := range members {
		var err error
		if members[i], err = joinWindows(t.Context(), groups, interval, l); err != nil {
			t.Fatal(err)
		}
		defer members[i].Close()
	}
	for round, size := range []uint64{5, 250, 1, 30} {
		_, in := nextTick(time.Now(), interval)
		time.Sleep(in + 20*time.Millisecond) // wait until a window begins
		var all sync.WaitGroup
		all.Go(func() {
			for range 3 {
				l.grow(size)
				time.Sleep(30 * time.Millisecond)
			}
		})
		for i, m := range members {
			all.Go(func() {
				if n, part := windowed(t, m, &at[i], 10000); n != 3*int(size) || part {
					t.Errorf("round %d, worker %d: %d records, part %v, want %d", round, i, n, part, 3*size)
				}
				if late := time.Duration(time.Now().UnixNano() % int64(interval)); late > interval/2 {
					t.Errorf("round %d, worker %d: %v behind a tick", round, i, late)
				}
			})
		}
		all.Wait()
	}
	if n := l.reads.Load(); n != 3*286 {
		t.Errorf("%d records were read", n)
	}
}

// TestWindowParts checks that a window that is too large comes in parts, without pauses. A window
// must also come in parts if the worker accepts fewer records at a time.
func TestWindowParts(t *testing.T) { synctest.Test(t, windowParts) }

func windowParts(t *testing.T) {
	const interval = 2 * time.Second
	l := newLog()
	m, err := joinWindows(t.Context(), New(), interval, l)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var at exactlyonce.Position
	_, in := nextTick(time.Now(), interval)
	time.Sleep(in + 20*time.Millisecond) // wait until a window begins
	l.grow(2*WindowRecords + 300)
	for got := 0; got < 2*WindowRecords+300; {
		n, part := windowed(t, m, &at, WindowRecords)
		if got += n; !part || n == 0 || n > WindowRecords {
			t.Errorf("%d records, part %v", n, part)
		}
	}
	l.grow(300)
	begin := at
	if n, part := windowed(t, m, &at, WindowRecords); n != 300 || part {
		t.Errorf("%d records, part %v", n, part)
	}
	at = begin // read again from the beginning, as if the destination had refused so many rows
	for _, want := range []int{128, 128, 44} {
		if n, part := windowed(t, m, &at, 128); n != want || !part {
			t.Errorf("%d records, part %v, want %d", n, part, want)
		}
	}
	l.grow(7)
	if n, part := windowed(t, m, &at, 128); n != 7 || part {
		t.Errorf("%d records, part %v", n, part)
	}
}

// TestWindowsEachOnce checks workers that are slow, end and come back, and a source that fails.
// Each worker must get each record once, in order, and at most one window for each tick.
func TestWindowsEachOnce(t *testing.T) { synctest.Test(t, windowsEachOnce) }

func windowsEachOnce(t *testing.T) {
	const records, workers, interval = 4000, 8, 50 * time.Millisecond
	l := newLog()
	groups := New()
	begin := time.Now()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(w)))
			var at exactlyonce.Position
			var m *Member
			windows, next := 0, uint64(1)
			defer func() {
				if m != nil {
					m.Close()
				}
			}()
			for at.Seq < records {
				var err error
				if m == nil {
					windows++ // the worker may have had the window of this tick before it ended
					if m, err = joinWindows(t.Context(), groups, interval, l); err != nil {
						t.Error(err)
						return
					}
				}
				records, to, err := readOn(t.Context(), m, at, WindowRecords)
				for _, r := range records {
					if r.Version != next {
						t.Errorf("worker %d got %d, want %d", w, r.Version, next)
					}
					next = r.Version + 1
				}
				switch {
				case errors.Is(err, errBroken):
					time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
				case err != nil:
					t.Errorf("worker %d: %v", w, err)
					return
				case to != at:
					windows--
				}
				if m.Part() {
					t.Errorf("worker %d got a part", w)
				}
				switch at = to; rng.IntN(30) {
				case 0:
					m.Close()
					m = nil
				case 1:
					time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
				}
			}
			if ticks := int(time.Since(begin)/interval) + 1; -windows > ticks {
				t.Errorf("worker %d got %d windows more than it may have had of %d ticks", w, -windows-ticks, ticks)
			}
		})
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for n := 0; n < records; {
		some := min(1+rng.IntN(20), records-n)
		n += some
		l.grow(uint64(some))
		if rng.IntN(40) == 0 {
			l.broken.Store(true)
			time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
			l.broken.Store(false)
		}
		time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
	}
	all.Wait()
}
