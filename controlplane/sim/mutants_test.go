package sim

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"testing"
)

// quickMutants are noticed by few seeds; `make sim-mutants` hunts them all.
var quickMutants = []string{"ACK_OF_ANYTHING", "NO_ACK_VERSION", "NO_COMMIT_ORDER", "READ_COMMITTED_ANYWHERE", "READ_NEWEST_ANYWHERE", "TAIL_READS_COMMITTED",
	"NO_SESSION", "NO_OLD_DROP", "SESSION_AT_HEAD_ONLY", "NO_EPOCH", "NO_LEASE", "GUESS"}

// TestMutants removes some rules; the simulator must notice each.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	for _, id := range quickMutants {
		m, err := FindMutant(id)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Hunt(context.Background(), m, 1, testSeeds, runtime.GOMAXPROCS(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v", id, f)
		if testSeeds >= 2000 && !f.AsExpected() {
			t.Errorf("%s (%s): %v", id, m.Rule, f)
		}
	}
}

// TestMutantsApply: every mutant changes something, and what it makes of the program still runs.
func TestMutantsApply(t *testing.T) {
	for _, m := range Mutants {
		s, err := NewMutant(m)
		if err != nil {
			t.Errorf("%s: %v", m.ID, err)
			continue
		}
		if m.program == nil && s.removed == (removed{}) {
			t.Errorf("%s removes nothing", m.ID)
		}
	}
}

// TestMutantsAreTheModels: the ids are those that the model uses for the same rules.
func TestMutantsAreTheModels(t *testing.T) {
	text, err := os.ReadFile("../model/mutants.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct{ ID string }
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range list {
		known[m.ID] = true
	}
	for _, m := range Mutants {
		if known[m.ID] == m.own {
			t.Errorf("%s: in the model %v, said to be the simulator's own %v", m.ID, known[m.ID], m.own)
		}
	}
}
