package memory

import (
	"errors"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// TestPSA checks that this engine refuses a PSA program with a clear error, so that users who chose
// the kernel engine know what to do. With --engine auto the interpreter runs such a program.
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
