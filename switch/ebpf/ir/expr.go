package ir

import (
	"math/big"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interval"
)

// WordsOf returns the number of 64-bit words that hold width bits.
func WordsOf(width int) int { return (width + 63) / 64 }

// WideExpr reports whether the value of a data expression may need more than 64 bits.
func WideExpr(e *bmv2json.Expr) bool {
	fits, _ := interval.OfExpr(e).FitsWord()
	return !fits
}

// number returns the value of an expression whose range fits into 64 bits. For any other expression
// it returns the low 64 bits.
func (w *Writer) number(e *bmv2json.Expr) *Value { return w.Word(e, 0) }

// Index returns the value of an expression that is an index or a shift amount.
func (w *Writer) Index(e *bmv2json.Expr) *Value {
	if WideExpr(e) {
		Refuse(e.Path, "an index or amount of more than 64 bits")
	}
	return w.number(e)
}

// Word returns the i-th 64-bit word of an expression's value in unbounded two's complement. Word 0
// is the least significant.
func (w *Writer) Word(e *bmv2json.Expr, i int) *Value {
	if i > 0 && !WideExpr(e) {
		if interval.OfExpr(e).Within(interval.U64) {
			return Const(0)
		}
		return sar(w.Word(e, 0), 63)
	}
	if v, ok := w.stepWord(e, i); ok {
		return v
	}
	switch e.Op {
	case bmv2json.OpConst:
		return Const(interval.Word(e.Const, i))
	case bmv2json.OpField, bmv2json.OpStackField, bmv2json.OpAccessField,
		bmv2json.OpUnionStackField:
		if e.Op == bmv2json.OpField && e.Field.IsValidity() {
			return w.Valid(e.Field.Header)
		}
		places, index := w.places(e)
		if index != nil {
			return w.indexedWord(places, index, i)
		}
		return w.WordOfPlace(places[0], i)
	case bmv2json.OpLocal:
		return w.param(e, i)
	case bmv2json.OpBoolToData:
		return Select(w.Condition(e.Right), Const(1), Const(0))
	case bmv2json.OpLastIndex, bmv2json.OpStackSize:
		if e.Right.Op != bmv2json.OpStack && e.Right.Op != bmv2json.OpUnionStack {
			Refuse(e.Path, "the size of a %s", e.Right.Op)
		}
		_, next := w.StackElements(e.Right)
		w.read(EveryField)
		n := LoadPHV(next, 1, 8)
		if e.Op == bmv2json.OpStackSize {
			return n
		}
		return sub(n, Const(1))
	case bmv2json.OpTernary:
		return Select(w.Condition(e.Cond), w.Word(e.Left, i), w.Word(e.Right, i))
	case bmv2json.OpBitAnd:
		for _, side := range []*bmv2json.Expr{e.Left, e.Right} {
			if side.Op == bmv2json.OpConst && interval.Word(side.Const, i) == 0 {
				return Const(0) // The word exists only on one side.
			}
		}
		return And(w.Word(e.Left, i), w.Word(e.Right, i))
	case bmv2json.OpBitOr:
		return Or(w.Word(e.Left, i), w.Word(e.Right, i))
	case bmv2json.OpBitXor:
		return xor(w.Word(e.Left, i), w.Word(e.Right, i))
	case bmv2json.OpBitNot:
		return xor(w.Word(e.Right, i), Const(^uint64(0)))
	case bmv2json.OpAdd:
		if i == 0 {
			return add(w.Word(e.Left, 0), w.Word(e.Right, 0))
		}
	case bmv2json.OpSub:
		if i == 0 {
			return sub(w.Word(e.Left, 0), w.Word(e.Right, 0))
		}
	case bmv2json.OpMul:
		if i == 0 {
			return mul(w.Word(e.Left, 0), w.Word(e.Right, 0))
		}
	case bmv2json.OpShl:
		return w.shiftLeft(e, i)
	case bmv2json.OpShr:
		return w.shiftRight(e, i)
	case bmv2json.OpDiv, bmv2json.OpMod:
		l, r := interval.OfExpr(e.Left), interval.OfExpr(e.Right)
		if l.Within(interval.U64) && r.Within(interval.U64) {
			if e.Op == bmv2json.OpDiv {
				return div(w.number(e.Left), w.number(e.Right))
			}
			return mod(w.number(e.Left), w.number(e.Right))
		}
	case bmv2json.OpTwoCompMod:
		if interval.OfExpr(e.Left).Within(interval.Signed(e.Width)) {
			return w.Word(e.Left, i)
		}
		last := WordsOf(e.Width) - 1
		if i < last {
			return w.Word(e.Left, i)
		}
		width := e.Width - 64*last
		top := signExtend(And(w.Word(e.Left, last), Const(Ones(width))), width)
		if i > last {
			return sar(top, 63)
		}
		return top
	case bmv2json.OpSatCast, bmv2json.OpUsatCast:
		return w.saturate(e)
	}
	Refuse(e.Path, "the operation %q on values of more than 64 bits", e.Op)
	return nil
}

