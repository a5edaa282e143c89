package hashing

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
	"github.com/netcraq/netcraq/switch/interval"
)

// The inputs of hashes and checksums are fields, headers and constants of any widths. They are
// assembled bit by bit as in BMv2. Parts of invalid headers are omitted, so the position of each
// bit is known only at run time. There are three ways to assemble the bytes. The compiler uses the
// first that applies:
//
//   - Each run of inputs that are valid together fills whole bytes. The code appends the runs one
//     by one (hashInput).
//   - All headers are valid, so every bit has a fixed position (putAll).
//   - The code appends bit by bit, at a position that it counts at run time (putEach).
//
// A csum16 needs no bytes at all if its words have the same boundaries whichever headers are valid
// (checksum.go).

// operands calls visit for each part of an input of fixed width: the input itself, or the fields of
// a header one by one. visit gets the 64-bit words of the part, the lowest first, and the part's
// width.
func (t *Hashes) operands(in *bmv2json.CalcInput, where string,
	visit func(word func(int) *ir.Value, width int)) {
	visitField := func(r bmv2json.FieldRef) {
		p := t.Layout.Field(r)
		p.Signed = false
		visit(func(i int) *ir.Value { return t.WordOfPlace(p, i) }, p.Width)
	}
	switch {
	case in.Header != nil:
		for _, f := range in.Header.Type.Fields {
			visitField(bmv2json.FieldRef{Header: in.Header, Field: f})
		}
	case in.Const != nil:
		visit(func(i int) *ir.Value { return ir.Const(interval.Word(in.Const, i)) }, in.Width)
	default:
		if in.Field.IsValidity() {
			ir.Refuse(where, "the validity of %s as input", in.Field.Header.Name)
		}
		visitField(in.Field)
	}
}

// piece is a part of the input of up to 64 bits.
type piece struct {
	v     *ir.Value
	width int
}

// pieces splits an input of fixed width into pieces, beginning at the top bit.
func (t *Hashes) pieces(in *bmv2json.CalcInput, where string) (out []piece) {
	t.operands(in, where, func(word func(int) *ir.Value, width int) {
		for w := ir.WordsOf(width) - 1; w >= 0; w-- {
			n := min(64, width-64*w)
			out = append(out, piece{ir.And(word(w), ir.Const(ir.Ones(n))), n})
		}
	})
	return out
}

// hashInput emits code that assembles the inputs of a calculation at Plan.HashIn and leaves the
// number of bytes in Temp. It preserves Entry, which may hold a table's entry.
func (t *Hashes) hashInput(k *bmv2json.Calculation, inputs []bmv2json.CalcInput) {
	t.checkLength(k, inputs)
	type run struct {
		needed *bmv2json.Header
		inputs []bmv2json.CalcInput
		bits   int
	}
	var runs []run
	for i := range inputs {
		if h := analysis.NeededBy(&inputs[i]); i == 0 || runs[len(runs)-1].needed != h {
			runs = append(runs, run{needed: h})
		}
		r := &runs[len(runs)-1]
		r.inputs, r.bits = append(r.inputs, inputs[i]), r.bits+analysis.WidthOfInput(&inputs[i])
	}
	inBytes, _ := analysis.FixedPlaces(inputs)
	for i, r := range runs {
		inBytes = inBytes && (r.bits%8 == 0 || i == len(runs)-1)
		for j := range r.inputs {
			inBytes = inBytes && (r.inputs[j].Header == nil || analysis.InputBits(r.inputs[:j])%8 == 0)
		}
	}
	if !inBytes {
		t.putAll(k, inputs)
		return
	}
	t.Emit(asm.Mov.Imm(code.Temp, 0))
	most := 0
	for _, r := range runs {
		var pieces []piece
		for i := range r.inputs {
			pieces = append(pieces, t.pieces(&r.inputs[i], k.Path)...)
		}
		absent := t.NewLabel("absent")
		if r.needed != nil {
			t.Load(asm.R1, code.PHV, t.Layout.Validity(r.needed), 1)
			t.Emit(asm.JEq.Imm(asm.R1, 0, absent))
		}
		// The condition is never true, but the verifier needs it.
		t.Emit(asm.JGT.Imm(code.Temp, int32(most), absent))
		t.Emit(asm.Mov.Reg(asm.R0, code.PHV), asm.Add.Reg(asm.R0, code.Temp))
		t.putPieces(pieces)
		t.Emit(asm.Add.Imm(code.Temp, int32((r.bits+7)/8)))
		t.Bind(absent)
		most += (r.bits + 7) / 8
	}
}

