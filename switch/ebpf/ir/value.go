package ir

import (
	"math"
	"math/bits"
	"slices"
)

// A Value or Condition is a small tree of 64-bit operations. It is the form between the program's
// expressions and BPF instructions. A value is one 64-bit word of an expression's result. The
// constructors below fold constants and drop operations without effect, because p4c masks after
// every operation. They use an upper bound of every value.

type valueOp int

const (
	vConst valueOp = iota
	vLoad          // size bytes at off in the PHV; byte-swapped for a word of a wide field
	// Like vLoad, but from the last valid element of a stack. The stack's elements are stride bytes
	// apart. The value is 0 if no element is valid.
	vLast
	vParam  // like vLoad, but from the slot of the table entry whose action is running
	vInline // bits in the word of the table entry whose action is running
	vFrame  // like vLoad, but from the parse buffer at the cursor
	vAdd
	vSub
	vMul
	vDiv
	vMod
	vAnd
	vOr
	vXor
	vShl
	vShr
	vSar
	vSext   // the low k bits of a, sign-extended
	vSelect // a if cond is true, otherwise b
)

// Value is one 64-bit word.
type Value struct {
	op valueOp
	// For vConst, the value. For vShl, vShr and vSar, the amount if b is nil. For vSext, the number
	// of bits. For vInline, the first bit.
	k       uint64
	off     int
	size    int
	swapped bool
	next    int // vLast: offset of the stack's count
	stride  int
	a, b    *Value
	cond    *Condition
	Max     uint64   // upper bound of the value
	not     []uint64 // values up to Max that are impossible
}

// Const returns a 64-bit constant.
func Const(k uint64) *Value { return &Value{op: vConst, k: k, Max: k} }

// Ones returns a word whose low width bits are set. If width is 64 or more, all bits are set.
func Ones(width int) uint64 {
	if width >= 64 {
		return math.MaxUint64
	}
	return 1<<width - 1
}

// IsConst reports whether v is the constant k.
func (v *Value) IsConst(k uint64) bool { return v.op == vConst && v.k == k }

// Constant returns the value if it is known when the program is loaded.
func (v *Value) Constant() (k uint64, ok bool) { return v.k, v.op == vConst }

// same reports whether both values load the same bytes of the PHV.
func (v *Value) same(w *Value) bool {
	return v.op == vLoad && w.op == vLoad && v.off == w.off && v.size == w.size &&
		v.swapped == w.swapped
}

// Loads reports whether computing v loads from an offset in the PHV.
func (v *Value) Loads(off int) bool {
	return v != nil && (v.op == vLoad && v.off == off || v.a.Loads(off) || v.b.Loads(off))
}

// LoadPHV returns the number of size bytes (1, 2, 4 or 8) at an offset in the PHV. At most the low
// width bits of it are set.
func LoadPHV(off, size, width int) *Value {
	return &Value{op: vLoad, off: off, size: size, Max: Ones(width)}
}

// And, Or, Shl, Shr and Select fold constants. Shl and Shr shift by k bits. The result is 0 if k is
// 64 or more.
func And(a, b *Value) *Value {
	if a.op == vConst {
		a, b = b, a
	}
	if b.op == vConst {
		switch {
		case a.op == vConst:
			return Const(a.k & b.k)
		case b.k == 0:
			return b
		case b.k&(b.k+1) == 0 && a.Max <= b.k: // the mask has no effect
			return a
		case a.op == vAnd && a.b.op == vConst:
			return And(a.a, Const(a.b.k&b.k))
		case a.op == vSelect && (a.a.op == vConst || a.b.op == vConst):
			return Select(a.cond, And(a.a, b), And(a.b, b))
		}
	}
	return &Value{op: vAnd, a: a, b: b, Max: min(a.Max, b.Max)}
}

func maxOfBits(a, b uint64) uint64 { return Ones(max(bits.Len64(a), bits.Len64(b))) }

func Or(a, b *Value) *Value {
	if a.op == vConst {
		a, b = b, a
	}
	switch {
	case a.op == vConst && b.op == vConst:
		return Const(a.k | b.k)
	case b.IsConst(0):
		return a
	}
	return &Value{op: vOr, a: a, b: b, Max: maxOfBits(a.Max, b.Max)}
}

func xor(a, b *Value) *Value {
	if a.op == vConst {
		a, b = b, a
	}
	switch {
	case a.op == vConst && b.op == vConst:
		return Const(a.k ^ b.k)
	case b.IsConst(0):
		return a
	}
	return &Value{op: vXor, a: a, b: b, Max: maxOfBits(a.Max, b.Max)}
}

