// Package knownfailures reads lists of other projects' tests that are known to fail. A list is
// wrong if a test that is not on it fails, or if a test on it passes or does not exist.
package knownfailures

import (
	"os"
	"strings"
	"testing"
)

// List maps the name of a test to the reason why it is known to fail. Each call of Verdict removes
// a test from the list.
type List map[string]string

// Read reads a list from a file with one NAME: REASON per line. It skips empty lines and comments
// (#).
func Read(t *testing.T, file string) List {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := List{}
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("%s:%d: not NAME: REASON", file, i+1)
		}
		out[name] = reason
	}
	return out
}

// Verdict returns a function that judges the result of a test from the differences that the test
// found.
func (f List) Verdict(name string) func(t *testing.T, differences []string) {
	reason, listed := f[name]
	delete(f, name)
	return func(t *testing.T, differences []string) {
		t.Helper()
		switch {
		case !listed:
			for _, d := range differences {
				t.Error(d)
			}
		case len(differences) == 0:
			t.Errorf("passes, but is listed as failing: %s", reason)
		default:
			t.Logf("fails as listed (%s): %s", reason, strings.Join(differences, "\n"))
		}
	}
}

// Left fails t for each listed test that does not exist.
func (f List) Left(t *testing.T) {
	t.Helper()
	for name := range f {
		t.Errorf("%s is listed as failing, but there is no such test", name)
	}
}
