package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/wire"
)

// Driving down again (docs/protocol.md, "Driving down again what stays dirty").

// redrive sends down again what is dirty at any of some switches; with Drain until all members hold the same.
func (c *Controller) redrive(ctx context.Context, a chain.Redrive, keys []keyspace.Key) error {
	via, err := c.device(a.Via)
	if err != nil {
		return err
	}
	type item struct {
		at   *device
		key  keyspace.Key
		seen wire.Version // when it was looked at first; 0: not yet
	}
	var items []item
	for _, sw := range a.From {
		d, err := c.device(sw)
		if err != nil {
			return err
		}
		dirty, err := c.dirtyAt(ctx, d, keys)
		if err != nil {
			return err
		}
		for _, k := range keys {
			if v, ok := dirty[k.ID]; ok {
				items = append(items, item{d, k, v})
			}
		}
	}
	if a.Stuck && len(items) > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(chain.StuckFor):
		}
	}
	err = forEach(ctx, items, func(ctx context.Context, it item) error {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		for pause := 2 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
			r, err := c.fetch(ctx, it.at, it.key.ID, wire.Newest, 0)
			if err != nil {
				return err
			}
			if r.Status != wire.Dirty || r.Version != it.seen {
				return nil // clean, or a newer write is on its way; if that one stays, the next look finds it
			}
			if r.Epoch != a.Epoch {
				return fmt.Errorf("%s has epoch %d, not %d: somebody else changes it", it.at.sw.Name, r.Epoch, a.Epoch)
			}
			frame, err := c.frame(via.sw, via.sw.Address, leasePort, &wire.Packet{Op: wire.Write, Flags: wire.Stamped | wire.NoReply, Epoch: r.Epoch,
				Session: r.Session, Request: r.Request, Key: it.key.ID, Version: r.Version, Value: r.Value, Tombstone: r.Tombstone})
			if err != nil {
				return err
			}
			if err := via.send(frame); err != nil {
				return err
			}
			c.metrics.redriven.Inc()
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s stays dirty at %s: %w", it.key.Name, it.at.sw.Name, ctx.Err())
			case <-time.After(pause):
			}
		}
	})
	if err != nil || !a.Drain {
		return err
	}
	return c.drained(ctx, a, keys)
}

// slotVersions is what a slot's cell of the register versions says.
type slotVersions struct{ committed, latest wire.Version }

// versionsAt reads the versions of keys' slots over P4Runtime, at once. p4rt.IsUnsupported(err) where the target has no registers there (BMv2).
func (c *Controller) versionsAt(ctx context.Context, d *device, keys []keyspace.Key) ([]slotVersions, error) {
	cells := make([]int, len(keys))
	for i, k := range keys {
		cells[i] = k.Slot
	}
	values, err := d.client.ReadRegisterCells(ctx, "versions", cells)
	if err != nil {
		return nil, err
	}
	out := make([]slotVersions, len(keys))
	for i, v := range values {
		out[i] = slotVersions{wire.Version(high64(v)), wire.Version(low64(v))}
	}
	return out, nil
}

// high64 and low64 are the halves of a value of 128 bits, of which leading zero bytes may be missing.
func high64(v p4rt.Value) uint64 {
	if len(v) <= 8 {
		return 0
	}
	return low64(v[:len(v)-8])
}

func low64(v p4rt.Value) (n uint64) {
	for _, b := range v[max(0, len(v)-8):] {
		n = n<<8 | uint64(b)
	}
	return n
}

// dirtyAt is the newest version of each key that is dirty at a switch: from its registers where the target shows them, else by a FETCH for each.
func (c *Controller) dirtyAt(ctx context.Context, d *device, keys []keyspace.Key) (map[wire.Key]wire.Version, error) {
	out := map[wire.Key]wire.Version{}
	if d.noRegisters.Load() {
		found := make([]wire.Version, len(keys))
		index := make([]int, len(keys))
		for i := range index {
			index[i] = i
		}
		err := forEach(ctx, index, func(ctx context.Context, i int) error {
			ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
			defer cancel()
			r, err := c.fetch(ctx, d, keys[i].ID, wire.Newest, 0)
			if err == nil && r.Status == wire.Dirty {
				found[i] = r.Version
			}
			return err
		})
		for i, v := range found {
			if v != 0 {
				out[keys[i].ID] = v
			}
		}
		return out, err
	}
	versions, err := c.versionsAt(ctx, d, keys)
	if p4rt.IsUnsupported(err) {
		d.noRegisters.Store(true)
		return c.dirtyAt(ctx, d, keys)
	}
	for i, v := range versions {
		if v.latest != v.committed {
			out[keys[i].ID] = v.latest
		}
	}
	return out, err
}

// drained waits until every member of the chain is clean and holds the same version of every key. A member that was restarted meanwhile has another epoch, and its slots
// say nothing.
func (c *Controller) drained(ctx context.Context, a chain.Redrive, keys []keyspace.Key) error {
	var members []*device
	if err := c.call(ctx, func() {
		for _, ch := range c.net().chains {
			if len(keys) > 0 && ch.topo.ID == keys[0].ID.Chain() {
				members = c.members(ch)
			}
		}
	}); err != nil {
		return err
	}
	return forEach(ctx, keys, func(ctx context.Context, k keyspace.Key) error {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		for pause := 2 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
			equal := true
			var version wire.Version
			for i, d := range members {
				r, err := c.fetchIn(ctx, a.Epoch, d, k.ID, 0, 0)
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
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s is not the same at all members: %w", k.Name, ctx.Err())
			case <-time.After(pause):
			}
		}
	})
}
