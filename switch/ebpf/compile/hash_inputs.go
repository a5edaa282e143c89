package compile

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
	"github.com/netcraq/netcraq/switch/interval"
)

// The inputs of hashes and checksums are fields, headers and constants of any widths, put together
// bit by bit as BMv2 does; what belongs to a header that is not valid is left out, so that where
// each bit goes is known only as the packet passes. Three ways lead to the bytes, the first that
// fits is taken:
//
//   - runs of inputs that come and go together are whole bytes: each is put behind those before it
//     (hashInput);
//   - all headers are valid: every bit has its place (putAll);
//   - bit by bit, at a place that is counted while the packet passes (putEach).
//
// A csum16 whose words fall the same way whichever headers are valid needs no bytes at all
// (checksum.go).

// headerOfInput is the header that an input is, or is a field of; nil for a constant.
func headerOfInput(in *bmv2json.CalcInput) *bmv2json.Header {
	if in.Header != nil {
		return in.Header
	}
	return in.Field.Header
}

// neededBy is the header that must be valid for an input to be there; nil: it always is.
func neededBy(in *bmv2json.CalcInput) *bmv2json.Header {
	if h := headerOfInput(in); h != nil && !h.Metadata {
		return h
	}
	return nil
}

// widthOfInput is an input's width in bits: of one with a part of variable length the largest.
func widthOfInput(in *bmv2json.CalcInput) int {
	if in.Header == nil {
		return in.Width
	}
	width := in.Header.Type.FixedBits
	if vl := in.Header.Type.VL; vl >= 0 {
		width += in.Header.Type.Fields[vl].Width
	}
	return width
}

// varies reports whether an input's width is known only as the packet passes.
func varies(in *bmv2json.CalcInput) bool {
	if in.Header != nil {
		return in.Header.Type.VL >= 0
	}
	return in.Field.Field != nil && in.Field.Field.VL
}

// withoutPayload gives the inputs but for the payload, which comes behind all others wherever it
// stands, from the next whole byte on.
func withoutPayload(k *bmv2json.Calculation) (inputs []bmv2json.CalcInput, payload bool) {
	for _, in := range k.Input {
		if in.Payload {
			payload = true
		} else {
			inputs = append(inputs, in)
		}
	}
	return inputs, payload
}

// fixed reports whether every bit of the inputs has its place as soon as all of their headers are
// valid, which needed lists.
func fixed(inputs []bmv2json.CalcInput) (ok bool, needed []*bmv2json.Header) {
	ok = true
	seen := map[*bmv2json.Header]bool{nil: true}
	for i := range inputs {
		ok = ok && !varies(&inputs[i])
		if h := neededBy(&inputs[i]); !seen[h] {
			seen[h], needed = true, append(needed, h)
		}
	}
	return ok, needed
}

// placed reports whether every input, and the payload behind them, begins at the same bit of a unit
// whichever headers are valid.
func placed(inputs []bmv2json.CalcInput, payload bool, unit int) bool {
	bits, all := map[*bmv2json.Header]int{}, 0
	settled := func(own *bmv2json.Header) bool {
		for h, n := range bits {
			if h != own && n%unit != 0 {
				return false
			}
		}
		return true
	}
	for i := range inputs {
		in := &inputs[i]
		h := neededBy(in)
		if varies(in) || !settled(h) || in.Header != nil && all%8 != 0 {
			return false
		}
		if h != nil {
			bits[h] += widthOfInput(in)
		}
		all += widthOfInput(in)
	}
	return !payload || settled(nil)
}

