// Package tablefill fills the tables of a switch that runs in this process, from entries in
// P4Runtime's form but without a P4Runtime connection. The simulator uses it, and so do tests and
// measurements of single programs.
package tablefill

import (
	"fmt"
	"math/big"
	"slices"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Parse reads a program in the format that p4c writes: the BMv2 JSON, and the P4Info in protobuf
// text form.
func Parse(json, p4info []byte) (*bmv2json.Program, *p4rt.Info, error) {
	program, err := bmv2json.Parse(json)
	if err != nil {
		return nil, nil, err
	}
	var message configv1.P4Info
	if err := prototext.Unmarshal(p4info, &message); err != nil {
		return nil, nil, fmt.Errorf("the program's P4Info: %w", err)
	}
	info, err := p4rt.NewInfo(&message)
	return program, info, err
}

// Fill inserts table entries, and creates multicast groups.
func Fill(p target.Pipeline, info *p4rt.Info, entries []p4rt.Entry, groups []p4rt.Group) error {
	for _, e := range entries {
		message, err := info.Encode(e)
		if err != nil {
			return err
		}
		table, entry, err := Entry(info, message)
		if err != nil {
			return err
		}
		set := p.InsertEntry
		if e.Default {
			set = p.SetDefault
		}
		if err := set(table, entry); err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
	}
	for _, g := range groups {
		var replicas []target.Replica
		for _, r := range g.Replicas {
			replicas = append(replicas, target.Replica{Port: r.Port, Instance: uint16(r.Instance)})
		}
		if err := p.SetMulticastGroup(g.ID, replicas); err != nil {
			return fmt.Errorf("multicast group %d: %w", g.ID, err)
		}
	}
	return nil
}

// Entry converts a P4Runtime entry to the engines' form, and also returns its table's name. It
// replaces ids by names, adds a match for each field of the table, and gives every value its full
// width. It refuses ranges and optional fields.
func Entry(info *p4rt.Info, m *v1.TableEntry) (string, *target.TableEntry, error) {
	tables, actions := info.P4Info.Tables, info.P4Info.Actions
	table := tables[slices.IndexFunc(tables, func(t *configv1.Table) bool { return t.Preamble.Id == m.TableId })]
	out := &target.TableEntry{Priority: int(m.Priority)}
	for _, field := range table.MatchFields {
		if m.IsDefaultAction {
			break
		}
		zero := full(nil, field.Bitwidth)
		match := target.FieldMatch{Value: zero, Mask: zero}
		for _, given := range m.Match {
			if given.FieldId != field.Id {
				continue
			}
			switch given := given.FieldMatchType.(type) {
			case *v1.FieldMatch_Exact_:
				match = target.FieldMatch{Value: full(given.Exact.Value, field.Bitwidth)}
			case *v1.FieldMatch_Lpm:
				match = target.FieldMatch{Value: full(given.Lpm.Value, field.Bitwidth),
					PrefixLen: int(given.Lpm.PrefixLen)}
			case *v1.FieldMatch_Ternary_:
				match = target.FieldMatch{Value: full(given.Ternary.Value, field.Bitwidth),
					Mask: full(given.Ternary.Mask, field.Bitwidth)}
			default:
				return "", nil, fmt.Errorf("table %s has a key of a kind that is not known here: %T", table.Preamble.Name, given)
			}
		}
		out.Match = append(out.Match, match)
	}
	if a := m.GetAction().GetAction(); a != nil {
		named := func(x *configv1.Action) bool { return x.Preamble.Id == a.ActionId }
		action := actions[slices.IndexFunc(actions, named)]
		out.Action = &target.ActionCall{Action: action.Preamble.Name}
		for i, p := range a.Params {
			out.Action.Params = append(out.Action.Params, full(p.Value, action.Params[i].Bitwidth))
		}
	}
	return table.Preamble.Name, out, nil
}

// full extends a P4Runtime value, which has no leading zeros, to its full width in bits.
func full(v []byte, width int32) []byte {
	return new(big.Int).SetBytes(v).FillBytes(make([]byte, (width+7)/8))
}
