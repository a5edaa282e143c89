package judge

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

// Violation is an event that must not happen.
type Violation struct {
	Kind string // the kind of violation, such as "not linearizable"
	Key  wire.Key
	What string
	// info is porcupine's view of a history that is not linearizable
	info *porcupine.LinearizationInfo
}

// String names the violation and its key.
func (v Violation) String() string { return fmt.Sprintf("%s: key %v: %s", v.Kind, v.Key, v.What) }

// These are the kinds of Violation.
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

// Check checks a run's history, key by key.
func (h *History) Check(guessed Guesses) []Violation {
	byKey := map[wire.Key][]Call{}
	var keys []wire.Key
	for _, o := range h.Ops {
		if byKey[o.Key] == nil {
			keys = append(keys, o.Key)
		}
		byKey[o.Key] = append(byKey[o.Key], o)
	}
	slices.Sort(keys)
	out := another(h.Ops, guessed)
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

// observation is an answer that shows a version, and the time when a client first got such an
// answer.
type observation struct {
	value string
	found bool
	first time.Duration
	who   Call
}

// observe collects the answers about each version. All answers about a version must agree,
// whichever switch gave them. This includes EVENTUAL reads.
func observe(ops []Call) (map[wire.Version]*observation, *Violation) {
	out := map[wire.Version]*observation{}
	var violation *Violation
	see := func(v wire.Version, value string, found bool, o Call) {
		old := out[v]
		switch {
		case old == nil:
			out[v] = &observation{value, found, o.End, o}
		case old.value != value || old.found != found:
			if violation == nil {
				violation = &Violation{Kind: TwoValues, Key: o.Key, What: fmt.Sprintf("%s by %s at %v: %s; %s by %s at %v: %s",
					old.who.Request(), old.who.Client, old.who.End, old.who.Result(), o.Request(), o.Client,
					o.End, o.Result())}
			}
		default:
			old.first = min(old.first, o.End)
		}
	}
	for _, o := range ops {
		switch {
		case o.Outcome == Failed:
			see(o.Version, o.Saw, o.Found, o)
		case o.Outcome != Done:
		case o.Op == wire.Read:
			see(o.Version, o.Value, o.Found, o)
		default:
			see(o.Version, o.Value, !o.Del, o)
		}
	}
	return out, violation
}

// belied finds writes that the client library reported as surely not executed although somebody has
// seen their values. (Deletions have no value that could tell them apart.)
func belied(key wire.Key, ops []Call, versions map[wire.Version]*observation) (out []Violation) {
	seen := map[string]*observation{}
	for _, o := range versions {
		if o.found {
			seen[o.value] = o
		}
	}
	for _, o := range ops {
		if o.Op == wire.Read || o.Del || o.Outcome != Nothing && o.Outcome != Failed {
			continue
		}
		if by := seen[o.Value]; by != nil {
			out = append(out, Violation{Kind: NotSoSure, Key: key,
				What: fmt.Sprintf("%s by %s: %s at %v; %s by %s at %v: %s", o.Request(), o.Client, o.Result(), o.End,
					by.who.Request(), by.who.Client, by.who.End, by.who.Result())})
		}
	}
	return out
}

// late finds writes of unknown outcome that were executed after a later write of the same session
// to the same key. When the later write is executed, the outcome of the earlier write must be
// settled (docs/consistency.md).
func late(key wire.Key, ops []Call, versions map[wire.Version]*observation) (out []Violation) {
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
	executed := map[writer][]Call{}
	for _, o := range ops {
		if o.Op != wire.Read && o.Outcome == Done && o.Session != 0 {
			executed[writer{o.Client, o.Session}] = append(executed[writer{o.Client, o.Session}], o)
		}
	}
	for _, o := range ops {
		v, seen := lowest[o.Value]
		if o.Op == wire.Read || o.Outcome != Unknown || o.Del || !seen {
			continue
		}
		for _, next := range executed[writer{o.Client, o.Session}] {
			if next.Number > o.Number && v > next.Version {
				out = append(out, Violation{Kind: AfterTheNext, Key: key,
					What: fmt.Sprintf("%s by %s, request %d: %s, was given version %v; %s, request %d: %s", o.Request(), o.Client, o.Number,
						o.Result(), v, next.Request(), next.Number, next.Result())})
			}
		}
	}
	return out
}

// linearize asks porcupine whether there is an order of one key's calls, each between its begin and
// its end, that explains every answer.
//
// A write of unknown outcome is pending for ever: it may have happened at any time since its begin,
// or never. Every value is written only once, so a value that somebody has seen proves that its
// write happened. (Deletions cannot be distinguished. Each counts as one of the versions without a
// value that no known write has.) A write whose value was seen has that version, and happened
// before the answer that showed it. A write whose value was never seen may be taken as never
// executed, because no other answer depends on it.
func linearize(key wire.Key, ops []Call, versions map[wire.Version]*observation) *Violation {
	// A move writes an earlier value under another KEY_ID, so the move's version says nothing about
	// that value's first write. A lower version of that KEY_ID says nothing either, because the
	// controller may have had to repeat its write before anybody else could write. The same holds
	// for the deletion by which the controller places a key.
	// the keys of both maps are incarnations
	moves, placings := map[wire.Version]wire.Version{}, map[wire.Version]wire.Version{}
	for _, o := range ops {
		switch i := o.Version >> ComposedShift; {
		case o.Move:
			moves[i] = o.Version
		case o.Places:
			placings[i] = max(placings[i], o.Version)
		}
	}
	movedDeletion := slices.ContainsFunc(ops, func(o Call) bool { return o.Move && o.Del })
	byValue := map[string]wire.Version{}
	movedValue := map[string]bool{}
	unexplained := map[wire.Version]bool{} // versions of deletions that somebody saw
	for v, seen := range versions {
		if seen.found && v <= moves[v>>ComposedShift] {
			movedValue[seen.value] = true
		} else if seen.found {
			if old, twice := byValue[seen.value]; !twice || v < old {
				byValue[seen.value] = v
			}
		} else if v > max(moves[v>>ComposedShift], placings[v>>ComposedShift]) {
			// (A lower version belongs to the slot's earlier key. An EVENTUAL read may return such
			// a version.)
			unexplained[v] = true
		}
	}
	guessed := false // whether a CAS was executed on a version that no answer contained
	for _, o := range ops {
		if o.Outcome == Done && o.Op != wire.Read {
			delete(unexplained, o.Version)
		}
		if o.Outcome == Done && o.Op == wire.CAS && o.Expected != 0 && versions[o.Expected] == nil {
			guessed = true
		}
	}
	var history []porcupine.Operation
	add := func(o Call, client int, end time.Duration) {
		if o.Op != wire.Read && o.Outcome == Done {
			// The write has happened at the latest when somebody sees its value, even by an
			// EVENTUAL read.
			end = min(end, max(o.Begin, versions[o.Version].first))
		}
		history = append(history, porcupine.Operation{ClientId: client, Input: o, Call: int64(o.Begin),
			Output: o.Version, Return: int64(end)})
	}
	for i, o := range ops {
		switch {
		case o.Outcome == Nothing: // the function belied checks these writes
		case o.Eventual:
			// Only observe uses EVENTUAL reads, because such a read may see any version that was
			// ever committed.
		case o.Outcome == Unknown && o.Del:
			if movedDeletion {
				add(o, i, math.MaxInt64)
			}
		case o.Outcome == Unknown:
			if v, seen := byValue[o.Value]; seen {
				o.Outcome, o.Version = Done, v
				add(o, i, math.MaxInt64)
			} else if guessed || movedValue[o.Value] {
				add(o, i, math.MaxInt64)
			}
		default:
			add(o, i, o.End)
		}
	}
	if !movedDeletion {
		for i, o := range explain(ops, versions, unexplained) {
			add(o, len(ops)+i, o.End)
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

// stuck describes the longest order that porcupine has found. It names the order's length, and the
// call that ended first among the calls that are not in the order.
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
	last := longest[len(longest)-1].Input.(Call)
	return fmt.Sprintf("no order of the calls explains all answers: the longest has %d calls, up to %s at %v: %s (%s)", len(longest),
		last.Request(), last.Begin, last.Result(), last.Client)
}

// explain assigns a deletion to each version without a value that somebody saw and that no known
// write has. It takes a deletion of unknown outcome, if enough such deletions had begun by then.
// Any of them will do, because each may have happened at any time since the first of them began.
// (Porcupine would take for ever to choose among dozens.)
func explain(ops []Call, versions map[wire.Version]*observation, unexplained map[wire.Version]bool) (
	out []Call) {
	var begun []Call
	for _, o := range ops {
		if o.Outcome == Unknown && o.Del {
			begun = append(begun, o)
		}
	}
	slices.SortFunc(begun, func(a, b Call) int { return cmp.Compare(a.Begin, b.Begin) })
	bySight := slices.SortedFunc(maps.Keys(unexplained), func(a, b wire.Version) int {
		return cmp.Or(cmp.Compare(versions[a].first, versions[b].first), cmp.Compare(a, b))
	})
	next := 0
	for _, v := range bySight {
		// (If a version was seen before any deletion began, it is a deletion by the controller,
		// which got no answer to it.)
		if next < len(begun) && begun[next].Begin <= versions[v].first {
			o := begun[next]
			next++
			out = append(out, Call{Client: o.Client, Key: o.Key, Op: wire.Write, Del: true,
				Begin: begun[0].Begin, End: versions[v].first, Outcome: Done, Version: v})
		}
	}
	return out
}

// register1 models one key as a register. Each write has a version, and versions only grow.
var register1 = porcupine.Model{
	Init: func() any { return linearizable.Register{} },
	Step: func(now, input, _ any) (bool, any) {
		ok, next := now.(linearizable.Register).Step(input.(Call).asCall())
		return ok, next
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, _ any) string {
		o := input.(Call)
		return fmt.Sprintf("%s: %s: %s", o.Client, o.Request(), o.Result())
	},
	DescribeState: func(s any) string { return fmt.Sprintf("%+v", s) },
}

// asCall returns the call in the form of a key's model.
func (o Call) asCall() linearizable.Call {
	x := linearizable.Call{Op: o.Op, Delete: o.Del, Value: o.Value, Expected: o.Expected,
		Unknown: o.Outcome == Unknown, Failed: o.Outcome == Failed,
		Found: o.Found, Got: o.Value, Version: o.Version}
	if x.Failed {
		x.Got = o.Saw
	}
	if o.Move && !x.Unknown {
		x.Op = linearizable.Rewrite
	}
	return x
}

// blame finds the simplest reason why a history is not linearizable. That is a call that returned
// an older version than another call, which had ended before it began.
func blame(ops []Call, otherwise string) string {
	byEnd := slices.Clone(ops)
	slices.SortStableFunc(byEnd, func(a, b Call) int { return cmp.Compare(a.End, b.End) })
	byVersion := map[wire.Version]Call{}
	byValue := map[string]Call{}
	for _, o := range byEnd {
		if o.Outcome == Unknown || o.Outcome == Nothing || o.Eventual {
			continue
		}
		for _, p := range byEnd {
			if p.Outcome == Unknown || p.Outcome == Nothing || p.Eventual || p.End >= o.Begin ||
				p.Version <= o.Version {
				continue
			}
			return fmt.Sprintf("%s at %v: %s (%s); but before it began, at %v: %s (%s)", o.Request(), o.End, o.Result(), o.Client, p.End, p.Result(), p.Client)
		}
		if o.Op != wire.Read && o.Outcome == Done {
			if p, twice := byVersion[o.Version]; twice {
				return fmt.Sprintf("two writes were given version %v: %s (%s) and %s (%s)", o.Version, p.Request(), p.Client, o.Request(), o.Client)
			}
			byVersion[o.Version] = o
			if !o.Del {
				byValue[o.Value] = o
			}
		}
	}
	for _, o := range byEnd {
		if o.Outcome == Done && o.Op == wire.Read && !o.Eventual && o.Found {
			if p, ok := byValue[o.Value]; ok && p.Version != o.Version {
				return fmt.Sprintf("%s was executed twice: it was answered %s, and %s read it as version %v at %v", p.Request(), p.Result(), o.Client, o.Version, o.End)
			}
		}
	}
	return otherwise
}

// ahead finds versions of which a watching server was notified before they were committed. In that
// case, a call that began after the NOTIFY found a lower version.
func ahead(key wire.Key, ops []Call) (out []Violation) {
	var told, calls []Call
	for _, o := range ops {
		switch {
		case o.Notified:
			told = append(told, o)
		case !o.Eventual && !o.Move && (o.Outcome == Done || o.Outcome == Failed):
			calls = append(calls, o)
		}
	}
	slices.SortStableFunc(calls, func(a, b Call) int { return int(a.Begin - b.Begin) })
	var newest Call
	for _, o := range calls {
		for len(told) > 0 && told[0].End < o.Begin { // both lists are sorted by the calls' ends
			if told[0].Version > newest.Version {
				newest = told[0]
			}
			told = told[1:]
		}
		if newest.Version > o.Version {
			return []Violation{{Kind: ToldEarly, Key: key, What: fmt.Sprintf("at %v a server was told version %v; %s by %s, which began at %v: %s",
				newest.End, newest.Version, o.Request(), o.Client, o.Begin, o.Result())}}
		}
	}
	return nil
}

// Visualize writes porcupine's picture of a history that is not linearizable, as an HTML page. It
// writes nothing for other violations.
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
