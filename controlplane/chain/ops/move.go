package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// Moving a key to another chain (docs/protocol.md, "Moving keys"). It gets a new KEY_ID there,
// because a KEY_ID names its chain: a client that knows it by name must look it up again when the
// old one is NOT_FOUND.

// Keeper keeps the directory of keys, and makes chains execute their machines' actions on them. It
// calls functions that it gets in its own order, where the directory may be used.
type Keeper interface {
	Runtime
	// Directory is the directory, for those functions.
	Directory() *keyspace.Directory
	// Operate starts an operation of the key's chain on it. begin asks the machine for it; end is
	// called at its end, in the same step of the directory.
	Operate(k Key, begin func(*chain.Machine, chain.Time, chain.OpID), end func(error)) Waiting
	// Place adds a key in the chain that it is to move to, with a value; nil: a tombstone. What it
	// cannot finish before ctx ends it takes out again.
	Place(ctx context.Context, name string, value []byte) (Key, error)
	// FinishMove does what the directory's FinishMove does.
	FinishMove(from, to wire.Key, last wire.Version) (now, left Key, err error)
	// Remove starts the removal of a key of the chain that it moves from.
	Remove(k Key)
	// Save returns when the directory is on record as it is now; SaveSoon does not wait for that,
	// and is for end.
	Save(ctx context.Context) error
	SaveSoon()
	// Stays is called for a key that is put back, with the reason.
	Stays(k Key, why error)
}

// Waiting waits for an operation's end, and returns the content and version of the key's slot, if
// the operation read them. If ctx ends before, the operation is given up.
type Waiting func(ctx context.Context) (value []byte, version wire.Version, err error)

// ErrNotLeading: the store accepts nothing from this controller any more, because another one
// leads.
var ErrNotLeading = errors.New("another controller leads")

// Move moves a key that is recorded as Moving (keyspace.Directory.StartMove), and gives its
// successor. The key may be out of clients' sight for patience before it is put back, and its value
// may take as long to be placed.
func Move(ctx context.Context, in Keeper, k Key, patience time.Duration) (Key, error) {
	value, last, err := take(ctx, in, k, patience)
	var to Key
	if err == nil {
		ctx, cancel := in.WithTimeout(ctx, patience)
		to, err = in.Place(ctx, keyspace.MovingPrefix+k.Name, value)
		cancel()
	}
	if err != nil {
		reattach(ctx, in, k, err)
		return Key{}, fmt.Errorf("%q was not moved: %w", k.Name, err)
	}
	now, left, err := in.FinishMove(k.ID, to.ID, last)
	if err != nil {
		return Key{}, err
	}
	return now, leave(ctx, in, left)
}

// reattach starts to put a key back that could not be taken, or is not to be, and says why.
func reattach(ctx context.Context, in Keeper, k Key, why error) {
	if ctx.Err() == nil && !errors.Is(why, ErrNotLeading) { // else the next controller does
		in.Stays(k, why)
		Reattach(in, k)
	}
}

// leave starts to remove the remains of a key whose name is another's now, or nobody's, when that
// is recorded. Clients are not told the new state of a name before that, because a controller that
// did not know about it would put the key back.
func leave(ctx context.Context, in Keeper, left Key) error {
	for err := in.Save(ctx); err != nil; err = in.Save(ctx) {
		if errors.Is(err, ErrNotLeading) {
			return err // the next one knows which it is
		}
		if err := in.Sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	in.Remove(left)
	return nil
}

// Releaser is a Keeper that can give up names.
type Releaser interface {
	Keeper
	// Release does what the directory's Release does.
	Release(id wire.Key, last wire.Version) (left Key, err error)
}

// ErrUsed: a key was to be removed if nobody has used it, and somebody has.
var ErrUsed = errors.New("the key is in use")

// RemoveUnused removes a key that is recorded as Moving, if it has no value and its version is the
// given one; otherwise it is put back. No write is lost meanwhile: the key is first taken out of
// clients' sight, and then its content is checked.
func RemoveUnused(ctx context.Context, in Releaser, k Key, version wire.Version, patience time.Duration) error {
	value, last, err := take(ctx, in, k, patience)
	if err == nil && (value != nil || last != version) {
		err = fmt.Errorf("%w: its version is %v", ErrUsed, k.Version(last))
	}
	if err != nil {
		reattach(ctx, in, k, err)
		return fmt.Errorf("%q was not removed: %w", k.Name, err)
	}
	left, err := in.Release(k.ID, last)
	if err != nil {
		return err
	}
	return leave(ctx, in, left)
}

// take takes a key out of clients' sight, and gives its value and version.
func take(ctx context.Context, in Keeper, k Key, patience time.Duration) ([]byte, wire.Version, error) {
	ctx, cancel := in.WithTimeout(ctx, patience)
	defer cancel()
	if err := in.Save(ctx); err != nil {
		return nil, 0, err // nothing has been done
	}
	value, version, err := in.Operate(k, (*chain.Machine).DetachKeys, func(err error) {
		if err == nil {
			in.Directory().SetState(k.ID, keyspace.Taken)
			in.SaveSoon() // one that is not recorded as Taken is put back as well
		}
	})(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("its chain did not let go of it within %v: %w", patience, err)
	}
	return value, version, err
}

// Reattach starts to give a key its entries again that was being moved.
func Reattach(in Keeper, k Key) {
	in.Operate(k, func(m *chain.Machine, now chain.Time, op chain.OpID) {
		in.Directory().SetState(k.ID, keyspace.Moving)
		m.ReattachKeys(now, op)
	}, func(err error) {
		if err == nil {
			in.Directory().StayPut(k.ID)
			in.SaveSoon()
		}
	})
}
