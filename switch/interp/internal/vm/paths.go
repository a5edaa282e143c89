package vm

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// Paths. A program repeats decisions: p4c stores a packet's kind in metadata, and each control
// tests the kind again. This pass copies steps according to the facts that are known about a packet
// on each path (jump threading). A step that packets reach with different facts becomes several
// steps, and a decision with a known result is removed. Ignoring facts is always correct, so the
// number of copies can be bounded.

// Limits on the number of copies of a step, and of all steps.
const (
	mostExact = 4 // copies of a step that use all facts that later steps test
	// copies of a step, once facts count only if later steps test them at least oftenAsked times
	mostVariants = 12
	// copies of a step, once facts count only if later steps test them twice as often
	mostOften  = 24
	mostSteps  = 12_000 // total number of steps; beyond it, facts are ignored
	oftenAsked = 4
)

// fact is what is known about a lane: its value k (konst is set), or the numbers below 64 that the
// lane does not contain (the bits of k).
type fact struct {
	lane  int // headers' validity bits follow after all lanes
	konst bool
	k     uint64
}

// facts is sorted by lane.
type facts []fact

func (f facts) of(lane int) fact {
	if i, ok := f.find(lane); ok {
		return f[i]
	}
	return fact{lane: lane}
}

func (f facts) find(lane int) (int, bool) {
	return slices.BinarySearchFunc(f, lane, func(x fact, lane int) int { return x.lane - lane })
}

// with returns f with x in place of the fact about the same lane.
func (f facts) with(x fact) facts {
	i, ok := f.find(x.lane)
	nothing := !x.konst && x.k == 0
	switch {
	case ok && nothing:
		return slices.Delete(slices.Clone(f), i, i+1)
	case ok:
		f = slices.Clone(f)
		f[i] = x
		return f
	case nothing:
		return f
	}
	return slices.Insert(slices.Clone(f), i, x)
}

// within reports whether o contains all facts of f.
func (f facts) within(o facts) bool {
	for _, x := range f {
		if o.of(x.lane) != x {
			return false
		}
	}
	return true
}

func (f facts) key(b []byte) []byte {
	for _, x := range f {
		b = binary.LittleEndian.AppendUint32(b, uint32(x.lane))
		b = binary.LittleEndian.AppendUint64(b, x.k)
		if x.konst {
			b = append(b, 1)
		}
		b = append(b, 0)
	}
	return b
}

// paths copies steps according to the facts with which packets reach them.
type paths struct {
	lanes int
	width []int // width of each lane in bits
	asked map[*step]asked
	memo  map[string]*step
	kinds map[*step][]facts // the facts of each variant of a step
	steps int
	of    map[*step]int // number that identifies a step in the keys of memo
}

// asked has, for each lane, the number of conditions after a step that use the lane's value before
// anything sets the lane. If paths differ, it has the largest number on any path.
type asked []uint8

// thread copies the steps from first on according to the facts that are known.
func thread(first *step, width []int, headers int, zero laneSet) *step {
	lanes := len(width)
	p := &paths{lanes: lanes, width: width, asked: map[*step]asked{},
		memo: map[string]*step{}, kinds: map[*step][]facts{}, of: map[*step]int{}}
	p.find(first, lanes+headers)
	var f facts
	for i := range lanes {
		if zero.has(i) && p.asked[first][i] > 0 {
			f = append(f, fact{lane: i, konst: true})
		}
	}
	return p.at(first, f)
}

// find counts, for a step, the later conditions that use each lane.
func (p *paths) find(s *step, size int) asked {
	if a := p.asked[s]; a != nil {
		return a
	}
	out := make(asked, size)
	p.of[s] = len(p.of)
	for _, n := range s.all() {
		if n != nil {
			for i, v := range p.find(n, size) {
				out[i] = max(out[i], v)
			}
		}
	}
	if lane, ok := s.sets(); ok {
		n := out[lane]
		out[lane] = 0
		if s.op == opCopy || s.op == opMask {
			out[s.b] = max(out[s.b], n)
		}
	}
	switch s.op {
	case opIfValid:
		out.ask(p.lanes + int(s.a))
	case opIfEqual, opIfLess, opIfIn:
		out.ask(int(s.a))
	case opIfEqualLane, opIfLessLane:
		out.ask(int(s.a))
		out.ask(int(s.k))
	}
	p.asked[s] = out
	return out
}

// ask counts one more condition that uses a lane.
func (a asked) ask(lane int) {
	if a[lane] < 255 {
		a[lane]++
	}
}

// at returns the copy of s for the facts f.
func (p *paths) at(s *step, f facts) *step {
	if s == nil || s.op == opEnd {
		return s
	}
	f = p.variant(s, f)
	key := string(f.key(binary.LittleEndian.AppendUint32(nil, uint32(p.of[s]))))
	if out := p.memo[key]; out != nil {
		return out
	}
	var out *step
	switch {
	case s.op.branches():
		out = p.branch(s, f)
	case s.op == opTable:
		out = p.behindTable(s, f)
	default:
		p.steps++
		n := *s
		out = &n
		f = p.does(out, f)
		out.next = p.at(s.next, f)
		if s.yes != nil {
			out.yes = p.at(s.yes, f)
		}
	}
	p.memo[key] = out
	return out
}

