package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/linearizable"
)

// Violation is something that must not happen.
type Violation struct {
	Kind string // "not linearizable", ...
	Key  wire.Key
	What string
	// porcupine's view of a history that is not linearizable
	info *porcupine.LinearizationInfo
}

func (v Violation) String() string { return fmt.Sprintf("%s: key %v: %s", v.Kind, v.Key, v.What) }

// The kinds of Violation.
const (
	NotLinearizable = "not linearizable"
	TwoValues       = "one version, two values"
	NotSettled      = "not settled"
	NotWritable     = "not writable"
	Storm           = "a storm of packets"
	Intrusion       = "an answer to somebody who may not have it"
	NotSoSure       = "surely not executed, and yet it was"
	NoSlotAndYet    = "no slot, and then a value"
	AfterTheNext    = "executed after the next of its session"
	AliasOpen       = "an alias that others than the controller may use"
	HalfChanged     = "keys are worked on while the chain is half changed"
	ToldEarly       = "told before it was committed"
	NotTold         = "committed, and not told"
	BroughtBack     = "brought in, and an operator has left it out"
	GivenUpInVain   = "given up, and it has answered"
	HeldUp          = "held up by a switch that is no member"
	NameWentBack    = "a name's versions went back"
	SeenHidden      = "a key that is being added, and somebody was told of its slot"
	AnothersValue   = "what is told of a key is another's"
	UsedUp          = "a version that nobody can have written is on record"
)

// check judges a run's history, key by key.
func (h *history) check(guessed guesses) []Violation {
	byKey := map[wire.Key][]operationOf{}
	var keys []wire.Key
	for _, o := range h.ops {
		if byKey[o.key] == nil {
			keys = append(keys, o.key)
		}
		byKey[o.key] = append(byKey[o.key], o)
	}
	slices.Sort(keys)
	out := another(h.ops, guessed)
	for _, k := range keys {
		ops := byKey[k]
		versions, v := observe(ops)
		if v != nil {
			out = append(out, *v)
		}
		out = append(out, belied(k, ops, versions)...)
		out = append(out, late(k, ops, versions)...)
		out = append(out, ahead(k, ops)...)
		if v := linearize(k, ops, versions); v != nil {
			out = append(out, *v)
		}
	}
	return out
}

// observation is what somebody was told of a version, and when he was told first.
type observation struct {
	value string
	found bool
	first time.Duration
	who   operationOf
}

// observe collects what was said of each version. All must say the same: whoever reads, EVENTUAL
// reads too.
func observe(ops []operationOf) (map[wire.Version]*observation, *Violation) {
	out := map[wire.Version]*observation{}
	var violation *Violation
	see := func(v wire.Version, value string, found bool, o operationOf) {
		old := out[v]
		switch {
		case old == nil:
			out[v] = &observation{value, found, o.end, o}
		case old.value != value || old.found != found:
			if violation == nil {
				violation = &Violation{Kind: TwoValues, Key: o.key, What: fmt.Sprintf("%s by %s at %v: %s; %s by %s at %v: %s",
					old.who.request(), old.who.client, old.who.end, old.who.result(), o.request(), o.client,
					o.end, o.result())}
			}
		default:
			old.first = min(old.first, o.end)
		}
	}
	for _, o := range ops {
		switch {
		case o.outcome == failed:
			see(o.version, o.saw, o.found, o)
		case o.outcome != done:
		case o.op == wire.Read:
			see(o.version, o.value, o.found, o)
		default:
			see(o.version, o.value, !o.del, o)
		}
	}
	return out, violation
}

// belied finds the writes of which the client library has said that they are surely not executed,
// and whose value somebody has seen. (Of a deletion nothing tells it from others.)
func belied(key wire.Key, ops []operationOf, versions map[wire.Version]*observation) (out []Violation) {
	seen := map[string]*observation{}
	for _, o := range versions {
		if o.found {
			seen[o.value] = o
		}
	}
	for _, o := range ops {
		if o.op == wire.Read || o.del || o.outcome != nothing && o.outcome != failed {
			continue
		}
		if by := seen[o.value]; by != nil {
			out = append(out, Violation{Kind: NotSoSure, Key: key,
				What: fmt.Sprintf("%s by %s: %s at %v; %s by %s at %v: %s", o.request(), o.client, o.result(), o.end,
					by.who.request(), by.who.client, by.who.end, by.who.result())})
		}
	}
	return out
}

// late finds the writes of unknown outcome that were executed after a later write of the same
// session to the same key had been: that ends what is unknown of them (docs/consistency.md).
func late(key wire.Key, ops []operationOf, versions map[wire.Version]*observation) (out []Violation) {
	lowest := map[string]wire.Version{}
	for v, seen := range versions {
		if old, ok := lowest[seen.value]; seen.found && (!ok || v < old) {
			lowest[seen.value] = v
		}
	}
	type writer struct {
		client  string
		session uint16
	}
	executed := map[writer][]operationOf{}
	for _, o := range ops {
		if o.op != wire.Read && o.outcome == done && o.session != 0 {
			executed[writer{o.client, o.session}] = append(executed[writer{o.client, o.session}], o)
		}
	}
	for _, o := range ops {
		v, seen := lowest[o.value]
		if o.op == wire.Read || o.outcome != unknown || o.del || !seen {
			continue
		}
		for _, next := range executed[writer{o.client, o.session}] {
			if next.number > o.number && v > next.version {
				out = append(out, Violation{Kind: AfterTheNext, Key: key,
					What: fmt.Sprintf("%s by %s, request %d: %s, was given version %v; %s, request %d: %s", o.request(), o.client, o.number,
						o.result(), v, next.request(), next.number, next.result())})
			}
		}
	}
	return out
}

