package ebpf

import (
	"math/big"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interval"
)

// wordsOf is how many 64-bit words hold width bits.
func wordsOf(width int) int { return (width + 63) / 64 }

// isWide reports whether the value of a data expression may need more than 64 bits.
func isWide(e *bmv2json.Expr) bool {
	fits, _ := interval.Of(e).FitsWord()
	return !fits
}

// number is the value of an expression whose range fits 64 bits; of another, its low 64 bits.
func (w *writer) number(e *bmv2json.Expr) *value { return w.word(e, 0) }

// index is a number that indexes something.
func (w *writer) index(e *bmv2json.Expr) *value {
	if isWide(e) {
		refuse(e.Path, "an index or amount of more than 64 bits")
	}
	return w.number(e)
}

// word is the i-th 64-bit word, from the least significant on, of an expression's value as two's complement without bound.
func (w *writer) word(e *bmv2json.Expr, i int) *value {
	if i > 0 && !isWide(e) {
		if interval.Of(e).Within(interval.U64) {
			return konst(0)
		}
		return sarValue(w.word(e, 0), 63)
	}
	if v, ok := w.stepWord(e, i); ok {
		return v
	}
	switch e.Op {
	case bmv2json.OpConst:
		return konst(interval.Word(e.Const, i))
	case bmv2json.OpField, bmv2json.OpStackField, bmv2json.OpAccessField, bmv2json.OpUnionStackField:
		if e.Op == bmv2json.OpField && e.Field.IsValidity() {
			return loadField(w.phv.validity(e.Field.Header), 1, 1)
		}
		places, index := w.places(e)
		if index != nil {
			return w.indexedWord(places, index, i)
		}
		return w.wordOfPlace(places[0], i)
	case bmv2json.OpLocal:
		return w.param(e, i)
	case bmv2json.OpBoolToData:
		return selectValue(w.condition(e.Right), konst(1), konst(0))
	case bmv2json.OpLastIndex, bmv2json.OpStackSize:
		if e.Right.Op != bmv2json.OpStack && e.Right.Op != bmv2json.OpUnionStack {
			refuse(e.Path, "the size of a %s", e.Right.Op)
		}
		_, next := w.stackElements(e.Right)
		n := loadField(next, 1, 8)
		if e.Op == bmv2json.OpStackSize {
			return n
		}
		return subValue(n, konst(1))
	case bmv2json.OpTernary:
		return selectValue(w.condition(e.Cond), w.word(e.Left, i), w.word(e.Right, i))
	case bmv2json.OpBitAnd:
		for _, side := range []*bmv2json.Expr{e.Left, e.Right} {
			if side.Op == bmv2json.OpConst && interval.Word(side.Const, i) == 0 {
				return konst(0) // the other side may have no such word
			}
		}
		return andValue(w.word(e.Left, i), w.word(e.Right, i))
	case bmv2json.OpBitOr:
		return orValue(w.word(e.Left, i), w.word(e.Right, i))
	case bmv2json.OpBitXor:
		return xorValue(w.word(e.Left, i), w.word(e.Right, i))
	case bmv2json.OpBitNot:
		return xorValue(w.word(e.Right, i), konst(^uint64(0)))
	case bmv2json.OpAdd:
		if i == 0 {
			return addValue(w.word(e.Left, 0), w.word(e.Right, 0))
		}
	case bmv2json.OpSub:
		if i == 0 {
			return subValue(w.word(e.Left, 0), w.word(e.Right, 0))
		}
	case bmv2json.OpMul:
		if i == 0 {
			return mulValue(w.word(e.Left, 0), w.word(e.Right, 0))
		}
	case bmv2json.OpShl:
		return w.shiftLeft(e, i)
	case bmv2json.OpShr:
		return w.shiftRight(e, i)
	case bmv2json.OpDiv, bmv2json.OpMod:
		l, r := interval.Of(e.Left), interval.Of(e.Right)
		if l.Within(interval.U64) && r.Within(interval.U64) {
			if e.Op == bmv2json.OpDiv {
				return divValue(w.number(e.Left), w.number(e.Right))
			}
			return modValue(w.number(e.Left), w.number(e.Right))
		}
	case bmv2json.OpTwoCompMod:
		if interval.Of(e.Left).Within(interval.Signed(e.Width)) {
			return w.word(e.Left, i)
		}
		last := wordsOf(e.Width) - 1
		if i < last {
			return w.word(e.Left, i)
		}
		width := e.Width - 64*last
		top := sextValue(andValue(w.word(e.Left, last), konst(ones(width))), width)
		if i > last {
			return sarValue(top, 63)
		}
		return top
	case bmv2json.OpSatCast, bmv2json.OpUsatCast:
		return w.saturate(e)
	}
	refuse(e.Path, "the operation %q on values of more than 64 bits", e.Op)
	return nil
}

// constant reports the value of a constant that is not negative and below limit.
func constant(e *bmv2json.Expr, limit int64) (int, bool) {
	if e.Op != bmv2json.OpConst || e.Const.Sign() < 0 || e.Const.Cmp(big.NewInt(limit)) >= 0 {
		return 0, false
	}
	return int(e.Const.Int64()), true
}

