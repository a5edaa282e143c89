package linearizable

import (
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/wire"
)

// TestNames: a resumed removal leaves another tombstone. A deleted value does not come back, and
// versions never decrease.
func TestNames(t *testing.T) {
	read := func(got string, version wire.Version) Call {
		return Call{Key: 7, Op: wire.Read, Got: got, Found: got != "", Version: version}
	}
	added := []Call{{Key: 7, Op: Add}, {Key: 7, Op: First, Value: "new"}, read("new", 3), {Key: 7, Op: Clear}}
	for _, c := range []struct {
		what string
		then []Call
		may  bool
	}{
		{"two tombstones", []Call{read("", 4), read("", 4), read("", 6), {Key: 7, Op: Remove},
			{Key: 7, Op: wire.Read, Absent: true}}, true},
		{"the first one again", []Call{read("", 4), read("", 6), read("", 4)}, false},
		{"what was there again", []Call{read("", 4), read("new", 5)}, false},
		{"a name that comes back above", []Call{read("", 4), {Key: 7, Op: Remove}, {Key: 8, Op: Add}, {Key: 8, Op: First, Value: "again"},
			{Key: 8, Op: wire.Read, Got: "again", Found: true, Version: 5}}, true},
		{"a name that comes back with a version that it had", []Call{read("", 4), {Key: 7, Op: Remove}, {Key: 8, Op: Add},
			{Key: 8, Op: First, Value: "again"}, {Key: 8, Op: wire.Read, Got: "again", Found: true, Version: 4}}, false},
		{"a name that comes back, and a write below what it had", []Call{read("", 4), {Key: 7, Op: Remove}, {Key: 8, Op: Add},
			{Key: 8, Op: First, Value: "again"}, {Key: 8, Op: wire.Write, Value: "b", Version: 3}}, false},
		{"a move that changes no version", []Call{{Key: 7, Op: wire.Write, Value: "a", Version: 9}, {Key: 7, Op: Move, To: 8},
			{Key: 8, Op: wire.Read, Got: "a", Found: true, Version: 9}}, true},
		{"a move that changes the version", []Call{{Key: 7, Op: wire.Write, Value: "a", Version: 9}, {Key: 7, Op: Move, To: 8},
			{Key: 8, Op: wire.Read, Got: "a", Found: true, Version: 10}}, false},
		{"a tombstone behind a write", []Call{read("", 4), {Key: 7, Op: wire.Write, Value: "late", Version: 5}, read("", 6)}, false},
	} {
		var ops []porcupine.Operation
		for n, x := range slices.Concat(added, c.then) {
			ops = append(ops, porcupine.Operation{Input: x, Call: int64(2 * n), Return: int64(2*n + 1)})
		}
		if got := porcupine.CheckOperations(Names, ops); got != c.may {
			t.Errorf("%s: linearizable: %v", c.what, got)
		}
	}
}

// TestModels: each model of one key accepts permitted histories and rejects forbidden ones.
func TestModels(t *testing.T) {
	read := func(key uint32, got string, version wire.Version) Call {
		return Call{Key: key, Op: wire.Read, Got: got, Found: got != "", Version: version}
	}
	write := func(key uint32, value string, version wire.Version) Call {
		return Call{Key: key, Op: wire.Write, Value: value, Version: version}
	}
	cas := func(value string, expected, version wire.Version) Call {
		return Call{Key: 1, Op: wire.CAS, Value: value, Expected: expected, Version: version}
	}
	increment := func(value string, version wire.Version) Call {
		return Call{Key: 1, Op: Increment, Value: value, Version: version}
	}
	unknown := func(x Call) Call { x.Unknown, x.Version = true, 0; return x }
	failed := func(x Call, got string) Call { x.Failed, x.Got, x.Found = true, got, got != ""; return x }
	for _, c := range []struct {
		what    string
		model   porcupine.Model
		history []Call
		may     bool
	}{
		{"a read of nothing", Registers, []Call{read(1, "", 0)}, true},
		{"a tombstone of some version", Added, []Call{read(1, "", 4), write(1, "a", 5), read(1, "a", 5)}, true},
		{"a stale read", Added, []Call{write(1, "a", 5), write(1, "b", 6), read(1, "a", 5)}, false},
		{"a version that goes down", Added, []Call{write(1, "a", 5), write(1, "b", 5)}, false},
		{"a CAS of what is there", Added, []Call{write(1, "a", 5), cas("b", 5, 6), read(1, "b", 6)}, true},
		{"a CAS of what is not there", Added, []Call{write(1, "a", 5), cas("b", 4, 6)}, false},
		{"a CAS that failed for no reason", Added, []Call{write(1, "a", 5), failed(cas("b", 5, 5), "a")}, false},
		{"an unknown write, read", Added, []Call{write(1, "a", 5), unknown(write(1, "b", 0)), read(1, "b", 7)}, true},
		{"... and never executed", Added, []Call{write(1, "a", 5), unknown(write(1, "b", 0)), read(1, "a", 5)}, true},
		{"... and executed twice", Added, []Call{write(1, "a", 5), unknown(write(1, "b", 0)), read(1, "b", 7),
			write(1, "c", 8), read(1, "b", 9)}, false},
		{"a deletion", Added, []Call{{Key: 1, Op: wire.Write, Delete: true, Version: 5}, read(1, "", 5)}, true},
		{"a deletion of nothing", Added, []Call{{Key: 1, Op: wire.Write, Delete: true, Version: 5},
			{Key: 1, Op: wire.Write, Delete: true, Version: 5}, read(1, "", 5)}, true},
		{"a deletion of something that changes nothing", Added, []Call{write(1, "a", 5), {Key: 1, Op: wire.Write, Delete: true, Version: 5}}, false},
		{"numbers", Registers, []Call{increment("1", 4), unknown(increment("", 0)), increment("3", 6), read(1, "3", 6)}, true},
		{"an increment of unknown outcome, not executed", Registers, []Call{increment("1", 4), unknown(increment("", 0)), increment("2", 6)}, true},
		{"an increment that is lost", Registers, []Call{increment("1", 4), increment("1", 6)}, false},
		{"an increment that is done twice", Registers, []Call{increment("1", 4), unknown(increment("", 0)), increment("4", 6)}, false},
		{"an increment of what is no number", Registers, []Call{write(1, "a", 4), unknown(increment("", 0)), read(1, "1", 6)}, false},
		{"what was deleted is read", Added, []Call{write(1, "a", 4), {Key: 1, Op: wire.Write, Delete: true, Version: 5}, read(1, "a", 4)}, false},
		{"the same value, another version", Registers, []Call{write(1, "a", 4), {Key: 1, Op: Rewrite, Value: "a", Version: 5}, read(1, "a", 5)}, true},
		{"a rewriting that changes the value", Registers, []Call{write(1, "a", 4), {Key: 1, Op: Rewrite, Value: "b", Version: 5}}, false},
		{"a move", Moving, []Call{write(1, "a", 9), read(2, "a", 3), write(2, "b", 4), read(2, "b", 4)}, true},
		{"a move that loses a write", Moving, []Call{write(1, "a", 9), write(1, "b", 10), read(2, "a", 3)}, false},
		{"versions under one KEY_ID", Moving, []Call{read(2, "", 3), write(2, "b", 2)}, false},
	} {
		for n := range c.history {
			c.history[n].Begin, c.history[n].End = int64(2*n), int64(2*n+1)
		}
		if got := porcupine.CheckOperations(c.model, Operations(c.history)); got != c.may {
			t.Errorf("%s: linearizable: %v", c.what, got)
		}
	}
}
