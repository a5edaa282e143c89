package tables

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/known"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// lookupKnown emits code that puts the entry word of the key into the register Entry and jumps to
// found, or jumps to miss. If the entry's word has a label, the code jumps to that label. If the
// table has changed since the program was compiled, control continues after this code.
func (t *Tables) lookupKnown(tp *memory.TablePlan, known known.Table, labels map[uint64]string,
	found, miss string) {
	changed, join := t.NewLabel("changed"), t.NewLabel("known")
	key := &tp.Source.Keys[0]
	t.StateAddress(asm.R1, tp.Version)
	t.Load(asm.R1, asm.R1, 0, 8)
	t.Emit(asm.JNE.Imm32(asm.R1, int32(known.Version), changed))
	t.Compute(t.KeyWord(key, 0), 0)
	t.knownRange(known.Ranges, key.Width <= 32, labels, join, miss)
	// The verifier must not distinguish the paths by the constant. Otherwise it would follow each
	// path.
	t.Bind(join)
	t.Store(code.PHV, memory.PHVSpill, code.Entry, 8)
	t.Load(code.Entry, code.PHV, memory.PHVSpill, 8)
	t.Jump(found)
	t.Bind(changed)
}

// knownRange emits the search for the range that contains the key in R1.
func (t *Tables) knownRange(ranges []known.Range, narrow bool, labels map[uint64]string,
	found, miss string) {
	if len(ranges) == 1 {
		if ranges[0].Word == 0 {
			t.Jump(miss)
			return
		}
		if to, ok := labels[ranges[0].Word]; ok {
			t.Jump(to)
			return
		}
		t.LoadConstant(code.Entry, ranges[0].Word)
		t.Jump(found)
		return
	}
	middle, above := len(ranges)/2, t.NewLabel("above")
	if from := ranges[middle].From; narrow {
		t.Emit(asm.JGE.Imm32(asm.R1, int32(uint32(from)), above))
	} else {
		t.LoadConstant(asm.R2, from)
		t.Emit(asm.JGE.Reg(asm.R1, asm.R2, above))
	}
	t.knownRange(ranges[:middle], narrow, labels, found, miss)
	t.Bind(above)
	t.knownRange(ranges[middle:], narrow, labels, found, miss)
}
