package ops

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// This file re-propagates dirty keys (docs/protocol.md, "Re-propagating what stays dirty").

// Key is a key of a chain, with a KEY_ID that leads to its slot.
type Key = keyspace.Key

// Reachable returns keys with the KEY_IDs under which the controller finds their slots.
func Reachable(keys []Key) []Key {
	out := append([]Key(nil), keys...)
	for i, k := range out {
		if k.State == keyspace.Taken {
			out[i].ID = k.Alias
		}
	}
	return out
}

// longestPause is the maximum time between two checks while waiting.
const longestPause = 200 * time.Millisecond

// Redrive re-propagates the dirty keys of some switches. With Drain it continues until all of these
// switches hold the same data. It returns how many writes it sent. If all of these switches have
// lost a key's value, Redrive also buries the key (bury.go).
func (c *Chain) Redrive(ctx context.Context, a chain.Redrive, keys []Key) (sent int, err error) {
	via, err := c.Switch(a.Via)
	if err != nil {
		return 0, err
	}
	from, err := c.switches(a.From)
	if err != nil {
		return 0, err
	}
	type item struct {
		at   *Switch
		key  Key
		seen wire.Version // the slot's version at the first read
	}
	var items []item
	lost := c.mayBeLost(keys)
	for _, at := range from {
		slots, err := c.slots(ctx, at, keys, func(ctx context.Context, k Key) (*wire.Packet, error) {
			ctx, cancel := c.WithTimeout(ctx, FetchTimeout)
			defer cancel()
			return at.Fetch(ctx, k.ID, wire.Newest, 0)
		})
		if err != nil {
			return 0, err
		}
		for i, v := range slots {
			if v.latest != 0 {
				delete(lost, i)
			}
			if v.dirty() {
				items = append(items, item{at, keys[i], v.latest})
			}
		}
	}
	if a.Stuck && len(items) > 0 {
		if err := c.Sleep(ctx, chain.StuckFor); err != nil {
			return 0, err
		}
	}
	var n atomic.Int64
	err = Each(ctx, c, items, func(ctx context.Context, it item) error {
		ctx, cancel := c.WithTimeout(ctx, WriteTimeout)
		defer cancel()
		for pause := 2 * time.Millisecond; ; pause = min(2*pause, longestPause) {
			r, err := it.at.Fetch(ctx, it.key.ID, wire.Newest, 0)
			if err != nil {
				return err
			}
			if r.Status != wire.Dirty || r.Version != it.seen {
				// The key is clean, or a newer write is on its way. If that write gets stuck, the
				// next read finds it.
				return nil
			}
			if r.Epoch != a.Epoch {
				return fmt.Errorf("%s has epoch %d, not %d: somebody else changes it", it.at.Name, r.Epoch, a.Epoch)
			}
			if err := via.target.Send(again(it.key.ID, r)); err != nil {
				return err
			}
			n.Add(1)
			if err := c.Sleep(ctx, pause); err != nil {
				return fmt.Errorf("%s stays dirty at %s: %w", it.key.Name, it.at.Name, err)
			}
		}
	})
	if err == nil && !a.Drain {
		err = c.bury(ctx, from, keys, lost)
	}
	if err == nil && a.Drain {
		err = c.drained(ctx, a.Epoch, from, keys)
	}
	return int(n.Load()), err
}

// again builds a packet that repeats the newest write of a key, from a switch's answer to a FETCH.
func again(id wire.Key, r *wire.Packet) *wire.Packet {
	return &wire.Packet{Op: wire.Write, Flags: wire.Stamped | wire.NoReply, Epoch: r.Epoch, Session: r.Session,
		Request: r.Request, Key: id, Version: r.Version, Value: r.Value, Tombstone: r.Tombstone}
}

// slots returns the versions of keys at a switch. It reads them from the switch's registers if the
// switch shows these, and otherwise by a FETCH for each key. For a dirty key, a FETCH returns only
// the newest version.
func (c *Chain) slots(ctx context.Context, at *Switch, keys []Key,
	fetch func(context.Context, Key) (*wire.Packet, error)) ([]versions, error) {
	out, err := at.versionsOf(ctx, keys)
	if !errors.Is(err, ErrUnsupported) {
		return out, err
	}
	out = make([]versions, len(keys))
	return out, c.ForEach(ctx, len(keys), window, func(ctx context.Context, i int) error {
		r, err := fetch(ctx, keys[i])
		if err != nil {
			return err
		}
		out[i] = versions{committed: r.Version, latest: r.Version}
		if r.Status == wire.Dirty {
			out[i].committed = 0 // the committed version is an older one
		}
		return nil
	})
}

// drained waits until the members are clean and hold the same version of every key. If a member was
// restarted meanwhile, it has another epoch, and its slots prove nothing.
func (c *Chain) drained(ctx context.Context, epoch uint16, members []*Switch, keys []Key) error {
	return Each(ctx, c, keys, func(ctx context.Context, k Key) error {
		ctx, cancel := c.WithTimeout(ctx, WriteTimeout)
		defer cancel()
		for pause := 2 * time.Millisecond; ; pause = min(2*pause, longestPause) {
			equal := true
			var version wire.Version
			for i, m := range members {
				r, err := m.fetchIn(ctx, epoch, k.ID, 0, 0)
				if err != nil {
					return err
				}
				if i == 0 {
					version = r.Version
				}
				equal = equal && r.Status != wire.Dirty && r.Version == version
			}
			if equal {
				return nil
			}
			if err := c.Sleep(ctx, pause); err != nil {
				return fmt.Errorf("%s is not the same at all members: %w", k.Name, err)
			}
		}
	})
}

// Drain re-propagates the dirty slots of keys that can be reached only by their aliases, until all
// members are equal. It returns the slots' content, with nil for a tombstone.
func (c *Chain) Drain(ctx context.Context, a chain.DrainKeys, keys []Key) (values [][]byte,
	versions []wire.Version, sent int, err error) {
	aliases := append([]Key(nil), keys...)
	for i := range aliases {
		aliases[i].ID = aliases[i].Alias
	}
	sent, err = c.Redrive(ctx, chain.Redrive{Epoch: a.Epoch, From: a.Members, Via: a.Members[0], Drain: true}, aliases)
	if err != nil {
		return nil, nil, sent, err
	}
	tail, err := c.Switch(a.Members[len(a.Members)-1])
	if err != nil {
		return nil, nil, sent, err
	}
	values, versions = make([][]byte, len(keys)), make([]wire.Version, len(keys))
	return values, versions, sent, c.ForEach(ctx, len(keys), window, func(ctx context.Context, i int) error {
		ctx, cancel := c.WithTimeout(ctx, FetchTimeout)
		defer cancel()
		r, err := tail.fetchIn(ctx, a.Epoch, aliases[i].ID, 0, 0)
		switch {
		case err != nil:
			return err
		case r.Version == 0: // every placed key has been written, if only with a tombstone
			return fmt.Errorf("%s has no slot for %s", tail.Name, keys[i].Name)
		case !r.Tombstone:
			values[i] = append([]byte{}, r.Value...)
		}
		versions[i] = r.Version
		return nil
	})
}
