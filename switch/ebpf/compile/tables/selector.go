package tables

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// ChooseMember emits code that replaces the slot in Entry by the slot of a member, if Entry's slot
// names a group. If the group has no members, the code jumps to none.
func (t *Tables) ChooseMember(tp *memory.TablePlan, none string) {
	if tp.Source.Kind != bmv2json.TableIndirectWS {
		return
	}
	chosen := t.NewLabel("member")
	t.Load(asm.R1, code.PHV, memory.PHVAction, 2)
	t.Emit(asm.JNE.Imm(asm.R1, memory.GroupAction, chosen))
	t.Load(asm.R1, code.Entry, tp.GroupAt, 8)
	// One load reads both halves, so they belong to the same state of the group.
	t.Emit(asm.Mov.Reg(code.Entry, asm.R1))
	t.hashes.ComputeHash(memory.SelectorOf(tp.Source))
	t.Emit(asm.Mov.Reg(asm.R1, code.Entry), asm.LSh.Imm(asm.R1, 32), asm.RSh.Imm(asm.R1, 32),
		asm.JEq.Imm(asm.R1, 0, none), asm.Mod.Reg(asm.R0, asm.R1),
		asm.RSh.Imm(code.Entry, 32), asm.Add.Reg(code.Entry, asm.R0),
		asm.JGE.Imm(code.Entry, int32(tp.MemberCount), none), asm.LSh.Imm(code.Entry, 3))
	t.StateAddress(asm.R1, tp.Members)
	t.Emit(asm.Add.Reg(asm.R1, code.Entry))
	t.Load(code.Entry, asm.R1, 0, 8)
	t.SlotAddress(tp, none)
	t.Bind(chosen)
}
