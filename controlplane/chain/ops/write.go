package ops

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// Writes holds the first writes of an operation's keys, or the keys' deletions. Several attempts
// may be made, one after the other.
type Writes struct {
	Keys   []Key
	Values [][]byte // values of Keys, in the same order; nil is a tombstone

	mu      sync.Mutex
	written []bool // this attempt or an earlier attempt has committed the key's write at all members
	errs    []error
	// versions holds the versions that the writes were given. If a key to be removed was already
	// gone from the head, its version here is one above all versions that the key has had.
	versions []wire.Version
}

// Version returns the version of the key's last write. If the keys were drained, it returns their
// version at that time. It returns 0 if the version is not known.
func (w *Writes) Version(i int) wire.Version {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i < len(w.versions) {
		return w.versions[i]
	}
	return 0
}

// Drained stores the values and versions that the method Drain of Chain returned.
func (w *Writes) Drained(values [][]byte, versions []wire.Version) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Values, w.versions = values, versions
}

// Err returns why a key was not written in the last attempt.
func (w *Writes) Err(i int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i < len(w.errs) {
		return w.errs[i]
	}
	return nil
}

// errNoSlot says that the head has no key_index entry for a key.
var errNoSlot = errors.New("somebody else has changed its key_index")

// Written returns the keys whose writes are committed. Only their entries may be opened, because
// the slot of any other key may hold an earlier key's value.
func (w *Writes) Written() (out []Key) {
	for i, k := range w.Keys {
		if w.Err(i) == nil {
			out = append(out, k)
		}
	}
	return out
}

// ErrNotDeleted says that a key's tombstone has not reached all members yet.
var ErrNotDeleted = errors.New("not deleted everywhere yet")

// WriteAll writes keys through the chain, as many at a time as the controller has sessions, until
// every member is clean. If one key fails, only that key gets an error. With remove, however,
// WriteAll fails if a deletion has not reached all members, because no entry may be deleted before
// that. Clients cannot write the keys meanwhile, because the keys' entries are hidden or closed.
func (c *Chain) WriteAll(ctx context.Context, w *Writes, members []string, remove bool) error {
	at, err := c.switches(members)
	if err != nil {
		return err
	}
	if err := at[0].target.Err(); err != nil {
		return fmt.Errorf("%s: %w", at[0].Name, err)
	}
	had, err := c.slotsNow(ctx, at[0], w.Keys)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	todo := w.todo(had, err)
	err = c.ForEach(ctx, len(todo), c.Pool.Size, func(ctx context.Context, n int) error {
		i := todo[n]
		version, err := c.write(ctx, at, w.Keys[i].ID, w.Values[i], had[i])
		if ctx.Err() != nil {
			return nil
		}
		// nobody can read the key at the head, and no new write comes
		if remove && errors.Is(err, errNoSlot) {
			w.gave(i, version, nil)
			w.settled(i, nil)
			return nil
		}
		w.gave(i, version, err)
		return nil
	})
	if err == nil {
		err = c.settleAll(ctx, w, at, todo)
	}
	if err == nil {
		err = ctx.Err()
	}
	for i := range w.Keys {
		if e := w.Err(i); remove && err == nil && e != nil {
			err = fmt.Errorf("%w: %w", ErrNotDeleted, e)
		}
	}
	return err
}

// todo returns the indexes of the keys that must be written, because no earlier attempt has written
// them or the head has lost them since. err is non-nil if the head's content is not known.
func (w *Writes) todo(had []versions, err error) (todo []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.errs == nil {
		w.written, w.errs = make([]bool, len(w.Keys)), make([]error, len(w.Keys))
		w.versions = make([]wire.Version, len(w.Keys))
	}
	for i := range w.Keys {
		if w.errs[i] = err; err != nil {
			continue
		}
		w.written[i] = w.written[i] && had[i].latest >= w.versions[i]
		if !w.written[i] {
			todo = append(todo, i)
		}
	}
	return todo
}

// gave notes the version that the head gave to a key's write, or the reason why there is no
// version.
func (w *Writes) gave(i int, version wire.Version, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.errs[i] = err; err == nil {
		w.versions[i] = max(w.versions[i], version)
	}
}

// settled notes that a key's write is committed at all members. If err is not nil, it notes why the
// write is not committed.
func (w *Writes) settled(i int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[i], w.errs[i] = err == nil, err
}

// waits reports whether a key's write was answered but may not be committed at all members yet.
func (w *Writes) waits(i int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.errs[i] == nil && !w.written[i]
}

// slotsNow reads the versions of keys' slots at a switch. It repeats the reads until they succeed.
func (c *Chain) slotsNow(ctx context.Context, at *Switch, keys []Key) ([]versions, error) {
	ctx, cancel := c.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	for {
		out, err := c.slots(ctx, at, keys, func(ctx context.Context, k Key) (*wire.Packet, error) {
			return at.Fetch(ctx, k.ID, wire.Newest, 0)
		})
		if err == nil || c.Sleep(ctx, longestPause) != nil {
			return out, err
		}
	}
}

