package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const late = 2 * time.Second

// store simulates the answers of the API servers of a correct cluster. The servers share one store,
// whose revisions count up. Requests overlap, and each takes effect between its beginning and its
// end.
type store struct {
	random   *rand.Rand
	now      time.Duration
	revision int64
	objects  map[string]state
	changes  []event
	history  *history
	number   int
}

var names = []string{"n1", "n2", "n3"}

// sound makes a correct history of n requests at three servers, each with two watches.
func sound(seed uint64, n int) *history {
	s := &store{random: rand.New(rand.NewPCG(seed, 1)), revision: 100, objects: map[string]state{},
		history: &history{Since: 100}}
	for range n {
		s.request()
	}
	h := s.history
	h.Until = s.revision
	for i, name := range names {
		whole := &session{Server: name, Watcher: 2 * i, From: 100}
		half := s.changes[len(s.changes)/2]
		first := &session{Server: name, Watcher: 2*i + 1, From: 100}
		second := &session{Server: name, Watcher: 2*i + 1, From: half.Revision,
			At: half.At + 50*time.Millisecond}
		for _, e := range s.changes {
			e.At += time.Duration(s.random.IntN(40)) * time.Millisecond
			whole.Events = append(whole.Events, e)
			if e.Revision <= half.Revision {
				first.Events = append(first.Events, e)
			} else {
				second.Events = append(second.Events, e)
			}
		}
		h.Sessions = append(h.Sessions, whole, first, second)
	}
	return h
}

// request makes a request, which is executed at s.now.
func (s *store) request() {
	s.now += time.Duration(1+s.random.IntN(20)) * time.Millisecond
	s.number++
	client := s.random.IntN(6)
	key := fmt.Sprintf("k%d", s.random.IntN(4))
	o := operation{Client: s.number, Server: names[client%3], Key: key, Outcome: done,
		Value: fmt.Sprintf("v%d", s.number),
		Begin: s.now - time.Duration(s.random.IntN(30))*time.Millisecond,
		End:   s.now + time.Duration(s.random.IntN(30))*time.Millisecond}
	was := s.objects[key]
	put := func(kind string) {
		s.revision++
		s.objects[key] = state{true, o.Value, s.revision}
		o.Read = s.objects[key]
		s.changes = append(s.changes, event{s.now, kind, s.revision, key, o.Value})
	}
	switch p := s.random.IntN(100); {
	case p < 30:
		o.Kind, o.Value, o.Read = get, "", was
	case p < 45:
		o.Kind, o.Key, o.Value, o.Revision = list, "", "", s.revision
		o.All, o.About = maps.Clone(s.objects), []string{"k0", "k1", "k2", "k3"}
	case p < 60:
		o.Kind = create
		if was.Found {
			o.Outcome = exists
		} else {
			put("ADDED")
		}
	case p < 85:
		o.Kind = patch
		if p > 72 {
			o.Kind, o.Expected = update, was.Revision
			if s.random.IntN(3) == 0 {
				o.Expected--
			}
		}
		switch {
		case !was.Found:
			o.Outcome = absent
		case o.Kind == update && o.Expected != was.Revision:
			o.Outcome = differs
		default:
			put("MODIFIED")
		}
	default:
		o.Kind, o.Value = remove, ""
		if !was.Found {
			o.Outcome = absent
			break
		}
		s.revision++
		delete(s.objects, key)
		s.changes = append(s.changes, event{s.now, "DELETED", s.revision, key, was.Value})
	}
	if o.Outcome == done && o.Kind.writes() && s.random.IntN(12) == 0 {
		// The answer of this write is lost.
		o.Outcome, o.Read = unknown, state{}
	}
	s.history.add(o)
}

func TestSoundHistories(t *testing.T) {
	for seed := range uint64(30) {
		if wrong := sound(seed, 300).check(late); len(wrong) > 0 {
			t.Fatalf("seed %d: %s", seed, strings.Join(wrong, "\n"))
		}
	}
}

// find returns an operation in the history's second half for which `what` is true.
func find(t *testing.T, h *history, what func(operation) bool) *operation {
	t.Helper()
	for i := len(h.Operations) / 2; i < len(h.Operations); i++ {
		if what(h.Operations[i]) {
			return &h.Operations[i]
		}
	}
	t.Fatal("the history has no such operation")
	return nil
}

func is(k kind) func(operation) bool {
	return func(o operation) bool { return o.Kind == k && o.Outcome == done }
}

