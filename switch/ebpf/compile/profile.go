package compile

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// Profile is how a program is measured in parts: it has marks at the nodes of its control flow, and
// may tell which of them a packet comes by, or end at one.
type Profile struct {
	Trace int // a map: where it is not 0, each mark that a packet comes by is written there
	Stop  int // 1 + the number of the mark at which a packet ends; 0: at none

	Marks []string // what the program has, by number, after it was translated
}

// TraceBytes is how large a map for so many marks is: a count of them, and each one's turn.
func TraceBytes(marks int) int { return 8 * (1 + marks) }

// markEntry is before there is a PHV.
const markEntry = "(the frame is there)"

// mark puts a mark here, between two nodes: no register but PHV and Ctx, and Entry and Temp in the
// parser, is in use.
func (t *translator) mark(name string) {
	p := t.maps.Profile
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
	// The verifier takes what is behind a jump that is always taken for dead code, and refuses it:
	// so it is one of which it does not know that.
	on, free := t.NewLabel("on"), t.NewLabel("free")
	ifindex := skbIfindex
	if t.hook == XDP {
		ifindex = xdpIfindex
	}
	t.Load(asm.R1, code.Ctx, ifindex, 4)
	t.Emit(asm.JGT.Imm(asm.R1, 1<<30, on))
	if t.locks() && name != markEntry {
		t.Load(asm.R1, code.PHV, phvLocked, 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, free))
		t.unlockRegisters()
		t.Bind(free)
	}
	t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	t.Bind(on)
}
