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

// This file moves a key to another chain (docs/protocol.md, "Moving keys"). The key gets a new
// KEY_ID in that chain, because a KEY_ID names its chain. A client that knows the key by name must
// look it up again when the switch answers NOT_FOUND for the old KEY_ID.

// Keeper keeps the directory of keys, and makes chains carry out their machines' actions on keys.
// It calls the functions that it receives one after the other. Only these functions may use the
// directory.
type Keeper interface {
	Runtime
	// Directory returns the directory. Only the functions that the Keeper calls may use it.
	Directory() *keyspace.Directory
	// Operate starts an operation of the key's chain on the key. begin requests the operation from
	// the machine. end is called when the operation ends, before anything else uses the directory.
	Operate(k Key, begin func(*chain.Machine, chain.Time, chain.OpID), end func(error)) Waiting
	// Place adds a key to the chain that the key moves to. It writes the value, or a tombstone if
	// the value is nil. If it cannot finish before ctx ends, it removes the key again.
	Place(ctx context.Context, name string, value []byte) (Key, error)
	// FinishMove calls the directory's FinishMove.
	FinishMove(from, to wire.Key, last wire.Version) (now, left Key, err error)
	// Remove starts the removal of a key from the chain that it moves away from.
	Remove(k Key)
	// Save returns when the present directory is on record. SaveSoon does not wait for that, so an
	// end function can call it.
	Save(ctx context.Context) error
	SaveSoon()
	// Stays reports that a key is put back, and the reason why it could not move.
	Stays(k Key, why error)
}

// Waiting waits for an operation's end, and returns the content and version of the key's slot, if
// the operation read them. If ctx ends first, Waiting gives up the operation.
type Waiting func(ctx context.Context) (value []byte, version wire.Version, err error)

// ErrNotLeading says that the store rejects this controller's writes, because another controller
// leads.
var ErrNotLeading = errors.New("another controller leads")

// Move moves a key that is recorded as Moving (keyspace.Directory.StartMove), and returns its
// successor. The key may be hidden from clients for up to patience before it is put back. Placing
// its value in the new chain may take up to patience, too.
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

// reattach starts to put back a key that could not be moved, or should not be, and reports why.
func reattach(ctx context.Context, in Keeper, k Key, why error) {
	// if this is skipped, the next controller puts the key back
	if ctx.Err() == nil && !errors.Is(why, ErrNotLeading) {
		in.Stays(k, why)
		Reattach(in, k)
	}
}

// leave waits until the directory is on record, and then starts to remove the remains of a key. In
// that directory the key's name belongs to another key, or to none. Clients must not learn this
// before the directory is on record, because a controller that did not know the new directory would
// put the key back.
func leave(ctx context.Context, in Keeper, left Key) error {
	for err := in.Save(ctx); err != nil; err = in.Save(ctx) {
		if errors.Is(err, ErrNotLeading) {
			return err // the record tells the next controller whether the key has moved
		}
		if err := in.Sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	in.Remove(left)
	return nil
}

// Releaser is a Keeper that can also give up a key's name.
type Releaser interface {
	Keeper
	// Release calls the directory's Release.
	Release(id wire.Key, last wire.Version) (left Key, err error)
}

// ErrUsed says that RemoveUnused did not remove a key, because some client has used it.
var ErrUsed = errors.New("the key is in use")

// RemoveUnused removes a key that is recorded as Moving, if it has no value and its version is the
// given one. Otherwise the key is put back. No write is lost, because the key is first hidden from
// clients, and its content is checked after that.
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

// take hides a key from clients, and returns its value and version.
func take(ctx context.Context, in Keeper, k Key, patience time.Duration) ([]byte, wire.Version, error) {
	ctx, cancel := in.WithTimeout(ctx, patience)
	defer cancel()
	if err := in.Save(ctx); err != nil {
		return nil, 0, err // nothing has changed yet
	}
	value, version, err := in.Operate(k, (*chain.Machine).DetachKeys, func(err error) {
		if err == nil {
			in.Directory().SetState(k.ID, keyspace.Taken)
			in.SaveSoon() // a key that is not recorded as Taken is put back as well
		}
	})(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("its chain did not let go of it within %v: %w", patience, err)
	}
	return value, version, err
}

// Reattach starts to restore the entries of a key that was being moved.
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
