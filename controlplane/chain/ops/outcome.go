package ops

import (
	"errors"
	"slices"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// What becomes of keys when an operation on them has ended, or the controller that did it.

// Ended records the result for keys when their addition, or removal, has ended with err: placed
// exist, gone do not exist any more, and undo must be removed.
func (w *Writes) Ended(dir *keyspace.Directory, add bool, err error) (placed, gone, undo []Key) {
	for i, k := range w.Keys {
		switch {
		case add && err == nil && w.Err(i) == nil:
			dir.SetState(k.ID, keyspace.Placed)
			dir.Written(k.ID, w.Version(i), w.Values[i] == nil)
			placed = append(placed, k)
		case add && (errors.Is(err, chain.ErrUnavailable) || w.Err(i) != nil):
			undo = append(undo, k) // its entries, and perhaps its value, are there
		case err == nil || add: // removed, or rolled back by the machine
			if !add {
				dir.Leave(k.ID, w.Version(i))
			}
			dir.Delete(k.ID)
			gone = append(gone, k)
		}
	}
	return placed, gone, undo
}

// InUse says whether a chain has keys that clients know, or knew until a moment ago.
func InUse(dir *keyspace.Directory, chain uint8) bool {
	return slices.ContainsFunc(dir.Chain(chain), func(k Key) bool { return k.State != keyspace.Adding && !k.Undone })
}

// Unfinished is the keys of a chain with which an earlier controller did not get to the end: those
// that it was moving away, which are to be put back, and those that are to be removed.
func Unfinished(dir *keyspace.Directory, chain uint8) (back, out []Key) {
	for _, k := range dir.Chain(chain) {
		old, moves := dir.ByName(k.FinalName())
		switch {
		case k.Alias != 0:
			back = append(back, k)
		case k.State != keyspace.Placed:
			out = append(out, k)
		case moves && old.ID != k.ID && old.Alias != 0: // it was to take the place of that one
			out = append(out, k)
		}
	}
	return back, out
}
