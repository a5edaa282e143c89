package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// Moving a key to another chain (docs/protocol.md, "Moving keys"). It gets a new KEY_ID there,
// because a KEY_ID names its chain: who knows it by name must look it up again when the old one is
// NOT_FOUND.

// takeTimeout is for how long a key that is to be moved may be out of sight before it is put back.
const takeTimeout = 20 * time.Second

// moveKey moves a key. It goes on when ctx ends.
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
		switch {
		case err != nil:
			failed = err
		case k.State != keyspace.Placed || from.tidying[k.ID] || c.news[k.Name]:
			failed = fmt.Errorf("%w: the key %q is being added, removed or moved: try again in a moment", chain.ErrUnavailable, k.Name)
		case c.led != nil && c.now() < 2*c.leading:
			failed = fmt.Errorf("%w: this controller leads only since %v, and the one before it may still say where keys are: try again in a moment", chain.ErrUnavailable, c.now().Round(time.Millisecond))
		default:
			op := c.take(from, k)
			go func() {
				key, err := c.finishMove(from, to, op)
				done <- result{key, err}
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

// take takes a key out of clients' sight. Its value is in the operation then.
func (c *Controller) take(ch *chainState, k keyspace.Key) *keyOperation {
	k = c.dir.StartMove(k.ID)
	op := &keyOperation{id: c.nextOp(), Writes: ops.Writes{Keys: []keyspace.Key{k}, Values: make([][]byte, 1)},
		done: make(chan struct{})}
	op.finish = func(err error) {
		if err == nil {
			c.dir.SetState(k.ID, keyspace.Taken)
			c.save(nil) // one that is not recorded as Taken is put back as well
		}
	}
	c.startOperation(ch, op)
	c.save(func(err error) {
		if err = errors.Join(err, op.given); err != nil {
			c.keysDone(ch, op, err) // nothing has been done
			return
		}
		c.touch(ch).DetachKeys(c.now(), op.id)
	})
	return op
}

// reattach gives a key its entries again.
func (c *Controller) reattach(ch *chainState, k keyspace.Key) *keyOperation {
	c.dir.SetState(k.ID, keyspace.Moving)
	op := &keyOperation{id: c.nextOp(), Writes: ops.Writes{Keys: []keyspace.Key{k}, Values: make([][]byte, 1)},
		done: make(chan struct{})}
	op.finish = func(err error) {
		if err == nil {
			c.dir.StayPut(k.ID)
			c.save(nil)
		}
	}
	c.startOperation(ch, op)
	c.touch(ch).ReattachKeys(c.now(), op.id)
	return op
}

// finishMove does what follows when a key is to be taken: it waits for that, places the value in
// the other chain, and gives the name to that.
func (c *Controller) finishMove(from, to *chainState, op *keyOperation) (keyspace.Key, error) {
	k := op.Keys[0]
	back := func(why error) (keyspace.Key, error) {
		c.post(func() {
			c.events.add("keys.not-moved", "", from.topo.Name, fmt.Sprintf("%q stays: %v", k.Name, why))
			c.reattach(from, k)
		})
		return keyspace.Key{}, fmt.Errorf("%q was not moved: %w", k.Name, why)
	}
	select {
	case <-op.done:
	case <-time.After(takeTimeout):
		c.post(func() {
			op.given = fmt.Errorf("chain %s did not let go of it within %v", from.topo.Name, takeTimeout)
			c.touch(from).AbandonKeys(c.now(), op.id, op.given)
		})
	}
	select {
	case <-op.done:
	case <-c.stopped:
		return keyspace.Key{}, errStopped
	}
	if op.err != nil {
		return back(op.err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, takeTimeout)
	defer cancel()
	added, err := c.addKeys(ctx, to.topo.Name, []newKey{{name: keyspace.MovingPrefix + k.Name, value: op.Values[0]}})
	if err == nil {
		err = added[0].err
	}
	if err != nil {
		return back(err)
	}
	now := added[0].key
	// Nobody hears of the new KEY_ID before it is on record: a controller that did not know of it
	// would put the key back.
	var left keyspace.Key
	if err := c.call(c.ctx, func() {
		left = c.dir.FinishMove(k.ID, now.ID)
		now, _ = c.dir.ByID(now.ID)
		c.news[k.Name] = true
	}); err != nil {
		return keyspace.Key{}, err
	}
	for {
		saved := make(chan error, 1)
		c.post(func() { c.save(func(err error) { saved <- err }) })
		select {
		case err = <-saved:
		case <-c.stopped:
			return keyspace.Key{}, errStopped
		}
		if err == nil {
			break
		}
		if errors.Is(err, ErrNotLeading) {
			return keyspace.Key{}, err // the next one knows which it is
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-c.stopped:
			return keyspace.Key{}, errStopped
		}
	}
	c.post(func() {
		c.events.add("keys.moved", "", to.topo.Name, fmt.Sprintf("%q is %v here, and was %v in chain %s", k.Name, now.ID, k.ID, from.topo.Name))
		c.remove(from, []keyspace.Key{left})
	})
	return now, nil
}

// drainKeys keeps what an operation's keys hold when all members agree on it.
func (c *Controller) drainKeys(ch *chainState, a chain.DrainKeys) {
	always := func(error) bool { return true }
	c.work(ch, a.Op, a.Attempt, always, func(ctx context.Context, op *keyOperation) error {
		values, sent, err := ch.ops.Drain(ctx, a, op.Keys)
		c.metrics.redriven.Add(float64(sent))
		if err == nil {
			op.Values = values
		}
		return err
	})
}