// write sends one key's write through the chain until the tail answers. It writes a tombstone if
// value is nil. The parameter was holds the head's former content. With errNoSlot, the returned
// version is one above all versions that the key has had.
//
// The write is a CAS on the version that the slot has. A copy of a request of this or an earlier
// attempt may arrive late, at the switch that is the head at that time. Late copies do no harm.
// Once one copy is executed, or a client has written, the version that the copies expect is gone
// and does not come back. So the controller may send another request even if it does not know the
// outcome of the last request.
func (c *Chain) write(ctx context.Context, members []*Switch, id wire.Key, value []byte,
	was versions) (wire.Version, error) {
	s, err := c.Pool.get(ctx, c, members)
	if err != nil {
		return 0, err
	}
	defer c.Pool.put(s)
	ctx, cancel := c.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	head := members[0]
	unfinished := func(err error) error { return fmt.Errorf("the write of %v was not finished: %w", id, err) }
	noSlot := func(epoch uint16) (wire.Version, error) {
		return wire.MakeVersion(epoch+1, 0), fmt.Errorf("%s has no slot for %v: %w", head.Name, id, errNoSlot)
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		if !was.dirty() {
			p := &wire.Packet{Op: wire.CAS, Key: id, Session: s.id, Request: s.next.Add(1), Version: was.committed,
				Value: value, Tombstone: value == nil}
			r, err := head.Exchange(ctx, p, func(r *wire.Packet) bool {
				return r.Op == wire.CASReply && r.Session == p.Session && r.Request == p.Request
			})
			if err != nil {
				return 0, unfinished(err)
			}
			switch r.Status {
			case wire.OK, wire.Superseded:
				return r.Version, nil
			case wire.NotFound:
				return noSlot(r.Epoch)
			case wire.CASFailed, wire.Retry, wire.NotServing, wire.Full:
			default:
				return 0, fmt.Errorf("%s answered the write of %v with %v", head.Name, id, r.Status)
			}
		}
		// Read the slot again, because an earlier attempt's write may have arrived meanwhile.
		if err := c.Sleep(ctx, pause); err != nil {
			return 0, unfinished(err)
		}
		r, err := head.Fetch(ctx, id, wire.Newest, 0)
		if err == nil && r.Status == wire.Dirty && r.Version == was.latest { // the write or its acknowledgement is lost
			err = c.level(ctx, members, id)
		}
		switch {
		case err != nil:
			return 0, unfinished(err)
		case r.Status == wire.NotFound:
			return noSlot(r.Epoch)
		}
		if was = (versions{r.Version, r.Version}); r.Status == wire.Dirty {
			was.committed = 0 // the committed version is an older one than this
		}
	}
}

// settleAll waits until every member has committed the version that each of the given keys was
// assigned, or a later one.
func (c *Chain) settleAll(ctx context.Context, w *Writes, members []*Switch, all []int) error {
	var keys []Key
	var places []int
	for _, i := range all {
		if w.waits(i) {
			keys, places = append(keys, w.Keys[i]), append(places, i)
		}
	}
	unclean := make([]atomic.Bool, len(keys))
	err := Each(ctx, c, members, func(ctx context.Context, m *Switch) error {
		has, err := c.slotsNow(ctx, m, keys)
		for n, v := range has {
			if v.dirty() || v.committed < w.Version(places[n]) {
				unclean[n].Store(true)
			}
		}
		return err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.ForEach(ctx, len(keys), window, func(ctx context.Context, n int) error {
		err := err
		if err == nil && unclean[n].Load() {
			err = c.settle(ctx, members, keys[n].ID, w.Version(places[n]))
		}
		if ctx.Err() == nil {
			w.settled(places[n], err)
		}
		return nil
	})
}

// level sends the newest version of a key at any member down the chain once more, so that all
// members have it and are clean. The slot of a new key may still hold an earlier key's value, dirty
// at one member and newer at another.
func (c *Chain) level(ctx context.Context, members []*Switch, id wire.Key) error {
	var mu sync.Mutex
	var newest *wire.Packet
	err := Each(ctx, c, members, func(ctx context.Context, m *Switch) error {
		r, err := m.Fetch(ctx, id, wire.Newest, 0)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if newest == nil || r.Version > newest.Version {
			newest = r
		}
		return nil
	})
	if err == nil && newest.Version != 0 {
		err = members[0].target.Send(again(id, newest))
	}
	return err
}

// settle waits until every member has committed a version of a key, or a later one. Until then it
// sends the newest version down the chain again and again.
func (c *Chain) settle(ctx context.Context, members []*Switch, id wire.Key, version wire.Version) error {
	ctx, cancel := c.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		if c.allClean(ctx, members, id, version) {
			return nil
		}
		err := c.level(ctx, members, id)
		if err == nil {
			err = c.Sleep(ctx, pause)
		}
		if err != nil {
			return fmt.Errorf("not all members have committed the write of %v: %w", id, err)
		}
	}
}

// ackTimeout is how long an acknowledgement may be on its way before it counts as lost. It is
// longer if the switches are slow.
const ackTimeout = 100 * time.Millisecond

// allClean asks every member whether it has committed a version of a key, or a later version. It
// repeats this for as long as an acknowledgement may be on its way.
func (c *Chain) allClean(ctx context.Context, members []*Switch, id wire.Key, version wire.Version) bool {
	patience := ackTimeout
	for _, m := range members {
		patience = max(patience, 4*m.roundTrip())
	}
	ctx, cancel := c.WithTimeout(ctx, patience)
	defer cancel()
	return nil == Each(ctx, c, members, func(ctx context.Context, m *Switch) error {
		for pause := time.Millisecond; ; pause *= 2 {
			r, err := m.Fetch(ctx, id, 0, 0)
			if err != nil {
				return err
			}
			noSlot := r.Status == wire.NotFound && r.Version == 0
			if noSlot || r.Status != wire.Dirty && r.Version >= version {
				return nil
			}
			if err := c.Sleep(ctx, pause); err != nil {
				return err
			}
		}
	})
}