func (w *writer) shiftLeft(e *bmv2json.Expr, i int) *value {
	if k, ok := constant(e.Right, interval.MaxShift); ok {
		by, r := k/64, uint64(k%64)
		if i < by {
			return konst(0)
		}
		out := shlValue(w.word(e.Left, i-by), r)
		if r != 0 && i > by {
			out = orValue(out, shrValue(w.word(e.Left, i-by-1), 64-r))
		}
		return out
	}
	if i > 0 {
		refuse(e.Path, "a value of more than 64 bits shifted by an amount that is not constant, in this place")
	}
	return shiftValue(vShl, w.word(e.Left, 0), w.index(e.Right))
}

func (w *writer) shiftRight(e *bmv2json.Expr, i int) *value {
	if !isWide(e.Left) {
		l, signed := w.number(e.Left), !interval.Of(e.Left).Within(interval.U64)
		if k, ok := constant(e.Right, interval.MaxShift); ok {
			if signed {
				return sarValue(l, uint64(k))
			}
			return shrValue(l, uint64(k))
		}
		if signed {
			return shiftValue(vSar, l, w.index(e.Right))
		}
		return shiftValue(vShr, l, w.index(e.Right))
	}
	k, ok := constant(e.Right, interval.MaxShift)
	if !ok {
		refuse(e.Path, "a value of more than 64 bits shifted by an amount that is not constant, in this place")
	}
	if r := interval.Of(e.Left); !r.Bounded() {
		refuse(e.Path, "a right shift of a value that has no bound")
	}
	by, r := k/64, uint64(k%64)
	out := shrValue(w.word(e.Left, i+by), r)
	if r != 0 {
		out = orValue(out, shlValue(w.word(e.Left, i+by+1), 64-r))
	}
	return out
}

func (w *writer) saturate(e *bmv2json.Expr) *value {
	r, bound := interval.Of(e.Left), interval.Of(e)
	switch {
	case r.Within(bound):
		return w.number(e.Left)
	case e.Width > 64:
	case r.Within(interval.U64):
		l, hi := w.number(e.Left), konst(bound.Hi.Uint64())
		return selectValue(compare(cmpLe, l, hi, false), l, hi)
	case r.Within(interval.I64):
		l, lo, hi := w.number(e.Left), konst(interval.Word(bound.Lo, 0)), konst(interval.Word(interval.Min(bound.Hi, interval.I64.Hi), 0))
		return selectValue(compare(cmpLt, l, lo, true), lo, selectValue(compare(cmpLt, hi, l, true), hi, l))
	}
	refuse(e.Path, "the operation %q on values of more than 64 bits", e.Op)
	return nil
}

// placeOf finds where a field expression is.
func (w *writer) placeOf(e *bmv2json.Expr) place {
	switch e.Op {
	case bmv2json.OpField:
		if e.Field.Field.VL {
			refuse(e.Path, "a value of variable length (%s) in an expression", e.Field)
		}
		return w.phv.field(e.Field)
	case bmv2json.OpStackField:
		p := w.phv.field(bmv2json.FieldRef{Header: e.Stack.Headers[0], Field: e.Stack.Type.Fields[e.Index]})
		p.last, p.next, p.elements, p.stride = true, w.phv.nextOf(e.Stack), len(e.Stack.Headers), w.phv.types[e.Stack.Type].size
		return p
	case bmv2json.OpUnionStackField:
		first := e.UnionStack.Unions[0]
		member := first.Headers[e.Member]
		p := w.phv.field(bmv2json.FieldRef{Header: member, Field: member.Type.Fields[e.Index]})
		p.last, p.next, p.elements = true, w.phv.nextOfUnions(e.UnionStack), len(e.UnionStack.Unions)
		for _, h := range first.Headers {
			p.stride += w.phv.types[h.Type].size
		}
		return p
	case bmv2json.OpAccessField:
		places, index := w.places(e)
		if index != nil {
			refuse(e.Path, "a field of a header that is computed while packets pass, in this place")
		}
		return places[0]
	}
	refuse(e.Path, "a %q", e.Op)
	return place{}
}

// wordOfPlace is a word of a field.
func (w *writer) wordOfPlace(p place, i int) *value {
	n := wordsOf(p.width)
	var v *value
	switch {
	case !wide(p.width):
		v = &value{op: vLoad, off: p.off, size: p.size, max: ones(p.width)}
	case i < n:
		v = &value{op: vLoad, off: p.off + (n-1-i)*8, size: 8, swapped: true, max: ones(min(64, p.width-64*i))}
	case p.signed:
		v = w.wordOfPlace(p, n-1)
		return sarValue(v, 63)
	default:
		return konst(0)
	}
	if p.last {
		v.op, v.next, v.stride, v.k = vLast, p.next, p.stride, uint64(p.elements)
	}
	if p.signed && p.width-64*i < 64 {
		v = sextValue(v, p.width-64*i)
	}
	return v
}

