package judge

import (
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/api/wire"
)

// This file checks the owner of each value in an answer. A key's answers must hold values that were
// written under its KEY_ID, or that a move put there. A KEY_ID can get a slot that another key had
// before, at switches that may have been out of the chain meanwhile.

// place is the owner of a value. It consists of a key's name, and the number of one of the name's
// KEY_IDs.
type place struct {
	key   wire.Key
	under int
}

func (o *Call) place() place { return place{o.Key, o.Under} }

// Guesses holds the reads of KEY_IDs that no client knows yet (world/peek.go). The reads say
// nothing about the order of calls, because the key may never be placed. But they must return only
// the key's own values.
type Guesses struct {
	Ops   []Call
	Moved map[wire.Key]string // the value that a KEY_ID gets when a move places it
}

// another finds answers that hold another key's value, or a value that an earlier key left in the
// slot.
func another(ops []Call, guessed Guesses) (out []Violation) {
	written := map[string]place{}
	moved := map[place]string{}
	for _, o := range guessed.Ops {
		if value, ok := guessed.Moved[o.ID]; ok {
			moved[o.place()] = value
		}
	}
	first := map[place]wire.Version{} // version of the controller's write that placed the key
	for _, o := range ops {
		switch {
		case o.Move:
			moved[o.place()] = o.Value
			first[o.place()] = o.Version
		case o.Places && first[o.place()] == 0:
			first[o.place()] = o.Version
		case o.Op != wire.Read && !o.Del && !o.Places:
			written[o.Value] = o.place()
		}
	}
	said := map[wire.Key]bool{}
	tell := func(o Call, format string, args ...any) {
		if said[o.Key] {
			return
		}
		said[o.Key] = true
		out = append(out, Violation{Kind: AnothersValue, Key: o.Key, What: fmt.Sprintf("%s by %s at %v: %s: %s", o.Request(), o.Client,
			o.End, o.Result(), fmt.Sprintf(format, args...))})
	}
	for _, o := range slices.Concat(ops, guessed.Ops) {
		value, found := o.Value, o.Found
		switch {
		case o.Outcome == Failed:
			value = o.Saw
		case o.Outcome != Done || o.Op != wire.Read:
			continue
		}
		if found {
			by, known := written[value]
			if m, ok := moved[o.place()]; by != o.place() && !(ok && m == value) {
				if !known {
					tell(o, "nobody has written that")
				} else {
					tell(o, "that was written of %v, under its KEY_ID number %d, and not %d", by.key, by.under, o.Under)
				}
				continue
			}
		}
		// (A watching server gets a NOTIFY each time that the controller repeats a write, so
		// notifications do not count.)
		if v := o.Version; !o.Notified && first[o.place()] != 0 && v&(1<<ComposedShift-1) != 0 && v < first[o.place()] {
			tell(o, "the first version of its KEY_ID is %v", first[o.place()])
		}
	}
	return out
}
