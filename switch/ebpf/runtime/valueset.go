package runtime

import (
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
	"github.com/netcraq/netcraq/switch/target"
)

func (p *Pipeline) valueSet(name string) (*memory.SetPlan, error) {
	s := p.Prog.ValueSet(name)
	if s == nil {
		return nil, none("parser value set", name)
	}
	return &p.ValueSets[s.Index], nil
}

// SetValueSet implements [target.Pipeline].
func (p *Pipeline) SetValueSet(name string, members [][]target.FieldMatch) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	s, err := p.valueSet(name)
	if err != nil {
		return err
	}
	if len(members) > s.Size {
		return fmt.Errorf("value set %q: %d members where %d fit: %w", name, len(members), s.Size,
			target.ErrFull)
	}
	var words []uint64
	var given [][]target.FieldMatch
	for i, fields := range members {
		if len(fields) != len(s.Source.Widths) {
			return fmt.Errorf("value set %q: member %d: %d fields instead of %d: %w", name, i,
				len(fields), len(s.Source.Widths), target.ErrInvalid)
		}
		var values, masks []uint64
		var kept []target.FieldMatch
		for j, f := range fields {
			width := s.Source.Widths[j]
			for _, b := range [][]byte{f.Value, f.Mask} {
				if b == nil {
					continue
				}
				if err := checkBytes(b, width); err != nil {
					return fmt.Errorf("value set %q: member %d: field %d: %w", name, i, j, err)
				}
			}
			if f.Value == nil {
				return fmt.Errorf("value set %q: member %d: field %d has no value: %w", name, i, j,
					target.ErrInvalid)
			}
			values = append(values, ir.SplitKey(f.Value, []int{width})...)
			if f.Mask != nil {
				masks = append(masks, ir.SplitKey(f.Mask, []int{width})...)
			} else {
				for w := ir.WordsOf(width) - 1; w >= 0; w-- {
					masks = append(masks, ir.Ones(min(64, width-64*w)))
				}
			}
			kept = append(kept, target.FieldMatch{Value: slices.Clone(f.Value),
				Mask: slices.Clone(f.Mask), PrefixLen: f.PrefixLen})
		}
		words = append(append(words, values...), masks...)
		given = append(given, kept)
	}
	WaitForPackets() // wait for packets that still read the copy that is written next
	copies := 1 - p.State.Load(s.At)>>32
	for i, w := range words {
		p.State.Store(s.Lists[copies]+i*8, w)
	}
	p.State.Store(s.At, copies<<32|uint64(len(members)))
	p.sets[name] = given
	return nil
}

// ValueSet implements [target.Pipeline].
func (p *Pipeline) ValueSet(name string) ([][]target.FieldMatch, error) {
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
