package paths

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// FieldSet is a set of fields, identified by their offsets.
type FieldSet struct{ bits []uint64 }

func newFieldSet(size int, full bool) *FieldSet {
	s := &FieldSet{make([]uint64, size/64+1)}
	if full {
		s.fill()
	}
	return s
}

func (s *FieldSet) fill() {
	for i := range s.bits {
		s.bits[i] = ^uint64(0)
	}
}

// Contains reports whether the field at an offset is in the set.
func (s *FieldSet) Contains(off int) bool { return s.bits[off/64]>>(off%64)&1 == 1 }

func (s *FieldSet) remove(off int) { s.bits[off/64] &^= 1 << (off % 64) }

// add adds a field, or all fields if off is ir.EveryField.
func (s *FieldSet) add(off int) {
	if off == ir.EveryField {
		s.fill()
		return
	}
	s.bits[off/64] |= 1 << (off % 64)
}

func (s *FieldSet) addAll(other *FieldSet) {
	for i, b := range other.bits {
		s.bits[i] |= b
	}
}

// liveBehind returns the fields that may be read after a pipeline. These are the fields of packet
// headers and of the standard metadata, and the fields that other parts of the program read.
func (t *finder) liveBehind(q *bmv2json.Pipeline) *FieldSet {
	s, outside := newFieldSet(t.Layout.End, true), analysis.FieldsRead(t.Prog, q)
	for _, h := range t.Prog.Headers {
		if !h.Metadata || slices.Contains(analysis.StandardHeaders, h.Name) {
			continue
		}
		for _, f := range h.Type.Fields {
			if r := (bmv2json.FieldRef{Header: h, Field: f}); !outside.Contains(r) {
				s.remove(t.Layout.Field(r).Off)
			}
		}
	}
	return s
}

// findDead marks stores whose values no later step reads. It returns, for each step, the fields
// that are read from that step on before they are set.
func (t *finder) findDead(order []*Step, behind *FieldSet) []*FieldSet {
	live := make([]*FieldSet, len(order))
	for i, s := range slices.Backward(order) {
		if live[i] = newFieldSet(t.Layout.End, false); s.Kind == StepEnd {
			live[i].addAll(behind)
		}
		for _, n := range s.Next {
			live[i].addAll(live[n.order])
		}
		if s.sets >= 0 {
			if s.Dead = !live[i].Contains(s.sets); s.Dead {
				continue
			}
			live[i].remove(s.sets)
		}
		for _, off := range s.reads {
			live[i].add(off)
		}
	}
	return live
}