// hashInputEach does the work of hashInput for a checksum of packets that lack a header. Other code
// has already handled packets with all headers.
func (t *Hashes) hashInputEach(k *bmv2json.Calculation, inputs []bmv2json.CalcInput) {
	t.checkLength(k, inputs)
	t.putEach(k, inputs)
}

// checkLength refuses a calculation whose inputs are longer than MaxHashInput.
func (t *Hashes) checkLength(k *bmv2json.Calculation, inputs []bmv2json.CalcInput) {
	if n := (analysis.InputBits(inputs) + 7) / 8; n > memory.MaxHashInput {
		ir.Refuse(k.Path,
			"a hash, or a checksum of which parts may be missing, over %d bytes (at most %d)", n,
			memory.MaxHashInput)
	}
}

// unlessAll emits code that jumps to other unless all headers are valid.
func (t *Hashes) unlessAll(headers []*bmv2json.Header, other string) {
	for _, h := range headers {
		t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, other))
	}
}

// putAll does the work of hashInput for packets whose headers are all valid. It calls putEach for
// all other packets.
func (t *Hashes) putAll(k *bmv2json.Calculation, inputs []bmv2json.CalcInput) {
	ok, needed := analysis.FixedPlaces(inputs)
	if !ok {
		t.putEach(k, inputs)
		return
	}
	some, done := t.NewLabel("some"), t.NewLabel("put")
	t.unlessAll(needed, some)
	var pieces []piece
	bits := 0
	for i := range inputs {
		if in := &inputs[i]; in.Header != nil && bits%8 != 0 {
			fill := 8 - bits%8
			pieces, bits = append(pieces, piece{ir.Const(0), fill}), bits+fill
		}
		pieces, bits = append(pieces, t.pieces(&inputs[i], k.Path)...),
			bits+analysis.WidthOfInput(&inputs[i])
	}
	t.Emit(asm.Mov.Reg(asm.R0, code.PHV))
	t.putPieces(pieces)
	t.Emit(asm.Mov.Imm(code.Temp, int32((bits+7)/8)))
	if len(needed) == 0 {
		return
	}
	t.Jump(done)
	t.Bind(some)
	t.putEach(k, inputs)
	t.Bind(done)
}

// putPieces emits code that writes pieces one after the other, from the top bit on, to R0 +
// Plan.HashIn. The code writes up to 7 bytes beyond them.
func (t *Hashes) putPieces(pieces []piece) {
	var run *ir.Value
	filled, at := 0, 0
	flush := func() {
		if filled == 0 {
			return
		}
		v := ir.Shl(run, uint64(64-filled))
		if v.RegistersNeeded() >= len(ir.Registers) {
			ir.Refuse(t.Where, "a hash over an expression with too many intermediate values")
		}
		t.Compute(v, 0)
		t.Emit(asm.HostTo(asm.BE, asm.R1, asm.DWord))
		t.Store(asm.R0, t.HashIn+at, asm.R1, 8)
		at, run, filled = at+8, nil, 0
	}
	for _, p := range pieces {
		for left := p.width; left > 0; {
			n := min(left, 64-filled)
			part := ir.And(ir.Shr(p.v, uint64(left-n)), ir.Const(ir.Ones(n)))
			if run == nil {
				run = part
			} else {
				run = ir.Or(ir.Shl(run, uint64(n)), part)
			}
			filled, left = filled+n, left-n
			if filled == 64 {
				flush()
			}
		}
	}
	flush()
}

// eachBits is the number of bits that putEach writes at a time. The first byte may already have up
// to 7 bits. Together they leave the last of 8 bytes free. So the byte in which the next bits begin
// has always been written.
const eachBits = 48