func add(a, b *Value) *Value {
	if a.op == vConst {
		a, b = b, a
	}
	switch {
	case a.op == vConst && b.op == vConst:
		return Const(a.k + b.k)
	case b.IsConst(0):
		return a
	}
	v := &Value{op: vAdd, a: a, b: b, Max: math.MaxUint64}
	if s, carry := bits.Add64(a.Max, b.Max, 0); carry == 0 {
		v.Max = s
	}
	return v
}

func sub(a, b *Value) *Value {
	switch {
	case a.op == vConst && b.op == vConst:
		return Const(a.k - b.k)
	case b.IsConst(0):
		return a
	}
	return &Value{op: vSub, a: a, b: b, Max: math.MaxUint64}
}

func mul(a, b *Value) *Value {
	if a.op == vConst {
		a, b = b, a
	}
	switch {
	case a.op == vConst && b.op == vConst:
		return Const(a.k * b.k)
	case b.IsConst(1):
		return a
	}
	v := &Value{op: vMul, a: a, b: b, Max: math.MaxUint64}
	if hi, lo := bits.Mul64(a.Max, b.Max); hi == 0 {
		v.Max = lo
	}
	return v
}

// div and mod are unsigned. Dividing by zero gives 0.
func div(a, b *Value) *Value { return &Value{op: vDiv, a: a, b: b, Max: a.Max} }

func mod(a, b *Value) *Value {
	if b.op == vConst && b.k != 0 {
		return &Value{op: vMod, a: a, b: b, Max: min(a.Max, b.k-1)}
	}
	return Select(Compare(CmpNe, b, Const(0), false), &Value{op: vMod, a: a, b: b, Max: a.Max},
		Const(0))
}

func Shl(a *Value, k uint64) *Value {
	switch {
	case k >= 64:
		return Const(0)
	case k == 0:
		return a
	case a.op == vConst:
		return Const(a.k << k)
	}
	v := &Value{op: vShl, a: a, k: k, Max: math.MaxUint64}
	if bits.Len64(a.Max)+int(k) <= 64 {
		v.Max = a.Max << k
	}
	return v
}

func Shr(a *Value, k uint64) *Value {
	switch {
	case k >= 64:
		return Const(0)
	case k == 0:
		return a
	case a.op == vConst:
		return Const(a.k >> k)
	}
	return &Value{op: vShr, a: a, k: k, Max: a.Max >> k}
}

func sar(a *Value, k uint64) *Value {
	if a.Max <= math.MaxInt64 {
		return Shr(a, k)
	}
	return &Value{op: vSar, a: a, k: min(k, 63), Max: math.MaxUint64}
}

// shift shifts by an amount that is known only at run time. An amount of 64 or more shifts all bits
// out.
func shift(op valueOp, a, by *Value) *Value {
	v := &Value{op: op, a: a, b: by, Max: math.MaxUint64}
	var out = Const(0)
	switch op {
	case vShr:
		v.Max = a.Max
	case vSar:
		out = sar(a, 63)
	}
	if by.Max < 64 {
		return v
	}
	return Select(Compare(cmpLt, by, Const(64), false), v, out)
}

func signExtend(a *Value, width int) *Value {
	if width >= 64 || a.Max < 1<<(width-1) {
		return a
	}
	if a.op == vConst {
		s := 64 - width
		return Const(uint64(int64(a.k<<s) >> s))
	}
	return &Value{op: vSext, a: a, k: uint64(width), Max: math.MaxUint64}
}

// Select returns a value that is a if the condition holds, and otherwise b.
func Select(c *Condition, a, b *Value) *Value {
	switch c.op {
	case cTrue:
		return a
	case cFalse:
		return b
	}
	return &Value{op: vSelect, cond: c, a: a, b: b, Max: max(a.Max, b.Max)}
}

type conditionOp int

const (
	cTrue conditionOp = iota
	cFalse
	cCompare
	cAnd
	cOr
	cNot
	cSelect // left if sel is true, otherwise right
)

type compareOp int

const (
	CmpEq compareOp = iota
	CmpNe
	cmpLt
	cmpLe
	cmpGt
	cmpGe
)

// Condition is an expression that is true or false.
type Condition struct {
	op          conditionOp
	cmp         compareOp
	signed      bool
	a, b        *Value
	sel         *Condition
	left, right *Condition
}

