package ebpf

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
	"github.com/netcraq/netcraq/switch/target"
)

// Parser value sets. A set is a list of members, each the words of a select's key and their masks, in the state twice: packets read the copy that a word names, the control plane
// writes the other one and then the word. So a packet sees a set as a whole, before a change or after it.

// setPlan is where a value set is.
type setPlan struct {
	src   *bmv2json.ValueSet
	size  int    // members at most
	words int    // of a member
	at    int    // the word: the number of members, and 1 << 32 if they are in the second copy
	lists [2]int // the copies: for each member its words and then their masks
}

// maxSetMembers is the largest set: its members are looked at one after the other.
const maxSetMembers = 256

func (p *plan) planValueSets() {
	for _, s := range p.prog.ValueSets {
		sp := setPlan{src: s, size: s.MaxSize}
		if sp.size <= 0 || sp.size > maxSetMembers {
			ir.Refuse(s.Path, "a parser value set of %d members (%s; 1 to %d can be)", s.MaxSize, s.Name, maxSetMembers)
		}
		for _, w := range s.Widths {
			sp.words += ir.WordsOf(w)
		}
		sp.at = p.allocate(8)
		for i := range sp.lists {
			sp.lists[i] = p.allocate(sp.size * sp.words * 16)
		}
		p.valueSets = append(p.valueSets, sp)
	}
}

// Where things are on the stack while a set is looked through.
const (
	setOnStack   = -96
	countOnStack = -104
)

// inSet emits a transition for the keys, given as words, that are in a value set under a mask.
func (t *translator) inSet(tr *bmv2json.Transition, parts []*ir.Value, masks []uint64, yes string) {
	sp := &t.valueSets[tr.Set.Index]
	if sp.words != len(parts) {
		ir.Refuse(tr.Path, "a parser value set with %d words for a key of %d", sp.words, len(parts))
	}
	second, chosen, no := t.NewLabel("second"), t.NewLabel("chosen"), t.NewLabel("notInSet")
	t.stateAddress(asm.R1, sp.at)
	t.Load(asm.R1, asm.R1, 0, 8)
	t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 32), asm.JNE.Imm(asm.R2, 0, second))
	t.stateAddress(asm.R3, sp.lists[0])
	t.Jump(chosen)
	t.Bind(second)
	t.stateAddress(asm.R3, sp.lists[1])
	t.Bind(chosen)
	t.Store(asm.R10, setOnStack, asm.R3, 8)
	t.Store(asm.R10, countOnStack, asm.R1, 4)
	for i := range sp.size {
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

func (p *pipeline) valueSet(name string) (*setPlan, error) {
	s := p.prog.ValueSet(name)
	if s == nil {
		return nil, none("parser value set", name)
	}
	return &p.valueSets[s.Index], nil
}

// SetValueSet implements [target.Pipeline].
func (p *pipeline) SetValueSet(name string, members [][]target.FieldMatch) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	s, err := p.valueSet(name)
	if err != nil {
		return err
	}
	if len(members) > s.size {
		return fmt.Errorf("value set %q: %d members where %d fit: %w", name, len(members), s.size, target.ErrFull)
	}
	var words []uint64
	var given [][]target.FieldMatch
	for i, fields := range members {
		if len(fields) != len(s.src.Widths) {
			return fmt.Errorf("value set %q: member %d: %d fields instead of %d: %w", name, i, len(fields), len(s.src.Widths), target.ErrInvalid)
		}
		var values, masks []uint64
		var kept []target.FieldMatch
		for j, f := range fields {
			width := s.src.Widths[j]
			for _, b := range [][]byte{f.Value, f.Mask} {
				if b == nil {
					continue
				}
				if err := checkBytes(b, width); err != nil {
					return fmt.Errorf("value set %q: member %d: field %d: %w", name, i, j, err)
				}
			}
			if f.Value == nil {
				return fmt.Errorf("value set %q: member %d: field %d has no value: %w", name, i, j, target.ErrInvalid)
			}
			values = append(values, splitKey(f.Value, []int{width})...)
			if f.Mask != nil {
				masks = append(masks, splitKey(f.Mask, []int{width})...)
			} else {
				for w := ir.WordsOf(width) - 1; w >= 0; w-- {
					masks = append(masks, ir.Ones(min(64, width-64*w)))
				}
			}
			kept = append(kept, target.FieldMatch{Value: slices.Clone(f.Value), Mask: slices.Clone(f.Mask), PrefixLen: f.PrefixLen})
		}
		words = append(append(words, values...), masks...)
		given = append(given, kept)
	}
	waitForPackets() // those that still read the copy that is written now
	copies := 1 - p.state.load(s.at)>>32
	for i, w := range words {
		p.state.store(s.lists[copies]+i*8, w)
	}
	p.state.store(s.at, copies<<32|uint64(len(members)))
	p.sets[name] = given
	return nil
}

// ValueSet implements [target.Pipeline].
func (p *pipeline) ValueSet(name string) ([][]target.FieldMatch, error) {
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, err := p.valueSet(name); err != nil {
		return nil, err
	}
	out := make([][]target.FieldMatch, 0, len(p.sets[name]))
	for _, m := range p.sets[name] {
		out = append(out, slices.Clone(m))
	}
	return out, nil
}
