package memory

import (
	"errors"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// TestPSA: a program for PSA is refused for what it is, so that whoever chose the kernel knows what
// to do, and --engine auto takes the interpreter.
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
