package program

import (
	"cmp"
	"fmt"
	"slices"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"

	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// accessTables lists the tables that only a program with principals has.
var accessTables = []string{"access", "session_lease"}

// indispensable lists the tables that a controller reads and writes in every switch.
var indispensable = []string{"port_trust", "local_address", "ipv4_lpm", "chain_config", "key_index",
	"versions", "session_request", "session_version", "events", "slot_reads", "slot_forwards", "slot_writes",
	"host_rate", "packet_in", "packet_out"}

// Kin describes another program that is compatible with this one.
type Kin struct {
	Unguarded bool     // the other program has no principals, so it cannot restrict access
	Lacks     []string // tables of this program that the other program does not have
}

// KinOf describes a switch's program if it is compatible with this one, and otherwise returns nil.
func (p *Program) KinOf(running *configv1.P4Info) *Kin {
	if p.unguarded(running) {
		return &Kin{Unguarded: true, Lacks: slices.Concat(tableplan.WatchTables, accessTables, []string{"chain_peer"})}
	}
	ours := p.Pipeline.Info.P4Info
	has, want := preambles(running), preambles(ours)
	there := func(name string) bool { return has[want[name]] != "" }
	absent := func(name string) bool { return !there(name) }
	if !p4rt.Agree(running, ours) || slices.ContainsFunc(indispensable, absent) {
		return nil
	}
	return &Kin{Lacks: slices.DeleteFunc(slices.Clone(tableplan.Tables), there)}
}

// preambles maps the short name of each object of a program (table, register, counter and so on) to
// its id as a name and as a number. It also maps each numeric id to its name.
func preambles(info *configv1.P4Info) map[string]string {
	out := map[string]string{}
	note := func(p *configv1.Preamble) {
		id := fmt.Sprintf("%#x", p.GetId())
		out[cmp.Or(p.GetAlias(), p.GetName())], out[id] = id, id
	}
	for _, x := range info.GetTables() {
		note(x.GetPreamble())
	}
	for _, x := range info.GetRegisters() {
		note(x.GetPreamble())
	}
	for _, x := range info.GetCounters() {
		note(x.GetPreamble())
	}
	for _, x := range info.GetMeters() {
		note(x.GetPreamble())
	}
	for _, x := range info.GetControllerPacketMetadata() {
		note(x.GetPreamble())
	}
	return out
}

// unguarded reports whether a P4Info belongs to the program without principals, in this program's
// sizes. Except for principals, that program has the same registers and tables as this one.
func (p *Program) unguarded(running *configv1.P4Info) bool {
	info, err := p4rt.NewInfo(running)
	if err != nil {
		return false
	}
	lacks := func(t string) bool { _, err := info.TableSize(t); return err != nil }
	if !slices.ContainsFunc(accessTables, lacks) ||
		slices.ContainsFunc([]string{"port_trust", "local_address", "ipv4_lpm", "chain_config", "key_index"}, lacks) {
		return false
	}
	for _, name := range p.Pipeline.Info.Registers() {
		cells, width, err := p.Pipeline.Info.RegisterSize(name)
		haveCells, haveWidth, haveErr := info.RegisterSize(name)
		if err != nil || haveErr != nil || cells != haveCells || width != haveWidth {
			return false
		}
	}
	return true
}

// SameTable reports whether two programs have a table with the given name under the same id.
func SameTable(a, b *configv1.P4Info, name string) bool {
	id := func(info *configv1.P4Info) uint32 {
		for _, t := range info.Tables {
			if t.Preamble.Alias == name || t.Preamble.Name == name {
				return t.Preamble.Id
			}
		}
		return 0
	}
	return id(a) != 0 && id(a) == id(b)
}
