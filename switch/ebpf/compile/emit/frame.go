package emit

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// FrameLength emits code that loads the frame's length into dst.
func (t *Emitter) FrameLength(dst asm.Register) {
	if t.Hook == TC {
		t.Load(dst, code.Ctx, skbLen, 4)
		return
	}
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx))
	t.Call(fnXDPGetBuffLen)
	t.Emit(asm.Mov.Reg(dst, asm.R0))
}

// The helpers that access the packet's bytes have the same arguments and differ only in name.
const fnXDPGetBuffLen = asm.FnXdpGetBuffLen

// LoadBytes emits code that copies R4 bytes from offset R2 of the frame to the address in R3.
func (t *Emitter) LoadBytes() {
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx))
	if t.Hook == TC {
		t.Call(asm.FnSkbLoadBytes)
	} else {
		t.Call(asm.FnXdpLoadBytes)
	}
}

// StoreBytes emits code that copies R4 bytes from the address in R3 to offset R2 of the frame.
func (t *Emitter) StoreBytes() {
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx))
	if t.Hook == TC {
		t.Emit(asm.Mov.Imm(asm.R5, 0))
		t.Call(asm.FnSkbStoreBytes)
	} else {
		t.Call(asm.FnXdpStoreBytes)
	}
}

// LoadVarbitLength emits code that loads the length of a header's varbit field in bytes. The code
// also shows the verifier that the length is at most the field's maximum.
func (t *Emitter) LoadVarbitLength(dst asm.Register, h *bmv2json.Header, never string) {
	l := t.Layout.Types[h.Type]
	t.Load(dst, code.PHV, t.Layout.Base[h.Index]+l.VarbitLength, 2)
	t.Emit(asm.JGT.Imm(dst, int32(l.VarbitMax), never))
}
