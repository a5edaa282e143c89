package control

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// MarkEntry is the timing mark at the program's start, before the PHV exists.
const MarkEntry = "(the frame is there)"

// PutMark emits a timing mark between two nodes. There, only the registers PHV and Ctx are in use,
// and in the parser also Entry and Temp.
func (t *Control) PutMark(name string) {
	p := t.Maps.Timing
	if p == nil {
		return
	}
	n := len(p.Marks)
	p.Marks = append(p.Marks, name)
	if p.Trace != 0 {
		t.Emit(asm.LoadMapValue(asm.R1, p.Trace, 0))
		t.Load(asm.R2, asm.R1, 0, 8)
		t.Emit(asm.Add.Imm(asm.R2, 1))
		t.Store(asm.R1, 0, asm.R2, 8)
		t.Emit(asm.LoadMapValue(asm.R1, p.Trace, uint32(8+8*n)))
		t.Store(asm.R1, 0, asm.R2, 8)
	}
	if p.Stop != n+1 {
		return
	}
	// The verifier treats code after an always-taken jump as dead and refuses it. So the jump
	// depends on a value that the verifier does not know.
	on, free := t.NewLabel("on"), t.NewLabel("free")
	ifindex := emit.SKBIfindex
	if t.Hook == emit.XDP {
		ifindex = emit.XDPIfindex
	}
	t.Load(asm.R1, code.Ctx, ifindex, 4)
	t.Emit(asm.JGT.Imm(asm.R1, 1<<30, on))
	if t.LocksRegisters() && name != MarkEntry {
		t.Load(asm.R1, code.PHV, memory.PHVLocked, 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, free))
		t.locks.UnlockRegisters()
		t.Bind(free)
	}
	t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	t.Bind(on)
}