// operands gives what one input of fixed width is made of, the fields of a header one by one: the
// 64-bit words of each, the lowest first, and its width.
func (t *translator) operands(in *bmv2json.CalcInput, where string,
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

// piece is up to 64 bits of the input.
type piece struct {
	v     *ir.Value
	width int
}

// pieces cuts an input of fixed width up, from the top bit on.
func (t *translator) pieces(in *bmv2json.CalcInput, where string) (out []piece) {
	t.operands(in, where, func(word func(int) *ir.Value, width int) {
		for w := ir.WordsOf(width) - 1; w >= 0; w-- {
			n := min(64, width-64*w)
			out = append(out, piece{ir.And(word(w), ir.Const(ir.Ones(n))), n})
		}
	})
	return out
}

// inputBits is how many bits the inputs are at most.
func inputBits(inputs []bmv2json.CalcInput) (bits int) {
	for i := range inputs {
		if inputs[i].Header != nil {
			bits = (bits + 7) &^ 7
		}
		bits += widthOfInput(&inputs[i])
	}
	return bits
}

// hashInput puts the inputs of a calculation together at Plan.hashIn; Temp is how many bytes there
// are. Entry, which may hold a table's entry, is kept.
func (t *translator) hashInput(k *bmv2json.Calculation, inputs []bmv2json.CalcInput) {
	t.checkLength(k, inputs)
	type run struct {
		needed *bmv2json.Header
		inputs []bmv2json.CalcInput
		bits   int
	}
	var runs []run
	for i := range inputs {
		if h := neededBy(&inputs[i]); i == 0 || runs[len(runs)-1].needed != h {
			runs = append(runs, run{needed: h})
		}
		r := &runs[len(runs)-1]
		r.inputs, r.bits = append(r.inputs, inputs[i]), r.bits+widthOfInput(&inputs[i])
	}
	inBytes, _ := fixed(inputs)
	for i, r := range runs {
		inBytes = inBytes && (r.bits%8 == 0 || i == len(runs)-1)
		for j := range r.inputs {
			inBytes = inBytes && (r.inputs[j].Header == nil || inputBits(r.inputs[:j])%8 == 0)
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
		t.Emit(asm.JGT.Imm(code.Temp, int32(most), absent)) // never: for the verifier
		t.Emit(asm.Mov.Reg(asm.R0, code.PHV), asm.Add.Reg(asm.R0, code.Temp))
		t.putPieces(pieces)
		t.Emit(asm.Add.Imm(code.Temp, int32((r.bits+7)/8)))
		t.Bind(absent)
		most += (r.bits + 7) / 8
	}
}

// hashInputEach does the same for a checksum whose packets with all headers are dealt with.
func (t *translator) hashInputEach(k *bmv2json.Calculation, inputs []bmv2json.CalcInput) {
	t.checkLength(k, inputs)
	t.putEach(k, inputs)
}

// checkLength refuses what is more than a hash can take.
func (t *translator) checkLength(k *bmv2json.Calculation, inputs []bmv2json.CalcInput) {
	if n := (inputBits(inputs) + 7) / 8; n > maxHashInput {
		ir.Refuse(k.Path,
			"a hash, or a checksum of which parts may be missing, over %d bytes (at most %d)", n,
			maxHashInput)
	}
}

// unlessAll goes to other unless all of the headers are valid.
func (t *translator) unlessAll(headers []*bmv2json.Header, other string) {
	for _, h := range headers {
		t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, other))
	}
}

