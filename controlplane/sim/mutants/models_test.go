package mutants

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/controlplane/sim/judge"
)

// lacking lists the rules of the model that the simulator does not remove, each with the reason.
var lacking = map[string]string{
	"BLIND_DELETES": "BLIND_WRITES removes it: the controller writes first values and tombstones by the same code",
	"GROWS_UNEQUAL": "a chain without keys takes a switch in with the values that it has: " +
		"hidden keys (ADDED_OPEN) keep them from clients",
}

// TestMutantsAreTheModels: each rule of the model that is not redundant has a mutant in the
// simulator under the same id, or a reason why it has none. A mutant with another id must be marked
// as the simulator's own. The test logs the whole table.
func TestMutantsAreTheModels(t *testing.T) {
	text, err := os.ReadFile("../../model/mutants.json")
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
		found, _ := Find(m.ID)
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
	for _, m := range All {
		if m.Scenario != "" {
			story, err := os.ReadFile(filepath.Join("..", "testdata", m.Scenario+".txt"))
			_, without, found := strings.Cut(string(story), " without="+m.ID+"\n")
			without, _, _ = strings.Cut(without, "\nnetwork ")
			told := cmp.Or(m.tells, cmp.Or(m.shows, judge.NotLinearizable)+":")
			if err != nil || !found || !strings.Contains(without, told) {
				t.Errorf("%s: the scenario %s does not show it: %v", m.ID, m.Scenario, err)
			}
		}
		if known[m.ID] == m.own {
			t.Errorf("%s: in the model %v, said to be the simulator's own %v", m.ID, known[m.ID], m.own)
		}
	}
}
