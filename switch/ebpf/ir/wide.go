package ir

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/interval"
)

// Arithmetic on values of more than 64 bits. Bitwise operations and shifts by constants need one or
// two words of their operands for each word of their result. They remain trees (expr.go). Sums,
// products, saturation and shifts by amounts known only at run time need many words. They become
// steps. Before a statement that contains steps, the program computes them into words of scratch
// memory, the innermost step first. The trees above the steps load these words.
//
// BMv2's integers are unbounded, and a stored value is truncated to a width. So each step computes
// as many low words, in two's complement, as the expression around it needs. Only comparisons,
// saturation and right shifts need all words of a value, which must then have a bound.

// maxProduct is the largest number of pairs of 32-bit digits that a product may multiply, which
// bounds its instructions. It allows products of two 1,024-bit numbers.
const maxProduct = 528

// Operand is an expression, and the number of its low words that are needed.
type Operand struct {
	expr  *bmv2json.Expr
	Words int
}

// Expr returns the operand's expression.
func (o Operand) Expr() *bmv2json.Expr { return o.expr }

// NewOperand returns an Operand that requests the low words of an expression.
func NewOperand(e *bmv2json.Expr, words int) Operand { return Operand{e, words} }

// ExactWords returns the number of words that hold every value of e, including its sign.
func ExactWords(e *bmv2json.Expr) int {
	if !WideExpr(e) {
		return 1
	}
	r := interval.OfExpr(e)
	if !r.Bounded() {
		Refuse(e.Path,
			"the value of this %q has no bound that can be told when the program is loaded", e.Op)
	}
	if r.NonNegative() {
		return WordsOf(r.Hi.BitLen())
	}
	return WordsOf(r.Bits())
}

// comparedWords returns how many words of each side decide a comparison of numbers, and whether the
// top word is signed.
func comparedWords(e *bmv2json.Expr) (n int, signed bool) {
	both := interval.OfExpr(e.Left).Hull(interval.OfExpr(e.Right))
	if fits, signed := both.FitsWord(); fits {
		return 1, signed
	}
	n = max(ExactWords(e.Left), ExactWords(e.Right))
	if !both.NonNegative() {
		return max(n, WordsOf(both.Bits())), true
	}
	return n, false
}

// WideSteps calls step for every part of an expression that is computed as a step, the innermost
// part first.
func WideSteps(o Operand, step func(Operand)) {
	e, n := o.expr, o.Words
	if e == nil {
		return
	}
	if e.Type == bmv2json.TypeBool {
		wideStepsOfCondition(e, step)
		return
	}
	if !WideExpr(e) {
		n = 1
	}
	both := func(l, r int) {
		WideSteps(Operand{e.Left, l}, step)
		WideSteps(Operand{e.Right, r}, step)
	}
	switch e.Op {
	case bmv2json.OpAccessField:
		if e.Left.Op == bmv2json.OpStackElem {
			WideSteps(Operand{e.Left.Right, 1}, step)
		}
	case bmv2json.OpBoolToData:
		wideStepsOfCondition(e.Right, step)
	case bmv2json.OpTernary:
		wideStepsOfCondition(e.Cond, step)
		both(n, n)
	case bmv2json.OpBitNot:
		WideSteps(Operand{e.Right, n}, step)
	case bmv2json.OpBitAnd:
		for _, side := range []*bmv2json.Expr{e.Left, e.Right} {
			if side.Op == bmv2json.OpConst && side.Const.Sign() >= 0 {
				n = max(1, min(n, WordsOf(side.Const.BitLen())))
			}
		}
		both(n, n)
	case bmv2json.OpBitOr, bmv2json.OpBitXor:
		both(n, n)
	case bmv2json.OpTwoCompMod:
		WideSteps(Operand{e.Left, min(n, WordsOf(e.Width))}, step)
	case bmv2json.OpAdd, bmv2json.OpSub, bmv2json.OpMul:
		both(n, n)
		if n > 1 {
			step(Operand{e, n})
		}
	case bmv2json.OpShl:
		both(n, 1)
		if _, ok := ConstantOf(e.Right, interval.MaxShift); !ok && n > 1 {
			step(Operand{e, n})
		}
	case bmv2json.OpShr:
		if k, ok := ConstantOf(e.Right, interval.MaxShift); ok {
			want := k/64 + n
			if k%64 != 0 {
				want++
			}
			both(want, 1)
			return
		}
		if !WideExpr(e.Left) {
			both(1, 1)
			return
		}
		both(ExactWords(e.Left), 1)
		step(Operand{e, n})
	case bmv2json.OpSatCast, bmv2json.OpUsatCast:
		both(ExactWords(e.Left), 1)
		if WideExpr(e.Left) || e.Width > 64 {
			step(Operand{e, n})
		}
	case bmv2json.OpDiv, bmv2json.OpMod:
		both(1, 1)
	}
}

