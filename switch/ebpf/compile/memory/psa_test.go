package memory

import (
	"errors"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// TestPSA: a PSA program is refused with a clear error, so that a user who chose the kernel engine
// knows what to do. With --engine auto the interpreter runs it.
func TestPSA(t *testing.T) {
	prog, err := bmv2json.ReadFile("../../../stf/testdata/psa/psa.json")
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewPlan(prog)
	if !errors.Is(err, target.ErrUnsupported) || !strings.Contains(err.Error(), "PSA") {
		t.Errorf("a PSA program: %v", err)
	}
}
