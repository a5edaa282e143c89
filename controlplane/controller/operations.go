package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// change changes a running chain. It returns when all members have the new configuration.
func (c *Controller) change(ctx context.Context, name string, ch chain.Change) error {
	return c.ask(ctx, name, func(m *chain.Machine, op chain.OpID) { m.Propose(c.now(), op, ch) })
}

// ask starts an operation of a chain's machine, and waits for it to end.
func (c *Controller) ask(ctx context.Context, name string, begin func(*chain.Machine, chain.OpID)) error {
	done := make(chan error, 1)
	err := c.call(ctx, func() {
		cs, err := c.findChain(name)
		if err = errors.Join(err, c.inCharge()); err != nil {
			done <- err
			return
		}
		op := c.nextOp()
		cs.waiting[op] = done
		begin(c.touch(cs), op)
	})
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the change has begun and goes on: %w", ctx.Err())
	case <-c.stopped:
		return errStopped
	}
}

// recover brings a switch into a chain, and returns when the switch is a member.
func (c *Controller) recover(ctx context.Context, name, sw string) error {
	if err := c.waitWhile(ctx, func() (reason string, failed error) {
		err := c.call(ctx, func() {
			ch, err := c.findChain(name)
			if failed = err; err != nil {
				return
			}
			for _, k := range c.dir.Chain(ch.topo.ID) {
				// the key moves, so the KEY_ID by which its slot can be copied is changing
				if k.State == keyspace.Moving {
					failed = fmt.Errorf("%w: the key %q is being moved: try again in a moment", chain.ErrUnavailable, k.Name)
				}
			}
			if len(ch.tidying) > 0 {
				// Stale entries of a switch that has just come up are being deleted. This must not
				// delete the entries with which the switch is being filled.
				reason = "the entries of switches that came up are still being put in order: try again"
			}
		})
		return reason, errors.Join(err, failed)
	}); err != nil {
		return err
	}
	return c.ask(ctx, name, func(m *chain.Machine, op chain.OpID) { m.Recover(c.now(), op, sw) })
}

// recoverByHand is recover for an operator. If the controller is bringing a switch in
// automatically, recoverByHand waits for that, and may have nothing left to do.
func (c *Controller) recoverByHand(ctx context.Context, name, sw string) error {
	waited, member := false, false
	if err := c.waitWhile(ctx, func() (reason string, failed error) {
		err := c.call(ctx, func() {
			var ch *chainState
			if ch, failed = c.findChain(name); failed != nil {
				return
			}
			switch coming := ch.m.Joining(); {
			case ch.m.Rejoining() == sw:
				waited, reason = true, "it is being brought in already: wait for that"
			case len(coming) > 0: // the chain has another joiner, or will soon give sw up
				reason = fmt.Sprintf("%s is being brought in: wait for the end of that, or end it by a change of the members "+
					"to those without it", strings.Join(coming, ", "))
			}
			member = ch.m.Status(c.now()).Config.IsMember(sw)
		})
		return reason, errors.Join(err, failed)
	}); err != nil {
		return err
	}
	if waited && member {
		return nil
	}
	if err := c.probeJoiners(ctx, name, []string{sw}); err != nil {
		return err
	}
	return c.recover(ctx, name, sw)
}

// inCharge fails if another controller has taken over.
func (c *Controller) inCharge() error {
	if c.deposed != "" {
		return fmt.Errorf("%w: %s", chain.ErrRefused, c.deposed)
	}
	return nil
}

// errNotFound says that no such chain, switch or key exists.
var errNotFound = errors.New("not found")

// findChain finds a chain by its name or decimal id.
func (c *Controller) findChain(name string) (*chainState, error) {
	var names []string
	for _, ch := range c.net().chains {
		if ch.topo.Name == name || fmt.Sprint(ch.topo.ID) == name {
			return ch, nil
		}
		names = append(names, ch.topo.Name)
	}
	return nil, fmt.Errorf("%w: there is no chain %q; there is: %s", errNotFound, name, strings.Join(names, ", "))
}

// members returns the switches of a chain's configuration, ordered from head to tail.
func (c *Controller) members(ch *chainState) []*device {
	var out []*device
	for _, s := range ch.m.Status(c.now()).Config.Members {
		out = append(out, c.net().byName[s])
	}
	return out
}