// ConstantOf returns the value of an expression that is a constant from 0 to limit-1. It returns
// false for any other expression.
func ConstantOf(e *bmv2json.Expr, limit int64) (int, bool) {
	if e.Op != bmv2json.OpConst || e.Const.Sign() < 0 || e.Const.Cmp(big.NewInt(limit)) >= 0 {
		return 0, false
	}
	return int(e.Const.Int64()), true
}

func (w *Writer) shiftLeft(e *bmv2json.Expr, i int) *Value {
	if k, ok := ConstantOf(e.Right, interval.MaxShift); ok {
		by, r := k/64, uint64(k%64)
		if i < by {
			return Const(0)
		}
		out := Shl(w.Word(e.Left, i-by), r)
		if r != 0 && i > by {
			out = Or(out, Shr(w.Word(e.Left, i-by-1), 64-r))
		}
		return out
	}
	if i > 0 {
		Refuse(e.Path,
			"a value of more than 64 bits shifted by an amount that is not constant, in this place")
	}
	return shift(vShl, w.Word(e.Left, 0), w.Index(e.Right))
}

func (w *Writer) shiftRight(e *bmv2json.Expr, i int) *Value {
	if !WideExpr(e.Left) {
		l, signed := w.number(e.Left), !interval.OfExpr(e.Left).Within(interval.U64)
		if k, ok := ConstantOf(e.Right, interval.MaxShift); ok {
			if signed {
				return sar(l, uint64(k))
			}
			return Shr(l, uint64(k))
		}
		if signed {
			return shift(vSar, l, w.Index(e.Right))
		}
		return shift(vShr, l, w.Index(e.Right))
	}
	k, ok := ConstantOf(e.Right, interval.MaxShift)
	if !ok {
		Refuse(e.Path,
			"a value of more than 64 bits shifted by an amount that is not constant, in this place")
	}
	if r := interval.OfExpr(e.Left); !r.Bounded() {
		Refuse(e.Path, "a right shift of a value that has no bound")
	}
	by, r := k/64, uint64(k%64)
	out := Shr(w.Word(e.Left, i+by), r)
	if r != 0 {
		out = Or(out, Shl(w.Word(e.Left, i+by+1), 64-r))
	}
	return out
}

func (w *Writer) saturate(e *bmv2json.Expr) *Value {
	r, bound := interval.OfExpr(e.Left), interval.OfExpr(e)
	switch {
	case r.Within(bound):
		return w.number(e.Left)
	case e.Width > 64:
	case r.Within(interval.U64):
		l, hi := w.number(e.Left), Const(bound.Hi.Uint64())
		return Select(Compare(cmpLe, l, hi, false), l, hi)
	case r.Within(interval.I64):
		l, lo, hi := w.number(e.Left), Const(interval.Word(bound.Lo, 0)),
			Const(interval.Word(interval.Min(bound.Hi, interval.I64.Hi), 0))
		return Select(Compare(cmpLt, l, lo, true), lo, Select(Compare(cmpLt, hi, l, true), hi, l))
	}
	Refuse(e.Path, "the operation %q on values of more than 64 bits", e.Op)
	return nil
}

