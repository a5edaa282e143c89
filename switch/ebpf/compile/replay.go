package compile

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// EmptyProgram returns a program that drops every frame. If Maps.Replay is set, the program first
// restores the frame, as a program does that runs repeatedly on one frame.
func EmptyProgram(p *memory.Plan, h emit.Hook, f emit.Maps) (insns asm.Instructions, err error) {
	defer ir.Catch(&err)
	t := newTranslator(p, h, f, emit.Settings{})
	main := t.WriteFunction("empty", func() {
		t.Emit(asm.Mov.Reg(code.Ctx, asm.R1))
		t.restoreFrame()
		t.DropFrame(emit.VerdictDrop)
	})
	return main.Assemble(true)
}

// restoreFrame emits code that restores the frame's contents at the start of each run and
// increments the numbers in it. Each CPU has its own program, so no other CPU increments these
// numbers.
func (t *translator) restoreFrame() {
	if t.Maps.Replay == 0 {
		return
	}
	for _, at := range t.Maps.ReplayCounts {
		t.Emit(asm.LoadMapValue(asm.R3, t.Maps.Replay, 0))
		t.Load(asm.R1, asm.R3, at, 4)
		t.Emit(asm.HostTo(asm.BE, asm.R1, asm.Word), asm.Add.Imm(asm.R1, 1),
			asm.HostTo(asm.BE, asm.R1, asm.Word))
		t.Store(asm.R3, at, asm.R1, 4)
	}
	for _, part := range t.Maps.ReplayZeros {
		t.StateAddress(asm.R3, part.Off)
		t.StoreConstant(asm.R3, 0, 0, part.Size)
	}
	t.Emit(asm.Mov.Imm(asm.R2, 0), asm.LoadMapValue(asm.R3, t.Maps.Replay, 0),
		asm.Mov.Imm(asm.R4, int32(t.Maps.ReplayBytes)))
	t.StoreBytes()
}
