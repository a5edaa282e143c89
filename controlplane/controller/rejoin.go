package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
)

// This file brings lost switches in again. A machine requests that by Rejoin. A program that
// decides a chain's members itself requests it by BringIn.

// probeTimeout bounds the test that a switch must answer before it is brought in. The connection to
// a stopped switch may stay open, and a chain that fills such a switch would wait for it.
const probeTimeout = time.Second

// BringIn brings a switch into a chain as Recover does. If that fails, the chain continues without
// the switch. A switch that does not answer is refused at once. The switch may hold old values and
// also be a member of other chains. Then the chains that can continue without the switch do so
// while it is emptied, and get it back afterwards.
func (c *Controller) BringIn(ctx context.Context, name, sw string) (*admin.Chain, error) {
	if err := c.bringIn(ctx, name, sw); err != nil {
		return nil, apiError(err)
	}
	return c.Chain(ctx, name)
}

// bringIn implements BringIn. It brings in one switch at a time, because switches may share an
// overloaded machine, and a switch that several chains have lost must be emptied only once.
func (c *Controller) bringIn(ctx context.Context, name, sw string) error {
	select {
	case c.bringing <- struct{}{}:
		defer func() { <-c.bringing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if there, err := c.isMember(ctx, name, sw); err != nil || there {
		return err
	}
	if err := c.probe(ctx, sw); err != nil {
		return err
	}
	others, err := c.othersOf(ctx, name, sw)
	if err != nil {
		return err
	}
	for other, members := range others {
		if err := c.change(ctx, other, chain.Change{Members: members, Rest: true}); err != nil {
			return fmt.Errorf("chain %s, which it is to be left out of while it is emptied: %w", other, err)
		}
	}
	err = c.recover(ctx, name, sw)
	for other := range others { // other chains get the switch back even if the requested chain did not get it
		if failed := c.recover(ctx, other, sw); failed != nil && err == nil {
			err = fmt.Errorf("bringing it into chain %s again, which was without it meanwhile: %w", other, failed)
		}
	}
	return err
}

// isMember reports whether a switch is a member of a chain.
func (c *Controller) isMember(ctx context.Context, name, sw string) (is bool, err error) {
	var failed error
	err = c.call(ctx, func() {
		var ch *chainState
		if ch, failed = c.findChain(name); failed == nil {
			is = ch.m.Status(c.now()).Config.IsMember(sw)
		}
	})
	return is, errors.Join(err, failed)
}

// probe tests whether a switch answers a call and a packet.
func (c *Controller) probe(ctx context.Context, sw string) error {
	d, err := c.device(sw)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err = d.Client.ReadTable(ctx, "chain_config")
	if err == nil {
		_, err = d.Recorded(ctx, 1)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", chain.ErrSilent, err)
	}
	return nil
}

// probeJoiners probes the given switches that are set up and are not members of the chain. The
// chain's machine reports problems with all other switches.
func (c *Controller) probeJoiners(ctx context.Context, name string, asked []string) error {
	var strangers []string
	var failed error
	if err := c.call(ctx, func() {
		var ch *chainState
		if ch, failed = c.findChain(name); failed != nil {
			return
		}
		conf := ch.m.Status(c.now()).Config
		for _, sw := range asked {
			if d := c.net().byName[sw]; d != nil && d.ready && !conf.IsMember(sw) {
				strangers = append(strangers, sw)
			}
		}
	}); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	return ops.Each(ctx, switches.Goroutines{}, strangers, c.probe)
}

// othersOf returns the other chains of a switch that must be emptied before it is brought in, each
// with its other members.
func (c *Controller) othersOf(ctx context.Context, name, sw string) (others map[string][]string, err error) {
	var failed error
	err = c.call(ctx, func() {
		var ch *chainState
		if ch, failed = c.findChain(name); failed != nil || !ch.m.HoldsOld(sw) {
			return
		}
		others = map[string][]string{}
		for _, other := range c.net().chains {
			st := other.m.Status(c.now())
			if other == ch || !slices.Contains(st.Config.Learners(), sw) {
				continue
			}
			if !st.Ready || !st.Config.IsMember(sw) || len(st.Config.Members) < 2 {
				failed = fmt.Errorf("%w: it has values of before, and to empty it chain %s must do without it for a "+
					"moment, which it cannot now", chain.ErrUnavailable, other.topo.Name)
				return
			}
			without := func(m string) bool { return m == sw }
			others[other.topo.Name] = slices.DeleteFunc(slices.Clone(st.Config.Members), without)
		}
	})
	return others, errors.Join(err, failed)
}
