package vm

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// Paths. A program repeats decisions: p4c stores a packet's kind in metadata, and each control
// tests it again. So steps are written again by what is known where a packet comes along (jump
// threading): a step that is reached with different knowledge becomes several steps, and a decision
// with a known result becomes none. Knowing less is never wrong, so their number can be bounded.

// Bounds of how many steps one becomes, and of all.
const (
	mostExact    = 4      // for all that is known and asked after the step
	mostVariants = 12     // with variants for what is asked at least oftenAsked times
	mostOften    = 24     // with variants for what is asked twice as often
	mostSteps    = 12_000 // of all: then nothing is known any more
	oftenAsked   = 4
)

// fact is what is known about a lane: what it is, or which of the numbers below 64 it is not.
type fact struct {
	lane  int // that of a header's validity is after all lanes
	konst bool
	k     uint64
}

// facts are in the order of their lanes.
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

// with is f, and x in the place of what was known about its lane.
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

// within reports whether all of f is in o.
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

// paths writes steps again.
type paths struct {
	lanes int
	width []int // of each lane: how many bits of it may be set
	asked map[*step]asked
	memo  map[string]*step
	kinds map[*step][]facts // the variants of a step
	steps int
	of    map[*step]int // their numbers
}

// asked is how many conditions on one way after a step use a lane's value, if nothing sets it
// before.
type asked []uint8

// thread writes the steps from first on with what is known.
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

// find finds the conditions after a step, itself included.
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

// ask notes that a lane is asked for once more.
func (a asked) ask(lane int) {
	if a[lane] < 255 {
		a[lane]++
	}
}

// at is the step that s becomes where f is known.
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

// variant is what of f is to be known at s.
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

// branch is a condition, or where it leads if that is known.
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

// without is x where the lane is none of the numbers in mask either.
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

// does is what is known after a step, which is simplified with what is known before.
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

// behindClosure is what is known after a step that sets what its effects say.
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
