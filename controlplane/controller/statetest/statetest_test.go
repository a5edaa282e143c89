package statetest

import (
	"path/filepath"
	"testing"

	"github.com/netcraq/netcraq/controlplane/controller/saved"
)

// TestFull: no field is empty, and two seeds share no number or text.
func TestFull(t *testing.T) {
	s := Full(t, 1)
	if empty := Zeros(s); len(empty) > 0 {
		t.Errorf("empty: %v", empty)
	}
	if s.Directory.Floor == Full(t, 2).Directory.Floor {
		t.Error("another seed makes the same")
	}
	if Diff(s, Full(t, 2)) == "" {
		t.Error("no difference is seen between two states that have nothing in common")
	}
}

// TestFileKeepsEverything: a state with a value in every field is loaded unchanged from the files.
// The same holds for a second state that is saved over the first.
func TestFileKeepsEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	writer := saved.File(path)
	for seed := 1; seed <= 2; seed++ {
		if err := writer.Save(Full(t, seed)); err != nil {
			t.Fatal(err)
		}
		got, err := saved.File(path).Load()
		if err != nil {
			t.Fatal(err)
		}
		if diff := Diff(Full(t, seed), got); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
	}
}
