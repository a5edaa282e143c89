package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs the files in testdata: the input is a topology and questions about it, the
// output is the answers. Commands:
//
//	load                                      parses the input, a topology file; prints the topology
//	                                          or its mistakes
//	routes [down=(...)]                       each switch's next hop to each other switch
//	tree root=S members=(...) [down=(...)]    the multicast tree
//	nearest members=(...) [down=(...)]        each switch's nearest member
//	realms                                    the realm of each key in the input, one name a line
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
			case "realms":
				for name := range strings.FieldsSeq(d.Input) {
					fmt.Fprintf(&b, "%s: %s\n", name, top.RealmOf(name))
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

// describe prints a topology as text.
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
		fmt.Fprintf(&b, "host %s: %s, %s, %s port %d", h.Name, h.IP, h.MAC, h.Switch.Name, h.Port)
		switch {
		case h.Principal == "":
			b.WriteString(", closed")
		case !h.Open:
			fmt.Fprintf(&b, ", principal %s", h.Principal)
		}
		if h.Rate > 0 {
			fmt.Fprintf(&b, ", %d packets a second", h.Rate)
		}
		b.WriteString("\n")
	}
	for _, r := range top.Realms {
		fmt.Fprintf(&b, "realm %s: %q\n", r.Name, r.Prefixes)
	}
	for _, g := range top.Grants {
		fmt.Fprintf(&b, "grant %s in %s: read %v, write %v\n", g.Principal, g.Realm, g.Read, g.Write)
	}
	for _, c := range top.Chains {
		fmt.Fprintf(&b, "chain %s: id %d, %s, %v, lease %v, slots %d\n", c.Name, c.ID, c.Address, c.Members, c.Lease, c.Slots)
	}
	return b.String()
}

// TestExample: the documented file is valid, and its comments are right.
func TestExample(t *testing.T) {
	top, err := Load("example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Switches) != 4 || len(top.Hosts) != 4 || len(top.Chains) != 1 ||
		top.Chains[0].Lease != 200*time.Millisecond {
		t.Errorf("%s", describe(top))
	}
	if p, ok := top.Switch("s1").Port(3); !ok || p.LeadsTo() != "" {
		t.Errorf("port 3 of s1: %v %v", p, ok)
	}
	if got, want := top.Switch("s2").MAC.String(), "02:4e:0a:00:ff:02"; got != want {
		t.Errorf("the MAC address of s2 is %s, want %s", got, want)
	}
	if h := top.Host(func(h *Host) bool {
		return h.Name == "h1"
	}); !h.Open || h.Principal != DefaultRealm || h.Rate != 0 {
		t.Errorf("h1: %+v", h)
	}
	for key, want := range map[string]string{"/shop/1": "shop", "/shop/payments/1": "bank", "/other": DefaultRealm} {
		if got := top.RealmOf(key); got != want {
			t.Errorf("%s is of the realm %s, want %s", key, got, want)
		}
	}
	if top.Program.P4Info != "../../p4src/compiled/netcraq-128.p4info.txtpb" {
		t.Errorf("P4Info %s", top.Program.P4Info)
	}
}

// TestPaths: relative paths are relative to the file, wherever the controller is started.
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
	if want := filepath.Join(filepath.Dir(file), "../../p4src/compiled/netcraq-128.json.gz"); top.Program.JSON != want {
		t.Errorf("%s, want %s", top.Program.JSON, want)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a missing file was read")
	}
}

// specOf returns a line of n switches with a host at each, and a chain of all switches.
func specOf(n int) Spec {
	s := Spec{Program: ProgramSpec{JSON: "n.json", P4Info: "n.txtpb"}}
	id := 3
	chain := ChainSpec{ID: &id, Name: "main", Address: "10.0.254.3"}
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("s%d", i)
		s.Switches = append(s.Switches, SwitchSpec{Name: name, P4Runtime: fmt.Sprintf("192.0.2.%d:9559", i),
			Address: fmt.Sprintf("10.0.255.%d", i), Prefixes: []string{fmt.Sprintf("10.7.%d.0/24", i)}})
		s.Hosts = append(s.Hosts, HostSpec{Name: fmt.Sprintf("h%d", i), IP: fmt.Sprintf("10.7.%d.1", i),
			MAC: fmt.Sprintf("02:00:00:00:00:%02x", i), Port: name + ":1"})
		if i > 1 {
			s.Links = append(s.Links, []string{fmt.Sprintf("s%d:3", i-1), name + ":2"})
		}
		chain.Members = append(chain.Members, name)
	}
	s.Chains = append(s.Chains, chain)
	return s
}

