package paths

import (
	"runtime"
	"slices"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

func needStripes(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("on this processor there is one lock")
	}
}

// pathsOf plans a program and returns its steps.
func pathsOf(t *testing.T, file string) (*memory.Plan, []*Step) {
	t.Helper()
	prog, err := bmv2json.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := memory.NewPlan(prog)
	if err != nil {
		t.Fatal(err)
	}
	steps, _ := Find(p, "ingress", Options{Variants: MostVariants})
	if len(steps) == 0 {
		t.Fatal("no paths were found")
	}
	return p, steps
}

// TestNeeds checks that, in each profile of NetCRAQ, a packet selects registers by its chain, its
// session and its slot. The packet must know these numbers when it locks them. Most packets must
// not lock a stripe for their chain.
func TestNeeds(t *testing.T) {
	needStripes(t)
	for _, profile := range []string{"128", "8192"} {
		p, order := pathsOf(t, "../../../../p4src/compiled/netcraq-"+profile+".json.gz")
		var of []int
		for _, m := range p.Members {
			of = append(of, m.Family)
		}
		objects := len(of) - 5
		if len(p.Families) != 3 || !slices.Equal(of[:5], []int{0, 1, 2, 1, 2}) {
			t.Fatalf("the registers' families: %v", of)
		}
		for _, m := range p.Members[5:] {
			if m != (memory.Member{Family: 2, Scale: 5}) {
				t.Errorf("of %d registers of values one is of %+v", objects, m)
			}
		}
		for f, fam := range p.Families {
			if fam.Single != (f == 0) || fam.Bound != []uint64{256, 4096, uint64(p.Registers[2].Size)}[f] {
				t.Errorf("family %d: %+v", f, fam)
			}
		}
		if !StripesFit(order) {
			t.Error("packets take all stripes")
		}
		with, without := 0, 0
		seen := map[*Step]bool{}
		for _, s := range order {
			for _, n := range s.Next {
				if s.Inside || !n.Inside || seen[n] {
					continue
				}
				seen[n] = true
				list, ok := n.Needs.FamiliesToLock()
				if !ok {
					t.Errorf("%s: a packet takes all stripes", n.Path)
				}
				if slices.Contains(list, 0) {
					with++
				} else {
					without++
				}
			}
		}
		if with == 0 || without < 3*with {
			t.Errorf("a stripe of the chain is taken in %d places, and not in %d", with, without)
		}
		t.Logf("%s: registers are taken in %d places, in %d with a stripe of the chain", profile,
			with+without, with)
	}
}

// TestNeedsUnknown checks two programs that cannot use stripes. In the first, an index is read from
// a register, so it is not known beforehand. In the second, a packet selects a register by two
// numbers, so it would need two stripes of one register family.
func TestNeedsUnknown(t *testing.T) {
	needStripes(t)
	for _, program := range []string{"indirect", "transfer"} {
		_, order := pathsOf(t, "../../testdata/"+program+".json")
		if StripesFit(order) {
			t.Errorf("%s: the one number of each family is said to be known before", program)
		}
	}
}
