package ir

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Facts has what is known about a packet's fields at one point of a program. Its keys are offsets
// in the PHV, of fields of up to 64 bits and of the bytes with the validity of headers. A field
// that is not in Facts may have any value. Facts are immutable.
type Facts map[int]Fact

// Fact is what is known about a field.
type Fact struct {
	Known bool     // if set, the field has the value Value
	Value uint64   // valid if Known is set
	Not   []uint64 // if Known is not set, values that the field cannot have, in ascending order
}

// mostExcluded is the largest number of excluded values that a Fact has.
const mostExcluded = 16

// With returns the facts after a field was set to a value.
func (f Facts) With(off int, value uint64) Facts {
	g := f.clone()
	g[off] = Fact{Known: true, Value: value}
	return g
}

// Without returns the facts after fields may have been set to any value.
func (f Facts) Without(offs ...int) Facts {
	for _, off := range offs {
		if _, ok := f[off]; ok {
			g := f.clone()
			for _, off := range offs {
				delete(g, off)
			}
			return g
		}
	}
	return f
}

func (f Facts) clone() Facts {
	if f == nil {
		return Facts{}
	}
	return maps.Clone(f)
}

// Only returns the facts about some of the fields.
func (f Facts) Only(of func(off int) bool) Facts {
	g := Facts{}
	for off, k := range f {
		if of(off) {
			g[off] = k
		}
	}
	return g
}

// Join returns the facts that hold if f holds or if g holds.
func (f Facts) Join(g Facts) Facts {
	out := Facts{}
	for off, k := range f {
		switch l, ok := g[off]; {
		case !ok:
		case k.Known && l.Known && k.Value == l.Value:
			out[off] = k
		default:
			not := slices.DeleteFunc(slices.Clone(k.excluded(l)), func(v uint64) bool {
				return !k.excludes(v) || !l.excludes(v)
			})
			if len(not) > 0 {
				out[off] = Fact{Not: not}
			}
		}
	}
	return out
}

// excluded returns the excluded values (Not) of k or, if k is a known value, those of l.
func (k Fact) excluded(l Fact) []uint64 {
	if k.Known {
		return l.Not
	}
	return k.Not
}

// excludes reports whether a field cannot have a value.
func (k Fact) excludes(v uint64) bool {
	return k.Known && k.Value != v || !k.Known && slices.Contains(k.Not, v)
}

// Implies reports whether all facts in g follow from f.
func (f Facts) Implies(g Facts) bool {
	for off, l := range g {
		k, ok := f[off]
		switch {
		case !ok:
			return false
		case l.Known:
			if !k.Known || k.Value != l.Value {
				return false
			}
		case slices.ContainsFunc(l.Not, func(v uint64) bool { return !k.excludes(v) }):
			return false
		}
	}
	return true
}

// Key returns a string that identifies f.
func (f Facts) Key() string {
	var b strings.Builder
	for _, off := range slices.Sorted(maps.Keys(f)) {
		if k := f[off]; k.Known {
			fmt.Fprintf(&b, "%d=%d ", off, k.Value)
		} else {
			fmt.Fprintf(&b, "%d!%d ", off, k.Not)
		}
	}
	return b.String()
}

// Assume returns f and the facts that follow if c holds. If holds is false, it returns the facts
// that follow if c does not hold.
func (f Facts) Assume(c *Condition, holds bool) Facts {
	switch c.op {
	case cNot:
		return f.Assume(c.left, !holds)
	case cAnd:
		if holds {
			return f.Assume(c.left, true).Assume(c.right, true)
		}
	case cOr:
		if !holds {
			return f.Assume(c.left, false).Assume(c.right, false)
		}
	case cCompare:
		if c.a.op != vLoad || c.a.swapped || c.b.op != vConst || c.cmp != CmpEq && c.cmp != CmpNe {
			return f
		}
		if (c.cmp == CmpEq) == holds {
			return f.With(c.a.off, c.b.k)
		}
		if c.a.Max == 1 && c.b.k <= 1 {
			return f.With(c.a.off, 1-c.b.k)
		}
		not := f[c.a.off].Not
		if len(not) >= mostExcluded || slices.Contains(not, c.b.k) {
			return f
		}
		g := f.clone()
		not = append(slices.Clone(not), c.b.k)
		slices.Sort(not)
		g[c.a.off] = Fact{Not: not}
		return g
	}
	return f
}

// Holds reports whether a condition is true. known is false if that depends on the packet.
func (c *Condition) Holds() (holds, known bool) {
	return c.op == cTrue, c.op == cTrue || c.op == cFalse
}

// load returns a number in the PHV, or the constant that this number is known to be.
func (w *Writer) load(off, size, width int) *Value {
	k, ok := w.Facts[off]
	if ok && k.Known {
		return Const(k.Value)
	}
	w.read(off)
	v := LoadPHV(off, size, width)
	v.not = k.Not
	return v
}

// read reports to OnRead that a value uses the field at an offset in the PHV.
func (w *Writer) read(off int) {
	if w.OnRead != nil {
		w.OnRead(off)
	}
}

// EveryField is the argument of OnRead if it is not known which field is read.
const EveryField = -1
