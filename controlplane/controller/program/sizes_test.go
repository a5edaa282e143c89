package program

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// loadProgram reads the compiled program of a profile.
func loadProgram(t *testing.T, profile string) *Program {
	t.Helper()
	base := filepath.Join("..", "..", "..", "p4src", "compiled", "netcraq-"+profile)
	pl, err := p4rt.LoadPipeline(base+".p4info.txtpb", base+".json.gz")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Read(pl)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestProfiles checks the sizes that are read from each compiled program.
func TestProfiles(t *testing.T) {
	for profile, slots := range map[string]int{"128": 65536, "1024": 16384, "4096": 8192, "8192": 8192} {
		p := loadProgram(t, profile)
		if fmt.Sprint(p.Profile) != profile || p.Slots != slots || p.Sessions != 4096 {
			t.Errorf("%s: %v bits, %d slots, %d sessions", profile, p.Profile, p.Slots, p.Sessions)
		}
	}
}

// TestSpaces: chains that have slots keep them when other chains come and go. Other chains get free
// slots.
func TestSpaces(t *testing.T) {
	p := &Program{Slots: 1000}
	chains := func(slots ...int) *topology.Topology {
		top := &topology.Topology{}
		for i, n := range slots {
			if n >= 0 { // if n is negative, the chain does not exist
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
		// chains without a requested number share the remaining slots
		{"1:100+200 2:300+150 3:0+100 4:450+550", []int{-1, 200, 0, 100, 0}},
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
