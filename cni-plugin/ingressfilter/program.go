package ingressfilter

import (
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
	b.emit(asm.Mov.Reg(asm.R6, asm.R1))
	udpmatch.Match{
		Ctx: asm.R6, A: asm.R7, B: asm.R8, Both: r.Ports, To: r.Destinations, Untagged: r.Untagged,
		Stack: -udpmatch.StackBytes, Prefix: "udp", Plain: "drop", Drop: "drop", Pass: "next",
	}.Write(b.emit, b.place)
	b.place("next")
	b.emit(asm.Mov.Imm(asm.R0, next), asm.Return())
	b.place("drop")
	b.emit(asm.Mov.Imm(asm.R0, drop), asm.Return())
	return b.out
}