var (
	Always = &Condition{op: cTrue}
	never  = &Condition{op: cFalse}
)

func truth(b bool) *Condition {
	if b {
		return Always
	}
	return never
}

// Compare compares two words. They are in two's complement if signed is set.
func Compare(op compareOp, a, b *Value, signed bool) *Condition {
	if a.op == vConst && b.op != vConst {
		a, b = b, a
		op = [...]compareOp{CmpEq, CmpNe, cmpGt, cmpGe, cmpLt, cmpLe}[op]
	}
	if b.op == vConst {
		if a.op == vConst {
			return truth(compareConst(op, a.k, b.k, signed))
		}
		if !signed && a.Max < b.k { // The operand's width decides the comparison.
			return truth(op == CmpNe || op == cmpLt || op == cmpLe)
		}
		if (op == CmpEq || op == CmpNe) && slices.Contains(a.not, b.k) {
			return truth(op == CmpNe)
		}
		// (c ? 1 : 0) == 1 and similar forms are equivalent to c.
		if a.op == vSelect && a.a.op == vConst && a.b.op == vConst {
			t, f := compareConst(op, a.a.k, b.k, signed), compareConst(op, a.b.k, b.k, signed)
			switch {
			case t && f:
				return Always
			case t:
				return a.cond
			case f:
				return notCondition(a.cond)
			}
			return never
		}
	}
	return &Condition{op: cCompare, cmp: op, a: a, b: b, signed: signed}
}

func compareConst(op compareOp, a, b uint64, signed bool) bool {
	less := a < b
	if signed {
		less = int64(a) < int64(b)
	}
	switch op {
	case CmpEq:
		return a == b
	case CmpNe:
		return a != b
	case cmpLt:
		return less
	case cmpLe:
		return less || a == b
	case cmpGt:
		return !less && a != b
	}
	return !less
}

// AndCondition is true if both conditions are true. The second condition is evaluated only if the
// first is true.
func AndCondition(a, b *Condition) *Condition {
	switch {
	case a.op == cFalse || b.op == cFalse:
		return never
	case a.op == cTrue:
		return b
	case b.op == cTrue:
		return a
	}
	return &Condition{op: cAnd, left: a, right: b}
}

func orCondition(a, b *Condition) *Condition {
	switch {
	case a.op == cTrue || b.op == cTrue:
		return Always
	case a.op == cFalse:
		return b
	case b.op == cFalse:
		return a
	}
	return &Condition{op: cOr, left: a, right: b}
}

func notCondition(a *Condition) *Condition {
	switch a.op {
	case cTrue:
		return never
	case cFalse:
		return Always
	case cNot:
		return a.left
	case cCompare:
		inverse := [...]compareOp{CmpNe, CmpEq, cmpGe, cmpGt, cmpLe, cmpLt}
		return &Condition{op: cCompare, cmp: inverse[a.cmp], a: a.a, b: a.b, signed: a.signed}
	}
	return &Condition{op: cNot, left: a}
}

// RegistersNeeded returns the number of registers for computing v.
func (v *Value) RegistersNeeded() int {
	n := 1
	if v.a != nil {
		n = v.a.RegistersNeeded()
	}
	if v.b != nil {
		b := v.b.RegistersNeeded()
		if v.op == vSelect || n != b {
			n = max(n, b)
		} else {
			n++
		}
	}
	return n
}

// Immediate returns v as an immediate operand of an instruction, if v is a constant that fits.
func (v *Value) Immediate() (int32, bool) {
	if v.op == vConst && int64(v.k) >= math.MinInt32 && int64(v.k) <= math.MaxInt32 {
		return int32(v.k), true
	}
	return 0, false
}

// FrameBits returns a number of up to 64 bits in the frame's buffer, at a bit offset from the
// cursor. The buffer is at offset frame in the PHV. The parser must have checked that the number's
// bytes are available.
func FrameBits(frame, bit, width int) *Value {
	in, at := bit%8, frame+bit/8
	v := &Value{op: vFrame, off: at, size: 8, swapped: true, Max: ^uint64(0)}
	if in+width > 64 { // the number spans nine bytes
		last := &Value{op: vFrame, off: at + 8, size: 1, Max: 0xff}
		return Shr(Or(Shl(v, uint64(in)), Shr(last, uint64(8-in))), uint64(64-width))
	}
	return Shr(Shl(v, uint64(in)), uint64(64-width))
}
