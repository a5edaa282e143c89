package headers

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Stack offsets during the search in a value set.
const (
	setOnStack   = -96
	countOnStack = -104
)

// inSet emits a transition that is taken if the key, given as words, is in a value set under a
// mask.
func (t *Headers) inSet(tr *bmv2json.Transition, parts []*ir.Value, masks []uint64, yes string) {
	sp := &t.ValueSets[tr.Set.Index]
	if sp.Words != len(parts) {
		ir.Refuse(tr.Path, "a parser value set with %d words for a key of %d", sp.Words, len(parts))
	}
	second, chosen, no := t.NewLabel("second"), t.NewLabel("chosen"), t.NewLabel("notInSet")
	t.StateAddress(asm.R1, sp.At)
	t.Load(asm.R1, asm.R1, 0, 8)
	t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 32), asm.JNE.Imm(asm.R2, 0, second))
	t.StateAddress(asm.R3, sp.Lists[0])
	t.Jump(chosen)
	t.Bind(second)
	t.StateAddress(asm.R3, sp.Lists[1])
	t.Bind(chosen)
	t.Store(asm.R10, setOnStack, asm.R3, 8)
	t.Store(asm.R10, countOnStack, asm.R1, 4)
	for i := range sp.Size {
		next := t.NewLabel("member")
		t.Load(asm.R1, asm.R10, countOnStack, 4)
		t.Emit(asm.JLE.Imm(asm.R1, int32(i), no))
		for j, part := range parts {
			if part.RegistersNeeded() >= len(ir.Registers) {
				ir.Refuse(tr.Path, "a key with too many intermediate values")
			}
			t.Compute(part, 0)
			t.Load(asm.R2, asm.R10, setOnStack, 8)
			at := i*sp.Words*16 + j*8
			t.Load(asm.R3, asm.R2, at, 8)
			t.Emit(asm.Xor.Reg(asm.R1, asm.R3))
			t.Load(asm.R3, asm.R2, at+sp.Words*8, 8)
			t.Emit(asm.And.Reg(asm.R1, asm.R3))
			t.Mask(asm.R1, masks[j], 1)
			t.Emit(asm.JNE.Imm(asm.R1, 0, next))
		}
		t.Jump(yes)
		t.Bind(next)
	}
	t.Bind(no)
}
