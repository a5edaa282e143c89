package sim

import (
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/api/wire"
)

// What is told of a key is the key's own: what was written under its KEY_ID, or what a move has put
// there. A KEY_ID gets a slot that another had before, at switches that may have been away
// meanwhile, so this is looked at apart.

// place of a value: a name, and the number of one of its KEY_IDs.
type place struct {
	key   wire.Key
	under int
}

func (o *operationOf) place() place { return place{o.key, o.under} }

// guesses are the reads of KEY_IDs that nobody has been told yet (peek.go). They say nothing of the
// order of calls, since the key may never be placed: but what is told of it must be its own.
type guesses struct {
	ops   []operationOf
	moved map[wire.Key]string // the value that a KEY_ID is placed with by a move
}

// another finds what calls of a key were told that is another's, or that an earlier key has left in
// the slot.
func another(ops []operationOf, guessed guesses) (out []Violation) {
	written := map[string]place{}
	moved := map[place]string{}
	for _, o := range guessed.ops {
		if value, ok := guessed.moved[o.id]; ok {
			moved[o.place()] = value
		}
	}
	first := map[place]wire.Version{} // by which the controller has placed it
	for _, o := range ops {
		switch {
		case o.move:
			moved[o.place()] = o.value
			first[o.place()] = o.version
		case o.places && first[o.place()] == 0:
			first[o.place()] = o.version
		case o.op != wire.Read && !o.del && !o.places:
			written[o.value] = o.place()
		}
	}
	said := map[wire.Key]bool{}
	tell := func(o operationOf, format string, args ...any) {
		if said[o.key] {
			return
		}
		said[o.key] = true
		out = append(out, Violation{Kind: AnothersValue, Key: o.key, What: fmt.Sprintf("%s by %s at %v: %s: %s", o.request(), o.client,
			o.end, o.result(), fmt.Sprintf(format, args...))})
	}
	for _, o := range slices.Concat(ops, guessed.ops) {
		value, found := o.value, o.found
		switch {
		case o.outcome == failed:
			value = o.saw
		case o.outcome != done || o.op != wire.Read:
			continue
		}
		if found {
			by, known := written[value]
			if m, ok := moved[o.place()]; by != o.place() && !(ok && m == value) {
				if !known {
					tell(o, "nobody has written that")
				} else {
					tell(o, "that was written of %v, under its KEY_ID number %d, and not %d", by.key, by.under, o.under)
				}
				continue
			}
		}
		// (What the controller writes several times is told to watchers each time.)
		if v := o.version; !o.notified && first[o.place()] != 0 && v&(1<<composedShift-1) != 0 && v < first[o.place()] {
			tell(o, "the first version of its KEY_ID is %v", first[o.place()])
		}
	}
	return out
}
