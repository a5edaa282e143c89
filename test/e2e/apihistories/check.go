package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience bounds the search for a linearizable order of one key's operations.
const patience = 2 * time.Minute

// change is an event of an object at a revision, as watches report it.
type change struct {
	event
	first time.Duration // the time when the first watch reported the change
}

// truth is the sequence of changes in the namespace. The changes are ordered by etcd's revisions.
type truth struct {
	all   []change            // all changes, in the order of revisions
	byKey map[string][]change // the changes of each key, in the order of revisions
	byVal map[string]change   // changes by the written value
}

// check returns descriptions of what is wrong with a history. It returns nil if the history is
// right. Each watch must report a completed write within late.
func (h *history) check(late time.Duration) []string {
	t, wrong := h.gather()
	if len(wrong) > 0 {
		return wrong // Do not report further faults, which would be consequences of these.
	}
	for _, part := range [][]string{h.events(t), h.written(t), h.ordered(t), h.linearizable(t),
		h.current(late)} {
		wrong = append(wrong, part...)
	}
	return wrong
}

// gather combines the events of all watches. It reports events on which two watches disagree, and
// revisions that no watch covers.
func (h *history) gather() (truth, []string) {
	t := truth{byKey: map[string][]change{}, byVal: map[string]change{}}
	var wrong []string
	at := map[int64]change{}
	type span struct{ from, to int64 }
	var spans []span
	for _, s := range h.Sessions {
		spans = append(spans, span{s.From, s.until()})
		last := s.From
		for _, e := range s.Events {
			if e.Revision < last || e.Revision == last && e.Type != "" {
				wrong = append(wrong,
					fmt.Sprintf("%s: its watch from %d tells revision %d after %d", s.Server,
						s.From, e.Revision, last))
			}
			last = e.Revision
			if e.Type == "" {
				continue
			}
			c, known := at[e.Revision]
			switch {
			case !known:
				at[e.Revision] = change{e, e.At}
			case c.Type != e.Type || c.Key != e.Key || c.Value != e.Value:
				wrong = append(wrong,
					fmt.Sprintf("revision %d is %s of %s (%s) on %s, and %s of %s (%s) elsewhere",
						e.Revision,
						e.Type, e.Key, e.Value, s.Server, c.Type, c.Key, c.Value))
			default:
				c.first = min(c.first, e.At)
				at[e.Revision] = c
			}
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	reached := h.Since
	for _, s := range spans {
		if s.from > reached {
			break
		}
		reached = max(reached, s.to)
	}
	if reached < h.Until {
		wrong = append(wrong,
			fmt.Sprintf("nobody has watched what came after revision %d, of %d: nothing can be said of it", reached, h.Until))
	}
	for _, revision := range slices.Sorted(maps.Keys(at)) {
		c := at[revision]
		t.all = append(t.all, c)
		t.byKey[c.Key] = append(t.byKey[c.Key], c)
		if c.Type != "DELETED" {
			if other, twice := t.byVal[c.Value]; twice {
				wrong = append(wrong,
					fmt.Sprintf("%s was written once, and is there at revisions %d and %d", c.Value,
						other.Revision, revision))
			}
			t.byVal[c.Value] = c
		}
	}
	return t, wrong
}

// events checks that each watch has reported every event in its range, and that the events of each
// object are possible.
func (h *history) events(t truth) (wrong []string) {
	for _, s := range h.Sessions {
		told := map[int64]bool{}
		for _, e := range s.Events {
			told[e.Revision] = told[e.Revision] || e.Type != ""
		}
		end := s.until()
		for _, c := range t.all[after(t.all, s.From):] {
			if c.Revision > end {
				break
			}
			if !told[c.Revision] {
				wrong = append(wrong,
					fmt.Sprintf("%s: its watch from %d on to %d does not tell %s of %s at revision %d", s.Server, s.From, end,
						c.Type, c.Key, c.Revision))
			}
		}
	}
	for key, changes := range t.byKey {
		last := "DELETED"
		for _, c := range changes {
			if (last == "DELETED") != (c.Type == "ADDED") {
				wrong = append(wrong, fmt.Sprintf("watches tell %s after %s of %s at revision %d",
					c.Type, last, key, c.Revision))
			}
			last = c.Type
		}
	}
	return wrong
}

// after returns the index of the first change after a revision.
func after(changes []change, revision int64) int {
	return sort.Search(len(changes), func(i int) bool { return changes[i].Revision > revision })
}

// at returns the state of an object at a revision.
func (t truth) at(key string, revision int64) state {
	of := t.byKey[key]
	if n := after(of, revision); n > 0 && of[n-1].Type != "DELETED" {
		return state{true, of[n-1].Value, of[n-1].Revision}
	}
	return state{}
}

// written checks the outcomes of writes. Every acknowledged write must have taken effect at the
// revision in its answer. No refused write may have taken effect. A client must have requested
// every change.
func (h *history) written(t truth) (wrong []string) {
	asked := map[string]bool{}
	for _, o := range h.Operations {
		if !o.Kind.writes() || o.Kind == remove {
			continue
		}
		asked[o.Value] = true
		c, there := t.byVal[o.Value]
		switch {
		case o.Outcome == done && (!there || c.Revision != o.Read.Revision || c.Key != o.Key):
			wrong = append(wrong,
				fmt.Sprintf("%s: lost: %s of %s (%s) was acknowledged with revision %d; watches have: %v at %d", o.Server, o.Kind, o.Key,
					o.Value, o.Read.Revision, there, c.Revision))
		case o.Outcome != done && o.Outcome != unknown && there:
			wrong = append(wrong,
				fmt.Sprintf("%s: %s of %s (%s) was refused (%s), and is there at revision %d",
					o.Server, o.Kind, o.Key, o.Value, o.Outcome,
					c.Revision))
		}
	}
	for _, c := range t.all {
		if c.Type != "DELETED" && !asked[c.Value] {
			wrong = append(wrong, fmt.Sprintf("%s is %s at revision %d, which nobody has written",
				c.Key, c.Value, c.Revision))
		}
	}
	return wrong
}

// least returns a revision that the store had certainly reached when it answered the request.
func (o operation) least() int64 {
	if o.Outcome != done {
		return 0
	}
	return max(o.Read.Revision, o.Revision)
}

// ordered checks that revisions grow with time, over all servers and keys. A list must contain
// every object that existed at the list's revision. The revision of a list or a get must not be
// older than any revision that a client had seen before the request. The revision of a write must
// be newer than all of these.
func (h *history) ordered(t truth) (wrong []string) {
	byEnd := slices.Clone(h.Operations)
	slices.SortFunc(byEnd, func(a, b operation) int { return cmp.Compare(a.End, b.End) })
	byBegin := slices.Clone(h.Operations)
	slices.SortFunc(byBegin, func(a, b operation) int { return cmp.Compare(a.Begin, b.Begin) })
	seen, ended := operation{}, 0 // the operation with the newest revision so far
	say := func(o operation, revision int64) {
		wrong = append(wrong,
			fmt.Sprintf("%s: %s of %s at %v is of revision %d; %s of %s at %s had shown %d %v before", o.Server, o.Kind, o.Key, o.Begin,
				revision, seen.Kind, seen.Key, seen.Server, seen.least(), o.Begin-seen.End))
	}
	for _, o := range byBegin {
		for ; ended < len(byEnd) && byEnd[ended].End < o.Begin; ended++ {
			if byEnd[ended].least() > seen.least() {
				seen = byEnd[ended]
			}
		}
		newest := seen.least()
		if o.Outcome != done {
			continue
		}
		switch o.Kind {
		case list:
			if o.Revision < newest {
				say(o, o.Revision)
			}
			wrong = append(wrong, t.differs(o, h.Before)...)
		case get:
			if until := t.holds(o.Key, o.Read); until <= newest {
				say(o, until-1)
			}
		case remove:
		default:
			if o.Read.Revision <= newest {
				say(o, o.Read.Revision)
			}
		}
	}
	return wrong
}

// differs describes how the result of a list differs from the objects at the list's revision.
func (t truth) differs(o operation, before []string) (wrong []string) {
	for key, found := range o.All {
		if len(t.byKey[key]) == 0 && !slices.Contains(before, key) {
			wrong = append(wrong,
				fmt.Sprintf("%s: a list of revision %d has %s as %+v, of which no watch tells",
					o.Server, o.Revision, key, found))
		}
	}
	for key := range t.byKey {
		if found, was := o.All[key], t.at(key, o.Revision); found != was {
			wrong = append(wrong, fmt.Sprintf("%s: a list of revision %d has %s as %+v; it was %+v",
				o.Server, o.Revision, key, found, was))
		}
	}
	return wrong
}

// holds returns the last revision at which an object has the state s. If the object was absent
// several times, the last time counts.
func (t truth) holds(key string, s state) int64 {
	of := t.byKey[key]
	if !s.Found {
		for n := len(of) - 1; n >= 0; n-- {
			if of[n].Type == "DELETED" && n == len(of)-1 {
				return math.MaxInt64
			}
			if of[n].Type == "ADDED" {
				return of[n].Revision
			}
		}
		return math.MaxInt64
	}
	if n := after(of, s.Revision); n < len(of) {
		return of[n].Revision
	}
	return math.MaxInt64
}

// linearizable checks that porcupine finds a linearizable order for the operations of each key.
func (h *history) linearizable(t truth) (wrong []string) {
	for key, operations := range h.partition(t) {
		switch porcupine.CheckOperationsTimeout(model, operations, patience) {
		case porcupine.Ok:
			continue
		case porcupine.Unknown:
			wrong = append(wrong,
				fmt.Sprintf("%s: no order for %d operations in %v, nor a proof that there is none",
					key, len(operations), patience))
		default:
			slices.SortFunc(operations,
				func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
			var text strings.Builder
			for _, o := range operations {
				fmt.Fprintf(&text, "\n  %v..%v client %d: %s", time.Duration(o.Call),
					time.Duration(o.Return), o.ClientId, describe(o.Input, o.Output))
			}
			wrong = append(wrong, fmt.Sprintf("%s is not linearizable:%s", key, text.String()))
		}
	}
	return wrong
}

// partition returns the history of each key in porcupine's form. If a watch has reported a write of
// unknown outcome, the write had taken effect before that. Otherwise it counts as not executed.
func (h *history) partition(t truth) map[string][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	// client number for requests without an answer; each of them gets its own number
	lost := 1 << 20
	for _, o := range h.Operations {
		if o.Kind == list {
			for _, key := range o.About {
				if o.Outcome == done {
					one := operation{Server: o.Server, Kind: get, Key: key, Outcome: done,
						Read: o.All[key]}
					parts[key] = append(parts[key], porcupine.Operation{ClientId: o.Client,
						Input: one, Call: int64(o.Begin), Return: int64(o.End)})
				}
			}
			continue
		}
		call := porcupine.Operation{ClientId: o.Client, Call: int64(o.Begin), Return: int64(o.End)}
		if o.Outcome == unknown {
			c, there := t.byVal[o.Value]
			switch {
			case o.Kind == get || o.Kind != remove && !there:
				continue
			case o.Kind == remove:
				call.Return = math.MaxInt64
			default:
				o.Read = state{true, o.Value, c.Revision}
				call.Return = int64(max(c.first, o.Begin+1))
			}
			lost++
			call.ClientId = lost
		}
		call.Input = o
		parts[o.Key] = append(parts[o.Key], call)
	}
	return parts
}

// model is porcupine's model of one object. The revision of a deletion is unknown, because the
// answer to a deletion does not contain it.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(was, input, _ any) (bool, any) {
		s, o := was.(state), input.(operation)
		switch {
		case o.Outcome == absent:
			return !s.Found, s
		case o.Outcome == exists:
			return s.Found, s
		case o.Outcome == differs:
			return o.Kind != update || s.Found && s.Revision != o.Expected, s
		case o.Kind == get:
			return s == o.Read, s
		case o.Kind == remove:
			return s.Found || o.Outcome == unknown, state{}
		case o.Kind == create && s.Found, o.Kind != create && !s.Found:
			return false, s
		case o.Kind == update && s.Revision != o.Expected, o.Read.Revision <= s.Revision:
			return false, s
		}
		return true, o.Read
	},
	DescribeOperation: describe,
}

func describe(input, _ any) string {
	o := input.(operation)
	return fmt.Sprintf("%s %s %s %q (expects %d): %s, %+v", o.Server, o.Kind, o.Key, o.Value,
		o.Expected, o.Outcome, o.Read)
}

// current checks that each watch reports a write within the time `late`. If a write happened during
// a fault of the watch's server, the time counts from the end of the fault.
func (h *history) current(late time.Duration) (wrong []string) {
	for _, l := range h.lags(late) {
		if l.took > late {
			wrong = append(wrong,
				fmt.Sprintf("%s: a watch is stuck: revision %d, written at %v, was told %v after it had to be (at most %v)", l.server, l.revision,
					l.written.Round(time.Millisecond), l.took.Round(time.Millisecond), late))
		}
	}
	return wrong
}

// lag is the time after which a watcher has reported a write.
type lag struct {
	server   string
	revision int64
	written  time.Duration
	took     time.Duration // math.MaxInt64 if the watcher never reported the write
	excused  bool
}

// lags returns the lags of all acknowledged writes at all watchers.
func (h *history) lags(late time.Duration) (all []lag) {
	type told struct {
		revision int64
		at       time.Duration
	}
	servers, comes := map[int]string{},
		// for each watcher, the revisions that it reached, and when it reached them
		map[int][]told{}
	for _, s := range h.Sessions {
		servers[s.Watcher] = s.Server
		comes[s.Watcher] = append(comes[s.Watcher], told{s.From, s.At})
		for _, e := range s.Events {
			comes[s.Watcher] = append(comes[s.Watcher], told{e.Revision, e.At})
		}
	}
	for w, of := range comes {
		slices.SortFunc(of, func(a, b told) int { return cmp.Compare(a.at, b.at) })
		for i := 1; i < len(of); i++ {
			of[i].revision = max(of[i].revision, of[i-1].revision)
		}
		for _, o := range h.Operations {
			if !o.Kind.writes() || o.Outcome != done || o.Read.Revision == 0 {
				continue
			}
			due, owed := h.due(servers[w], o.End, late)
			if !owed {
				continue
			}
			l := lag{servers[w], o.Read.Revision, o.End, math.MaxInt64, due != o.End}
			if n := sort.Search(len(of),
				func(i int) bool { return of[i].revision >= o.Read.Revision }); n < len(of) {
				l.took = max(0, of[n].at-due)
			}
			all = append(all, l)
		}
	}
	return all
}

// due returns the time by which a server must report a write. It returns false if the server need
// not report the write at all.
func (h *history) due(server string, at, late time.Duration) (time.Duration, bool) {
	for again := true; again; {
		again = false
		for _, e := range h.Excuses {
			if e.Server != server || e.From > at+late {
				continue
			}
			if e.To < 0 {
				return 0, false
			}
			if e.To > at {
				at, again = e.To, true
			}
		}
	}
	return at, true
}