// variant returns the facts in f that the copy of s uses.
func (p *paths) variant(s *step, f facts) facts {
	a := p.asked[s]
	pick := func(often int) (out facts) {
		for _, x := range f {
			if int(a[x.lane]) >= often {
				out = append(out, x)
			}
		}
		return out
	}
	f = pick(1)
	have := p.kinds[s]
	same := func(f facts) bool {
		return slices.ContainsFunc(have, func(o facts) bool { return slices.Equal(o, f) })
	}
	if p.steps > mostSteps {
		f = nil
	}
	if len(f) == 0 || same(f) {
		return f
	}
	if len(have) >= mostExact {
		if f = pick(oftenAsked); len(f) == 0 || same(f) {
			return f
		}
	}
	if len(have) >= mostVariants {
		if f = pick(2 * oftenAsked); len(f) == 0 || same(f) {
			return f
		}
	}
	if len(have) >= mostOften {
		var best facts
		for _, o := range have {
			if len(o) > len(best) && o.within(f) {
				best = o
			}
		}
		return best
	}
	p.kinds[s] = append(have, f)
	return f
}

// branch copies a condition, or returns its successor if its result is known.
func (p *paths) branch(s *step, f facts) *step {
	yes, no := f, f
	switch x := f.of(int(s.a)); s.op {
	case opIfValid:
		x = f.of(p.lanes + int(s.a))
		if x.konst {
			return p.known(s, f, x.k != 0)
		}
		yes = f.with(fact{x.lane, true, 1})
		no = f.with(fact{x.lane, true, 0})
	case opIfEqual:
		switch {
		case x.konst:
			return p.known(s, f, x.k == s.k)
		case s.k < 64 && x.k>>s.k&1 != 0:
			return p.known(s, f, false)
		}
		yes = f.with(fact{x.lane, true, s.k})
		if s.k < 64 {
			no = f.with(p.without(x, 1<<s.k))
		}
	case opIfIn:
		switch {
		case x.konst:
			return p.known(s, f, s.k>>x.k&1 != 0)
		case s.k&^x.k == 0:
			return p.known(s, f, false)
		case p.width[x.lane] <= 6 && ^uint64(0)>>(64-1<<p.width[x.lane])&^x.k&^s.k == 0:
			return p.known(s, f, true)
		}
		if left := s.k &^ x.k; bits.OnesCount64(left) == 1 {
			yes = f.with(fact{x.lane, true, uint64(bits.TrailingZeros64(left))})
		} else {
			yes = f.with(p.without(x, ^s.k))
		}
		no = f.with(p.without(x, s.k))
	case opIfLess:
		if x.konst {
			return p.known(s, f, x.k < s.k)
		}
	case opIfEqualLane, opIfLessLane:
		if y := f.of(int(s.k)); x.konst && y.konst {
			return p.known(s, f, s.op == opIfEqualLane && x.k == y.k || s.op == opIfLessLane && x.k < y.k)
		}
	}
	p.steps++
	n := *s
	n.yes, n.next = p.at(s.yes, yes), p.at(s.next, no)
	if n.yes == n.next && n.op != opIf {
		return n.next
	}
	return &n
}

func (p *paths) known(s *step, f facts, yes bool) *step {
	if yes {
		return p.at(s.yes, f)
	}
	return p.at(s.next, f)
}

// without returns x, extended by the fact that the lane contains none of the numbers in mask.
func (p *paths) without(x fact, mask uint64) fact {
	x.k |= mask
	if w := p.width[x.lane]; w <= 6 {
		all := ^uint64(0) >> (64 - 1<<w)
		x.k &= all
		if left := all &^ x.k; bits.OnesCount64(left) == 1 {
			return fact{x.lane, true, uint64(bits.TrailingZeros64(left))}
		}
	}
	return x
}

func (p *paths) behindTable(s *step, f facts) *step {
	p.steps++
	n := *s
	o := *s.table
	if lane, ok := o.t.ColorLane(); ok {
		f = f.with(fact{lane: lane})
	}
	hit := make([]*step, len(o.hit))
	miss := make([]*step, len(o.miss))
	for i := range hit {
		hit[i], miss[i] = p.at(o.hit[i], f), p.at(o.miss[i], f)
	}
	n.table = &outcomes{t: o.t, hit: hit, miss: miss, none: p.at(o.none, f), missed: p.at(o.missed, f)}
	return &n
}

// does returns the facts after a step, and simplifies the step with the facts before it.
func (p *paths) does(s *step, f facts) facts {
	lane, ok := s.sets()
	if !ok {
		return p.behindClosure(s, f)
	}
	out := fact{lane: lane}
	x := f.of(int(s.b))
	if s.op == opSet || s.op == opParam || s.op == opValue || s.op == opRead {
		x = fact{}
	}
	k, known := s.k, x.konst
	switch s.op {
	case opSet:
		known = true
	case opCopy:
		if !known {
			out.k = x.k
		}
		k = x.k
	case opMask:
		k &= x.k
	case opAdd:
		k += x.k
	case opOr:
		k |= x.k
	case opXor:
		k ^= x.k
	case opShl:
		k = x.k << (k & 63)
	case opShr:
		k = x.k >> (k & 63)
	default:
		known = false
	}
	if known {
		s.op, s.b, s.k = opSet, 0, k
		out.konst, out.k = true, k
	}
	return f.with(out)
}

// behindClosure returns the facts after a step that sets the fields in its effects.
func (p *paths) behindClosure(s *step, f facts) facts {
	if s.effects == nil {
		return f
	}
	if s.effects.unknown {
		return nil
	}
	sets := func(lane int) bool {
		if lane >= p.lanes {
			return slices.Contains(s.effects.valid, lane-p.lanes)
		}
		return slices.ContainsFunc(s.effects.sets, func(r packet.Run) bool {
			return r.From <= lane && lane < r.To
		})
	}
	if !slices.ContainsFunc(f, func(x fact) bool { return sets(x.lane) }) {
		return f
	}
	var out facts
	for _, x := range f {
		if !sets(x.lane) {
			out = append(out, x)
		}
	}
	return out
}
