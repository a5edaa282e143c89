package program

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// TestPlan runs testdata/plan: the input is a topology, the output the planned contents of the
// switches' tables. Commands:
//
//	topology                                the input is a topology file
//	base SWITCH                             a switch's entries that follow from the topology
//	chain NAME epoch=N [members=(...)]      each switch's entries for a configuration of a chain
//	spaces [slots=N]                        which slots belong to which chain
func TestPlan(t *testing.T) {
	prog := loadProgram(t, "128")
	info := prog.Pipeline.Info
	var top *topology.Topology
	var p *tableplan.Plan
	datadriven.RunTest(t, "testdata/plan", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		// Entries are encoded and decoded, so that the output is what a switch would receive.
		show := func(e p4rt.Entry) {
			te, err := info.Encode(e)
			if err != nil {
				t.Fatal(err)
			}
			dec, err := info.Decode(te)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "  %v\n", dec)
		}
		switch d.Cmd {
		case "topology":
			var err error
			if top, err = topology.Parse([]byte(d.Input), "net.yaml"); err != nil {
				return err.Error() + "\n"
			}
			if _, err := prog.Fit(top, nil); err != nil {
				return err.Error() + "\n"
			}
			if p, err = tableplan.New(top, tableplan.NewNumbering(nil)); err != nil {
				return err.Error() + "\n"
			}
			return "ok\n"
		case "base":
			for _, e := range p.Base(top.Switch(d.CmdArgs[0].Key)) {
				show(e)
			}
		case "chain":
			c := top.Chain(d.CmdArgs[0].Key)
			conf := chain.Config{Members: c.Members, Lease: c.Lease}
			var epoch int
			d.ScanArgs(t, "epoch", &epoch)
			conf.Epoch = uint16(epoch)
			for _, a := range d.CmdArgs {
				if a.Key == "members" {
					conf.Members = a.Vals
				}
			}
			for _, s := range top.Switches {
				cp := p.Chain(c, s, conf)
				fmt.Fprintf(&b, "%s:\n", s.Name)
				show(cp.Config)
				te, _ := info.Encode(cp.Config)
				dec, _ := info.Decode(te)
				if a := tableplan.ReadChainEntry(top, dec); a != conf.Assignment(s.Name) {
					t.Errorf("the entry of %s reads as %v, not %v", s.Name, a, conf.Assignment(s.Name))
				}
				for _, g := range cp.Groups {
					fmt.Fprintf(&b, "  group %d:", g.ID)
					for _, r := range g.Replicas {
						fmt.Fprintf(&b, " port %d %s", r.Port, map[uint32]string{1: "ACK", 2: "reply"}[r.Instance])
					}
					b.WriteString("\n")
				}
				for _, e := range tableplan.PeerEntries(c.ID, cp.Peers) {
					show(e)
				}
				if cp.Take != nil {
					show(*cp.Take)
				}
				if cp.Route != nil {
					show(*cp.Route)
				}
			}
		case "spaces":
			q := *prog
			if d.HasArg("slots") {
				d.ScanArgs(t, "slots", &q.Slots)
			}
			spaces, err := q.spaces(top, nil)
			if err != nil {
				return err.Error() + "\n"
			}
			for _, s := range spaces {
				fmt.Fprintf(&b, "chain %d: slots %d to %d\n", s.Chain, s.First, s.First+s.Count-1)
			}
		default:
			t.Fatalf("unknown command %s", d.Cmd)
		}
		return b.String()
	})
}
