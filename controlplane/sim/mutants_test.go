package sim

import (
	"context"
	"runtime"
	"testing"

	"github.com/netcraq/netcraq/controlplane/sim/mutants"
	"github.com/netcraq/netcraq/controlplane/sim/rules"
)

// quickMutants lists the mutants that are noticed within a few seeds. `make sim-mutants` tests all
// mutants.
var quickMutants = []string{"ACK_OF_ANYTHING", "NO_ACK_VERSION", "NO_COMMIT_ORDER", "READ_COMMITTED_ANYWHERE", "READ_NEWEST_ANYWHERE", "TAIL_READS_COMMITTED",
	"NO_SESSION", "NO_OLD_DROP", "SESSION_AT_HEAD_ONLY", "NO_EPOCH", "NO_LEASE", "SUSPENDED_CLOCK", "GUESS"}

// TestMutants removes some rules. The simulator must notice each removal.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	for _, id := range quickMutants {
		m, err := mutants.Find(id)
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

// TestMutantsApply: every mutant changes something, and the changed program still runs.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants.All {
		s, err := NewMutant(m)
		if err != nil {
			t.Errorf("%s: %v", m.ID, err)
			continue
		}
		if m.Change() == nil && s.removed == (rules.Removed{}) {
			t.Errorf("%s removes nothing", m.ID)
		}
	}
}