// forget removes the events with a revision from the given sessions.
func forget(revision int64, sessions ...*session) {
	for _, s := range sessions {
		s.Events = slices.DeleteFunc(s.Events, func(e event) bool { return e.Revision == revision })
	}
}

// early returns the first operation for which `what` is true.
func early(h *history, what func(operation) bool) operation {
	return h.Operations[slices.IndexFunc(h.Operations, what)]
}

// TestWrongHistories checks that check reports each history that a correct cluster cannot have,
// with the right description.
func TestWrongHistories(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*testing.T, *history)
		says  string
	}{
		"a list from a cache that is behind": {func(t *testing.T, h *history) {
			old, o := early(h, is(list)), find(t, h, is(list))
			o.All, o.Revision = old.All, old.Revision
		}, "had shown"},
		"a list that lacks an object": {func(t *testing.T, h *history) {
			o := find(t, h, func(o operation) bool { return is(list)(o) && len(o.All) > 0 })
			delete(o.All, slices.Sorted(maps.Keys(o.All))[0])
		}, "a list of revision"},
		"a list with an object of nobody": {func(t *testing.T, h *history) {
			find(t, h, is(list)).All["stranger"] = state{true, "x", 101}
		}, "of which no watch tells"},
		"a list with an older object": {func(t *testing.T, h *history) {
			o := find(t, h, func(o operation) bool { return is(list)(o) && len(o.All) > 0 })
			o.All[slices.Sorted(maps.Keys(o.All))[0]] = state{true, "v1", 100}
		}, "a list of revision"},
		"a get from a cache that is behind": {func(t *testing.T, h *history) {
			old := early(h, func(o operation) bool { return is(patch)(o) && o.Read.Found })
			find(t, h, func(o operation) bool { return is(get)(o) && o.Key == old.Key }).
				Read = old.Read
		}, "not linearizable"},
		"a get that finds nothing": {func(t *testing.T, h *history) {
			find(t, h, func(o operation) bool {
				if !is(get)(o) || !o.Read.Found {
					return false
				}
				for _, e := range h.Sessions[0].Events {
					// This object existed during the whole operation.
					if e.Key == o.Key && e.At > o.Begin-5*time.Millisecond &&
						e.At < o.End+5*time.Millisecond && e.Type != "MODIFIED" {
						return false
					}
				}
				return true
			}).Read = state{}
		}, "not linearizable"},
		"a lost write": {func(t *testing.T, h *history) {
			forget(find(t, h, is(patch)).Read.Revision, h.Sessions...)
		}, "lost: patch"},
		"a refused write that was executed": {func(t *testing.T, h *history) {
			find(t, h, is(patch)).Outcome = differs
		}, "was refused"},
		"a conflict without a reason": {func(t *testing.T, h *history) {
			o := find(t, h, func(o operation) bool {
				return o.Kind == update &&
					o.Outcome == differs
			})
			o.Expected++ // the expected revision is not the object's revision at that time
		}, "not linearizable"},
		"an absence without a reason": {func(t *testing.T, h *history) {
			find(t, h, func(o operation) bool { return o.Kind == create && o.Outcome == exists }).
				Outcome = absent
		}, "not linearizable"},
		"a write of a revision of the past": {func(t *testing.T, h *history) {
			o := find(t, h, is(patch))
			o.Begin += time.Minute
			o.End += time.Minute
		}, "had shown"},
		"a write that nobody asked for": {func(_ *testing.T, h *history) {
			h.Operations = slices.DeleteFunc(h.Operations, is(patch))
		}, "nobody has written"},
		"a watch without an event": {func(_ *testing.T, h *history) {
			forget(h.Sessions[0].Events[7].Revision, h.Sessions[0])
		}, "does not tell"},
		"a watch begun anew without an event": {func(_ *testing.T, h *history) {
			s := h.Sessions[2]
			s.Events = s.Events[1:]
		}, "does not tell"},
		"a watch that tells twice": {func(_ *testing.T, h *history) {
			s := h.Sessions[0]
			s.Events = slices.Insert(s.Events, 8, s.Events[7])
		}, "after"},
		"a watch that tells in another order": {func(_ *testing.T, h *history) {
			e := h.Sessions[0].Events
			e[7], e[8] = e[8], e[7]
		}, "after"},
		"two watches that disagree": {func(_ *testing.T, h *history) {
			h.Sessions[0].Events[7].Value = "another"
		}, "elsewhere"},
		"a bookmark too early": {func(_ *testing.T, h *history) {
			s := h.Sessions[0]
			s.Events = append(s.Events[:7:7], event{At: s.Events[9].At,
				Revision: s.Events[9].Revision})
		}, "does not tell"},
		"nobody has watched": {func(_ *testing.T, h *history) {
			for _, s := range h.Sessions {
				s.Events = slices.DeleteFunc(s.Events,
					func(e event) bool { return e.Revision > 130 })
			}
		}, "nobody has watched"},
		"a stuck watch": {func(_ *testing.T, h *history) {
			s := h.Sessions[0]
			for i := len(s.Events) / 2; i < len(s.Events); i++ {
				s.Events[i].At += late + 100*time.Millisecond
			}
		}, "a watch is stuck"},
		"a watch that ends, and none after it": {func(_ *testing.T, h *history) {
			s := h.Sessions[0]
			s.Events = s.Events[:len(s.Events)/2]
		}, "a watch is stuck"},
		"a watch that is stuck after its excuse": {func(_ *testing.T, h *history) {
			s := h.Sessions[0]
			middle := s.Events[len(s.Events)/2].At
			h.Excuses = []excuse{{"n1", middle - time.Second, middle}}
			for i := len(s.Events) / 2; i < len(s.Events); i++ {
				s.Events[i].At += late + 100*time.Millisecond
			}
		}, "a watch is stuck"},
	} {
		h := sound(7, 300)
		test.spoil(t, h)
		wrong := strings.Join(h.check(late), "\n")
		if !strings.Contains(wrong, test.says) {
			t.Errorf("%s: the checker says %q, without %q", name, wrong, test.says)
		}
	}
}

