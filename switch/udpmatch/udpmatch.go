package udpmatch

import (
	"fmt"
	"math/bits"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

//go:generate go tool bpf2go -target bpfel match match.c -- -mcpu=v3 -Wall -Wextra -Werror

// Results of the function whose instructions Function returns.
const (
	Drop = iota
	Plain
	Pass
)

// Rules select packets by their UDP port. Port 0 matches no packet.
type Rules struct {
	Both     uint16 // UDP port; packets to or from it match
	To       uint16 // UDP port; packets to it are always dropped
	Untagged bool   // set if all tagged frames are dropped, whatever they contain
}

// Arguments returns instructions that load the function's arguments, except for R1. R1 must contain
// the context.
func (r Rules) Arguments() asm.Instructions {
	untagged := int32(0)
	if r.Untagged {
		untagged = 1
	}
	// The arguments are in network byte order, because match.c is compiled for little endian.
	return asm.Instructions{asm.Mov.Imm(asm.R2, int32(bits.ReverseBytes16(r.Both))),
		asm.Mov.Imm(asm.R3, int32(bits.ReverseBytes16(r.To))), asm.Mov.Imm(asm.R4, untagged)}
}

var compiled = sync.OnceValue(func() *ebpf.CollectionSpec {
	spec, err := loadMatch()
	if err != nil {
		panic(fmt.Sprintf("what clang made of match.c is part of this binary: %v", err))
	}
	return spec
})

// Function returns the instructions of the matching function. If xdp is set, the function is for
// programs at XDP, otherwise for programs at tc.
func Function(xdp bool) (out asm.Instructions) {
	name := matchProgMatchTc
	if xdp {
		name = matchProgMatchXdp
	}
	// The instructions must not have source lines, because the calling program has none.
	for _, in := range compiled().Programs[name].Instructions {
		out = append(out, asm.Instruction{OpCode: in.OpCode, Dst: in.Dst, Src: in.Src,
			Offset: in.Offset, Constant: in.Constant})
	}
	return out
}
