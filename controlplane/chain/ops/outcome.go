package ops

import (
	"errors"
	"slices"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// These functions record what happens to keys when an operation on them, or its controller, has
// ended.

// Ended records the result for keys when their addition, or removal, has ended with err. It returns
// the keys that now exist (placed), the keys that no longer exist (gone), and the keys that must be
// removed (undo).
func (w *Writes) Ended(dir *keyspace.Directory, add bool, err error) (placed, gone, undo []Key) {
	for i, k := range w.Keys {
		switch {
		case add && err == nil && w.Err(i) == nil:
			dir.SetState(k.ID, keyspace.Placed)
			dir.Written(k.ID, w.Version(i), w.Values[i] == nil)
			placed = append(placed, k)
		case add && (errors.Is(err, chain.ErrUnavailable) || w.Err(i) != nil):
			undo = append(undo, k) // the switches have the key's entries, and perhaps its value
		case err == nil || add: // the machine has removed the key, or has rolled its addition back
			if !add {
				dir.Leave(k.ID, w.Version(i))
			}
			dir.Delete(k.ID)
			gone = append(gone, k)
		}
	}
	return placed, gone, undo
}

// InUse reports whether a chain has keys that clients know, or that clients knew until a moment
// ago.
func InUse(dir *keyspace.Directory, chain uint8) bool {
	return slices.ContainsFunc(dir.Chain(chain), func(k Key) bool { return k.State != keyspace.Adding && !k.Undone })
}

// Unfinished returns the keys of a chain that an earlier controller left unfinished. The result
// back holds the keys that it was moving away, which must be put back. The result out holds the
// keys that must be removed.
func Unfinished(dir *keyspace.Directory, chain uint8) (back, out []Key) {
	for _, k := range dir.Chain(chain) {
		old, moves := dir.ByName(k.FinalName())
		switch {
		case k.Alias != 0:
			back = append(back, k)
		case k.State != keyspace.Placed:
			out = append(out, k)
		case moves && old.ID != k.ID && old.Alias != 0: // k was meant to replace the key `old`
			out = append(out, k)
		}
	}
	return back, out
}