// linearize asks porcupine whether there is an order of one key's calls, each between its begin and
// its end, that explains every answer.
//
// A write of unknown outcome is pending for ever: it may have happened at any time since, or never.
// Every value is written once, so whether it did is known where anybody has seen its value (or, of
// a deletion, nothing tells it from others: then it is one of the versions without a value that no
// known write has). If somebody has, it has that version, and happened before he was answered. If
// nobody ever has, it may as well never have happened: nothing else depends on it: a CAS on its
// version would have been told of it by somebody, or has guessed.
func linearize(key wire.Key, ops []operationOf, versions map[wire.Version]*observation) *Violation {
	// What a move puts under another KEY_ID was written before: its version says nothing of that
	// write's. Nor does a lower one of that KEY_ID: the controller may have had to write it several
	// times before anybody else could.
	// So it is with the deletion by which it places a key.
	moves, placings := map[wire.Version]wire.Version{}, map[wire.Version]wire.Version{} // by incarnation
	for _, o := range ops {
		switch i := o.version >> composedShift; {
		case o.move:
			moves[i] = o.version
		case o.places:
			placings[i] = max(placings[i], o.version)
		}
	}
	movedDeletion := slices.ContainsFunc(ops, func(o operationOf) bool { return o.move && o.del })
	byValue := map[string]wire.Version{}
	movedValue := map[string]bool{}
	unexplained := map[wire.Version]bool{} // deletions that somebody saw
	for v, seen := range versions {
		if seen.found && v <= moves[v>>composedShift] {
			movedValue[seen.value] = true
		} else if seen.found {
			if old, twice := byValue[seen.value]; !twice || v < old {
				byValue[seen.value] = v
			}
		} else if v > max(moves[v>>composedShift], placings[v>>composedShift]) {
			// (below, it is what the slot's key of before has left, which an EVENTUAL read may
			// tell)
			unexplained[v] = true
		}
	}
	guessed := false // somebody's CAS was executed on a version that nobody was told
	for _, o := range ops {
		if o.outcome == done && o.op != wire.Read {
			delete(unexplained, o.version)
		}
		if o.outcome == done && o.op == wire.CAS && o.expected != 0 && versions[o.expected] == nil {
			guessed = true
		}
	}
	var history []porcupine.Operation
	add := func(o operationOf, client int, end time.Duration) {
		if o.op != wire.Read && o.outcome == done {
			// it has happened when somebody sees it, by an EVENTUAL read too
			end = min(end, max(o.call, versions[o.version].first))
		}
		history = append(history, porcupine.Operation{ClientId: client, Input: o, Call: int64(o.call),
			Output: o.version, Return: int64(end)})
	}
	for i, o := range ops {
		switch {
		case o.outcome == nothing: // (belied)
		case o.eventual:
			// apart: they may see any version that was ever committed, which makes them witnesses
			// (observe), no more
		case o.outcome == unknown && o.del:
			if movedDeletion {
				add(o, i, math.MaxInt64)
			}
		case o.outcome == unknown:
			if v, seen := byValue[o.value]; seen {
				o.outcome, o.version = done, v
				add(o, i, math.MaxInt64)
			} else if guessed || movedValue[o.value] {
				add(o, i, math.MaxInt64)
			}
		default:
			add(o, i, o.end)
		}
	}
	if !movedDeletion {
		for i, o := range explain(ops, versions, unexplained) {
			add(o, len(ops)+i, o.end)
		}
	}
	result, info := porcupine.CheckOperationsVerbose(register1, history, 20*time.Second)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return &Violation{Kind: "undecided", Key: key, What: "porcupine did not come to an end in 20 s", info: &info}
	}
	return &Violation{Kind: NotLinearizable, Key: key, What: blame(ops, stuck(&info)), info: &info}
}

// stuck says how far the longest order goes that porcupine has found, and which of the calls that
// have no place in it is over first.
func stuck(info *porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	if len(longest) == 0 {
		return "no order of the calls explains all answers"
	}
	last := longest[len(longest)-1].Input.(operationOf)
	return fmt.Sprintf("no order of the calls explains all answers: the longest has %d calls, up to %s at %v: %s (%s)", len(longest),
		last.request(), last.call, last.result(), last.client)
}

