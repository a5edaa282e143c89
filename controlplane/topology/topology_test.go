package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs the files in testdata: a topology and questions about it in, answers out. Commands:
//
//	load            the input is a topology file; prints what was read, or the mistakes
//	routes [down=(...)]        each switch's next hop to each other
//	tree root=S members=(...) [down=(...)]    the multicast tree
//	nearest members=(...) [down=(...)]        each switch's nearest member
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var top *Topology
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			list := func(key string) []string {
				var out []string
				for _, a := range d.CmdArgs {
					if a.Key == key {
						out = a.Vals
					}
				}
				return out
			}
			down := map[string]bool{}
			for _, s := range list("down") {
				down[s] = true
			}
			var b strings.Builder
			switch d.Cmd {
			case "load":
				var err error
				if top, err = Parse([]byte(d.Input), "net.yaml"); err != nil {
					return err.Error() + "\n"
				}
				return describe(top)
			case "routes":
				g := top.Graph(down)
				for _, s := range top.Switches {
					fmt.Fprintf(&b, "%s:", s.Name)
					for _, to := range top.Switches {
						if p, ok := g.NextHop(s.Name, to.Name); ok {
							fmt.Fprintf(&b, " %s by %d", to.Name, p.Number)
						} else if s != to {
							fmt.Fprintf(&b, " %s unreachable", to.Name)
						}
					}
					b.WriteString("\n")
				}
			case "tree":
				tree := top.Graph(down).Tree(list("root")[0], list("members"))
				for _, s := range top.Switches {
					for _, port := range tree[s.Name] {
						p, _ := s.Port(port)
						fmt.Fprintf(&b, "%s port %d -> %s\n", s.Name, port, p.Peer.Name)
					}
				}
			case "nearest":
				g := top.Graph(down)
				for _, s := range top.Switches {
					fmt.Fprintf(&b, "%s: %s\n", s.Name, g.Nearest(s.Name, list("members")))
				}
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return b.String()
		})
	})
}

// describe is a topology for people.
func describe(top *Topology) string {
	var b strings.Builder
	fmt.Fprintf(&b, "program %s, %s", top.Program.JSON, top.Program.P4Info)
	if top.Program.ValueBits != 0 {
		fmt.Fprintf(&b, ", %d bits", top.Program.ValueBits)
	}
	fmt.Fprintf(&b, "\ncontroller %s, sessions 1 to %d", top.Controller.Address, top.Sessions.Controller)
	if top.Sessions.Last != 0 {
		fmt.Fprintf(&b, ", clients to %d", top.Sessions.Last)
	}
	fmt.Fprintf(&b, ", ttl %v\n", top.Sessions.TTL)
	for _, s := range top.Switches {
		fmt.Fprintf(&b, "switch %s at %s, device %d, %s, %s\n", s.Name, s.P4Runtime, s.DeviceID, s.Address, s.MAC)
		for _, p := range s.Ports {
			fmt.Fprintf(&b, "  port %d: %s\n", p.Number, p.LeadsTo())
		}
	}
	for _, h := range top.Hosts {
		fmt.Fprintf(&b, "host %s: %s, %s, %s port %d\n", h.Name, h.IP, h.MAC, h.Switch.Name, h.Port)
	}
	for _, c := range top.Chains {
		fmt.Fprintf(&b, "chain %s: id %d, %s, %v, lease %v, slots %d\n", c.Name, c.ID, c.Address, c.Members, c.Lease, c.Slots)
	}
	return b.String()
}

// TestExample: the documented file is a right one, and says what its comments say.
func TestExample(t *testing.T) {
	top, err := Load("example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Switches) != 4 || len(top.Hosts) != 4 || len(top.Chains) != 1 || top.Chains[0].Lease != 200*time.Millisecond {
		t.Errorf("%s", describe(top))
	}
	if p, ok := top.Switch("s1").Port(3); !ok || p.LeadsTo() != "" {
		t.Errorf("port 3 of s1: %v %v", p, ok)
	}
	if got, want := top.Switch("s2").MAC.String(), "02:4e:0a:00:ff:02"; got != want {
		t.Errorf("the MAC address of s2 is %s, want %s", got, want)
	}
	if top.Program.P4Info != "../../p4src/compiled/netcraq-128.p4info.txtpb" {
		t.Errorf("P4Info %s", top.Program.P4Info)
	}
}

// TestPaths: relative paths are relative to the file, wherever the controller was started.
func TestPaths(t *testing.T) {
	b, err := os.ReadFile("example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "net.yaml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	top, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(filepath.Dir(file), "../../p4src/compiled/netcraq-128.json"); top.Program.JSON != want {
		t.Errorf("%s, want %s", top.Program.JSON, want)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a missing file was read")
	}
}
