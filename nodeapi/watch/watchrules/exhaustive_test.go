package watchrules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestEveryOrder tries all sequences of up to six events for one key with three commits. An event
// is a commit, a notification of any committed version (any number of times), a watcher that takes
// changes, or a step of a read. After each event, versions must only have grown, and all skipped
// versions must be counted. One round later, the newest version must have been reported.
func TestEveryOrder(t *testing.T) {
	orders := 0
	var play func(done []string)
	play = func(done []string) {
		r := replay(t, done)
		orders++
		if t.Failed() {
			t.Log(strings.Join(done, " "))
			return
		}
		if len(done) == 6 {
			return
		}
		next := []string{"take"}
		if r.newest < 4 {
			next = append(next, "commit")
		}
		for v := 2; v <= r.newest; v++ {
			next = append(next, fmt.Sprint("notify", v))
		}
		switch {
		case len(r.reads) == 0:
			next = append(next, "begin")
		case r.looked == 0:
			next = append(next, "look")
		default:
			next = append(next, "end")
		}
		for _, n := range next {
			if play(append(done[:len(done):len(done)], n)); t.Failed() {
				return
			}
		}
	}
	play(nil)
	t.Logf("%d orders", orders)
}

type replayed struct {
	m      *Machine
	now    time.Duration
	newest int // sequence of the newest version
	looked int
	reads  []Read
	told   []store.Change
}

func replay(t *testing.T, done []string) *replayed {
	key := store.Key{Namespace: "n", Name: "a"}
	r := &replayed{m: New(bounds), newest: 1}
	reading := func(sequence int) Reading {
		item := store.Item{Key: key, Found: true, Version: wire.MakeVersion(1, uint64(sequence))}
		return Reading{Item: item, ID: 1 << 24, Helped: true}
	}
	do := func(what string) {
		switch {
		case what == "commit":
			r.newest++
		case strings.HasPrefix(what, "notify"):
			r.m.Notified(r.now, 1<<24, wire.MakeVersion(1, uint64(what[6]-'0')), true, nil)
		case what == "take":
			changes, _ := r.m.Take(1, 10)
			r.told = append(r.told, changes...)
		case what == "begin":
			r.now += bounds.Round
			r.reads = r.m.Begin(r.now)
			if len(r.reads) != 1 {
				t.Errorf("after a round there are %d reads to do", len(r.reads))
			}
		case what == "look":
			r.looked = r.newest
		case what == "end":
			r.m.Ended(r.now, r.reads[0].Ticket, reading(r.looked))
			r.reads, r.looked = nil, 0
		}
	}
	r.m.Follow(0, 1, key, 0, false)
	r.m.Ended(0, r.m.Begin(0)[0].Ticket, reading(1))
	for _, what := range done {
		if t.Failed() {
			return r
		}
		do(what)
	}
	if len(done) < 6 {
		return r
	}
	if len(r.reads) > 0 {
		r.looked = max(r.looked, 1)
		do("end")
	}
	for _, what := range []string{"begin", "look", "end", "take"} {
		do(what)
	}
	left := uint64(0)
	for i, c := range r.told {
		left += c.Overtaken
		if i > 0 && c.Version <= r.told[i-1].Version {
			t.Errorf("%v is told after %v", c.Version, r.told[i-1].Version)
		}
	}
	if n := len(r.told); n == 0 || r.told[n-1].Version.Sequence() != uint64(r.newest) ||
		r.told[0].Version.Sequence()+left+uint64(n)-1 != uint64(r.newest) {
		t.Errorf("told %v; the newest is %d", r.told, r.newest)
	}
	return r
}
