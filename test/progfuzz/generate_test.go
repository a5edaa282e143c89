package progfuzz

import (
	"strings"
	"testing"
)

// TestGenerate checks that a seed always gives the same program, and that different seeds give
// different programs.
func TestGenerate(t *testing.T) {
	seen := map[string]uint64{}
	for seed := range uint64(200) {
		source := Generate(seed).Source()
		if again := Generate(seed).Source(); again != source {
			t.Fatalf("seed %d gives two programs", seed)
		}
		if other, ok := seen[source]; ok {
			t.Errorf("seeds %d and %d give one program", other, seed)
		}
		seen[source] = seed
	}
}

// TestReduce checks that Reduce leaves only the statement that causes the failure, and the parts
// that every program needs.
func TestReduce(t *testing.T) {
	var p *Program
	const matters = "setInvalid();"
	for seed := uint64(1); p == nil || !strings.Contains(p.Source(), matters); seed++ {
		p = Generate(seed)
	}
	before := len(p.Source())
	asked := 0
	p.Reduce(5000, func() bool { asked++; return strings.Contains(p.Source(), matters) })
	source := p.Source()
	if n := strings.Count(source, matters); n != 1 {
		t.Errorf("%d of the statements are left, not 1:\n%s", n, source)
	}
	if len(source) > before*2/3 || !strings.Contains(source, "V1Switch(") ||
		!strings.Contains(source, "pkt.extract(h.eth);") {
		t.Errorf("%d bytes became %d:\n%s", before, len(source), source)
	}
	left := p.Source()
	p.Reduce(7, func() bool { asked++; return false })
	if p.Source() != left {
		t.Error("what does not fail any more was left out")
	}
}
