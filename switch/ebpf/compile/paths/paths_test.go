package paths

import (
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// TestPaths checks the steps of NetCRAQ's program. There must be few enough steps for compilation.
// Each step must lead on, each path must lock the registers only once, and some decisions and
// stores must be left out.
func TestPaths(t *testing.T) {
	prog, err := bmv2json.ReadFile("../../../../p4src/compiled/netcraq-128.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	p, err := memory.NewPlan(prog)
	if err != nil {
		t.Fatal(err)
	}
	order, _ := Find(p, "ingress", Options{Variants: MostVariants})
	if len(order) == 0 {
		t.Fatal("none were found")
	}
	dead, known, reading := 0, 0, 0
	// taken[i] is set if the registers were locked and released before step i
	taken := make([]bool, len(order))
	for i, s := range order {
		if s.Dead {
			dead++
			if s.Kind == StepPrimitive && s.Primitive.Op != "assign" {
				t.Fatalf("%s: %s is left out", s.Path, s.Primitive.Op)
			}
		}
		known += len(s.Facts)
		if s.Kind == StepUnlocked {
			reading++
		}
		if (s.Kind == StepEnd) != (len(s.Next) == 0) {
			t.Fatalf("step %d, of kind %d, has %d ways on", i, s.Kind, len(s.Next))
		}
		for _, n := range s.Next {
			if n.order <= i {
				t.Fatalf("step %d is behind step %d", n.order, i)
			}
			if s.Inside && !n.Inside || taken[i] {
				taken[n.order] = true
			}
			if taken[n.order] && n.Inside {
				t.Fatalf("step %d takes the registers a second time", n.order)
			}
		}
	}
	if dead == 0 || known == 0 {
		t.Errorf("%d steps are left out, %d fields are known", dead, known)
	}
	if reading == 0 && p.HasVersions() {
		t.Error("no packet reads registers without the lock")
	}
	t.Logf("%d steps, %d of them left out", len(order), dead)
}
