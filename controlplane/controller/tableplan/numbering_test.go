package tableplan

import (
	"fmt"
	"maps"
	"testing"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// named returns a topology with realms, and with hosts of some principals.
func named(realms []string, principals ...string) *topology.Topology {
	t := &topology.Topology{}
	for _, p := range principals {
		t.Hosts = append(t.Hosts, &topology.Host{Principal: p})
	}
	for _, r := range realms {
		t.Realms = append(t.Realms, topology.Realm{Name: r})
	}
	return t
}

// TestNumbering: a name keeps its number when other names come and go, and when the controller
// restarts. A principal and a realm with the same name have the same number.
func TestNumbering(t *testing.T) {
	n := NewNumbering(nil)
	of := func(top *topology.Topology) map[string]uint16 {
		t.Helper()
		out, err := n.of(top)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := of(named([]string{"a", "b"}, "", "a", topology.DefaultRealm))
	if want := (map[string]uint16{topology.DefaultRealm: 1, "a": 2, "b": 3}); !maps.Equal(first, want) {
		t.Errorf("%v, not %v", first, want)
	}
	of(named([]string{"c"}))
	n = NewNumbering(maps.Clone(n.numbers)) // the numbers are saved and loaded again
	if got := of(named([]string{"d", "b"})); got["b"] != 3 || got["d"] != 5 {
		t.Errorf("%v", got)
	}

	// When all numbers have been given, only the numbers of unused names are given again.
	some := make([]string, 1000)
	for n.next <= lastNumber-uint16(len(some)) {
		for i := range some {
			some[i] = fmt.Sprintf("n%d", int(n.next)+i)
		}
		of(named(append(some, "b")))
	}
	got := of(named([]string{"b", "kept"}, append(some, "late")...))
	if got["b"] != 3 || got["kept"] == got["late"] || got["kept"] == 0 || got["late"] == 0 {
		t.Errorf("%v", got)
	}
	many := make([]string, lastNumber)
	for i := range many {
		many[i] = fmt.Sprintf("m%d", i)
	}
	if _, err := n.of(named(many)); err == nil {
		t.Error("more names than numbers have numbers")
	}
}
