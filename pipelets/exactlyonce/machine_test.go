package exactlyonce

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
)

// world has a source with numbered records, a destination, and workers that can die. Some records
// make no row, and some make several rows.
type world struct {
	rng    *rand.Rand
	source []Position
	limit  int // maximum number of rows in a transaction
	state  State
	rows   []string
}

func rowsOf(i int) (rows []string) {
	for k := range []int{1, 0, 1, 3, 1, 2}[i%6] {
		rows = append(rows, fmt.Sprintf("%d/%d", i, k))
	}
	return rows
}

// worker is one process. When it dies, the records that it has read are lost.
type worker struct {
	m    *Machine
	from int
	n    int
}

func (w *world) worker() *worker {
	return &worker{m: New(Config{Max: 1 + w.rng.IntN(20), First: 1, Longest: 8})}
}

var errLost = errors.New("the connection is lost")

// step makes a worker perform one action, possibly with a fault. It returns false if the worker
// died.
func (w *world) step(x *worker, faults bool) bool {
	a := x.m.Next()
	dice := 100
	if faults {
		dice = w.rng.IntN(20)
	}
	switch dice {
	case 0: // the worker is killed before the action
		return false
	case 1:
		x.m.Done(a, Result{Err: Errorf(Temporary, "not now")})
		return true
	}
	r := w.do(x, a)
	switch {
	case dice == 2: // the worker is killed after the action
		return false
	case dice == 3 && r.Err == nil: // the action succeeded, but its answer is lost
		r = Result{Err: errLost}
	}
	x.m.Done(a, r)
	return true
}

func (w *world) do(x *worker, a Action) Result {
	switch a.Do {
	case Open:
		return Result{State: w.state}
	case Read:
		x.from = slices.Index(w.source, a.From) + 1
		x.n = min(a.Max, len(w.source)-x.from)
		if x.n == 0 {
			return Result{}
		}
		x.n = 1 + w.rng.IntN(x.n) // a source may return fewer records
		return Result{Records: x.n, To: w.source[x.from+x.n-1]}
	case Flow:
		n, _ := strconv.Atoi(string(a.Was.Table))
		return Result{Rows: len(w.made(x)), Table: Table(fmt.Sprint(n + x.n))}
	case Commit:
		rows := w.made(x)
		switch {
		case len(rows) > w.limit:
			return Result{Err: Errorf(TooLarge, "%d rows", len(rows))}
		case w.state != a.Was:
			return Result{Err: Errorf(Conflict, "it is at %v", w.state)}
		}
		w.state, w.rows = a.Next, append(w.rows, rows...)
	}
	return Result{}
}

func (w *world) made(x *worker) (rows []string) {
	for i := x.from; i < x.from+x.n; i++ {
		rows = append(rows, rowsOf(i)...)
	}
	return rows
}

// run makes random steps with up to three workers. Each worker believes that it is the only worker.
// run returns an error if the destination's content is wrong.
func run(seed uint64) error {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1))}
	w.limit = 3 + w.rng.IntN(10)
	var want []string
	for i := range 60 {
		w.source = append(w.source, Position{Seq: uint64(i/3 + 1), Sub: []string{"a", "b", ""}[i%3]})
		want = append(want, rowsOf(i)...)
	}
	workers := []*worker{w.worker()}
	for range 1 + w.rng.IntN(300) {
		i := w.rng.IntN(len(workers))
		switch {
		case !w.step(workers[i], true):
			workers[i] = w.worker()
		case w.rng.IntN(30) == 0 && len(workers) < 3:
			workers = append(workers, w.worker())
		}
	}
	last := workers[0] // the last worker must be able to continue from any state
	for range 2000 {
		w.step(last, false)
	}
	if !slices.Equal(w.rows, want) {
		return fmt.Errorf("seed %d: %v, want %v", seed, w.rows, want)
	}
	if got := fmt.Sprint(len(w.source)); string(w.state.Table) != got {
		return fmt.Errorf("seed %d: the table has counted %s records, there are %s", seed, w.state.Table, got)
	}
	if w.state.Rows != uint64(len(want)) || !last.m.Condition().Ready {
		return fmt.Errorf("seed %d: %d rows are counted, %d are there; %v", seed, w.state.Rows, len(want),
			last.m.Condition())
	}
	return nil
}

