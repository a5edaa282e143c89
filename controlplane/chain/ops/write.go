package ops

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/netcraq/netcraq/wire"
)

// Writes are the first writes of an operation's keys, or their deletions. They may be tried several
// times, by one attempt after the other.
type Writes struct {
	Keys   []Key
	Values [][]byte // parallel to Keys; nil: a tombstone

	mu      sync.Mutex
	written []bool // the key's write was answered, in this or an earlier attempt
	errs    []error
	// versions that the writes were given. Of a removal whose key had gone from the head before:
	// one above all that it has had.
	versions []wire.Version
}

// Version is that of the key's last write, or, where the keys were drained, the one that it had;
// 0: it is not known.
func (w *Writes) Version(i int) wire.Version {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i < len(w.versions) {
		return w.versions[i]
	}
	return 0
}

// Drained keeps what Drain has found.
func (w *Writes) Drained(values [][]byte, versions []wire.Version) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Values, w.versions = values, versions
}

// Err is why a key was not written in the last attempt.
func (w *Writes) Err(i int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i < len(w.errs) {
		return w.errs[i]
	}
	return nil
}

// ErrNotDeleted: a key's tombstone has not reached all members yet.
var ErrNotDeleted = errors.New("not deleted everywhere yet")

// WriteAll writes keys through the chain, as many at a time as the controller has sessions. What
// fails for one key is that key's error; but with remove no entry may go before all deletions are
// known to all.
func (c *Chain) WriteAll(ctx context.Context, w *Writes, members []string, remove bool) error {
	at, err := c.switches(members)
	if err != nil {
		return err
	}
	if err := at[0].target.Err(); err != nil {
		return fmt.Errorf("%s: %w", at[0].Name, err)
	}
	w.mu.Lock()
	if w.errs == nil {
		w.written, w.errs = make([]bool, len(w.Keys)), make([]error, len(w.Keys))
		w.versions = make([]wire.Version, len(w.Keys))
	}
	var todo []int
	for i := range w.Keys {
		if !w.written[i] {
			todo = append(todo, i)
		}
	}
	w.mu.Unlock()
	err = c.ForEach(ctx, len(todo), c.Pool.Size, func(ctx context.Context, n int) error {
		i := todo[n]
		version, err := c.write(ctx, at, w.Keys[i].ID, w.Values[i], remove)
		if ctx.Err() == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.written[i], w.errs[i] = err == nil, err
			w.versions[i] = max(w.versions[i], version)
		}
		return nil
	})
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

// write writes one key through the chain (value nil: a tombstone) until it is answered and every
// member is clean, and gives its version.
func (c *Chain) write(ctx context.Context, members []*Switch, id wire.Key, value []byte, remove bool) (wire.Version,
	error) {
	s, err := c.Pool.get(ctx, c, members)
	if err != nil {
		return 0, err
	}
	defer c.Pool.put(s)
	ctx, cancel := c.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	head := members[0]
	p := &wire.Packet{Op: wire.Write, Key: id, Session: s.id, Request: s.next.Add(1), Value: value,
		Tombstone: value == nil}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		r, err := head.Exchange(ctx, p, func(r *wire.Packet) bool {
			return r.Op == wire.WriteReply && r.Session == p.Session && r.Request == p.Request
		})
		if err != nil {
			return 0, err
		}
		switch r.Status {
		case wire.OK, wire.Superseded:
			if c.allClean(ctx, members, id, r.Version) {
				return r.Version, nil
			}
			// Sending the same request again makes the tail acknowledge again.
		case wire.NotFound:
			if remove { // the head has no entry: nobody can read it there, and nothing new comes
				return wire.MakeVersion(r.Epoch+1, 0), nil
			}
			return 0, fmt.Errorf("%s has no slot for %v: somebody else has changed its key_index", head.Name, id)
		case wire.Retry, wire.NotServing, wire.Full:
		default:
			return 0, fmt.Errorf("%s answered the write of %v with %v", head.Name, id, r.Status)
		}
		if err := c.Sleep(ctx, pause); err != nil {
			return 0, fmt.Errorf("the write of %v was not finished: %w", id, err)
		}
	}
}

// ackTimeout is how long an acknowledgement may be on its way before it is taken to be lost; longer
// where the switches take long for anything.
const ackTimeout = 100 * time.Millisecond

// allClean asks every member whether it has committed a version of a key, or a later one, for as
// long as the acknowledgement may be on its way.
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