func wideStepsOfCondition(e *bmv2json.Expr, step func(Operand)) {
	if e == nil {
		return
	}
	switch e.Op {
	case bmv2json.OpNot:
		wideStepsOfCondition(e.Right, step)
	case bmv2json.OpDataToBool:
		WideSteps(Operand{e.Right, ExactWords(e.Right)}, step)
	case bmv2json.OpTernary:
		wideStepsOfCondition(e.Cond, step)
		wideStepsOfCondition(e.Left, step)
		wideStepsOfCondition(e.Right, step)
	case bmv2json.OpAnd, bmv2json.OpOr:
		wideStepsOfCondition(e.Left, step)
		wideStepsOfCondition(e.Right, step)
	case bmv2json.OpEq, bmv2json.OpNe, bmv2json.OpLt, bmv2json.OpLe, bmv2json.OpGt, bmv2json.OpGe:
		switch e.Left.Type {
		case bmv2json.TypeData:
			n, _ := comparedWords(e)
			WideSteps(Operand{e.Left, n}, step)
			WideSteps(Operand{e.Right, n}, step)
		case bmv2json.TypeBool:
			wideStepsOfCondition(e.Left, step)
			wideStepsOfCondition(e.Right, step)
		}
	}
}

// StepWords returns the number of words of scratch memory that a step needs.
func StepWords(o Operand) int {
	n := o.Words
	switch o.expr.Op {
	case bmv2json.OpAdd, bmv2json.OpSub:
		return n + 1 // plus one word for the carry
	case bmv2json.OpMul:
		return 3 * n
	case bmv2json.OpShl:
		return n + 2*n + 1
	case bmv2json.OpShr:
		return n + n + ExactWords(o.expr.Left) + 1
	}
	return n
}

// steps has the results of wide arithmetic that the current statement has computed in scratch
// memory.
type steps struct {
	free   int // offset of the first free word in the PHV
	values map[*bmv2json.Expr][]*Value
}

// BeginStatement forgets the steps of the previous statement and computes the steps of the next
// statement.
func (w *Writer) BeginStatement(list ...Operand) {
	w.steps = steps{free: w.scratch, values: map[*bmv2json.Expr][]*Value{}}
	for _, o := range list {
		WideSteps(o, w.step)
	}
}

// words reserves n words of scratch memory and returns their offset.
func (w *Writer) words(n int) int {
	at := w.steps.free
	if w.steps.free += 8 * n; w.steps.free > w.scratchEnd {
		Refuse(w.Where, "an expression that takes more than %d words", (w.scratchEnd-w.scratch)/8)
	}
	return at
}

// stepWord returns word i of a value that has been computed as a step.
func (w *Writer) stepWord(e *bmv2json.Expr, i int) (*Value, bool) {
	words, ok := w.steps.values[e]
	switch {
	case !ok:
		return nil, false
	case i < len(words):
		return words[i], true
	case len(words) < ExactWords(e):
		Refuse(e.Path, "more words of this %q than were computed", e.Op)
	case interval.OfExpr(e).NonNegative():
		return Const(0), true
	}
	return sar(words[len(words)-1], 63), true
}

// step emits code that computes the words of one operation.
func (w *Writer) step(o Operand) {
	e, n := o.expr, o.Words
	at := w.words(n)
	switch e.Op {
	case bmv2json.OpAdd, bmv2json.OpSub:
		w.wideSum(e, at, n)
	case bmv2json.OpMul:
		w.wideProduct(e, at, n)
	case bmv2json.OpShl:
		w.wideShiftLeft(e, at, n)
	case bmv2json.OpShr:
		w.wideShiftRight(e, at, n)
	default:
		w.wideSaturation(e, at, n)
	}
	words := make([]*Value, n)
	for i := range words {
		words[i] = LoadPHV(at+8*i, 8, 64)
	}
	w.steps.values[e] = words
}