// TestExcused checks that a watch may be late during a fault of its server's node, and for some
// seconds after the fault.
func TestExcused(t *testing.T) {
	h := sound(7, 300)
	s := h.Sessions[0]
	middle := s.Events[len(s.Events)/2].At
	for i := len(s.Events) / 2; i < len(s.Events); i++ {
		s.Events[i].At = max(s.Events[i].At, middle+10*time.Second)
	}
	if wrong := h.check(late); len(wrong) == 0 {
		t.Error("a watch may be late without an excuse")
	}
	h.Excuses = []excuse{{"n2", middle - time.Second, middle + 9*time.Second}}
	if wrong := h.check(late); len(wrong) == 0 {
		t.Error("a watch may be late where another server has an excuse")
	}
	h.Excuses = []excuse{{"n1", middle - time.Second, middle + 9*time.Second}}
	if wrong := h.check(late); len(wrong) > 0 {
		t.Errorf("an excuse does not count: %s", wrong[0])
	}
	h.Excuses[0].To = -1
	s.Events = s.Events[:len(s.Events)/2]
	if wrong := h.check(late); len(wrong) > 0 {
		t.Errorf("an excuse without an end does not count: %s", wrong[0])
	}
}

// TestGap checks that the longest time without a write is reported together with the last mark
// before the end of that time.
func TestGap(t *testing.T) {
	h := sound(7, 300)
	last := h.Operations[len(h.Operations)-1].End
	h.Ended = last + 20*time.Second
	h.Marks = []mark{{0, "early"}, {last + 2*time.Second, "power n2"}}
	h.Operations = append(h.Operations, operation{Server: "n1", Kind: remove, Key: "x",
		Begin: last, End: last + 12*time.Second, Outcome: done})
	r := h.report(late)
	if r.GapAfter == "" || !strings.HasPrefix(r.GapAfter, "power n2, from -2") ||
		!strings.HasSuffix(r.GapAfter, "to 10.0 s after it") {
		t.Errorf("the gap of %.1f s is after %q", r.WriteGap, r.GapAfter)
	}
}

// TestKept checks that a stored history gives the same report.
func TestKept(t *testing.T) {
	h := sound(7, 300)
	h.Ended = time.Minute
	path := filepath.Join(t.TempDir(), "history.json.gz")
	if err := h.save(path); err != nil {
		t.Fatal(err)
	}
	again, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	if was, is := h.report(late), again.report(late); !reflect.DeepEqual(was, is) {
		t.Errorf("%+v\nis read as\n%+v", was, is)
	}
	for name, content := range map[string]string{"none": "", "short": "\x1f\x8b", "other": "{}"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read(path); err == nil {
			t.Errorf("%s: is taken for a history", name)
		}
	}
}
