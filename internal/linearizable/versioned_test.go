package linearizable

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/wire"
)

// TestVersioned: the model accepts permitted histories of names with their own versions, and
// rejects forbidden ones.
func TestVersioned(t *testing.T) {
	read := func(got string, version wire.Version) Call {
		return Call{Op: wire.Read, Got: got, Found: got != "", Version: version}
	}
	write := func(value string, version wire.Version) Call {
		return Call{Op: wire.Write, Value: value, Version: version}
	}
	del := func(version wire.Version) Call { return Call{Op: wire.Write, Delete: true, Version: version} }
	cas := func(value string, expected, version wire.Version) Call {
		return Call{Op: wire.CAS, Value: value, Expected: expected, Version: version}
	}
	unknown := func(x Call) Call { x.Unknown, x.Version = true, 0; return x }
	failed := func(x Call, got string) Call { x.Failed, x.Got, x.Found = true, got, got != ""; return x }
	add, empty := Call{Op: Add, Value: "first"}, Call{Op: Add}
	clear, remove := Call{Op: Clear}, Call{Op: Remove}
	for _, c := range []struct {
		what    string
		history []Call
		may     bool
	}{
		{"nothing", []Call{read("", 0), read("", 0)}, true},
		{"something of nothing", []Call{read("a", 4)}, false},
		{"a first value", []Call{read("", 0), add, read("first", 4), read("first", 4)}, true},
		{"nothing of what has a value", []Call{add, read("", 0)}, false},
		{"what nobody has written", []Call{empty, read("", 0), cas("a", 0, 5), read("a", 5)}, true},
		{"two that were the first to write", []Call{empty, cas("a", 0, 5), cas("b", 0, 6)}, false},
		{"the second fails", []Call{empty, cas("a", 0, 5), failed(cas("b", 0, 5), "a")}, true},
		{"... for no reason", []Call{empty, failed(cas("b", 0, 0), "")}, false},
		{"a lock", []Call{empty, cas("a", 0, 5), {Op: wire.CAS, Delete: true, Expected: 5, Version: 6}, read("", 6),
			cas("b", 6, 7)}, true},
		{"a lock that is held twice", []Call{empty, cas("a", 0, 5), read("", 6), cas("b", 6, 7)}, false},
		{"a write that is lost", []Call{add, write("a", 5), read("first", 4)}, false},
		{"... and comes again with a later version", []Call{add, read("first", 4), write("a", 5), read("first", 6)}, false},
		{"a version that goes down", []Call{add, write("a", 5), write("b", 5)}, false},
		{"an unknown write, read", []Call{add, write("a", 5), unknown(write("b", 0)), read("b", 6), write("c", 7)}, true},
		{"an unknown write, never executed", []Call{add, write("a", 5), unknown(write("b", 0)), read("a", 5)}, true},
		{"an unknown write, executed twice", []Call{add, unknown(write("b", 0)), read("b", 6), write("c", 7), read("b", 8)}, false},
		{"an unknown CAS that would have failed", []Call{add, write("a", 5), unknown(cas("b", 4, 0)), read("b", 6)}, false},
		{"a deletion", []Call{add, del(5), read("", 5), write("a", 6)}, true},
		{"a deletion of what was deleted", []Call{add, del(5), del(5), del(6), read("", 6)}, true},
		{"a deletion of what nobody has written", []Call{empty, del(5), read("", 5), cas("a", 5, 6)}, true},
		{"a deletion of nothing", []Call{del(0), add, write("a", 5), clear, remove, del(0)}, true},
		{"a deletion that does nothing", []Call{add, write("a", 5), del(0)}, false},
		{"what was deleted", []Call{add, write("a", 4), del(5), read("a", 4)}, false},
		{"a removal", []Call{add, write("a", 4), clear, read("", 5), remove, read("", 0), read("", 0)}, true},
		{"a removal that nobody sees half done", []Call{add, write("a", 4), clear, remove, read("", 0)}, true},
		{"two tombstones", []Call{add, write("a", 4), clear, read("", 5), read("", 6), remove, read("", 0)}, true},
		{"a tombstone that goes back", []Call{add, write("a", 4), clear, read("", 6), read("", 5)}, false},
		{"what was removed", []Call{add, write("a", 4), clear, remove, read("a", 4)}, false},
		{"a write of what is not there", []Call{add, clear, remove, write("a", 9)}, false},
		{"... of unknown outcome", []Call{add, clear, remove, unknown(write("a", 9)), read("", 0)}, true},
		{"a key that comes back", []Call{add, write("a", 4), clear, read("", 5), remove, add, read("first", 6)}, true},
		{"... at a version of before", []Call{add, write("a", 4), clear, read("", 5), remove, add, read("first", 5)}, false},
		{"... which nobody has written", []Call{add, write("a", 4), clear, remove, empty, read("", 0), cas("b", 0, 5)}, true},
		{"... and a token that goes back", []Call{add, write("a", 4), clear, remove, empty, cas("b", 0, 3)}, false},
		{"... with the value of before", []Call{add, write("a", 4), clear, remove, empty, read("a", 4)}, false},
		{"a CAS on a version of before", []Call{add, write("a", 4), clear, remove, empty, cas("b", 4, 7)}, false},
		{"added twice", []Call{add, add}, false},
		{"a removal that is given up", []Call{add, clear, read("", 5), write("a", 6), read("a", 6), clear, remove}, true},
	} {
		for n := range c.history {
			c.history[n].Begin, c.history[n].End = int64(2*n), int64(2*n+1)
		}
		if got := porcupine.CheckOperations(Versioned, Operations(c.history)); got != c.may {
			t.Errorf("%s: linearizable: %v", c.what, got)
		}
	}
}