// keep emits code that stores words of an expression, the least significant word first.
func (w *Writer) keep(e *bmv2json.Expr, at, n int) {
	for i := range n {
		w.Store(code.PHV, at+8*i, w.Compute(w.Word(e, i), 0), 8)
	}
}

// wideSum emits code that adds or subtracts word by word. It computes the carry from the words' top
// bits, so the verifier has no branch to follow.
func (w *Writer) wideSum(e *bmv2json.Expr, at, n int) {
	carry := w.words(1)
	add := e.Op == bmv2json.OpAdd
	for i := range n {
		w.Compute(w.Word(e.Left, i), 0)
		w.Compute(w.Word(e.Right, i), 1)
		a, b, c, sum := Registers[0], Registers[1], Registers[2], Registers[3]
		op := asm.Sub
		if add {
			op = asm.Add
		}
		w.Emit(asm.Mov.Reg(sum, a), op.Reg(sum, b))
		if i > 0 {
			w.Load(c, code.PHV, carry, 8)
			w.Emit(op.Reg(sum, c))
		}
		w.Store(code.PHV, at+8*i, sum, 8)
		if i == n-1 {
			break
		}
		// a + b carries if both have the top bit, or if one has it and the sum does not. a - b
		// borrows if only b has the top bit, or if the top bits are equal and the difference has
		// it.
		if add {
			w.Emit(asm.Xor.Imm(sum, -1))
		} else {
			w.Emit(asm.Xor.Imm(a, -1))
		}
		w.Emit(asm.Mov.Reg(c, a), asm.And.Reg(c, b), asm.Or.Reg(a, b), asm.And.Reg(a, sum),
			asm.Or.Reg(c, a), asm.RSh.Imm(c, 63))
		w.Store(code.PHV, carry, c, 8)
	}
}

// digits returns how many 32-bit digits hold the value of e modulo 2^(64n).
func digits(e *bmv2json.Expr, n int) int {
	if r := interval.OfExpr(e); r.Bounded() && r.NonNegative() {
		return min(2*n, (r.Hi.BitLen()+31)/32)
	}
	return 2 * n
}

// digit returns the offset of the k-th 32-bit digit of words in memory.
func digit(at, k int) int {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		k ^= 1
	}
	return at + 4*k
}

// wideProduct emits code that multiplies digit by digit, as on paper. A product of two digits, plus
// a digit, plus a carry fits into 64 bits.
func (w *Writer) wideProduct(e *bmv2json.Expr, at, n int) {
	left, right := e.Left, e.Right
	x, y := w.words(n), w.words(n)
	nx, ny := digits(left, n), digits(right, n)
	// The operand with fewer digits provides the rows.
	if right.Op == bmv2json.OpConst || left.Op != bmv2json.OpConst && ny < nx {
		left, right, nx, ny = right, left, ny, nx
	}
	isZero := func(i int) bool {
		return left.Op == bmv2json.OpConst && uint32(interval.Word(left.Const,
			i/2)>>(32*(i%2))) == 0
	}
	pairs := 0
	for i := range nx {
		if !isZero(i) {
			pairs += min(ny, 2*n-i)
		}
	}
	if pairs > maxProduct {
		Refuse(e.Path, "a product of %d and %d bits", 32*nx, 32*ny)
	}
	w.keep(left, x, (nx+1)/2)
	w.keep(right, y, (ny+1)/2)
	w.Zero(code.PHV, at, 8*n)
	for i := range nx {
		if isZero(i) {
			continue
		}
		w.Load(asm.R1, code.PHV, digit(x, i), 4)
		w.Emit(asm.Mov.Imm(asm.R4, 0))
		last := min(ny, 2*n-i)
		for j := range last {
			w.Load(asm.R2, code.PHV, digit(y, j), 4)
			w.Load(asm.R3, code.PHV, digit(at, i+j), 4)
			w.Emit(asm.Mul.Reg(asm.R2, asm.R1), asm.Add.Reg(asm.R2, asm.R3),
				asm.Add.Reg(asm.R2, asm.R4))
			w.Store(code.PHV, digit(at, i+j), asm.R2, 4)
			w.Emit(asm.Mov.Reg(asm.R4, asm.R2), asm.RSh.Imm(asm.R4, 32))
		}
		if i+last < 2*n {
			w.Store(code.PHV, digit(at, i+last), asm.R4, 4)
		}
	}
}

