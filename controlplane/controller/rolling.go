package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
)

// This file upgrades a switch from another program to this controller's program (docs/security.md,
// "Rolling"). The other program may be an earlier or later version, or another build of the same
// version. Loading a program empties a switch, so a chain whose switches were all loaded at once
// would lose its values. A switch that runs a compatible program therefore keeps it at first. The
// controller then takes one member after the other out of its chains, loads this program, and
// brings the member in again. A downgrade works in the same way, by the older controller.
//
// Two programs are compatible if the parts that both have (compared by id) mean the same in both,
// and both have the parts that every controller needs. Parts that only one program has, such as an
// additional register or table, do not matter: switches with the other program work without them
// meanwhile. A program without principals is compatible, too, though its entries lack parameters.
// Until every switch has a program with principals, no rights are enforced, because packets from a
// switch without principals carry none. So `access` grants everything to all hosts in the meantime,
// as such a program does.

// openness returns the default of `access`. It grants everything while some switch sends no
// principals, and otherwise nothing.
func (c *Controller) openness() bool {
	return slices.ContainsFunc(c.net().devices, func(d *device) bool { return d.Unguarded() })
}

// rollEvery is how long the controller waits before it looks for the next switch to load.
// rollTimeout bounds the loading of one switch.
const (
	rollEvery   = 500 * time.Millisecond
	rollTimeout = 3 * time.Minute
)

// rolled is a switch that was taken out of a chain to be loaded, and must come back.
type rolled struct{ sw, chain string }

// rolling is the state of upgrading switches to this controller's program.
type rolling struct {
	owed  []rolled
	begun *device // the switch whose program is being replaced; nil if there is none
	open  bool    // access was not enforced when the rollout began
}

// roll loads the program into each switch that runs another program, one switch after the other. It
// takes no switch out of a chain before the previous switch is back in, because otherwise two of
// three members would be out.
func (c *Controller) roll(ctx context.Context) {
	said, failed := "", ""
	var r rolling
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rollEvery):
		}
		var next *device
		var waits string
		if c.call(ctx, func() { next, waits = c.toRoll(&r) }) != nil {
			return
		}
		if next == nil {
			if waits != "" && waits != said {
				c.post(func() { c.events.Add("switch.program-waits", "", "", waits) })
			}
			said = waits
			continue
		}
		if err := c.rollAlone(ctx, next, &r.owed); err != nil {
			if why := next.Spec.Name + err.Error(); why != failed {
				failed = why
				c.post(func() {
					c.events.Add("switch.program-not-replaced", next.Spec.Name, "", err.Error()+"; trying again")
				})
			}
			continue
		}
		failed = ""
		if c.call(ctx, func() { c.rolledOne(&r) }) != nil {
			return
		}
	}
}

// toRoll returns the next switch to load the program into. If it returns nil, either no switch is
// left, or the result waits says why loading must wait.
func (c *Controller) toRoll(r *rolling) (next *device, waits string) {
	r.owed = slices.DeleteFunc(r.owed, c.returned)
	if len(r.owed) > 0 {
		return c.net().byName[r.owed[0].sw], ""
	}
	if r.begun != nil && c.net().byName[r.begun.Spec.Name] == r.begun && !r.begun.Former() {
		c.rolledOne(r) // an operator has brought the switch in
	}
	if next, waits = c.nextToRoll(); next != nil {
		r.begun, r.open = next, r.open || next.Unguarded()
	}
	return next, waits
}

// rolledOne handles a switch that runs this version's program and is back in its chains.
func (c *Controller) rolledOne(r *rolling) {
	if r.begun != nil {
		c.events.Add("switch.program-replaced", r.begun.Spec.Name, "", "it runs this version's program, and is back in its chains")
	}
	r.begun = nil
	if r.open && !c.openness() {
		r.open = false
		c.events.Add("network.enforces-access", "", "", "all switches run this version's program: access is enforced")
	}
	for _, d := range c.net().devices {
		d.RefreshSoon()
	}
}

