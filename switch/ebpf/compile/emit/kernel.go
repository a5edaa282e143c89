package emit

import (
	"github.com/cilium/ebpf/asm"
)

// Return values of functions, of the program at tc (linux/pkt_cls.h) and of the program at XDP
// (linux/bpf.h).
const (
	VerdictDrop   = 0
	VerdictSend   = 1
	VerdictPassed = XDPPass // the program at tc continues with the frame

	tcShot  = 2
	TCXNext = -1
	XDPDrop = 1
	XDPPass = 2
	XDPTx   = 3
)

// Offsets in struct __sk_buff and struct xdp_md (linux/bpf.h).
const (
	skbLen         = 0
	SKBIfindex     = 40
	SKBMark        = 8
	SKBVLANPresent = 20
	SKBVLANTCI     = 24
	SKBVLANProto   = 28
	SKBData        = 76
	SKBDataMeta    = 140
	XDPData        = 0
	XDPDataMeta    = 8
	XDPIfindex     = 12
)

// DropFrame emits code that ends the program with the verdict v.
func (t *Emitter) DropFrame(v int) {
	ret := tcShot
	if t.Hook == XDP {
		ret = XDPDrop
	}
	if v != VerdictDrop {
		panic("a program that sends says how")
	}
	t.Emit(asm.Mov.Imm(asm.R0, int32(ret)), asm.Return())
}
