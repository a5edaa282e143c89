package programs

import (
	"slices"
	"testing"

	"github.com/netcraq/netcraq/switch/ebpf"
)

// TestCases: every case sends one frame and takes some time. To save time, each case runs on one
// engine, and each engine runs cases of every system. All systems have the same kinds of cases,
// except that NetChain has no dirty reads.
func TestCases(t *testing.T) {
	cases, err := All(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, system := range []string{NetChain, Paper, Shipped, Leased} {
		var kinds []string
		for _, c := range cases {
			if c.System == system {
				kinds = append(kinds, c.Kind)
			}
		}
		want := slices.Clone(Kinds)
		if system == NetChain {
			want = slices.DeleteFunc(want, func(k string) bool { return k == DirtyRead || k == DirtyAnswer })
		}
		slices.Sort(kinds)
		slices.Sort(want)
		if !slices.Equal(kinds, want) {
			t.Errorf("%s has %q, want %q", system, kinds, want)
		}
	}
	for n, engine := range Engines {
		t.Run(engine, func(t *testing.T) {
			if err := ebpf.Probe(); err != nil && engine != "interp" {
				t.Skipf("eBPF is not available: %v", err)
			}
			for i := n; i < len(cases); i += len(Engines) {
				b, err := open(&cases[i], engine)
				if err != nil {
					t.Fatal(err)
				}
				took, err := b.Run(1000)
				if err != nil || took <= 0 {
					t.Errorf("%s, %s: %v (%v)", cases[i].System, cases[i].Kind, took, err)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
