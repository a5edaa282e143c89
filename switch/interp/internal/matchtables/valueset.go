package matchtables

import (
	"fmt"
	"slices"
	"sync"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/target"
)

// ValueSet is a parser value set. A member is compared with a key under the member's own mask and
// under the transition's mask.
type ValueSet struct {
	Source  *bmv2json.ValueSet
	given   [][]target.FieldMatch
	members []setMember
}

type setMember struct{ value, mask []uint64 }

// Contains reports whether a member equals key under the mask of a transition.
func (s *ValueSet) Contains(key, mask []uint64) bool {
next:
	for i := range s.members {
		m := &s.members[i]
		for j, k := range key {
			if (k^m.value[j])&m.mask[j]&mask[j] != 0 {
				continue next
			}
		}
		return true
	}
	return false
}

func (s *ValueSet) member(fields []target.FieldMatch) (m setMember, err error) {
	if len(fields) != len(s.Source.Widths) {
		return m, fmt.Errorf("%d fields instead of %d: %w", len(fields), len(s.Source.Widths),
			target.ErrInvalid)
	}
	full := KeyMask(s.Source.Widths)
	for i, f := range fields {
		w := s.Source.Widths[i]
		if err := wideint.CheckBytes(f.Value, w); err != nil {
			return m, fmt.Errorf("field %d: %w", i, err)
		}
		value, mask := make([]uint64, wideint.Lanes(w)),
			slices.Clone(full[len(m.value):len(m.value)+wideint.Lanes(w)])
		wideint.SetBytes(value, f.Value)
		if f.Mask != nil {
			if err := wideint.CheckBytes(f.Mask, w); err != nil {
				return m, fmt.Errorf("field %d: mask: %w", i, err)
			}
			wideint.SetBytes(mask, f.Mask)
		}
		m.value, m.mask = append(m.value, value...), append(m.mask, mask...)
	}
	return m, nil
}

// KeyMask returns the mask with all bits of a key whose parts have these widths.
func KeyMask(widths []int) []uint64 {
	var out []uint64
	for _, w := range widths {
		for i := 0; i < wideint.Lanes(w)-1; i++ {
			out = append(out, ^uint64(0))
		}
		out = append(out, wideint.TopMask(w))
	}
	return out
}

// Set replaces the members. packets is the mutex that is held while a packet is in the program.
func (s *ValueSet) Set(members [][]target.FieldMatch, packets *sync.Mutex) error {
	if len(members) > s.Source.MaxSize {
		return fmt.Errorf("value set %q: %d members where %d fit: %w", s.Source.Name, len(members),
			s.Source.MaxSize, target.ErrFull)
	}
	var given [][]target.FieldMatch
	var compiled []setMember
	for i, fields := range members {
		m, err := s.member(fields)
		if err != nil {
			return fmt.Errorf("value set %q: member %d: %w", s.Source.Name, i, err)
		}
		compiled = append(compiled, m)
		var copied []target.FieldMatch
		for _, f := range fields {
			copied = append(copied, target.FieldMatch{Value: slices.Clone(f.Value),
				Mask: slices.Clone(f.Mask), PrefixLen: f.PrefixLen})
		}
		given = append(given, copied)
	}
	packets.Lock()
	defer packets.Unlock()
	s.given, s.members = given, compiled
	return nil
}

// List returns the members as Set received them.
func (s *ValueSet) List() [][]target.FieldMatch {
	out := make([][]target.FieldMatch, len(s.given))
	for i, m := range s.given {
		out[i] = slices.Clone(m)
	}
	return out
}
