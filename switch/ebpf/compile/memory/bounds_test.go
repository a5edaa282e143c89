package memory

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// TestTablesAreBounded plans a table of a billion entries. The kernel would allocate a hash table's
// memory when it creates the table. So NewPlan must refuse the program first, with the error for a
// program that another engine may run.
func TestTablesAreBounded(t *testing.T) {
	text, err := os.ReadFile("../../testdata/tally.json")
	if err != nil {
		t.Fatal(err)
	}
	for size, fits := range map[string]bool{"1000000": true, "10000000": false,
		"2147483647": false} {
		larger := strings.ReplaceAll(string(text), `"max_size": 64`, `"max_size": `+size)
		prog, err := bmv2json.Parse([]byte(larger))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewPlan(prog); fits && err != nil || !fits &&
			(!errors.Is(err, target.ErrUnsupported) ||
				!strings.Contains(err.Error(), `"TallyIngress.where"`)) {
			t.Errorf("%s entries: %v", size, err)
		}
	}
}
