package compile

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Parser value sets. A set is a list of members, each the words of a select's key and their masks,
// in the state twice: packets read the copy that a word names, the control plane writes the other
// one and then the word. So a packet sees a set as a whole, before a change or after it.

// SetPlan is where a value set is.
type SetPlan struct {
	Source *bmv2json.ValueSet
	Size   int    // members at most
	words  int    // of a member
	At     int    // the word: the number of members, and 1 << 32 if they are in the second copy
	Lists  [2]int // the copies: for each member its words and then their masks
}

// maxSetMembers is the largest set: its members are looked at one after the other.
const maxSetMembers = 256

func (p *Plan) planValueSets() {
	for _, s := range p.Prog.ValueSets {
		sp := SetPlan{Source: s, Size: s.MaxSize}
		if sp.Size > maxSetMembers {
			ir.Refuse(s.Path, "a parser value set of %d members (%s; at most %d can be)", s.MaxSize,
				s.Name, maxSetMembers)
		}
		for _, w := range s.Widths {
			sp.words += ir.WordsOf(w)
		}
		sp.At = p.allocate(8)
		for i := range sp.Lists {
			sp.Lists[i] = p.allocate(sp.Size * sp.words * 16)
		}
		p.ValueSets = append(p.ValueSets, sp)
	}
}

// Where things are on the stack while a set is looked through.
const (
	setOnStack   = -96
	countOnStack = -104
)

// inSet emits a transition for the keys, given as words, that are in a value set under a mask.
func (t *translator) inSet(tr *bmv2json.Transition, parts []*ir.Value, masks []uint64, yes string) {
	sp := &t.ValueSets[tr.Set.Index]
	if sp.words != len(parts) {
		ir.Refuse(tr.Path, "a parser value set with %d words for a key of %d", sp.words, len(parts))
	}
	second, chosen, no := t.NewLabel("second"), t.NewLabel("chosen"), t.NewLabel("notInSet")
	t.stateAddress(asm.R1, sp.At)
	t.Load(asm.R1, asm.R1, 0, 8)
	t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 32), asm.JNE.Imm(asm.R2, 0, second))
	t.stateAddress(asm.R3, sp.Lists[0])
	t.Jump(chosen)
	t.Bind(second)
	t.stateAddress(asm.R3, sp.Lists[1])
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
			at := i*sp.words*16 + j*8
			t.Load(asm.R3, asm.R2, at, 8)
			t.Emit(asm.Xor.Reg(asm.R1, asm.R3))
			t.Load(asm.R3, asm.R2, at+sp.words*8, 8)
			t.Emit(asm.And.Reg(asm.R1, asm.R3))
			t.Mask(asm.R1, masks[j], 1)
			t.Emit(asm.JNE.Imm(asm.R1, 0, next))
		}
		t.Jump(yes)
		t.Bind(next)
	}
	t.Bind(no)
}
