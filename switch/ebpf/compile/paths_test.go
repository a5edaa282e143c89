package compile

import (
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// TestPaths finds the paths of NetCRAQ's program: they are few enough to be written, each goes on,
// the registers are taken once on each, and something is known and left out.
func TestPaths(t *testing.T) {
	prog, err := bmv2json.ReadFile("../../../p4src/compiled/netcraq-128.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPlan(prog)
	if err != nil {
		t.Fatal(err)
	}
	order, _ := findPaths(p, "ingress", PathOptions{Variants: mostVariants})
	if len(order) == 0 {
		t.Fatal("none were found")
	}
	dead, known, reading := 0, 0, 0
	taken := make([]bool, len(order)) // the registers have been taken and given back
	for i, s := range order {
		if s.dead {
			dead++
			if s.kind == stepPrimitive && s.primitive.Op != "assign" {
				t.Fatalf("%s: %s is left out", s.path, s.primitive.Op)
			}
		}
		known += len(s.facts)
		if s.kind == stepUnlocked {
			reading++
		}
		if (s.kind == stepEnd) != (len(s.next) == 0) {
			t.Fatalf("step %d, of kind %d, has %d ways on", i, s.kind, len(s.next))
		}
		for _, n := range s.next {
			if n.order <= i {
				t.Fatalf("step %d is behind step %d", n.order, i)
			}
			if s.inside && !n.inside || taken[i] {
				taken[n.order] = true
			}
			if taken[n.order] && n.inside {
				t.Fatalf("step %d takes the registers a second time", n.order)
			}
		}
	}
	if dead == 0 || known == 0 {
		t.Errorf("%d steps are left out, %d fields are known", dead, known)
	}
	if reading == 0 && p.versions() {
		t.Error("no packet reads registers without the lock")
	}
	t.Logf("%d steps, %d of them left out", len(order), dead)
}
