package headers

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// A field of variable length (varbit) is a byte string in the PHV. Two further bytes of the header
// contain its length. The program always copies the whole space of the field. Between frame and
// PHV, it then reads or writes the data that follows right after the valid bytes.

// extractVarbit emits code that extracts a header with a varbit field of length bits.
func (t *Headers) extractVarbit(h *bmv2json.Header, length *bmv2json.Expr) {
	l := t.Layout.Types[h.Type]
	at := t.varbitAt(h.Type)
	base := t.Layout.Base[h.Index]
	whole, there, fits := t.NewLabel("whole"), t.NewLabel("there"), t.NewLabel("fits")
	short := t.NewLabel("short")
	t.Compute(t.Index(length), 0)
	t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.And.Imm(asm.R2, 7), asm.JEq.Imm(asm.R2, 0, whole))
	t.parserError("ParserInvalidArgument")
	t.Bind(whole)
	t.Emit(asm.RSh.Imm(asm.R1, 3))
	t.Load(asm.R2, code.PHV, memory.PHVLen, 4)
	t.Emit(asm.Sub.Reg(asm.R2, code.Entry), asm.JGT.Reg(asm.R1, asm.R2, short))
	t.Emit(asm.Mov.Reg(asm.R3, asm.R1), asm.Add.Imm(asm.R3, int32(l.Bytes)),
		asm.JLE.Reg(asm.R3, asm.R2, there))
	t.Bind(short)
	t.parserError("PacketTooShort")
	t.Bind(there)
	t.Emit(asm.JLE.Imm(asm.R1, int32(l.VarbitMax), fits))
	t.parserError("HeaderTooShort")
	t.Bind(fits)
	t.Emit(asm.JGT.Imm(code.Entry, int32(t.FrameMax-l.Bytes-l.VarbitMax), "ingress.drop"))
	t.Store(code.PHV, base+l.VarbitLength, asm.R1, 2)
	t.extractFieldRange(h.Type, 0, h.Type.VL, base, code.PHV)
	t.Emit(asm.Mov.Reg(asm.R3, code.PHV), asm.Add.Reg(asm.R3, code.Entry))
	t.CopyWords(code.PHV, base+l.Fields[h.Type.VL].Off, asm.R3, t.Frame+at,
		l.Fields[h.Type.VL].Size)
	t.LoadVarbitLength(asm.R1, h, "ingress.drop")
	t.Emit(asm.Add.Reg(code.Entry, asm.R1))
	t.extractFieldRange(h.Type, h.Type.VL+1, len(h.Type.Fields), base, code.PHV)
	t.Emit(asm.Add.Imm(code.Entry, int32(l.Bytes)))
	t.SetValid(h)
}

// varbitAt returns the offset in bytes at which a header's varbit field starts on the wire.
func (t *Headers) varbitAt(h *bmv2json.HeaderType) int {
	bit := h.Fields[h.VL].Offset
	if bit%8 != 0 || h.FixedBits%8 != 0 {
		ir.Refuse(h.Path, "a field of variable length (%s) that does not start and end on a byte",
			h.Fields[h.VL].Name)
	}
	return bit / 8
}

// putVarbit emits code that writes a header with a varbit field to Plan.Out at Temp, where R3
// points, and adds the field's length to Temp.
func (t *Headers) putVarbit(h *bmv2json.Header, drop string) {
	l := t.Layout.Types[h.Type]
	at := t.varbitAt(h.Type)
	base := t.Layout.Base[h.Index]
	t.writeFieldRange(h.Type, 0, h.Type.VL, base, t.Out, false)
	t.CopyWords(asm.R3, t.Out+at, code.PHV, base+l.Fields[h.Type.VL].Off, l.Fields[h.Type.VL].Size)
	t.LoadVarbitLength(asm.R1, h, drop)
	t.Emit(asm.Add.Reg(code.Temp, asm.R1), asm.Mov.Reg(asm.R3, code.PHV),
		asm.Add.Reg(asm.R3, code.Temp))
	t.writeFieldRange(h.Type, h.Type.VL+1, len(h.Type.Fields), base, t.Out, false)
}

// AssignVarbit emits code that copies a varbit field.
func (t *Headers) AssignVarbit(p *bmv2json.Primitive) {
	dst, src := p.Args[0].Field, p.Args[1].Field
	if dst.Header == src.Header {
		return
	}
	to, from := t.Layout.Types[dst.Header.Type], t.Layout.Types[src.Header.Type]
	if to.VarbitMax < from.VarbitMax {
		ir.Refuse(p.Path, "%s of %d bytes at most from %s of %d", dst, to.VarbitMax, src,
			from.VarbitMax)
	}
	t.CopyWords(code.PHV, t.Layout.Field(dst).Off, code.PHV, t.Layout.Field(src).Off,
		t.Layout.Field(src).Size)
	t.Load(asm.R1, code.PHV, t.Layout.Base[src.Header.Index]+from.VarbitLength, 2)
	t.Store(code.PHV, t.Layout.Base[dst.Header.Index]+to.VarbitLength, asm.R1, 2)
}
