package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// This file implements ops.Keeper, so that ops.Move can move a key to another chain.

// takeTimeout is how long a key that is being moved may be hidden from clients before it is put
// back.
const takeTimeout = 20 * time.Second

// moveKey moves a key. The move continues even if ctx ends.
func (c *Controller) moveKey(ctx context.Context, chainName, nameOrID, toName string) (keyspace.Key, error) {
	type result struct {
		key keyspace.Key
		err error
	}
	done := make(chan result, 1)
	var failed error
	err := c.call(ctx, func() {
		from, err := c.findChain(chainName)
		to, err2 := c.findChain(toName)
		if failed = errors.Join(err, err2, c.inCharge()); failed != nil {
			return
		}
		k, err := c.dir.Find(from.topo.ID, nameOrID)
		if failed = cmpErr(err, c.mayDetach(from, k)); failed == nil {
			k = c.dir.StartMove(k.ID)
			go func() {
				now, err := ops.Move(c.ctx, c.mover(from, to), k, takeTimeout)
				if err == nil {
					c.post(func() {
						c.events.Add("keys.moved", "", to.topo.Name, fmt.Sprintf("%q is %v here, and was %v in chain %s", k.Name, now.ID, k.ID, from.topo.Name))
					})
				}
				done <- result{now, err}
			}()
		}
	})
	if err != nil || failed != nil {
		return keyspace.Key{}, errors.Join(err, failed)
	}
	select {
	case r := <-done:
		return r.key, r.err
	case <-ctx.Done():
		return keyspace.Key{}, fmt.Errorf("the move has begun and goes on: %w", ctx.Err())
	case <-c.stopped:
		return keyspace.Key{}, errStopped
	}
}

// mayDetach returns why a key may not be hidden from clients now, or nil if it may.
func (c *Controller) mayDetach(from *chainState, k keyspace.Key) error {
	switch {
	case k.State != keyspace.Placed || from.tidying[k.ID] || c.news[k.Name]:
		return fmt.Errorf("%w: the key %q is being added, removed or moved: try again in a moment", chain.ErrUnavailable,
			k.Name)
	case c.led != nil && c.now() < 2*c.leading:
		return fmt.Errorf("%w: this controller leads only since %v, and the one before it may still say where keys are: "+
			"try again in a moment", chain.ErrUnavailable, c.now().Round(time.Millisecond))
	}
	return nil
}

// mover is the ops.Keeper for moving a key from one chain to another.
type mover struct {
	*Controller
	switches.Goroutines
	from, to *chainState
}

func (c *Controller) mover(from, to *chainState) mover {
	return mover{c, switches.NewGoroutines(c.now), from, to}
}

// Now implements ops.Keeper.
func (m mover) Now() time.Duration { return m.Goroutines.Now() }

// Directory implements ops.Keeper.
func (m mover) Directory() *keyspace.Directory { return m.dir }

// Operate implements ops.Keeper.
func (m mover) Operate(k keyspace.Key, begin func(*chain.Machine, chain.Time, chain.OpID),
	end func(error)) ops.Waiting {
	op := &keyOperation{Writes: ops.Writes{Keys: []keyspace.Key{k}, Values: make([][]byte, 1)},
		done: make(chan struct{})}
	op.finish = func(err error) {
		// This call matters only if a key is detached. It does no harm if a key is put back.
		if err == nil {
			m.replaced(k.Name)
		}
		end(err)
	}
	m.post(func() {
		op.id = m.nextOp()
		m.startOperation(m.from, op)
		begin(m.touch(m.from), m.Now(), op.id)
	})
	return func(ctx context.Context) ([]byte, wire.Version, error) {
		err := m.await(ctx, m.from, op)
		return op.Values[0], op.Version(0), err
	}
}

// Place implements ops.Keeper.
func (m mover) Place(ctx context.Context, name string, value []byte) (keyspace.Key, error) {
	added, err := m.addKeys(ctx, m.to.topo.Name, []newKey{{name: name, value: value}})
	if err != nil {
		return keyspace.Key{}, err
	}
	k := added[0].key
	if added[0].err != nil {
		m.post(func() { // the placement may be missing in the record
			if k, ok := m.dir.ByID(k.ID); ok && k.State == keyspace.Placed {
				m.takeOut(m.to, []keyspace.Key{k})
			}
		})
	}
	return k, added[0].err
}

// FinishMove implements ops.Keeper.
func (m mover) FinishMove(from, to wire.Key, last wire.Version) (now, left keyspace.Key, err error) {
	err = m.call(m.ctx, func() {
		left = m.dir.FinishMove(from, to, last)
		now, _ = m.dir.ByID(to)
		m.news[now.Name] = true
	})
	return now, left, err
}

// Remove implements ops.Keeper.
func (m mover) Remove(k keyspace.Key) {
	m.post(func() { m.takeOut(m.from, []keyspace.Key{k}) })
}

// Save implements ops.Keeper.
func (m mover) Save(ctx context.Context) error {
	saved := make(chan error, 1)
	m.post(func() { m.save(func(err error) { saved <- err }) })
	select {
	case err := <-saved:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: what is recorded is not saved yet: %w", chain.ErrUnavailable, context.Cause(ctx))
	}
}

// SaveSoon implements ops.Keeper.
func (m mover) SaveSoon() { m.save(nil) }

// Stays implements ops.Keeper.
func (m mover) Stays(k keyspace.Key, why error) {
	m.post(func() { m.events.Add("keys.not-moved", "", m.from.topo.Name, fmt.Sprintf("%q stays: %v", k.Name, why)) })
}

// drainKeys stores the values of an operation's keys once all members agree on them.
func (c *Controller) drainKeys(ch *chainState, a chain.DrainKeys) {
	always := func(error) bool { return true }
	c.work(ch, a.Op, a.Attempt, always, func(ctx context.Context, op *keyOperation) error {
		values, versions, sent, err := ch.ops.Drain(ctx, a, op.Keys)
		c.metrics.Redrove(sent)
		if err == nil {
			op.Drained(values, versions)
		}
		return err
	})
}
