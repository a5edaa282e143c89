package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// quickMutants are noticed by few seeds; `make sim-mutants` hunts them all.
var quickMutants = []string{"ACK_OF_ANYTHING", "NO_ACK_VERSION", "NO_COMMIT_ORDER", "READ_COMMITTED_ANYWHERE", "READ_NEWEST_ANYWHERE", "TAIL_READS_COMMITTED",
	"NO_SESSION", "NO_OLD_DROP", "SESSION_AT_HEAD_ONLY", "NO_EPOCH", "NO_LEASE", "SUSPENDED_CLOCK", "GUESS"}

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

// lacking are the model's rules that the simulator does not remove, each with the reason.
var lacking = map[string]string{
	"BLIND_DELETES": "BLIND_WRITES removes it: the controller writes first values and tombstones by the same code",
	"GROWS_UNEQUAL": "a chain without keys takes a switch in with the values that it has: " +
		"hidden keys (ADDED_OPEN) keep them from clients",
}

// TestMutantsAreTheModels: for each rule of the model that is not redundant there is a mutant of
// the simulator's, under the same id, or a reason why there is none; and what has another id is
// said to be the simulator's own. The table is in the test's log.
func TestMutantsAreTheModels(t *testing.T) {
	text, err := os.ReadFile("../model/mutants.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		ID        string
		Layer     string
		Redundant bool
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range list {
		known[m.ID] = true
		found, _ := FindMutant(m.ID)
		why := lacking[m.ID]
		switch {
		case found != nil && why == "":
			t.Logf("%-28s %-10s removed here too: %s", m.ID, m.Layer, found.Rule)
		case found == nil && m.Redundant:
			t.Logf("%-28s %-10s redundant by the model", m.ID, m.Layer)
		case found == nil && why != "":
			t.Logf("%-28s %-10s not removed: %s", m.ID, m.Layer, why)
		default:
			t.Errorf("%s: a mutant of the simulator's: %v; a reason why there is none: %q", m.ID, found != nil, why)
		}
	}
	for _, m := range Mutants {
		if m.scenario != "" {
			story, err := os.ReadFile(filepath.Join("testdata", m.scenario+".txt"))
			_, without, found := strings.Cut(string(story), " without="+m.ID+"\n")
			without, _, _ = strings.Cut(without, "\nnetwork ")
			if err != nil || !found || !strings.Contains(without, cmp.Or(m.tells, cmp.Or(m.shows, NotLinearizable)+":")) {
				t.Errorf("%s: the scenario %s does not show it: %v", m.ID, m.scenario, err)
			}
		}
		if known[m.ID] == m.own {
			t.Errorf("%s: in the model %v, said to be the simulator's own %v", m.ID, known[m.ID], m.own)
		}
	}
}
