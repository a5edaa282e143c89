package ingressfilter

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/udpmatch"
)

// Verdicts (linux/pkt_cls.h): on to the next program or the stack, and drop.
const (
	next = -1
	drop = 2
)

// builder collects instructions; a label belongs to the next one.
type builder struct {
	out   asm.Instructions
	label string
}

func (b *builder) emit(ins ...asm.Instruction) {
	for _, in := range ins {
		if b.label != "" {
			in, b.label = in.WithSymbol(b.label), ""
		}
		b.out = append(b.out, in)
	}
}

func (b *builder) place(label string) {
	if b.label != "" {
		panic("two labels at one instruction: " + b.label + " and " + label)
	}
	b.label = label
}

// instructions is the program.
func (r Rules) instructions() asm.Instructions {
	b := &builder{}
	if r.Everything {
		b.emit(asm.Mov.Imm(asm.R0, drop), asm.Return())
		return b.out
	}
	plain := "drop"
	if len(r.Sources) > 0 {
		plain = "plain"
	}
	b.emit(asm.Mov.Reg(asm.R6, asm.R1))
	udpmatch.Match{
		Ctx: asm.R6, A: asm.R7, B: asm.R8, Both: r.Ports, To: r.Destinations, Untagged: r.Untagged,
		Stack: -udpmatch.StackBytes, Prefix: "udp", Plain: plain, Drop: "drop", Pass: "next",
	}.Write(b.emit, b.place)
	if len(r.Sources) > 0 && len(r.Ports) > 0 {
		b.place(plain)
		r.source(b)
	}
	b.place("next")
	b.emit(asm.Mov.Imm(asm.R0, next), asm.Return())
	b.place("drop")
	b.emit(asm.Mov.Imm(asm.R0, drop), asm.Return())
	return b.out
}

// source lets on a plain packet whose source is one of ours.
func (r Rules) source(b *builder) {
	const offset = 14 + 12 // of the source in the frame
	b.emit(
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, offset), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -8), asm.Mov.Imm(asm.R4, 4),
		asm.FnSkbLoadBytes.Call(), asm.JNE.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R1, asm.R10, -8, asm.Word), asm.HostTo(asm.BE, asm.R1, asm.Word))
	for _, s := range r.Sources {
		address := s.Addr().As4()
		away := 32 - s.Bits() // the bits that do not count; a shift of all 32 would be none
		if away == 32 {
			b.emit(asm.Ja.Label("next"))
			return
		}
		b.emit(
			asm.Mov.Reg32(asm.R2, asm.R1), asm.RSh.Imm32(asm.R2, int32(away)),
			asm.JEq.Imm32(asm.R2, int32(binary.BigEndian.Uint32(address[:])>>away), "next"))
	}
	b.emit(asm.Ja.Label("drop"))
}
