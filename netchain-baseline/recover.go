package netchain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// Recovery describes a completed recovery.
type Recovery struct {
	By     string        // the switch that now has the place
	Groups int           // number of virtual groups
	Keys   int           // number of keys that were copied, or were already equal
	Took   time.Duration // total time since the switch became reachable
	// Stopped is the longest time for which a group accepted no writes. The group accepted reads
	// during this time.
	Stopped time.Duration
}

// Recover brings a failed member back, or gives its place to the switch `by`, which must not have a
// place yet (NetChain, algorithm 3). It returns when the chain is complete again. For each virtual
// group it performs these steps:
//
//   - Pre-synchronisation. The switch is filled from a neighbour in the chain while operation
//     continues.
//   - Stop and synchronise. The group's head assigns no more sequence numbers. Links are FIFO, so
//     all numbered writes have passed when a packet sent after them has passed. Then the changes
//     are copied until no difference is left. Reads continue. (The paper stops all packets to the
//     place. Here only the head stops, so one change at one switch suffices.)
//   - Activation. All switches send packets for the place to the new switch. Then the head
//     continues, in a new session if it is a new head.
//
// If the recovery fails, the place is skipped as before.
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
		// Packets that were sent to the switch before it failed must not arrive at the empty
		// switch.
		if err := c.f.settle(ctx); err != nil {
			return nil, err
		}
		// load the program without holding the lock, because loading takes long
		if err := c.f.reload(ctx, s.Name); err != nil {
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

// enter makes a switch that was down a part of the network again. The switch has no work in the
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
	// wait, because after a change of routes frames on the new routes could overtake frames on the
	// old routes
	return c.f.settle(ctx)
}

// still returns an error if a recovery cannot continue because the switch has failed again.
func (c *Controller) still(at *place, s *topology.Switch) error {
	if at.by != s || at.active == nil {
		return fmt.Errorf("%s is gone again", s.Name)
	}
	return nil
}

// takeOver makes a switch take its place for one group.
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
		// READs in flight must not arrive at the former tail after it has received writes that the
		// new tail lacks.
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

// drain waits until each numbered write of a group has passed the whole chain. It sends a READ,
// which follows the writes on each link from switch to switch.
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

// finish removes the entries that are needed only during a recovery. It first removes those that
// skip the place (table gone). Then it removes those that matter only together with them (table
// taken).
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

// leave removes a switch from the chain when its recovery has failed. The switch may have missed
// packets for groups that it has taken over.
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
		// Fence the switch first, if it is reachable. It must not continue to answer for groups
		// that other switches serve again.
		c.fence(ctx, s)
	}
	if err := c.updateAll(ctx, c.all()); err != nil {
		why = errors.Join(why, err)
	}
	c.note("failed", s.Name, why.Error())
	return fmt.Errorf("bringing %s in for %s: %w", s.Name, at.member.Name, why)
}