// condition translates an expression of type bool. Both sides of "and" and "or" have no effects, so the right one is only asked where the left has not
// decided.
func (w *writer) condition(e *bmv2json.Expr) *condition {
	switch e.Op {
	case bmv2json.OpBool:
		return truth(e.Bool)
	case bmv2json.OpNot:
		return notCondition(w.condition(e.Right))
	case bmv2json.OpAnd:
		return andCondition(w.condition(e.Left), w.condition(e.Right))
	case bmv2json.OpOr:
		return orCondition(w.condition(e.Left), w.condition(e.Right))
	case bmv2json.OpTernary:
		return &condition{op: cSelect, sel: w.condition(e.Cond), left: w.condition(e.Left), right: w.condition(e.Right)}
	case bmv2json.OpDataToBool:
		return w.notZero(e.Right)
	case bmv2json.OpValid:
		return w.validity(w.headersOf(e.Right))
	case bmv2json.OpValidUnion:
		unions, index := w.unionsOf(e.Right)
		c := never
		for i := range unions[0].Headers {
			var members []*bmv2json.Header
			for _, u := range unions {
				members = append(members, u.Headers[i])
			}
			c = orCondition(c, w.validity(members, index))
		}
		return c
	case bmv2json.OpEq, bmv2json.OpNe:
		switch e.Left.Type {
		case bmv2json.TypeData:
			return w.comparison(e)
		case bmv2json.TypeBool:
			l, r := w.condition(e.Left), w.condition(e.Right)
			if e.Op == bmv2json.OpNe {
				r = notCondition(r)
			}
			return &condition{op: cSelect, sel: l, left: r, right: notCondition(r)}
		case bmv2json.TypeHeader:
			c := w.headersEqual(w.theHeader(e.Left), w.theHeader(e.Right), e.Path)
			if e.Op == bmv2json.OpNe {
				c = notCondition(c)
			}
			return c
		}
		if e.Left.Type == bmv2json.TypeUnion { // equal if the same member is valid in both, and equal
			a, b, c := w.theUnion(e.Left), w.theUnion(e.Right), never
			for i := range min(len(a.Headers), len(b.Headers)) {
				c = orCondition(c, w.headersEqual(a.Headers[i], b.Headers[i], e.Path))
			}
			if e.Op == bmv2json.OpNe {
				c = notCondition(c)
			}
			return c
		}
		refuse(e.Path, "comparing values of type %s", e.Left.Type)
	case bmv2json.OpLt, bmv2json.OpLe, bmv2json.OpGt, bmv2json.OpGe:
		return w.comparison(e)
	}
	refuse(e.Path, "the condition %q", e.Op)
	return nil
}

// truth is an argument that BMv2 takes as data and tests against 0.
func (w *writer) truth(e *bmv2json.Expr) *condition {
	if e.Type == bmv2json.TypeBool {
		return w.condition(e)
	}
	return w.notZero(e)
}

func (w *writer) notZero(e *bmv2json.Expr) *condition {
	c := never
	for i := range exactWords(e) {
		c = orCondition(c, compare(cmpNe, w.word(e, i), konst(0), false))
	}
	return c
}

func (w *writer) comparison(e *bmv2json.Expr) *condition {
	op := map[bmv2json.ExprOp]compareOp{bmv2json.OpEq: cmpEq, bmv2json.OpNe: cmpNe, bmv2json.OpLt: cmpLt, bmv2json.OpLe: cmpLe, bmv2json.OpGt: cmpGt, bmv2json.OpGe: cmpGe}[e.Op]
	n, signed := comparedWords(e)
	switch op {
	case cmpEq, cmpNe:
		c := always
		for i := range n {
			c = andCondition(c, compare(cmpEq, w.word(e.Left, i), w.word(e.Right, i), false))
		}
		if op == cmpNe {
			c = notCondition(c)
		}
		return c
	}
	// From the most significant word down: decided there, or equal and decided below.
	strict := map[compareOp]compareOp{cmpLt: cmpLt, cmpLe: cmpLt, cmpGt: cmpGt, cmpGe: cmpGt}[op]
	c := compare(op, w.word(e.Left, 0), w.word(e.Right, 0), n == 1 && signed)
	for i := 1; i < n; i++ {
		a, b := w.word(e.Left, i), w.word(e.Right, i)
		c = orCondition(compare(strict, a, b, i == n-1 && signed), andCondition(compare(cmpEq, a, b, false), c))
	}
	return c
}

// headersEqual compares as BMv2 does: two headers are equal if both are valid and all their fields are; two invalid ones are not.
func (w *writer) headersEqual(a, b *bmv2json.Header, path string) *condition {
	if a.Type != b.Type {
		return never
	}
	c := andCondition(w.validity([]*bmv2json.Header{a}, nil), w.validity([]*bmv2json.Header{b}, nil))
	for _, f := range a.Type.Fields {
		if f.VL {
			refuse(path, "comparing headers of variable length")
		}
		x, y := w.phv.field(bmv2json.FieldRef{Header: a, Field: f}), w.phv.field(bmv2json.FieldRef{Header: b, Field: f})
		for i := range wordsOf(f.Width) {
			c = andCondition(c, compare(cmpEq, w.wordOfPlace(x, i), w.wordOfPlace(y, i), false))
		}
	}
	return c
}