// putAll does what hashInput does where all headers are valid, and has putEach do it where not.
func (t *translator) putAll(k *bmv2json.Calculation, inputs []bmv2json.CalcInput) {
	ok, needed := fixed(inputs)
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
			bits+widthOfInput(&inputs[i])
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

// putPieces writes pieces one after the other, from the top bit on, to R0 + Plan.hashIn. It writes
// up to 7 bytes beyond them.
func (t *translator) putPieces(pieces []piece) {
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
		t.Store(asm.R0, t.hashIn+at, asm.R1, 8)
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

// eachBits is how many bits are put at a time where their place is counted: with the 7 bits at most
// that the byte has already they leave the last of 8 bytes free, so that the byte in which the next
// ones begin is always one that was written.
const eachBits = 48

// putEach puts each input behind those before it, wherever that is: Temp counts the bits, and is
// the number of bytes in the end.
func (t *translator) putEach(k *bmv2json.Calculation, inputs []bmv2json.CalcInput) {
	never := t.NewLabel("never")
	t.Emit(asm.Mov.Imm(code.Temp, 0))
	t.StoreConstant(code.PHV, t.hashIn, 0, 8)
	for i := 0; i < len(inputs); {
		h, absent := neededBy(&inputs[i]), t.NewLabel("absent")
		if h != nil {
			t.unlessAll([]*bmv2json.Header{h}, absent)
		}
		for ; i < len(inputs) && neededBy(&inputs[i]) == h; i++ {
			if inputs[i].Header != nil {
				t.Emit(asm.Add.Imm(code.Temp, 7), asm.And.Imm(code.Temp, -8))
			}
			t.putInput(&inputs[i], k.Path, never)
		}
		t.Bind(absent)
		t.widenBounds(code.Temp, inputBits(inputs[:i]), never)
	}
	t.Bind(never)
	t.Emit(asm.Add.Imm(code.Temp, 7), asm.RSh.Imm(code.Temp, 3))
}

// putInput puts one input behind those before it. Where there can be no such packet, it goes to
// never.
func (t *translator) putInput(in *bmv2json.CalcInput, where, never string) {
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
	if !varies(in) {
		fixedWidth(in)
		return
	}
	h := headerOfInput(in)
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

// putBits puts as many bits as R2 says, 1 to eachBits, behind those before them: they are the low
// ones of R1, above which there are none.
func (t *translator) putBits() {
	t.Emit(asm.Mov.Reg(asm.R3, code.Temp), asm.And.Imm(asm.R3, 7), asm.Add.Reg(asm.R3, asm.R2))
	t.Emit(asm.Mov.Imm(asm.R4, 64), asm.Sub.Reg(asm.R4, asm.R3), asm.LSh.Reg(asm.R1, asm.R4))
	t.Emit(asm.Mov.Reg(asm.R0, code.Temp), asm.RSh.Imm(asm.R0, 3), asm.Add.Reg(asm.R0, code.PHV),
		asm.Add.Reg(code.Temp, asm.R2))
	t.Load(asm.R3, asm.R0, t.hashIn, 1)
	t.Emit(asm.LSh.Imm(asm.R3, 56), asm.Or.Reg(asm.R1, asm.R3),
		asm.HostTo(asm.BE, asm.R1, asm.DWord))
	t.Store(asm.R0, t.hashIn, asm.R1, 8)
}

// putVarbitInput puts a header's field of variable length behind what was before it, as many bytes
// as it has.
func (t *translator) putVarbitInput(h *bmv2json.Header, never string) {
	const bytes = eachBits / 8
	l, end := t.Layout.Types[h.Type], t.NewLabel("varbit")
	for at := 0; at < l.VarbitMax; at += bytes {
		some := t.NewLabel("some")
		t.varbitLength(asm.R2, h, never)
		t.Emit(asm.JLE.Imm(asm.R2, int32(at), end), asm.Sub.Imm(asm.R2, int32(at)))
		t.Emit(asm.JLE.Imm(asm.R2, bytes, some), asm.Mov.Imm(asm.R2, bytes))
		t.Bind(some)
		t.Emit(asm.LSh.Imm(asm.R2, 3), asm.Mov.Imm(asm.R3, 64), asm.Sub.Reg(asm.R3, asm.R2))
		t.Load(asm.R1, code.PHV, t.Layout.Base[h.Index]+l.Fields[h.Type.VL].Off+at, 8)
		t.Emit(asm.HostTo(asm.BE, asm.R1, asm.DWord), asm.RSh.Reg(asm.R1, asm.R3))
		t.putBits()
		t.widenBounds(code.Temp, 8*t.hashMax, never)
	}
	t.Bind(end)
}
