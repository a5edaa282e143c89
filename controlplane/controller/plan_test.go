package controller

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// loadProgram reads the compiled program of a profile.
func loadProgram(t *testing.T, profile string) *program {
	t.Helper()
	base := filepath.Join("..", "..", "p4src", "compiled", "netcraq-"+profile)
	pl, err := p4rt.LoadPipeline(base+".p4info.txtpb", base+".json.gz")
	if err != nil {
		t.Fatal(err)
	}
	p, err := readProgram(pl)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPlan runs testdata/plan: a topology in, what the switches' tables should hold out. Commands:
//
//	topology                                the input is a topology file
//	base SWITCH                             what follows from it at a switch
//	chain NAME epoch=N [members=(...)]      what a configuration of a chain puts into each switch
//	spaces [slots=N]                        which slots belong to which chain
func TestPlan(t *testing.T) {
	prog := loadProgram(t, "128")
	info := prog.pipeline.Info
	var top *topology.Topology
	var p *plan
	datadriven.RunTest(t, "testdata/plan", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		// Everything is encoded and decoded, so that what is printed is what a switch would get.
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
			if _, err := prog.fit(top, nil); err != nil {
				return err.Error() + "\n"
			}
			if p, err = newPlan(top, newNumbering(nil)); err != nil {
				return err.Error() + "\n"
			}
			return "ok\n"
		case "base":
			for _, e := range p.base(top.Switch(d.CmdArgs[0].Key)) {
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
				cp := p.chain(c, s, conf)
				fmt.Fprintf(&b, "%s:\n", s.Name)
				show(cp.config)
				te, _ := info.Encode(cp.config)
				dec, _ := info.Decode(te)
				if a := readChainEntry(top, dec); a != conf.Assignment(s.Name) {
					t.Errorf("the entry of %s reads as %v, not %v", s.Name, a, conf.Assignment(s.Name))
				}
				for _, g := range cp.groups {
					fmt.Fprintf(&b, "  group %d:", g.ID)
					for _, r := range g.Replicas {
						fmt.Fprintf(&b, " port %d %s", r.Port, map[uint32]string{instanceAck: "ACK", instanceReply: "reply"}[r.Instance])
					}
					b.WriteString("\n")
				}
				for _, port := range slices.Sorted(maps.Keys(cp.peers)) {
					show(peerEntry(c.ID, port, cp.peers[port]))
				}
				if cp.take != nil {
					show(*cp.take)
				}
				if cp.route != nil {
					show(*cp.route)
				}
			}
		case "spaces":
			q := *prog
			if d.HasArg("slots") {
				d.ScanArgs(t, "slots", &q.slots)
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

// TestGroupsDoNotOverlap: no two uses of a multicast group id, however many chains and ports there
// are.
func TestGroupsDoNotOverlap(t *testing.T) {
	for _, c := range []struct {
		chains, ports int
		fits          bool
	}{{1, 1, true}, {4, 8, true}, {256, 16, true}, {20, 500, true}, {256, 64, false}} {
		top := &topology.Topology{}
		s := &topology.Switch{Name: "s1"}
		for n := range c.ports {
			s.Ports = append(s.Ports, topology.Port{Number: uint32(n + 1)})
		}
		top.Switches = []*topology.Switch{s}
		for n := range c.chains {
			top.Chains = append(top.Chains, &topology.Chain{ID: uint8(n)})
		}
		start := time.Now()
		groups, err := allocateGroups(top)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%+v took %v", c, took)
		}
		if (err == nil) != c.fits {
			t.Errorf("%+v: %v", c, err)
		}
		seen := map[uint32]string{}
		use := func(id uint32, what string) {
			if id == 0 || id > maxGroup || seen[id] != "" {
				t.Fatalf("%+v: group %d of %s is also %s", c, id, what, seen[id])
			}
			seen[id] = what
		}
		for _, ch := range top.Chains {
			if err != nil {
				continue
			}
			g := groups["s1"][ch.ID]
			for parity := range 2 {
				use(uint32(g.ack[parity]), fmt.Sprintf("chain %d ack %d", ch.ID, parity))
				for _, p := range replyPorts(s) {
					use(uint32(g.reply[parity])+p, fmt.Sprintf("chain %d reply %d port %d", ch.ID, parity, p))
				}
			}
		}
		for id := range seen {
			owners := slices.DeleteFunc(slices.Clone(top.Chains), func(ch *topology.Chain) bool {
				return !groups["s1"][ch.ID].owns(replyPorts(s), id)
			})
			if len(owners) != 1 {
				t.Fatalf("%+v: group %d has %d owners", c, id, len(owners))
			}
		}
	}
}

// TestProfiles: the sizes that are read from each compiled program.
func TestProfiles(t *testing.T) {
	for profile, slots := range map[string]int{"128": 65536, "1024": 16384, "4096": 8192, "8192": 8192} {
		p := loadProgram(t, profile)
		if fmt.Sprint(p.profile) != profile || p.slots != slots || p.sessions != 4096 {
			t.Errorf("%s: %v bits, %d slots, %d sessions", profile, p.profile, p.slots, p.sessions)
		}
	}
}

// TestSpaces: chains that have slots keep them, whoever comes and goes, and others get what is
// free.
func TestSpaces(t *testing.T) {
	p := &program{slots: 1000}
	chains := func(slots ...int) *topology.Topology {
		top := &topology.Topology{}
		for i, n := range slots {
			if n >= 0 { // else: there is no such chain
				top.Chains = append(top.Chains, &topology.Chain{ID: uint8(i), Name: fmt.Sprintf("c%d", i), Slots: n})
			}
		}
		return top
	}
	var have []keyspace.Space
	for _, c := range []struct {
		want  string
		slots []int
	}{
		{"0:0+100 1:100+200", []int{100, 200}},
		{"1:100+200", []int{-1, 200}},
		{"1:100+200 2:300+150", []int{-1, 200, 150}},
		{"1:100+200 2:300+150 3:0+100", []int{-1, 200, 150, 100}},
		{"1:100+200 2:300+150 3:0+100 4:450+550", []int{-1, 200, 0, 100, 0}}, // who shares has what was left
		{"4:450+550", []int{-1, -1, -1, -1, 0}},
		{"0:0+225 1:225+225 4:450+550", []int{0, 0, -1, -1, 0}},
		{"the chains ask for 1001 slots, but the program has 1000", []int{0, 0, 1, -1, 0}},
		{"1:225+225 4:450+550", []int{-1, 0, -1, -1, 0}},
		{"1:225+225", []int{-1, 0}},
		{"the chain c2 asks for 600 slots, and there are not that many in a row between those of the other chains: ask for fewer", []int{-1, 0, 600}},
		{"1:225+225 2:450+550", []int{-1, 0, 550}},
	} {
		spaces, err := p.spaces(chains(c.slots...), have)
		if err != nil {
			if err.Error() != c.want {
				t.Errorf("%v: %v; want %s", c.slots, err, c.want)
			}
			continue
		}
		have = spaces
		var got []string
		for _, s := range spaces {
			got = append(got, fmt.Sprintf("%d:%d+%d", s.Chain, s.First, s.Count))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%v: %s; want %s", c.slots, text, c.want)
		}
	}
}
