package ebpf

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// A field of variable length (varbit) is a byte string in the PHV, with its length in two bytes of the header's own. It is always copied as a whole, whatever its length: between
// frame and PHV, what follows it is then taken, or put, right behind the bytes that count.

// extractVarbit takes a header with such a field, of length bits.
func (t *translator) extractVarbit(h *bmv2json.Header, length *bmv2json.Expr) {
	l := t.lay.types[h.Type]
	at := t.varbitAt(h.Type)
	base := t.lay.base[h.Index]
	whole, there, fits := t.newLabel("whole"), t.newLabel("there"), t.newLabel("fits")
	short := t.newLabel("short")
	t.compute(t.index(length), 0)
	t.emit(asm.Mov.Reg(asm.R2, asm.R1), asm.And.Imm(asm.R2, 7), asm.JEq.Imm(asm.R2, 0, whole))
	t.parserError("ParserInvalidArgument")
	t.bind(whole)
	t.emit(asm.RSh.Imm(asm.R1, 3))
	t.load(asm.R2, rPHV, phvLen, 4)
	t.emit(asm.Sub.Reg(asm.R2, rEntry), asm.JGT.Reg(asm.R1, asm.R2, short))
	t.emit(asm.Mov.Reg(asm.R3, asm.R1), asm.Add.Imm(asm.R3, int32(l.bytes)), asm.JLE.Reg(asm.R3, asm.R2, there))
	t.bind(short)
	t.parserError("PacketTooShort")
	t.bind(there)
	t.emit(asm.JLE.Imm(asm.R1, int32(l.vlMax), fits))
	t.parserError("HeaderTooShort")
	t.bind(fits)
	t.emit(asm.JGT.Imm(rEntry, int32(t.frameMax-l.bytes-l.vlMax), "ingress.drop"))
	t.store(rPHV, base+l.vlLength, asm.R1, 2)
	t.takeSomeFields(h.Type, 0, h.Type.VL, base, rPHV)
	t.emit(asm.Mov.Reg(asm.R3, rPHV), asm.Add.Reg(asm.R3, rEntry))
	t.copyWords(rPHV, base+l.fields[h.Type.VL].off, asm.R3, t.frame+at, l.fields[h.Type.VL].size)
	t.varbitLength(asm.R1, h, "ingress.drop")
	t.emit(asm.Add.Reg(rEntry, asm.R1))
	t.takeSomeFields(h.Type, h.Type.VL+1, len(h.Type.Fields), base, rPHV)
	t.emit(asm.Add.Imm(rEntry, int32(l.bytes)))
	t.setValid(h)
}

// varbitAt is where such a field starts on the wire, in bytes.
func (t *translator) varbitAt(h *bmv2json.HeaderType) int {
	bit := h.Fields[h.VL].Offset
	if bit%8 != 0 || h.FixedBits%8 != 0 {
		refuse(h.Path, "a field of variable length (%s) that does not start and end on a byte", h.Fields[h.VL].Name)
	}
	return bit / 8
}

// varbitLength loads the length of a header's varbit field in bytes, and says to the verifier that it is no more than the largest.
func (t *translator) varbitLength(dst asm.Register, h *bmv2json.Header, never string) {
	l := t.lay.types[h.Type]
	t.load(dst, rPHV, t.lay.base[h.Index]+l.vlLength, 2)
	t.emit(asm.JGT.Imm(dst, int32(l.vlMax), never))
}

// putVarbit writes a header with such a field to plan.out at rTemp, to which R3 points, and adds the field's length to rTemp.
func (t *translator) putVarbit(h *bmv2json.Header, drop string) {
	l := t.lay.types[h.Type]
	at := t.varbitAt(h.Type)
	base := t.lay.base[h.Index]
	t.putSomeFields(h.Type, 0, h.Type.VL, base, t.out, false)
	t.copyWords(asm.R3, t.out+at, rPHV, base+l.fields[h.Type.VL].off, l.fields[h.Type.VL].size)
	t.varbitLength(asm.R1, h, drop)
	t.emit(asm.Add.Reg(rTemp, asm.R1), asm.Mov.Reg(asm.R3, rPHV), asm.Add.Reg(asm.R3, rTemp))
	t.putSomeFields(h.Type, h.Type.VL+1, len(h.Type.Fields), base, t.out, false)
}

// assignVarbit copies such a field.
func (t *translator) assignVarbit(p *bmv2json.Primitive) {
	dst, src := p.Args[0].Field, p.Args[1].Field
	if dst.Header == src.Header {
		return
	}
	to, from := t.lay.types[dst.Header.Type], t.lay.types[src.Header.Type]
	if to.vlMax < from.vlMax {
		refuse(p.Path, "%s of %d bytes at most from %s of %d", dst, to.vlMax, src, from.vlMax)
	}
	t.copyWords(rPHV, t.lay.field(dst).off, rPHV, t.lay.field(src).off, t.lay.field(src).size)
	t.load(asm.R1, rPHV, t.lay.base[src.Header.Index]+from.vlLength, 2)
	t.store(rPHV, t.lay.base[dst.Header.Index]+to.vlLength, asm.R1, 2)
}
