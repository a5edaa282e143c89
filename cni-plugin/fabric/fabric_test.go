package fabric

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// TestRead checks valid files, and the errors for invalid ones.
func TestRead(t *testing.T) {
	good, err := os.ReadFile(filepath.Join("..", "deploy", "fabric", "fabric.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"p4runtimeTLS:", "program: {profile: 128, json: a, p4info: b}\np4runtimeTLS:", "which program the switches run follows from the chains' profile"},
		{"port: \"tor1:3\"}", "port: \"tor1:3\", access: {default: read, other: write}}", `there is no realm "other"`},
		{"hosts:", "chains: [{id: 0, name: main, address: 10.0.254.1, members: [tor1]}]\nhosts:", "chains are NetcraqChains"},
		{"  cert: ../fabric-tls/tls.crt\n  key: ../fabric-tls/tls.key\n", "", "give ca, cert and key"},
		{"\"tor2:3\"", "\"tor3:3\"", `there is no switch "tor3"`},
		{"name: node2", "name: node1", "there is another host or switch of this name"},
		{"links:\n  - [\"tor1:1\", \"tor2:1\"]\n", "", "there is no way from tor1 to tor2"},
		{"deviceId: 1", "device: 1", "there is no such field"},
		{"deviceId: 1", "deviceId: one", "cannot unmarshal"},
	} {
		path := filepath.Join(dir, "fabric.yaml")
		text := strings.Replace(string(good), c.old, c.new, 1)
		if c.old != "" && text == string(good) {
			t.Fatalf("the example has no %q", c.old)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Read(path)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), path)) {
			t.Errorf("%q: %v; want %q", c.new, err, c.want)
		}
		if err != nil {
			continue
		}
		h, err := f.Host("node2")
		if err != nil || h.Switch.Name != "tor2" || h.Port != 3 {
			t.Errorf("node2: %+v, %v", h, err)
		}
		if _, err := f.Host("node3"); err == nil || !strings.Contains(err.Error(), `no host "node3"`) {
			t.Errorf("node3: %v", err)
		}
		if h.Principal != System || h.Open {
			t.Errorf("a node of which nothing is said: %+v", h)
		}
		s := f.Spec(topology.ProgramSpec{JSON: "a", P4Info: "b"}, nil)
		if s.TLS.Key != filepath.Join(filepath.Dir(dir), "fabric-tls", "tls.key") || s.Program.JSON != "a" || len(s.Switches) != 2 {
			t.Errorf("%+v", s)
		}
		if got := f.addresses([]netip.Prefix{netip.MustParsePrefix("10.0.254.0/24"),
			netip.MustParsePrefix("10.0.255.1/32")}); len(got) != 3 || got[2] != netip.MustParsePrefix("10.0.255.2/32") {
			t.Errorf("addresses %v", got)
		}
	}
	if _, err := Read(filepath.Join(dir, "nothing")); err == nil {
		t.Error("a file that is not there was read")
	}
}

// TestAccess checks a node's rights. The file's settings apply. If there are none, the node has the
// rights that agents and gateways need.
func TestAccess(t *testing.T) {
	good, err := os.ReadFile(filepath.Join("..", "deploy", "fabric", "fabric.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(good), `port: "tor1:3"}`, `port: "tor1:3", principal: reader, access: {default: read}, rate: 7}`, 1)
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	if err := os.WriteFile(path, []byte(text+"\nrealms: [{name: team, prefixes: [team/]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	id, lease := 0, 200
	top, err := topology.New(f.Spec(topology.ProgramSpec{JSON: "a", P4Info: "b"},
		[]topology.ChainSpec{{ID: &id, Name: "main", Address: "10.0.254.1", Members: []string{"tor1"}, LeaseMillis: &lease}}), "test")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range top.Hosts {
		got = append(got, fmt.Sprint(h.Name, " ", h.Principal, " ", h.Open, " ", h.Rate))
	}
	for _, g := range top.Grants {
		got = append(got, fmt.Sprint(g))
	}
	want := "node1 reader false 7, node2 system false 0, {reader default true false}, {system default true true}, {system team true true}"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s; want %s", s, want)
	}
}

// TestInterfaceOf checks that if a node's interface differs from the file, the error says how.
func TestInterfaceOf(t *testing.T) {
	h := &topology.Host{Name: "node1", IP: netip.MustParseAddr("198.51.100.1"), MAC: []byte{2, 0, 0, 0, 0x0a, 0xff}}
	if _, err := interfaceOf(h); err == nil || !strings.Contains(err.Error(), "no interface of this node has the Ethernet address 02:00:00:00:0a:ff") {
		t.Errorf("%v", err)
	}
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if len(l.HardwareAddr) == 6 {
			h.MAC = l.HardwareAddr
			if _, err := interfaceOf(h); err == nil || !strings.Contains(err.Error(), l.Name+" has not the address 198.51.100.1") {
				t.Errorf("%v", err)
			}
			return
		}
	}
	t.Log("this machine has no interface with an Ethernet address: the address was not tried")
}