// rollAlone runs rollOne while no switch is being brought in. A chain that has lost this switch
// must not get it back before it is loaded.
func (c *Controller) rollAlone(ctx context.Context, d *device, owed *[]rolled) error {
	select {
	case c.bringing <- struct{}{}:
		defer func() { <-c.bringing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, rollTimeout)
	defer cancel()
	return c.rollOne(ctx, d, owed)
}

// returned reports whether a switch no longer has to come back to a chain, because an operator has
// brought it in, or the switch or the chain has left the network.
func (c *Controller) returned(x rolled) bool {
	n := c.net()
	i := slices.IndexFunc(n.chains, func(ch *chainState) bool { return ch.topo.Name == x.chain })
	return n.byName[x.sw] == nil || n.left[x.sw] || i < 0 || n.chains[i].m.Status(c.now()).Config.IsMember(x.sw)
}

// nextToRoll returns a switch to load the program into now. If it returns nil, either no switch is
// left, or the result waits says why loading must wait.
func (c *Controller) nextToRoll() (d *device, waits string) {
	if c.deposed != "" || !c.leads() {
		return nil, ""
	}
	var member *device
	for _, x := range c.net().devices {
		if !x.Former() || !x.ready {
			continue
		}
		if len(c.chainsOf(x)) == 0 {
			return x, ""
		}
		if member == nil {
			member = x
		}
	}
	if member == nil {
		return nil, ""
	}
	for _, ch := range c.net().chains {
		if st := ch.m.Status(c.now()); !st.Ready {
			return nil, fmt.Sprintf("switches run another version's program, and are loaded one after the other when all chains are ready: chain %s: %s", ch.topo.Name, st.Reason)
		}
	}
	for _, ch := range c.chainsOf(member) {
		if len(ch.m.Status(c.now()).Config.Members) < 2 {
			return nil, fmt.Sprintf("%s runs another version's program, and is the only member of chain %s, which would lose its values: give the chain another member, or restart the switch",
				member.Spec.Name, ch.topo.Name)
		}
	}
	return member, ""
}

// chainsOf returns the chains that a switch is a member of.
func (c *Controller) chainsOf(d *device) (out []*chainState) {
	for _, ch := range c.net().chains {
		if ch.m.Status(c.now()).Config.IsMember(d.Spec.Name) {
			out = append(out, ch)
		}
	}
	return out
}

// rollOne loads the program into a switch that runs another program. It takes the switch out of the
// switch's chains, loads the program, and brings the switch in again. On success the switch is no
// longer in owed. After a failure, the next try continues with owed.
func (c *Controller) rollOne(ctx context.Context, d *device, owed *[]rolled) error {
	if d.Former() {
		if err := c.leaveChains(ctx, d, owed); err != nil {
			return err
		}
		var taken error
		done := make(chan struct{})
		if err := c.call(ctx, func() {
			d.emptying = true
			// Routes must avoid an empty switch, because it routes no packets.
			c.avoided[d.Spec.Name] = true
			c.reroute("switch.avoided", d, "its program is being replaced: routes go around it where they can")
			c.afterOthers(d, func() {
				// a chain has made the switch a member meanwhile
				if taken = c.mayErase(nil, d); taken != nil {
					c.notErased(d)
					close(done)
					return
				}
				d.Submit(func(ctx context.Context) {
					d.Replace(ctx)
					close(done)
				})
			})
		}); err != nil {
			return err
		}
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if taken != nil {
			return fmt.Errorf("%s does not get the program now: %w", d.Spec.Name, taken)
		}
		if d.Former() {
			return fmt.Errorf("%s did not take the program: %w", d.Spec.Name, switches.ErrNotConnected)
		}
	}
	for ; len(*owed) > 0; *owed = (*owed)[1:] {
		x := (*owed)[0]
		if err := c.recover(ctx, x.chain, x.sw); err != nil {
			return fmt.Errorf("bringing it into chain %s again: %w", x.chain, err)
		}
	}
	return nil
}

// leaveChains takes a switch out of all its chains.
func (c *Controller) leaveChains(ctx context.Context, d *device, owed *[]rolled) error {
	without := map[string][]string{}
	if err := c.call(ctx, func() {
		for _, ch := range c.chainsOf(d) {
			members := slices.Clone(ch.m.Status(c.now()).Config.Members)
			without[ch.topo.Name] = slices.DeleteFunc(members, func(m string) bool { return m == d.Spec.Name })
		}
	}); err != nil {
		return err
	}
	for name, members := range without {
		// Note the switch before the attempt, because an attempt that seems to have failed may have
		// succeeded.
		*owed = append(*owed, rolled{d.Spec.Name, name})
		if err := c.change(ctx, name, chain.Change{Members: members, Rest: true}); err != nil {
			return fmt.Errorf("leaving it out of chain %s: %w", name, err)
		}
	}
	return nil
}
