package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// releaseTimeout is how long a key that may be unused stays hidden before it is put back, because
// some client may want it.
const releaseTimeout = 5 * time.Second

// RemoveUnused removes a key that has no value, if its version by name is still the given one. The
// version 0 means that no client has written the key since it was added. If the conditions do not
// hold, the key stays, with its value.
func (c *Controller) RemoveUnused(ctx context.Context, name string, version uint64) error {
	var k keyspace.Key
	var known bool
	var failed error
	if err := c.call(ctx, func() { k, known, failed = c.find(name) }); err != nil || failed != nil {
		return apiError(errors.Join(err, failed))
	}
	if !known {
		return admin.Errorf(admin.CodeNotFound, "no key %q is placed in the network", name)
	}
	if version == 0 {
		if !k.Empty {
			return admin.Errorf(admin.CodeFailedPrecondition, "%q was added with a value", name)
		}
		version = uint64(k.Made)
	}
	last := wire.Version(version - k.Offset)
	// This reveals most keys that are in use, without hiding them from clients.
	states, err := c.states(ctx, []keyspace.Key{k}, stateEverywhere)
	if err != nil {
		return apiError(err)
	}
	for _, s := range states[k.ID] {
		if s.err == nil && (s.newest.Version != last || !s.committed.Tombstone) {
			return admin.Errorf(admin.CodeFailedPrecondition, "%q is in use: %s has its version %v", name, s.sw,
				k.Version(s.newest.Version))
		}
	}
	done := make(chan error, 1)
	if err := c.call(ctx, func() {
		now, ok := c.dir.ByID(k.ID)
		from := c.net().byID[k.ID.Chain()]
		switch {
		case !ok || from == nil || now.Name != name:
			failed = fmt.Errorf("%w: the key %q is being removed or moved: try again in a moment", chain.ErrUnavailable, name)
		default:
			failed = errors.Join(c.inCharge(), c.mayDetach(from, now))
		}
		if failed == nil {
			k = c.dir.StartMove(k.ID)
			go func() { done <- c.removeUnused(from, k, last) }()
		}
	}); err != nil || failed != nil {
		return apiError(errors.Join(err, failed))
	}
	select {
	case err := <-done:
		if errors.Is(err, ops.ErrUsed) {
			return admin.Errorf(admin.CodeFailedPrecondition, "%v", err)
		}
		return apiError(err)
	case <-ctx.Done():
		return apiError(fmt.Errorf("the removal has begun and goes on: %w", ctx.Err()))
	case <-c.stopped:
		return apiError(errStopped)
	}
}

func (c *Controller) removeUnused(from *chainState, k keyspace.Key, last wire.Version) error {
	err := ops.RemoveUnused(c.ctx, c.mover(from, nil), k, last, releaseTimeout)
	if err == nil {
		c.post(func() {
			c.events.Add("keys.unused", "", from.topo.Name, fmt.Sprintf("%q was deleted, and not used since: its slot is free",
				k.Name))
		})
	}
	return err
}

// Release implements ops.Releaser.
func (m mover) Release(id wire.Key, last wire.Version) (left keyspace.Key, err error) {
	err = m.call(m.ctx, func() {
		k, _ := m.dir.ByID(id)
		left = m.dir.Release(id, last)
		m.news[k.Name] = true
	})
	return left, err
}
