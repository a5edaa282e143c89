package progfuzz

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Fill generates table entries, members of value sets, groups and sessions for a program. It writes
// them to all pipelines. Only items that the first pipeline accepts are used; it rejects, for
// example, duplicate entries. The other pipelines must accept the same items. cpu says whether
// there is a CPU port. cut says whether sessions may truncate frames, which BMv2 cannot do over
// P4Runtime.
func Fill(prog *bmv2json.Program, info *configv1.P4Info, r *rand.Rand, cpu, cut bool,
	pipelines []target.Pipeline) error {
	// names of tables and keys whose match kind is optional; BMv2's JSON calls them ternary
	optional := map[string]bool{}
	for _, t := range info.Tables {
		for _, m := range t.MatchFields {
			optional[t.Preamble.Name+" "+m.Name] = m.GetMatchType() == configv1.MatchField_OPTIONAL
		}
	}
	each := func(what string, f func(p target.Pipeline) error) error {
		err := f(pipelines[0])
		if errors.Is(err, target.ErrExists) || errors.Is(err, target.ErrFull) {
			for _, p := range pipelines[1:] {
				if got := f(p); got == nil {
					return fmt.Errorf("%s: %T says %v, %T takes it", what, pipelines[0], err, p)
				}
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %T: %w", what, pipelines[0], err)
		}
		for _, p := range pipelines[1:] {
			if got := f(p); got != nil {
				return fmt.Errorf("%s: %T: %w", what, p, got)
			}
		}
		return nil
	}
	for _, t := range prog.Tables() {
		if len(t.Keys) == 0 || t.Const || t.Kind != bmv2json.TableSimple {
			continue
		}
		for n := range r.IntN(14) {
			e := entry(r, t, optional, 1+n)
			if err := each(fmt.Sprintf("inserting %+v into %s", e, t.Name),
				func(p target.Pipeline) error { return p.InsertEntry(t.Name, e) }); err != nil {
				return err
			}
		}
		if r.IntN(3) == 0 && (t.Default == nil || !t.Default.ConstAction && !t.Default.ConstEntry) {
			e := &target.TableEntry{Action: call(r, t)}
			if err := each(fmt.Sprintf("the default of %s: %+v", t.Name, e.Action),
				func(p target.Pipeline) error { return p.SetDefault(t.Name, e) }); err != nil {
				return err
			}
		}
	}
	ports := []uint32{1, 2, 3, 4}
	if cpu {
		ports = append(ports, CPUPort)
	}
	replicas := func(most int) (list []target.Replica) {
		seen := map[target.Replica]bool{}
		for range r.IntN(most + 1) {
			x := target.Replica{Port: ports[r.IntN(len(ports))], Instance: uint16(r.IntN(3))}
			if !seen[x] {
				list = append(list, x)
			}
			seen[x] = true
		}
		return list
	}
	for id := uint32(1); id <= Groups; id++ {
		list := replicas(4)
		if list == nil {
			list = []target.Replica{}
		}
		if err := each("a group", func(p target.Pipeline) error {
			return p.SetMulticastGroup(id,
				list)
		}); err != nil {
			return err
		}
	}
	for id := uint32(1); id <= Sessions; id++ {
		s := &target.CloneSession{Replicas: append(replicas(1),
			target.Replica{Port: ports[r.IntN(len(ports))], Instance: 7})}
		if cut && r.IntN(4) == 0 {
			s.TruncateTo = 100 + r.IntN(100)
		}
		if err := each("a session", func(p target.Pipeline) error {
			return p.SetCloneSession(id,
				s)
		}); err != nil {
			return err
		}
	}
	for _, s := range prog.ValueSets {
		var members [][]target.FieldMatch
		for range r.IntN(s.MaxSize + 1) {
			var m []target.FieldMatch
			for _, w := range s.Widths {
				f := target.FieldMatch{Value: number(r, w)}
				if r.IntN(4) == 0 {
					f.Mask = number(r, w)
				}
				m = append(m, f)
			}
			members = append(members, m)
		}
		if err := each("a value set", func(p target.Pipeline) error {
			return p.SetValueSet(s.Name,
				members)
		}); err != nil {
			return err
		}
	}
	return nil
}

// number generates a number of the given width. Often it is a small number.
func number(r *rand.Rand, width int) []byte {
	b := make([]byte, (width+7)/8)
	switch r.IntN(4) {
	case 0:
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	case 1:
		for i := range b {
			b[i] = 0xff
		}
	default:
		b[len(b)-1] = byte(r.IntN(8))
	}
	if width%8 != 0 {
		b[0] &= 1<<(width%8) - 1
	}
	return b
}

func call(r *rand.Rand, t *bmv2json.Table) *target.ActionCall {
	a := t.Actions[r.IntN(len(t.Actions))]
	c := &target.ActionCall{Action: a.Name}
	for _, p := range a.Params {
		c.Params = append(c.Params, number(r, p.Width))
	}
	return c
}

// entry generates an entry in P4Runtime's canonical form. In this form, value bits outside the mask
// are 0.
func entry(r *rand.Rand, t *bmv2json.Table, optional map[string]bool,
	priority int) *target.TableEntry {
	e := &target.TableEntry{Action: call(r, t)}
	if t.NeedsPriority() {
		e.Priority = priority
	}
	for _, k := range t.Keys {
		m := target.FieldMatch{Value: number(r, k.Width)}
		kind := k.Kind
		if optional[t.Name+" "+k.Name] {
			kind = bmv2json.MatchOptional
		}
		switch kind {
		case bmv2json.MatchValid:
			m.Value = []byte{byte(r.IntN(2))}
		case bmv2json.MatchLPM:
			m.PrefixLen = r.IntN(k.Width + 1)
			mask := make([]byte, len(m.Value))
			for bit := k.Width - m.PrefixLen; bit < k.Width; bit++ {
				mask[len(mask)-1-bit/8] |= 1 << (bit % 8)
			}
			and(m.Value, mask)
		case bmv2json.MatchTernary:
			m.Mask = number(r, k.Width)
			and(m.Value, m.Mask)
		case bmv2json.MatchOptional:
			m.Mask = make([]byte, len(m.Value))
			if r.IntN(3) > 0 {
				for bit := range k.Width {
					m.Mask[len(m.Mask)-1-bit/8] |= 1 << (bit % 8)
				}
			}
			and(m.Value, m.Mask)
		case bmv2json.MatchRange:
			m.Mask = number(r, k.Width)
			if bytes.Compare(m.Value, m.Mask) > 0 {
				m.Value, m.Mask = m.Mask, slices.Clone(m.Value)
			}
		}
		e.Match = append(e.Match, m)
	}
	return e
}

func and(b, mask []byte) {
	for i := range b {
		b[i] &= mask[i]
	}
}
