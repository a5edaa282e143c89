package ebpf

import (
	"math"
	"math/bits"
)

// Between the program's expressions and instructions stands a small tree of 64-bit operations: a value is one 64-bit word of an expression's result. The
// makers below fold constants and drop what changes nothing (p4c masks after every operation), knowing an upper bound of every value.

type valueOp int

const (
	vConst  valueOp = iota
	vLoad           // size bytes at off from the PHV; swapped: a word of a wide field
	vLast           // the same in the last valid element of a stack: stack counts, stride apart; 0 where there is none
	vParam          // the same, from the slot of the table entry that is running
	vInline         // bits of the word of the table entry that is running
	vFrame          // the same, from the parse buffer at the cursor
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
	vSext   // the low k bits of a, extended by their sign
	vSelect // cond ? a : b
)

// value is one 64-bit word.
type value struct {
	op      valueOp
	k       uint64 // vConst; vShl, vShr, vSar: the amount, where b is nil; vSext: the bits; vInline: the first bit
	off     int
	size    int
	swapped bool
	next    int // vLast: where the stack's count is
	stride  int
	a, b    *value
	cond    *condition
	max     uint64 // no larger value is possible
}

func konst(k uint64) *value { return &value{op: vConst, k: k, max: k} }

func ones(width int) uint64 {
	if width >= 64 {
		return math.MaxUint64
	}
	return 1<<width - 1
}

func (v *value) isConst(k uint64) bool { return v.op == vConst && v.k == k }

// same reports whether two values are the same load of the PHV.
func (v *value) same(w *value) bool {
	return v.op == vLoad && w.op == vLoad && v.off == w.off && v.size == w.size && v.swapped == w.swapped
}

func loadField(off, size, width int) *value {
	return &value{op: vLoad, off: off, size: size, max: ones(width)}
}

func andValue(a, b *value) *value {
	if a.op == vConst {
		a, b = b, a
	}
	if b.op == vConst {
		switch {
		case a.op == vConst:
			return konst(a.k & b.k)
		case b.k == 0:
			return b
		case b.k&(b.k+1) == 0 && a.max <= b.k: // a mask that takes nothing away
			return a
		case a.op == vAnd && a.b.op == vConst:
			return andValue(a.a, konst(a.b.k&b.k))
		case a.op == vSelect && (a.a.op == vConst || a.b.op == vConst):
			return selectValue(a.cond, andValue(a.a, b), andValue(a.b, b))
		}
	}
	return &value{op: vAnd, a: a, b: b, max: min(a.max, b.max)}
}

func hullOfBits(a, b uint64) uint64 { return ones(max(bits.Len64(a), bits.Len64(b))) }

func orValue(a, b *value) *value {
	if a.op == vConst {
		a, b = b, a
	}
	switch {
	case a.op == vConst && b.op == vConst:
		return konst(a.k | b.k)
	case b.isConst(0):
		return a
	}
	return &value{op: vOr, a: a, b: b, max: hullOfBits(a.max, b.max)}
}

func xorValue(a, b *value) *value {
	if a.op == vConst {
		a, b = b, a
	}
	switch {
	case a.op == vConst && b.op == vConst:
		return konst(a.k ^ b.k)
	case b.isConst(0):
		return a
	}
	return &value{op: vXor, a: a, b: b, max: hullOfBits(a.max, b.max)}
}

func addValue(a, b *value) *value {
	if a.op == vConst {
		a, b = b, a
	}
	switch {
	case a.op == vConst && b.op == vConst:
		return konst(a.k + b.k)
	case b.isConst(0):
		return a
	}
	v := &value{op: vAdd, a: a, b: b, max: math.MaxUint64}
	if s, carry := bits.Add64(a.max, b.max, 0); carry == 0 {
		v.max = s
	}
	return v
}

func subValue(a, b *value) *value {
	switch {
	case a.op == vConst && b.op == vConst:
		return konst(a.k - b.k)
	case b.isConst(0):
		return a
	}
	return &value{op: vSub, a: a, b: b, max: math.MaxUint64}
}

func mulValue(a, b *value) *value {
	if a.op == vConst {
		a, b = b, a
	}
	switch {
	case a.op == vConst && b.op == vConst:
		return konst(a.k * b.k)
	case b.isConst(1):
		return a
	}
	v := &value{op: vMul, a: a, b: b, max: math.MaxUint64}
	if hi, lo := bits.Mul64(a.max, b.max); hi == 0 {
		v.max = lo
	}
	return v
}

// divValue and modValue are unsigned; dividing by zero gives 0.
func divValue(a, b *value) *value { return &value{op: vDiv, a: a, b: b, max: a.max} }

func modValue(a, b *value) *value {
	if b.op == vConst && b.k != 0 {
		return &value{op: vMod, a: a, b: b, max: min(a.max, b.k-1)}
	}
	return selectValue(compare(cmpNe, b, konst(0), false), &value{op: vMod, a: a, b: b, max: a.max}, konst(0))
}

func shlValue(a *value, k uint64) *value {
	switch {
	case k >= 64:
		return konst(0)
	case k == 0:
		return a
	case a.op == vConst:
		return konst(a.k << k)
	}
	v := &value{op: vShl, a: a, k: k, max: math.MaxUint64}
	if bits.Len64(a.max)+int(k) <= 64 {
		v.max = a.max << k
	}
	return v
}

func shrValue(a *value, k uint64) *value {
	switch {
	case k >= 64:
		return konst(0)
	case k == 0:
		return a
	case a.op == vConst:
		return konst(a.k >> k)
	}
	return &value{op: vShr, a: a, k: k, max: a.max >> k}
}

