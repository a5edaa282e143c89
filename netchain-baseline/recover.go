package netchain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// Recovery is what a recovery did.
type Recovery struct {
	By     string        // who has the place now
	Groups int           // virtual groups
	Keys   int           // that were copied, or found to be the same
	Took   time.Duration // all of it, from when the switch could be reached
	// Stopped is the longest time for which a group's writes were not taken. Reads were taken all
	// the time.
	Stopped time.Duration
}

// Recover brings a member that is gone in again, or another switch (by) that has no place in the
// chain in its place: NetChain, algorithm 3. It returns when the whole chain is what it was. For
// each virtual group:
//
//   - Pre-synchronisation. The switch is filled from a neighbour in the chain while everything goes
//     on.
//   - Stop and synchronise. The group's head gives no more numbers; what has one is through when a
//     packet that was sent after it is (FIFO links); then what has changed is copied, until there
//     is no difference. Reads go on. (The paper stops all that goes to the place. Here it is the
//     head that stops, at one switch and at once.)
//   - Activation. All switches send to the new one what is for the place; then the head goes on, in
//     a new session if it is a new one.
//
// Where it fails the place is skipped as before.
func (c *Controller) Recover(ctx context.Context, member, by string) (*Recovery, error) {
	if !c.recovering.TryLock() {
		return nil, errors.New("another recovery is going on")
	}
	defer c.recovering.Unlock()
	c.mu.Lock()
	at, s, err := c.plan.standIn(member, by)
	down := err == nil && c.plan.down[s.Name]
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if down {
		// Nothing that was sent to it when it was part of the chain before must come to it when it
		// is empty.
		if err := c.f.settle(ctx); err != nil {
			return nil, err
		}
		if err := c.f.reload(ctx, s.Name); err != nil { // without the lock: it may take long to be there
			return nil, err
		}
	}
	begin := time.Now()
	r := &Recovery{By: s.Name, Groups: c.o.Groups}
	if err := c.enter(ctx, at, s, down); err != nil {
		return nil, c.leave(ctx, at, s, err)
	}
	for g := range c.o.Groups {
		if err := c.takeOver(ctx, at, s, g, r); err != nil {
			return nil, c.leave(ctx, at, s, fmt.Errorf("virtual group %d: %w", g, err))
		}
	}
	if err := c.finish(ctx, at, s); err != nil {
		return nil, c.leave(ctx, at, s, err)
	}
	r.Took = time.Since(begin)
	return r, nil
}

// enter has a switch be part of the network (it was not, if it was down), with nothing to do in the
// chain yet.
func (c *Controller) enter(ctx context.Context, at *place, s *topology.Switch, down bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("recovering", s.Name, fmt.Sprintf("%s is filled to take the place of %s", s.Name, at.member.Name))
	at.by, at.active = s, make([]bool, c.o.Groups)
	delete(c.plan.down, s.Name)
	if down {
		if err := c.fill(ctx, s); err != nil {
			return err
		}
	}
	if err := c.insert(ctx, s, c.plan.keys(c.o.Keys)); err != nil {
		return err
	}
	if err := c.updateAll(ctx, c.all()); err != nil {
		return err
	}
	return c.f.settle(ctx) // frames go other ways now: those that still go the old ones could be overtaken
}

// still says whether a recovery may continue: the switch may have failed since.
func (c *Controller) still(at *place, s *topology.Switch) error {
	if at.by != s || at.active == nil {
		return fmt.Errorf("%s is gone again", s.Name)
	}
	return nil
}

// takeOver has a switch take its place for a group.
func (c *Controller) takeOver(ctx context.Context, at *place, s *topology.Switch, group int, r *Recovery) error {
	var keys []uint32
	for i := group; i < c.o.Keys; i += c.o.Groups {
		keys = append(keys, Key(i, c.o.Groups))
	}
	c.mu.Lock()
	donor := c.plan.donor(at, group)
	c.mu.Unlock()
	if err := c.copyOnce(ctx, donor, s, keys); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.still(at, s); err != nil {
		return err
	}
	begin := time.Now()
	before := c.plan.heads()
	c.plan.stopped[group] = true
	if err := c.update(ctx, before[group], group); err != nil {
		return err
	}
	if err := c.drain(ctx, group, keys); err != nil {
		return err
	}
	if err := c.copyAll(ctx, c.plan.donor(at, group), s, keys); err != nil {
		return err
	}
	at.active[group] = true
	if err := c.updateAll(ctx, []int{group}, s); err != nil {
		return err
	}
	if serving := c.plan.serving(group); serving[len(serving)-1] == s {
		// READs that were sent to the tail that was must not come there when it knows about writes
		// that this one does not have yet.
		if err := c.f.settle(ctx); err != nil {
			return err
		}
	}
	c.plan.beginSessions(before)
	delete(c.plan.stopped, group)
	if err := c.update(ctx, c.plan.serving(group)[0], group); err != nil {
		return err
	}
	r.Keys += len(keys)
	r.Stopped = max(r.Stopped, time.Since(begin))
	return nil
}

// drain waits until each write of a group that has a number is through the chain: from switch to
// switch goes a READ that came after it.
func (c *Controller) drain(ctx context.Context, group int, keys []uint32) error {
	serving := c.plan.serving(group)
	if len(keys) == 0 {
		return nil
	}
	for i, s := range serving[1:] {
		if _, err := c.f.exchange(ctx, []outgoing{{serving[i].Name, s.Address,
			&Packet{Op: Read, Key: keys[0]}}}); err != nil {
			return fmt.Errorf("waiting for what goes from %s to %s: %w", serving[i].Name, s.Name, err)
		}
	}
	return nil
}

// finish removes what only a recovery needs: first what skips the place (the table gone), then what
// is asked only where that is there (taken).
func (c *Controller) finish(ctx context.Context, at *place, s *topology.Switch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.still(at, s); err != nil {
		return err
	}
	at.skipped = false
	if err := c.updateAll(ctx, c.all()); err != nil {
		return err
	}
	at.active = nil
	if err := c.updateAll(ctx, c.all()); err != nil {
		return err
	}
	c.note("recovered", s.Name, fmt.Sprintf("%s has the place of %s", s.Name, at.member.Name))
	return nil
}

// leave takes a switch that could not be brought in out again: what it has taken over it may have
// missed something of.
func (c *Controller) leave(ctx context.Context, at *place, s *topology.Switch, why error) error {
	ctx = context.WithoutCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.plan.stopped)
	if at.by == s {
		before := c.plan.heads()
		at.by, at.active, at.skipped = nil, nil, true
		c.plan.down[s.Name] = true
		c.plan.beginSessions(before)
		// It first, if it can be reached: it must not continue answering for groups that it had
		// taken over when others do.
		c.fence(ctx, s)
	}
	if err := c.updateAll(ctx, c.all()); err != nil {
		why = errors.Join(why, err)
	}
	c.note("failed", s.Name, why.Error())
	return fmt.Errorf("bringing %s in for %s: %w", s.Name, at.member.Name, why)
}