// putEach emits code that appends each input at a position that is known only at run time. Temp
// counts the bits and finally holds the number of bytes.
func (t *Hashes) putEach(k *bmv2json.Calculation, inputs []bmv2json.CalcInput) {
	never := t.NewLabel("never")
	t.Emit(asm.Mov.Imm(code.Temp, 0))
	t.StoreConstant(code.PHV, t.HashIn, 0, 8)
	for i := 0; i < len(inputs); {
		h, absent := analysis.NeededBy(&inputs[i]), t.NewLabel("absent")
		if h != nil {
			t.unlessAll([]*bmv2json.Header{h}, absent)
		}
		for ; i < len(inputs) && analysis.NeededBy(&inputs[i]) == h; i++ {
			if inputs[i].Header != nil {
				t.Emit(asm.Add.Imm(code.Temp, 7), asm.And.Imm(code.Temp, -8))
			}
			t.putInput(&inputs[i], k.Path, never)
		}
		t.Bind(absent)
		t.WidenBounds(code.Temp, analysis.InputBits(inputs[:i]), never)
	}
	t.Bind(never)
	t.Emit(asm.Add.Imm(code.Temp, 7), asm.RSh.Imm(code.Temp, 3))
}

// putInput emits code that appends one input. It jumps to never for packets that cannot exist.
func (t *Hashes) putInput(in *bmv2json.CalcInput, where, never string) {
	fixedWidth := func(in *bmv2json.CalcInput) {
		for _, p := range t.pieces(in, where) {
			for left := p.width; left > 0; {
				n := min(left, eachBits)
				left -= n
				t.Compute(ir.And(ir.Shr(p.v, uint64(left)), ir.Const(ir.Ones(n))), 0)
				t.Emit(asm.Mov.Imm(asm.R2, int32(n)))
				t.putBits()
			}
		}
	}
	if !analysis.VariableWidth(in) {
		fixedWidth(in)
		return
	}
	h := analysis.HeaderOfInput(in)
	for _, f := range h.Type.Fields {
		switch r := (bmv2json.FieldRef{Header: h, Field: f}); {
		case in.Header == nil && f != in.Field.Field:
		case f.VL:
			t.putVarbitInput(h, never)
		default:
			fixedWidth(&bmv2json.CalcInput{Field: r, Width: f.Width})
		}
	}
}

// putBits emits code that appends R2 bits (1 to eachBits). They are the low bits of R1, whose other
// bits must be 0.
func (t *Hashes) putBits() {
	t.Emit(asm.Mov.Reg(asm.R3, code.Temp), asm.And.Imm(asm.R3, 7), asm.Add.Reg(asm.R3, asm.R2))
	t.Emit(asm.Mov.Imm(asm.R4, 64), asm.Sub.Reg(asm.R4, asm.R3), asm.LSh.Reg(asm.R1, asm.R4))
	t.Emit(asm.Mov.Reg(asm.R0, code.Temp), asm.RSh.Imm(asm.R0, 3), asm.Add.Reg(asm.R0, code.PHV),
		asm.Add.Reg(code.Temp, asm.R2))
	t.Load(asm.R3, asm.R0, t.HashIn, 1)
	t.Emit(asm.LSh.Imm(asm.R3, 56), asm.Or.Reg(asm.R1, asm.R3),
		asm.HostTo(asm.BE, asm.R1, asm.DWord))
	t.Store(asm.R0, t.HashIn, asm.R1, 8)
}

// putVarbitInput emits code that appends the present bytes of a header's varbit field.
func (t *Hashes) putVarbitInput(h *bmv2json.Header, never string) {
	const bytes = eachBits / 8
	l, end := t.Layout.Types[h.Type], t.NewLabel("varbit")
	for at := 0; at < l.VarbitMax; at += bytes {
		some := t.NewLabel("some")
		t.LoadVarbitLength(asm.R2, h, never)
		t.Emit(asm.JLE.Imm(asm.R2, int32(at), end), asm.Sub.Imm(asm.R2, int32(at)))
		t.Emit(asm.JLE.Imm(asm.R2, bytes, some), asm.Mov.Imm(asm.R2, bytes))
		t.Bind(some)
		t.Emit(asm.LSh.Imm(asm.R2, 3), asm.Mov.Imm(asm.R3, 64), asm.Sub.Reg(asm.R3, asm.R2))
		t.Load(asm.R1, code.PHV, t.Layout.Base[h.Index]+l.Fields[h.Type.VL].Off+at, 8)
		t.Emit(asm.HostTo(asm.BE, asm.R1, asm.DWord), asm.RSh.Reg(asm.R1, asm.R3))
		t.putBits()
		t.WidenBounds(code.Temp, 8*t.HashMax, never)
	}
	t.Bind(end)
}
