// Package knownfailures lists tests of other projects that are known to fail. The list is wrong if
// a test that is not on it fails, or if a test on it passes or does not exist.
package knownfailures

import (
	"os"
	"strings"
	"testing"
)

// List has the reasons of the listed tests, by name. Verdict removes the tests for which it is
// called.
type List map[string]string

// Read reads a list: one NAME: REASON per line, with empty lines and comments (#).
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

// Verdict says how to judge a test with unexpected results.
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

// Left fails a test for listed failures that did not occur.
func (f List) Left(t *testing.T) {
	t.Helper()
	for name := range f {
		t.Errorf("%s is listed as failing, but there is no such test", name)
	}
}