// explain gives a deletion for each version without a value that somebody saw and no known write
// has: one of those of unknown outcome, as long as there are enough that had begun. It does not
// matter which: each may have happened at any time since the first of them began. (To have
// porcupine choose among dozens would take it for ever.)
func explain(ops []operationOf, versions map[wire.Version]*observation, unexplained map[wire.Version]bool) (
	out []operationOf) {
	var begun []operationOf
	for _, o := range ops {
		if o.outcome == unknown && o.del {
			begun = append(begun, o)
		}
	}
	slices.SortFunc(begun, func(a, b operationOf) int { return cmp.Compare(a.call, b.call) })
	bySight := slices.SortedFunc(maps.Keys(unexplained), func(a, b wire.Version) int {
		return cmp.Or(cmp.Compare(versions[a].first, versions[b].first), cmp.Compare(a, b))
	})
	next := 0
	for _, v := range bySight {
		// (One that was seen before any began is not a client's: the controller has written it, and
		// was not told so.)
		if next < len(begun) && begun[next].call <= versions[v].first {
			o := begun[next]
			next++
			out = append(out, operationOf{client: o.client, key: o.key, op: wire.Write, del: true,
				call: begun[0].call, end: versions[v].first, outcome: done, version: v})
		}
	}
	return out
}

// register1 is one key: a register whose writes are numbered by versions that only grow.
var register1 = porcupine.Model{
	Init: func() any { return linearizable.Register{} },
	Step: func(now, input, _ any) (bool, any) {
		ok, next := now.(linearizable.Register).Step(input.(operationOf).asCall())
		return ok, next
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, _ any) string {
		o := input.(operationOf)
		return fmt.Sprintf("%s: %s: %s", o.client, o.request(), o.result())
	},
	DescribeState: func(s any) string { return fmt.Sprintf("%+v", s) },
}

// asCall is the operation as the model of a key knows it.
func (o operationOf) asCall() linearizable.Call {
	x := linearizable.Call{Op: o.op, Delete: o.del, Value: o.value, Expected: o.expected,
		Unknown: o.outcome == unknown, Failed: o.outcome == failed,
		Found: o.found, Got: o.value, Version: o.version}
	if x.Failed {
		x.Got = o.saw
	}
	if o.move && !x.Unknown {
		x.Op = linearizable.Rewrite
	}
	return x
}

// blame looks for the plainest reason for which a history is not linearizable: a call that was told
// of an older version than one that had ended before it began was told of.
func blame(ops []operationOf, otherwise string) string {
	byEnd := slices.Clone(ops)
	slices.SortStableFunc(byEnd, func(a, b operationOf) int { return cmp.Compare(a.end, b.end) })
	byVersion := map[wire.Version]operationOf{}
	byValue := map[string]operationOf{}
	for _, o := range byEnd {
		if o.outcome == unknown || o.outcome == nothing || o.eventual {
			continue
		}
		for _, p := range byEnd {
			if p.outcome == unknown || p.outcome == nothing || p.eventual || p.end >= o.call || p.version <= o.version {
				continue
			}
			return fmt.Sprintf("%s at %v: %s (%s); but before it began, at %v: %s (%s)", o.request(), o.end, o.result(), o.client, p.end, p.result(), p.client)
		}
		if o.op != wire.Read && o.outcome == done {
			if p, twice := byVersion[o.version]; twice {
				return fmt.Sprintf("two writes were given version %v: %s (%s) and %s (%s)", o.version, p.request(), p.client, o.request(), o.client)
			}
			byVersion[o.version] = o
			if !o.del {
				byValue[o.value] = o
			}
		}
	}
	for _, o := range byEnd {
		if o.outcome == done && o.op == wire.Read && !o.eventual && o.found {
			if p, ok := byValue[o.value]; ok && p.version != o.version {
				return fmt.Sprintf("%s was executed twice: it was answered %s, and %s read it as version %v at %v", p.request(), p.result(), o.client, o.version, o.end)
			}
		}
	}
	return otherwise
}

// ahead finds what was told to a server that watches before it was committed: a call that began
// after found less.
func ahead(key wire.Key, ops []operationOf) (out []Violation) {
	var told, calls []operationOf
	for _, o := range ops {
		switch {
		case o.notified:
			told = append(told, o)
		case !o.eventual && !o.move && (o.outcome == done || o.outcome == failed):
			calls = append(calls, o)
		}
	}
	slices.SortStableFunc(calls, func(a, b operationOf) int { return int(a.call - b.call) })
	var newest operationOf
	for _, o := range calls {
		for len(told) > 0 && told[0].end < o.call { // they are in the order of their ends
			if told[0].version > newest.version {
				newest = told[0]
			}
			told = told[1:]
		}
		if newest.version > o.version {
			return []Violation{{Kind: ToldEarly, Key: key, What: fmt.Sprintf("at %v a server was told version %v; %s by %s, which began at %v: %s",
				newest.end, newest.version, o.request(), o.client, o.call, o.result())}}
		}
	}
	return nil
}

// Visualize writes porcupine's picture of a history that is not linearizable, as a page for a
// browser. It writes nothing for other violations.
func (v Violation) Visualize(path string) (bool, error) {
	if v.info == nil {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	if err := porcupine.VisualizePath(register1, *v.info, path); err != nil {
		return false, fmt.Errorf("porcupine's picture: %w", err)
	}
	return true, nil
}
