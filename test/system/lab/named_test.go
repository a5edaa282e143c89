package lab

import (
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/wire"
)

// TestWandering: a removal that is taken up again leaves another tombstone; what is in one does not
// come back, and versions do not go down.
func TestWandering(t *testing.T) {
	read := func(got string, version wire.Version) NamedCall {
		return NamedCall{Key: 7, Op: wire.Read, Got: got, Version: version}
	}
	added := []NamedCall{{Key: 7, Op: OpAdd}, {Key: 7, Op: OpFirst, Value: "new"}, read("new", 3), {Key: 7, Op: OpClear}}
	for _, c := range []struct {
		what string
		then []NamedCall
		may  bool
	}{
		{"two tombstones", []NamedCall{read("", 4), read("", 4), read("", 6), {Key: 7, Op: OpRemove}, {Key: 7, Op: wire.Read, Absent: true}}, true},
		{"the first one again", []NamedCall{read("", 4), read("", 6), read("", 4)}, false},
		{"what was there again", []NamedCall{read("", 4), read("new", 5)}, false},
		{"a tombstone behind a write", []NamedCall{read("", 4), {Key: 7, Op: wire.Write, Value: "late", Version: 5}, read("", 6)}, false},
	} {
		var ops []porcupine.Operation
		for n, x := range slices.Concat(added, c.then) {
			ops = append(ops, porcupine.Operation{Input: x, Call: int64(2 * n), Return: int64(2*n + 1)})
		}
		if got := porcupine.CheckOperations(Wandering, ops); got != c.may {
			t.Errorf("%s: linearizable: %v", c.what, got)
		}
	}
}
