package topology

import (
	"fmt"
	"strings"
	"testing"
)

// sized is a star of switches around the first, with chains of it alone.
func sized(switches, chains int) Spec {
	s := Spec{Program: ProgramSpec{JSON: "p.json", P4Info: "p.txtpb"}}
	for i := range switches {
		id := uint64(i + 1)
		s.Switches = append(s.Switches, SwitchSpec{Name: fmt.Sprint("s", i), DeviceID: &id,
			P4Runtime: fmt.Sprintf("192.0.2.1:%d", 1000+i), Address: fmt.Sprintf("10.1.%d.%d", i>>8, i&255)})
		if i > 0 {
			// A switch has 509 ports, so the star has arms of several switches.
			at := fmt.Sprintf("s0:%d", 2+i)
			if i > 400 {
				at = fmt.Sprintf("s%d:2", i-400)
			}
			s.Links = append(s.Links, []string{fmt.Sprintf("s%d:1", i), at})
		}
	}
	for i := range chains {
		s.Chains = append(s.Chains, ChainSpec{ID: &i, Name: fmt.Sprint("c", i), Address: fmt.Sprintf("10.2.0.%d", i),
			Members: []string{"s0"}})
	}
	return s
}

// TestBounds: as many switches may be members of chains as one controller is tested with, and no
// more. The error says what to do. Switches that are in no chain do not count.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		switches, chains, members int // members of each chain, all different
		want                      string
	}{
		{MaxMembers, 100, MaxMembers / 100, ""},
		{MaxMembers + 10, 101, MaxMembers / 100,
			"202 switches would be members of chains, and one controller is tested with up to 200: give the chains fewer"},
		{5000, 100, 2, ""},
	} {
		s := sized(c.switches, c.chains)
		for i := range s.Chains {
			s.Chains[i].Members = nil
			for m := range c.members {
				s.Chains[i].Members = append(s.Chains[i].Members, fmt.Sprint("s", (i*c.members+m)%c.switches))
			}
		}
		_, err := New(s, "test")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d switches and %d chains: %v, want %q", c.switches, c.chains, err, c.want)
		}
	}
}

// TestSearchesWhenAsked: a graph searches for the way to a switch once, when it is first asked for,
// and not for the ways to all others.
func TestSearchesWhenAsked(t *testing.T) {
	top, err := New(sized(300, 1), "test")
	if err != nil {
		t.Fatal(err)
	}
	g := top.Graph(map[string]bool{"s7": true})
	for _, s := range top.Switches {
		if _, ok := g.NextHop(s.Name, "s0"); ok == (s.Name == "s0" || s.Name == "s7") {
			t.Errorf("from %s to s0: %v", s.Name, ok)
		}
		if _, ok := g.Distance("s0", "s7"); ok {
			t.Error("there is a way to a switch that is down")
		}
	}
	searched := 0
	for i := range g.distances {
		if g.distances[i].Load() != nil {
			searched++
		}
	}
	if searched != 1 {
		t.Errorf("it has searched for the ways to %d switches, of which one was asked for", searched)
	}
}