func made(t *testing.T, s Spec) *Topology {
	t.Helper()
	top, err := New(s, "the test")
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// TestNew: a program's topology may have no chains yet, and is checked like a file.
func TestNew(t *testing.T) {
	s := specOf(2)
	s.Chains = nil
	made(t, s)
	s.Switches[1].Address = "10.0.255.1"
	if _, err := New(s, "the test"); err == nil || !strings.Contains(err.Error(), "the test: switches[1].address (s2): the address 10.0.255.1 is that of switch s1 already") {
		t.Errorf("%v", err)
	}
}

// TestAuthorityNames: names of principals and realms may have a prefix for their owner (ns:team),
// but names of switches and hosts may not.
func TestAuthorityNames(t *testing.T) {
	for name, want := range map[string]string{"ns:team": "", "a:b:c": "", "ns/team": "a slash", "a b": "white space"} {
		s := specOf(2)
		s.Hosts[0].Principal, s.Realms = name, []RealmSpec{{Name: name, Prefixes: []string{"ns/team/"}}}
		top, err := New(s, "test")
		if (err == nil) != (want == "") || err != nil && strings.Count(err.Error(), want) != 2 {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
		if err == nil && top.RealmOf("ns/team/a") != name {
			t.Errorf("%q: a key is of the realm %s", name, top.RealmOf("ns/team/a"))
		}
	}
}

// TestEqual: topologies with the same content are equal. They are not equal if any part differs.
func TestEqual(t *testing.T) {
	top := made(t, specOf(3))
	if !top.Equal(made(t, specOf(3))) {
		t.Error("it is not equal to itself")
	}
	for what, change := range map[string]func(*Spec){
		"program":  func(s *Spec) { s.Program.Profile = "128" },
		"sessions": func(s *Spec) { s.Sessions.Last = 100 },
		"switches": func(s *Spec) { *s = specOf(4) },
		"server":   func(s *Spec) { s.Switches[0].P4Runtime = "192.0.2.9:9559" },
		"prefixes": func(s *Spec) { s.Switches[2].Prefixes[0] = "10.7.3.0/25" },
		"links":    func(s *Spec) { s.Links = append(s.Links, []string{"s1:4", "s3:4"}) },
		"ends":     func(s *Spec) { s.Links[0][1] = "s2:4" },
		"host":     func(s *Spec) { s.Hosts[1].MAC = "02:00:00:00:01:00" },
		"port":     func(s *Spec) { s.Hosts[1].Port = "s2:9" },
		"who":      func(s *Spec) { s.Hosts[1].Principal = "somebody" },
		"members":  func(s *Spec) { s.Chains[0].Members = []string{"s2", "s1", "s3"} },
		"slots":    func(s *Spec) { s.Chains[0].Slots = 5 },
		"access":   func(s *Spec) { s.Hosts[0].Access = &map[string]string{} },
		"right":    func(s *Spec) { s.Hosts[0].Access = &map[string]string{DefaultRealm: "read"} },
		"rate":     func(s *Spec) { s.Hosts[2].Rate = new(int); *s.Hosts[2].Rate = 7 },
		"hostRate": func(s *Spec) { s.HostRate = 7 },
		"realms":   func(s *Spec) { s.Realms = []RealmSpec{{"shop", []string{"/shop/"}}} },
	} {
		s := specOf(3)
		change(&s)
		if top.Equal(made(t, s)) {
			t.Errorf("%s: equal", what)
		}
	}
}

// TestKeeping: a switch that has left is kept with the links that nothing else uses, and without
// hosts.
func TestKeeping(t *testing.T) {
	old := made(t, specOf(4))
	s := specOf(4)
	s.Switches, s.Hosts = slices.Delete(s.Switches, 2, 3), slices.Delete(s.Hosts, 2, 3)
	s.Links = [][]string{{"s1:3", "s2:2"}, {"s2:3", "s4:9"}} // the port of s2 that led to s3 leads to s4 now
	s.Chains[0].Members = []string{"s1", "s2", "s4"}
	now := made(t, s)
	kept, err := now.Keeping(old, []string{"s3"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, sw := range kept.Switches {
		for _, p := range sw.Ports {
			if p.Peer != nil && kept.Switch(p.Peer.Name) != p.Peer {
				t.Errorf("%s port %d leads to a switch of another topology", sw.Name, p.Number)
			}
			got = append(got, fmt.Sprintf("%s:%d %s", sw.Name, p.Number, p.LeadsTo()))
		}
	}
	want := []string{"s1:1 host h1", "s1:3 switch s2 port 2", "s2:1 host h2", "s2:2 switch s1 port 3", "s2:3 switch s4 port 9",
		"s4:1 host h4", "s4:2 switch s3 port 3", "s4:9 switch s2 port 3", "s3:3 switch s4 port 2"}
	if !slices.Equal(got, want) {
		t.Errorf("it has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !kept.Switch("s1").Ports[0].Host.Switch.Covers(kept.Hosts[0].IP) || kept.Hosts[0].Switch != kept.Switch("s1") {
		t.Error("a host is behind a switch of another topology")
	}
	if same, err := now.Keeping(old, nil); err != nil || !same.Equal(now) {
		t.Errorf("keeping nothing: %v", err)
	}
	s.Hosts[0].IP, s.Switches[0].Prefixes = "10.0.255.3", nil
	if _, err := made(t, s).Keeping(old, []string{"s3"}); err == nil || !strings.Contains(err.Error(), "10.0.255.3 of host h1 is that of switch s3, which has left") {
		t.Errorf("%v", err)
	}
}
