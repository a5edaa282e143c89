package lab

import (
	"errors"
	"testing"
)

// TestSkippedInside checks that a test counts as skipped only if no part of it ran or failed.
func TestSkippedInside(t *testing.T) {
	failed := errors.New("exit status 1")
	for _, c := range []struct {
		name, out string
		err       error
		skipped   bool
	}{
		{"TestX", "--- SKIP: TestX (0.01s)\nPASS\n", nil, true},
		{"TestX/bmv2", "--- PASS: TestX (0.01s)\n    --- SKIP: TestX/bmv2 (0.01s)\nPASS\n", nil, true},
		{"TestX", "--- PASS: TestX (9.01s)\n    --- PASS: TestX/auto (9s)\n    --- SKIP: TestX/bmv2 (0.01s)\nPASS\n", nil, false},
		{"TestX", "--- FAIL: TestX (9.01s)\n    --- FAIL: TestX/auto (9s)\n    --- SKIP: TestX/bmv2 (0.01s)\nFAIL\n", failed, false},
		{"TestX", "--- PASS: TestX (9.01s)\nPASS\n", nil, false},
	} {
		if got := skippedInside(c.name, []byte(c.out), c.err); got != c.skipped {
			t.Errorf("%s was skipped: %v, by\n%s", c.name, got, c.out)
		}
	}
}