// TestCrashes kills workers at any point, and checks that each record arrives once, in order.
func TestCrashes(t *testing.T) {
	for seed := range uint64(3000) {
		if err := run(seed); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConditions checks the conditions after errors, and the lengths of the pauses.
func TestConditions(t *testing.T) {
	for _, c := range []struct {
		err    error
		do     Do
		reason string
	}{
		{Errorf(Wrong, "there is no column n"), Flow, "FlowFails"},
		{Errorf(Refused, "permission denied"), Commit, "Refused"},
		{errLost, Commit, "OutcomeUnknown"},
		{errLost, Read, "Unavailable"},
		{Errorf(TooLarge, "200 rows"), Commit, "BatchTooLarge"},
	} {
		m := New(Config{Max: 1, First: time.Second, Longest: 5 * time.Second})
		var waits []time.Duration
		for n := 0; len(waits) < 4 && n < 100; n++ {
			a := m.Next()
			switch {
			case a.Do == Wait:
				waits = append(waits, a.For)
				m.Done(a, Result{})
			case a.Do == c.do:
				m.Done(a, Result{Err: c.err})
				if got := m.Condition(); got.Ready || got.Reason != c.reason || got.Message != c.err.Error() {
					t.Errorf("%v: %+v", c.err, got)
				}
			default:
				m.Done(a, Result{Records: 1, To: Position{Seq: 1}, Rows: 1})
			}
		}
		if want := []time.Duration{1e9, 2e9, 4e9, 5e9}; !slices.Equal(waits, want) {
			t.Errorf("%v: waits %v, want %v", c.err, waits, want)
		}
	}
}

// TestGap checks that the condition describes missing history even if no record comes.
func TestGap(t *testing.T) {
	m := New(Config{Max: 1, First: time.Second, Longest: time.Second})
	m.Done(m.Next(), Result{}) // the result of the action Open
	for _, r := range []Result{{Gap: "a part"}, {}, {Records: 1, To: Position{Seq: 1}}} {
		m.Done(m.Next(), r)
		if got, want := m.Condition(), (Condition{true, HistoryCompacted, "a part"}); got != want {
			t.Errorf("after %+v: %+v, want %+v", r, got, want)
		}
	}
}

// TestParts checks that the condition reports that a window came in parts, until a window is
// complete again. The worker is Ready throughout.
func TestParts(t *testing.T) {
	m := New(Config{Max: 10, First: time.Second, Longest: time.Second})
	step := func(r Result) { m.Done(m.Next(), r) }
	batch := func(part bool) Condition {
		step(Result{Records: 4, Part: part})
		step(Result{Rows: 1})
		step(Result{})
		return m.Condition()
	}
	step(Result{})
	for _, part := range []bool{false, true, true, false} {
		c := batch(part)
		if !c.Ready || (c.Reason == WindowSplit) != part || (c.Message != "") != part {
			t.Errorf("part %v: %+v", part, c)
		}
		if step(Result{}); m.Condition() != c { // an empty result means that there are no records
			t.Errorf("part %v, then nothing: %+v", part, m.Condition())
		}
	}
}

// TestStateJSON checks that a State does not change when it is encoded as JSON and decoded again.
func TestStateJSON(t *testing.T) {
	for _, s := range []State{{}, {Rows: 2, Position: Position{Epoch: "e", Seq: 1, Sub: "<a>"}},
		{Table: `{"a":"1","\u003cb\u003e":"\"x\""}`}} {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var got State
		if err := json.Unmarshal(text, &got); err != nil || got != s {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// TestPositionJSON checks that a position does not change when it is encoded as JSON and decoded
// again, even with a key of arbitrary bytes.
func TestPositionJSON(t *testing.T) {
	for _, sub := range []string{"", "a", "ä\uFFFD", "\xff", "\xfe", "a\x00\xff"} {
		was := State{Position: Position{Epoch: "e", Seq: 7, Sub: sub}, Rows: 1}
		text, err := json.Marshal(was)
		if err != nil {
			t.Fatal(err)
		}
		var now State
		if err := json.Unmarshal(text, &now); err != nil || now != was {
			t.Errorf("%s: %+v, %v, want %+v", text, now, err, was)
		}
	}
	const before = `{"position":{"epoch":"e","seq":7,"sub":"a"},"rows":1}`
	if text, err := json.Marshal(State{Position: Position{"e", 7, "a"}, Rows: 1}); string(text) != before || err != nil {
		t.Errorf("%s, %v, want what destinations have: %s", text, err, before)
	}
}
