package coordination

import (
	"context"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Value is a key as a program sees it. It has the item without the cell's header, and the lease
// that the key is bound to, or "". A key whose lease has ended counts as not found.
type Value struct {
	store.Item
	Lease string
}

// Get reads a key of a program.
func (s *Service) Get(ctx context.Context, key store.Key, eventual bool) (Value, error) {
	item, err := s.store.Get(ctx, key, eventual)
	if err != nil {
		return Value{}, err
	}
	return s.Resolve(ctx, item, eventual)
}

// Resolve converts an item that was just read from the store into what a program sees. For a plain
// item, it only removes the header. For an item that is bound to a lease, it reads the lease. If
// the lease has ended, Resolve deletes the key, and returns the state after the deletion. If the
// item was read linearizably, the result is linearizable, too.
func (s *Service) Resolve(ctx context.Context, item store.Item, eventual bool) (Value, error) {
	for {
		if !item.Found {
			return Value{Item: item}, nil
		}
		c, err := cell.Decode(item.Value)
		if err != nil || c.Kind != cell.Plain && c.Kind != cell.Bound {
			return Value{}, nodeapi.Errorf(nodeapi.CodeInternal, "write it anew, or leave it to what wrote it",
				"the value of %q was not written by the node API", item.Key.Name)
		}
		found := item
		found.Value = c.Value
		if c.Kind == cell.Plain {
			return Value{Item: found}, nil
		}
		k := leaseKey{item.Key.Namespace, c.Lease}
		switch alive, err := s.alive(ctx, k, item.Key, eventual); {
		case err != nil:
			return Value{}, err
		// the lease was also alive when the item was read, because an ended lease never comes back
		case alive:
			return Value{Item: found, Lease: k.id.String()}, nil
		}
		if eventual {
			return Value{Item: store.Item{Key: item.Key, Version: item.Version}}, nil
		}
		// The lease may have ended before the item was read, or only after another write replaced
		// the item. The conditional deletion shows which is true.
		after, deleted, err := s.store.CompareAndDelete(ctx, item.Key, item.Version)
		if err != nil {
			if after, err = s.store.Get(ctx, item.Key, false); err != nil {
				return Value{}, err
			}
			deleted = after.Version == item.Version
		}
		if deleted {
			return Value{Item: store.Item{Key: item.Key, Version: after.Version}}, nil
		}
		item = after
	}
}

// Watch does what the store's Watch does, and also follows the leases of the keys. If a lease
// expires, its keys are deleted, and the watch reports the deletions. Each change passes through
// Resolve. So the watch may also report a deletion that another Service made.
func (s *Service) Watch(ctx context.Context, w store.Watch, tell func([]store.Change)) error {
	hangs := map[string]*user{}
	release := func(name string) {
		if u := hangs[name]; u != nil {
			s.unfollow(u)
			delete(hangs, name)
		}
	}
	defer func() {
		for name := range hangs {
			release(name)
		}
	}()
	return s.store.Watch(ctx, w, func(changes []store.Change) {
		for _, c := range changes {
			d, err := cell.Decode(c.Value)
			if !c.Found || err != nil || d.Kind != cell.Bound {
				release(c.Key.Name)
				continue
			}
			k := leaseKey{c.Key.Namespace, d.Lease}
			if u := hangs[c.Key.Name]; u == nil || u.lease.key != k {
				release(c.Key.Name)
				hangs[c.Key.Name] = s.follow(k, false, func(bool) {})
				s.note(k, c.Key)
			}
		}
		tell(changes)
	})
}

// Put writes a value of a program. The key is bound to a lease, unless lease is "".
func (s *Service) Put(ctx context.Context, key store.Key, value []byte, lease string) (wire.Version, error) {
	b, done, err := s.encode(ctx, key, value, lease)
	if err != nil {
		return 0, err
	}
	defer done()
	return s.store.Put(ctx, key, b)
}

// CompareAndSwap writes a value of a program if the key has the expected version. The key is bound
// to a lease, unless lease is "".
func (s *Service) CompareAndSwap(ctx context.Context, key store.Key, expected wire.Version, value []byte,
	lease string) (Value, bool, error) {
	b, done, err := s.encode(ctx, key, value, lease)
	if err != nil {
		return Value{}, false, err
	}
	defer done()
	item, swapped, err := s.store.CompareAndSwap(ctx, key, expected, b)
	if err != nil {
		return Value{}, false, err
	}
	if swapped {
		item.Value = value
		return Value{item, lease}, true, nil
	}
	v, err := s.Resolve(ctx, item, false)
	return v, false, err
}

// encode returns the cell for a value. It refuses a value that does not fit, and a lease that has
// ended. The caller must call the returned function `done` after the write. This function registers
// the key as bound to the lease. If the lease has ended meanwhile, it deletes the key.
func (s *Service) encode(ctx context.Context, key store.Key, value []byte, lease string) (b []byte, done func(),
	err error) {
	if lease == "" {
		c := cell.Cell{Value: value}
		return c.Encode(), func() {}, s.fits(key.Namespace, "the value", c.Kind, value)
	}
	k, err := parseLease(key.Namespace, lease)
	if err != nil {
		return nil, nil, err
	}
	c := cell.Cell{Kind: cell.Bound, Lease: k.id, Value: value}
	if err := s.fits(key.Namespace, "the value", c.Kind, value); err != nil {
		return nil, nil, err
	}
	alive, err := s.alive(ctx, k, key, false)
	if err == nil && !alive {
		err = leaseGone(k)
	}
	return c.Encode(), func() { s.bind(k, key) }, err
}