// shiftAmount emits code that leaves a pointer into the PHV in R3, the number of bits by which to
// shift within a word in R4, and 63 minus this number in R5. It treats an amount of more than limit
// words as limit words.
func (w *Writer) shiftAmount(amount *bmv2json.Expr, at, limit int, backwards bool) {
	fits := w.NewLabel("fits")
	w.Compute(w.Index(amount), 0)
	w.Emit(asm.JLE.Imm(asm.R1, int32(64*limit), fits), asm.Mov.Imm(asm.R1, int32(64*limit)))
	w.Bind(fits)
	w.Emit(asm.Mov.Reg(asm.R4, asm.R1), asm.And.Imm(asm.R4, 63), asm.Mov.Imm(asm.R5, 63),
		asm.Sub.Reg(asm.R5, asm.R4), asm.RSh.Imm(asm.R1, 6))
	if backwards {
		w.Emit(asm.Mov.Imm(asm.R3, int32(limit)), asm.Sub.Reg(asm.R3, asm.R1))
	} else {
		w.Emit(asm.Mov.Reg(asm.R3, asm.R1))
	}
	w.Emit(asm.LSh.Imm(asm.R3, 3), asm.Add.Reg(asm.R3, code.PHV), asm.Add.Imm(asm.R3, int32(at)))
}

// wideShiftLeft emits a left shift by an amount known only at run time. Zeros precede the value in
// memory, and the pointer moves back into these zeros.
func (w *Writer) wideShiftLeft(e *bmv2json.Expr, at, n int) {
	from := w.words(2*n + 1)
	w.Zero(code.PHV, from, 8*(n+1))
	w.keep(e.Left, from+8*(n+1), n)
	w.shiftAmount(e.Right, from, n, true)
	for i := range n {
		w.Load(asm.R1, asm.R3, 8*(i+1), 8)
		w.Load(asm.R2, asm.R3, 8*i, 8)
		w.Emit(asm.LSh.Reg(asm.R1, asm.R4), asm.RSh.Imm(asm.R2, 1), asm.RSh.Reg(asm.R2, asm.R5),
			asm.Or.Reg(asm.R1, asm.R2))
		w.Store(code.PHV, at+8*i, asm.R1, 8)
	}
}

// wideShiftRight emits a right shift by an amount known only at run time. Words with copies of the
// sign follow the value in memory.
func (w *Writer) wideShiftRight(e *bmv2json.Expr, at, n int) {
	m := ExactWords(e.Left)
	from := w.words(m + n + 1)
	w.keep(e.Left, from, m+n+1)
	w.shiftAmount(e.Right, from, m, false)
	for i := range n {
		w.Load(asm.R1, asm.R3, 8*i, 8)
		w.Load(asm.R2, asm.R3, 8*(i+1), 8)
		w.Emit(asm.RSh.Reg(asm.R1, asm.R4), asm.LSh.Imm(asm.R2, 1), asm.LSh.Reg(asm.R2, asm.R5),
			asm.Or.Reg(asm.R1, asm.R2))
		w.Store(code.PHV, at+8*i, asm.R1, 8)
	}
}

// wideSaturation emits code that limits a value to the bounds of its type.
func (w *Writer) wideSaturation(e *bmv2json.Expr, at, n int) {
	bound := interval.OfExpr(e)
	low := &bmv2json.Expr{Op: bmv2json.OpConst, Type: bmv2json.TypeData, Const: bound.Lo,
		Path: e.Path}
	high := &bmv2json.Expr{Op: bmv2json.OpConst, Type: bmv2json.TypeData, Const: bound.Hi,
		Path: e.Path}
	below, notBelow, above, within, end := w.NewLabel("below"), w.NewLabel("notbelow"),
		w.NewLabel("above"), w.NewLabel("within"), w.NewLabel("end")
	less := &bmv2json.Expr{Op: bmv2json.OpLt, Type: bmv2json.TypeBool, Left: e.Left, Right: low,
		Path: e.Path}
	more := &bmv2json.Expr{Op: bmv2json.OpGt, Type: bmv2json.TypeBool, Left: e.Left, Right: high,
		Path: e.Path}
	w.Branch(w.comparison(less), below, notBelow, notBelow, 0)
	w.Bind(notBelow)
	w.Branch(w.comparison(more), above, within, within, 0)
	w.Bind(within)
	w.keep(e.Left, at, n)
	w.Jump(end)
	w.Bind(below)
	w.keep(low, at, n)
	w.Jump(end)
	w.Bind(above)
	w.keep(high, at, n)
	w.Bind(end)
}