// PlaceOf returns the Place of a field expression.
func (w *Writer) PlaceOf(e *bmv2json.Expr) Place {
	switch e.Op {
	case bmv2json.OpField:
		if e.Field.Field.VL {
			Refuse(e.Path, "a value of variable length (%s) in an expression", e.Field)
		}
		return w.phv.Field(e.Field)
	case bmv2json.OpStackField:
		p := w.phv.Field(bmv2json.FieldRef{Header: e.Stack.Headers[0],
			Field: e.Stack.Type.Fields[e.Index]})
		p.LastElement, p.Next, p.elements, p.stride = true, w.phv.NextOf(e.Stack),
			len(e.Stack.Headers), w.phv.Types[e.Stack.Type].Size
		return p
	case bmv2json.OpUnionStackField:
		first := e.UnionStack.Unions[0]
		member := first.Headers[e.Member]
		p := w.phv.Field(bmv2json.FieldRef{Header: member, Field: member.Type.Fields[e.Index]})
		p.LastElement, p.Next, p.elements = true, w.phv.NextOfUnions(e.UnionStack),
			len(e.UnionStack.Unions)
		for _, h := range first.Headers {
			p.stride += w.phv.Types[h.Type].Size
		}
		return p
	case bmv2json.OpAccessField:
		places, index := w.places(e)
		if index != nil {
			Refuse(e.Path, "a field of a header that is computed while packets pass, in this place")
		}
		return places[0]
	}
	Refuse(e.Path, "a %q", e.Op)
	return Place{}
}

// WordOfPlace returns the i-th 64-bit word of a field. Word 0 is the lowest.
func (w *Writer) WordOfPlace(p Place, i int) *Value {
	n := WordsOf(p.Width)
	var v *Value
	switch {
	case !Wide(p.Width) && p.LastElement:
		v = LoadPHV(p.Off, p.Size, p.Width)
	case !Wide(p.Width):
		v = w.load(p.Off, p.Size, p.Width)
	case i < n:
		w.read(p.Off)
		v = &Value{op: vLoad, off: p.Off + (n-1-i)*8, size: 8, swapped: true,
			Max: Ones(min(64, p.Width-64*i))}
	case p.Signed:
		v = w.WordOfPlace(p, n-1)
		return sar(v, 63)
	default:
		return Const(0)
	}
	if p.LastElement {
		w.read(EveryField)
		v.op, v.next, v.stride, v.k = vLast, p.Next, p.stride, uint64(p.elements)
	}
	if p.Signed && p.Width-64*i < 64 {
		v = signExtend(v, p.Width-64*i)
	}
	return v
}

// Condition translates an expression of type bool. The right side of "and" and "or" is evaluated
// only if the left side does not decide, which is allowed because neither side has side effects.
func (w *Writer) Condition(e *bmv2json.Expr) *Condition {
	switch e.Op {
	case bmv2json.OpBool:
		return truth(e.Bool)
	case bmv2json.OpNot:
		return notCondition(w.Condition(e.Right))
	case bmv2json.OpAnd:
		return AndCondition(w.Condition(e.Left), w.Condition(e.Right))
	case bmv2json.OpOr:
		return orCondition(w.Condition(e.Left), w.Condition(e.Right))
	case bmv2json.OpTernary:
		return &Condition{op: cSelect, sel: w.Condition(e.Cond), left: w.Condition(e.Left),
			right: w.Condition(e.Right)}
	case bmv2json.OpDataToBool:
		return w.notZero(e.Right)
	case bmv2json.OpValid:
		return w.validity(w.HeadersOf(e.Right))
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
			l, r := w.Condition(e.Left), w.Condition(e.Right)
			if e.Op == bmv2json.OpNe {
				r = notCondition(r)
			}
			return &Condition{op: cSelect, sel: l, left: r, right: notCondition(r)}
		case bmv2json.TypeHeader:
			c := w.headersEqual(w.headerOf(e.Left), w.headerOf(e.Right), e.Path)
			if e.Op == bmv2json.OpNe {
				c = notCondition(c)
			}
			return c
		}
		// Two unions are equal if the same member is valid in both, and this member is equal.
		if e.Left.Type == bmv2json.TypeUnion {
			a, b, c := w.UnionOf(e.Left), w.UnionOf(e.Right), never
			for i := range min(len(a.Headers), len(b.Headers)) {
				c = orCondition(c, w.headersEqual(a.Headers[i], b.Headers[i], e.Path))
			}
			if e.Op == bmv2json.OpNe {
				c = notCondition(c)
			}
			return c
		}
		Refuse(e.Path, "comparing values of type %s", e.Left.Type)
	case bmv2json.OpLt, bmv2json.OpLe, bmv2json.OpGt, bmv2json.OpGe:
		return w.comparison(e)
	}
	Refuse(e.Path, "the condition %q", e.Op)
	return nil
}

