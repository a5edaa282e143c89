package delivery

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
)

// RestoreTags emits code that puts back the 802.1Q tags that the kernel removed from the frame on
// its way to tc. The program then sees the frame as it was on the wire.
func (t *Delivery) RestoreTags(drop string) {
	none, done := t.NewLabel("untagged"), t.NewLabel("tagged")
	const tags, addresses = -24, -40 // offsets on the stack
	t.Emit(asm.Mov.Imm(code.Temp, 0))
	for i := range 2 { // Popping a tag makes the kernel remove the next tag from the frame.
		t.Load(asm.R1, code.Ctx, emit.SKBVLANPresent, 4)
		if i == 0 {
			t.Emit(asm.JEq.Imm(asm.R1, 0, none))
		} else {
			t.Emit(asm.JEq.Imm(asm.R1, 0, done))
		}
		t.Load(asm.R1, code.Ctx, emit.SKBVLANProto, 4)
		t.Store(asm.R10, tags+4*i, asm.R1, 2)
		t.Load(asm.R1, code.Ctx, emit.SKBVLANTCI, 4)
		t.Emit(asm.HostTo(asm.BE, asm.R1, asm.Half))
		t.Store(asm.R10, tags+4*i+2, asm.R1, 2)
		t.Emit(asm.Mov.Reg(asm.R1, code.Ctx))
		t.Call(asm.FnSkbVlanPop)
		t.Emit(asm.JNE.Imm(asm.R0, 0, drop), asm.Add.Imm(code.Temp, 4))
	}
	t.Load(asm.R1, code.Ctx, emit.SKBVLANPresent, 4)
	t.Emit(asm.JNE.Imm(asm.R1, 0, drop)) // a frame with a third tag is dropped
	t.Bind(done)
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.Temp), asm.Mov.Imm(asm.R3, 0))
	t.Call(asm.FnSkbChangeHead)
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Emit(asm.Mov.Reg(asm.R2, code.Temp), asm.Mov.Reg(asm.R3, asm.R10),
		asm.Add.Imm(asm.R3, addresses), asm.Mov.Imm(asm.R4, 12))
	t.LoadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Emit(asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, addresses),
		asm.Mov.Imm(asm.R4, 12))
	t.StoreBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	one := t.NewLabel("one")
	t.Emit(asm.Mov.Imm(asm.R4, 4), asm.JEq.Imm(code.Temp, 4, one), asm.Mov.Imm(asm.R4, 8))
	t.Bind(one)
	t.Emit(asm.Mov.Imm(asm.R2, 12), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, tags))
	t.StoreBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(none)
}