func sarValue(a *value, k uint64) *value {
	if a.max <= math.MaxInt64 {
		return shrValue(a, k)
	}
	return &value{op: vSar, a: a, k: min(k, 63), max: math.MaxUint64}
}

// shiftValue shifts by an amount that is not known; 64 and more shift everything out.
func shiftValue(op valueOp, a, by *value) *value {
	v := &value{op: op, a: a, b: by, max: math.MaxUint64}
	var out = konst(0)
	switch op {
	case vShr:
		v.max = a.max
	case vSar:
		out = sarValue(a, 63)
	}
	if by.max < 64 {
		return v
	}
	return selectValue(compare(cmpLt, by, konst(64), false), v, out)
}

func sextValue(a *value, width int) *value {
	if width >= 64 || a.max < 1<<(width-1) {
		return a
	}
	if a.op == vConst {
		s := 64 - width
		return konst(uint64(int64(a.k<<s) >> s))
	}
	return &value{op: vSext, a: a, k: uint64(width), max: math.MaxUint64}
}

func selectValue(c *condition, a, b *value) *value {
	switch c.op {
	case cTrue:
		return a
	case cFalse:
		return b
	}
	return &value{op: vSelect, cond: c, a: a, b: b, max: max(a.max, b.max)}
}

type conditionOp int

const (
	cTrue conditionOp = iota
	cFalse
	cCompare
	cAnd
	cOr
	cNot
	cSelect // sel ? left : right
)

type compareOp int

const (
	cmpEq compareOp = iota
	cmpNe
	cmpLt
	cmpLe
	cmpGt
	cmpGe
)

// condition is something that is true or false.
type condition struct {
	op          conditionOp
	cmp         compareOp
	signed      bool
	a, b        *value
	sel         *condition
	left, right *condition
}

var (
	always = &condition{op: cTrue}
	never  = &condition{op: cFalse}
)

func truth(b bool) *condition {
	if b {
		return always
	}
	return never
}

func compare(op compareOp, a, b *value, signed bool) *condition {
	if a.op == vConst && b.op != vConst {
		a, b = b, a
		op = [...]compareOp{cmpEq, cmpNe, cmpGt, cmpGe, cmpLt, cmpLe}[op]
	}
	if b.op == vConst {
		if a.op == vConst {
			return truth(compareConst(op, a.k, b.k, signed))
		}
		if !signed && a.max < b.k { // decided by the operand's width
			return truth(op == cmpNe || op == cmpLt || op == cmpLe)
		}
		// (c ? 1 : 0) == 1 and its like are c
		if a.op == vSelect && a.a.op == vConst && a.b.op == vConst {
			t, f := compareConst(op, a.a.k, b.k, signed), compareConst(op, a.b.k, b.k, signed)
			switch {
			case t && f:
				return always
			case t:
				return a.cond
			case f:
				return notCondition(a.cond)
			}
			return never
		}
	}
	return &condition{op: cCompare, cmp: op, a: a, b: b, signed: signed}
}

func compareConst(op compareOp, a, b uint64, signed bool) bool {
	less := a < b
	if signed {
		less = int64(a) < int64(b)
	}
	switch op {
	case cmpEq:
		return a == b
	case cmpNe:
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

func andCondition(a, b *condition) *condition {
	switch {
	case a.op == cFalse || b.op == cFalse:
		return never
	case a.op == cTrue:
		return b
	case b.op == cTrue:
		return a
	}
	return &condition{op: cAnd, left: a, right: b}
}

func orCondition(a, b *condition) *condition {
	switch {
	case a.op == cTrue || b.op == cTrue:
		return always
	case a.op == cFalse:
		return b
	case b.op == cFalse:
		return a
	}
	return &condition{op: cOr, left: a, right: b}
}

func notCondition(a *condition) *condition {
	switch a.op {
	case cTrue:
		return never
	case cFalse:
		return always
	case cNot:
		return a.left
	case cCompare:
		inverse := [...]compareOp{cmpNe, cmpEq, cmpGe, cmpGt, cmpLe, cmpLt}
		return &condition{op: cCompare, cmp: inverse[a.cmp], a: a.a, b: a.b, signed: a.signed}
	}
	return &condition{op: cNot, left: a}
}

// need is how many registers computing v takes.
func (v *value) need() int {
	n := 1
	if v.a != nil {
		n = v.a.need()
	}
	if v.b != nil {
		b := v.b.need()
		if v.op == vSelect || n != b {
			n = max(n, b)
		} else {
			n++
		}
	}
	return n
}

// immediate is v as an operand within the instruction.
func (v *value) immediate() (int32, bool) {
	if v.op == vConst && int64(v.k) >= math.MinInt32 && int64(v.k) <= math.MaxInt32 {
		return int32(v.k), true
	}
	return 0, false
}

// frameBits is a number of up to 64 bits, at a bit offset from the cursor in the frame's buffer, which is at
// frame in the PHV; its bytes must have been found available.
func frameBits(frame, bit, width int) *value {
	in, at := bit%8, frame+bit/8
	v := &value{op: vFrame, off: at, size: 8, swapped: true, max: ^uint64(0)}
	if in+width > 64 { // nine bytes
		last := &value{op: vFrame, off: at + 8, size: 1, max: 0xff}
		return shrValue(orValue(shlValue(v, uint64(in)), shrValue(last, uint64(8-in))), uint64(64-width))
	}
	return shrValue(shlValue(v, uint64(in)), uint64(64-width))
}