// Truth translates an argument that BMv2 treats as a number and compares with 0.
func (w *Writer) Truth(e *bmv2json.Expr) *Condition {
	if e.Type == bmv2json.TypeBool {
		return w.Condition(e)
	}
	return w.notZero(e)
}

func (w *Writer) notZero(e *bmv2json.Expr) *Condition {
	c := never
	for i := range ExactWords(e) {
		c = orCondition(c, Compare(CmpNe, w.Word(e, i), Const(0), false))
	}
	return c
}

func (w *Writer) comparison(e *bmv2json.Expr) *Condition {
	op := map[bmv2json.ExprOp]compareOp{bmv2json.OpEq: CmpEq, bmv2json.OpNe: CmpNe,
		bmv2json.OpLt: cmpLt, bmv2json.OpLe: cmpLe, bmv2json.OpGt: cmpGt,
		bmv2json.OpGe: cmpGe}[e.Op]
	n, signed := comparedWords(e)
	switch op {
	case CmpEq, CmpNe:
		c := Always
		for i := range n {
			c = AndCondition(c, Compare(CmpEq, w.Word(e.Left, i), w.Word(e.Right, i), false))
		}
		if op == CmpNe {
			c = notCondition(c)
		}
		return c
	}
	// The comparison starts at the most significant word. Either this word decides, or both sides'
	// words are equal and lower words decide.
	strict := map[compareOp]compareOp{cmpLt: cmpLt, cmpLe: cmpLt, cmpGt: cmpGt, cmpGe: cmpGt}[op]
	c := Compare(op, w.Word(e.Left, 0), w.Word(e.Right, 0), n == 1 && signed)
	for i := 1; i < n; i++ {
		a, b := w.Word(e.Left, i), w.Word(e.Right, i)
		c = orCondition(Compare(strict, a, b, i == n-1 && signed),
			AndCondition(Compare(CmpEq, a, b, false), c))
	}
	return c
}

// headersEqual compares headers as BMv2 does. Two headers are equal if both are valid and all their
// fields are equal. Two invalid headers are not equal.
func (w *Writer) headersEqual(a, b *bmv2json.Header, path string) *Condition {
	if a.Type != b.Type {
		return never
	}
	c := AndCondition(w.validity([]*bmv2json.Header{a}, nil),
		w.validity([]*bmv2json.Header{b}, nil))
	for _, f := range a.Type.Fields {
		if f.VL {
			Refuse(path, "comparing headers of variable length")
		}
		x, y := w.phv.Field(bmv2json.FieldRef{Header: a, Field: f}),
			w.phv.Field(bmv2json.FieldRef{Header: b, Field: f})
		for i := range WordsOf(f.Width) {
			c = AndCondition(c, Compare(CmpEq, w.WordOfPlace(x, i), w.WordOfPlace(y, i), false))
		}
	}
	return c
}
