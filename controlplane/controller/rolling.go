package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// From a program of before to this one (docs/security.md, "Rolling"). The last one knows no
// watches; the one before it no principals, realms, leases of sessions and rates, either. Their
// registers and all else in their tables are the same. To load a program empties a switch, so a
// chain whose switches all got it at once would lose its values. A switch that runs a program of
// before is therefore taken as it is, and gets this one when no chain needs it: one member after
// the other is left out, loaded, and brought in again behind the tail.
//
// Until the last that knows no principals has it nothing is enforced: what comes from such a switch
// has none. So `access` grants everything to everybody in the meantime, as before.

// accessTables are those that only a program with principals has.
var accessTables = []string{"access", "session_lease"}

// former says whether a P4Info is that of a program of before, with the sizes of this one;
// unguarded: it is of before principals.
func (p *program) former(running *configv1.P4Info) (is, unguarded bool) {
	info, err := p4rt.NewInfo(running)
	if err != nil {
		return false, false
	}
	lacks := func(tables []string) bool {
		return slices.ContainsFunc(tables, func(t string) bool { _, err := info.TableSize(t); return err != nil })
	}
	if !lacks(watchTables) || lacks([]string{"port_trust", "local_address", "ipv4_lpm", "chain_config", "key_index"}) {
		return false, false
	}
	for _, name := range p.pipeline.Info.Registers() {
		cells, width, err := p.pipeline.Info.RegisterSize(name)
		haveCells, haveWidth, haveErr := info.RegisterSize(name)
		if err != nil || haveErr != nil || cells != haveCells || width != haveWidth {
			return false, false
		}
	}
	return true, lacks(accessTables)
}

// ensureProgram makes a switch run the program, but for one that runs that of before: it is taken
// as it is, if it holds anything.
func (d *device) ensureProgram(ctx context.Context) (p4rt.Pushed, error) {
	running, err := d.client.RunningInfo(ctx)
	if err != nil {
		return p4rt.Kept, err
	}
	if running != nil && !d.replace.Load() {
		if is, unguarded := d.c.prog.former(running); is {
			d.former.Store(true)
			d.unguarded.Store(unguarded)
			return p4rt.Kept, nil
		}
	}
	if running != nil && !d.replace.Load() && !p4rt.SameMeaning(running, d.c.prog.pipeline.Info.P4Info) {
		if err := d.spare(ctx, running); err != nil {
			return p4rt.Kept, err
		}
	}
	pushed, err := d.client.EnsurePipeline(ctx, d.c.prog.pipeline)
	if err == nil {
		d.former.Store(false)
		d.unguarded.Store(false)
		d.replace.Store(false)
	}
	return pushed, err
}

// spare refuses to load the program into a switch that runs another one of NetCRAQ's, of a later
// version, a much earlier one or another profile, and holds values of a chain's: to load it would
// empty the switch, and all switches of the chain at once.
func (d *device) spare(ctx context.Context, running *configv1.P4Info) error {
	info := d.c.prog.pipeline.Info
	for _, name := range []string{"key_index", "chain_config"} {
		if !sameTable(running, info.P4Info, name) {
			return nil // it is none of NetCRAQ's
		}
	}
	keys, err := d.client.ReadTable(ctx, "key_index")
	if err != nil || len(keys) == 0 {
		return err
	}
	parts, err := d.client.ReadTable(ctx, "chain_config")
	if err != nil {
		return err
	}
	member := func(te *v1.TableEntry) bool {
		e, err := info.Decode(te)
		return err != nil || chain.Role(e.Param("role").Uint64()).Member()
	}
	if !slices.ContainsFunc(parts, member) {
		return nil
	}
	return fmt.Errorf("it runs a program of NetCRAQ's that this controller does not know (another profile, or another "+
		"version), and is a member of a chain, with %d keys, whose values would be lost: nothing was changed. Start the "+
		"controller that it is of; or, to begin without these values, restart the switch", len(keys))
}

// sameTable says whether two programs have a table of a name under the same id.
func sameTable(a, b *configv1.P4Info, name string) bool {
	id := func(info *configv1.P4Info) uint32 {
		for _, t := range info.Tables {
			if t.Preamble.Alias == name || t.Preamble.Name == name {
				return t.Preamble.Id
			}
		}
		return 0
	}
	return id(a) != 0 && id(a) == id(b)
}

// asFormer makes an entry one of a program of before; nil: it has none for it. What both have has
// the same id, whatever it is called now.
func asFormer(info *p4rt.Info, e p4rt.Entry, te *v1.TableEntry, unguarded bool) (*v1.TableEntry, error) {
	switch {
	case slices.Contains(watchTables, e.Table), unguarded && slices.Contains(accessTables, e.Table):
		return nil, nil
	case !unguarded:
		return te, nil
	}
	switch e.Table {
	case "port_trust":
		if e.Action == "open_host_port" {
			var err error
			e.Action = "host_port"
			if te, err = info.Encode(e); err != nil {
				return nil, err
			}
		}
		te.Action.GetAction().Params = nil
	case "key_index":
		te.Action.GetAction().Params = te.Action.GetAction().Params[:1] // the slot, without the realm
	}
	return te, nil
}

// tables are those of a switch that the controller fills.
func (d *device) tables() []string {
	return slices.DeleteFunc(slices.Clone(ourTables), func(t string) bool {
		return d.former.Load() && slices.Contains(watchTables, t) ||
			d.unguarded.Load() && slices.Contains(accessTables, t)
	})
}

// openness is the default of `access`: everything while there is a switch that says no principals,
// else nothing.
func (c *Controller) openness() bool {
	return slices.ContainsFunc(c.net().devices, func(d *device) bool { return d.unguarded.Load() })
}

// writeOpenness writes that default where it is another.
func (d *device) writeOpenness(ctx context.Context) error {
	open := d.c.openness()
	if d.unguarded.Load() || d.open == open {
		return nil
	}
	te, err := d.c.prog.pipeline.Info.Encode(p4rt.Entry{Table: "access", Default: true, Action: "grant",
		Params: p4rt.Params{"read": open, "write": open}})
	if err != nil {
		return err
	}
	if err := d.client.Write(ctx, p4rt.Modify(p4rt.EntryEntity(te))); err != nil {
		return err
	}
	d.open = open
	return nil
}

// readOpenness reads what it is.
func (d *device) readOpenness(ctx context.Context) error {
	te, err := d.client.ReadDefault(ctx, "access")
	if err != nil || te == nil {
		d.open = false
		return err
	}
	e, err := d.c.prog.pipeline.Info.Decode(te)
	if err != nil {
		return err
	}
	d.open = e.Action == "grant" && e.Param("read").Uint64() == 1
	return nil
}

// rollEvery is how long the controller waits before it looks for the next switch to load, and
// rollTimeout how long one may take.
const (
	rollEvery   = 500 * time.Millisecond
	rollTimeout = 3 * time.Minute
)

// rolled is a switch that was taken out of a chain to be loaded, and is to come back.
type rolled struct{ sw, chain string }

// roll loads the program into one switch after the other that runs that of before. None is taken
// out of a chain before the one before it is back in: of three members two would be out.
func (c *Controller) roll(ctx context.Context) {
	said, failed := "", ""
	var owed []rolled
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rollEvery):
		}
		var next *device
		var waits string
		if c.call(ctx, func() {
			owed = slices.DeleteFunc(owed, c.returned)
			if len(owed) > 0 {
				next = c.net().byName[owed[0].sw]
			} else {
				next, waits = c.nextToRoll()
			}
		}) != nil {
			return
		}
		if next == nil {
			if waits != "" && waits != said {
				c.post(func() { c.events.add("switch.program-waits", "", "", waits) })
			}
			said = waits
			continue
		}
		once, cancel := context.WithTimeout(ctx, rollTimeout)
		open := next.unguarded.Load()
		err := c.rollOne(once, next, &owed)
		cancel()
		if err != nil {
			if why := next.sw.Name + err.Error(); why != failed {
				failed = why
				c.post(func() {
					c.events.add("switch.program-not-replaced", next.sw.Name, "", err.Error()+"; trying again")
				})
			}
			continue
		}
		failed = ""
		c.post(func() {
			c.events.add("switch.program-replaced", next.sw.Name, "", "it runs this version's program, and is back in its chains")
			if open && !c.openness() {
				c.events.add("network.enforces-access", "", "", "all switches run this version's program: access is enforced")
			}
			for _, d := range c.net().devices {
				d.refreshSoon()
			}
		})
	}
}

// returned says that a switch is not to come back to a chain any longer: somebody has brought it
// in, or it or the chain has left the network.
func (c *Controller) returned(x rolled) bool {
	n := c.net()
	i := slices.IndexFunc(n.chains, func(ch *chainState) bool { return ch.topo.Name == x.chain })
	return n.byName[x.sw] == nil || n.left[x.sw] || i < 0 || n.chains[i].m.Status(c.now()).Config.IsMember(x.sw)
}

// nextToRoll is a switch to load the program into now; nil: there is none, or waits says what for.
func (c *Controller) nextToRoll() (d *device, waits string) {
	if c.deposed != "" || !c.leads() {
		return nil, ""
	}
	var member *device
	for _, x := range c.net().devices {
		if !x.former.Load() || !x.ready {
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
			return nil, fmt.Sprintf("switches run the program of the version before, and are loaded one after the other when all chains are ready: chain %s: %s", ch.topo.Name, st.Reason)
		}
	}
	for _, ch := range c.chainsOf(member) {
		if len(ch.m.Status(c.now()).Config.Members) < 2 {
			return nil, fmt.Sprintf("%s runs the program of the version before, and is the only member of chain %s, which would lose its values: give the chain another member, or restart the switch",
				member.sw.Name, ch.topo.Name)
		}
	}
	return member, ""
}

// chainsOf is the chains that a switch is a member of.
func (c *Controller) chainsOf(d *device) (out []*chainState) {
	for _, ch := range c.net().chains {
		if ch.m.Status(c.now()).Config.IsMember(d.sw.Name) {
			out = append(out, ch)
		}
	}
	return out
}

// rollOne loads the program into a switch that runs that of before: it is left out of its chains,
// loaded, and brought in again. Then nothing of it is owed; what is, when it fails, it takes up the
// next time.
func (c *Controller) rollOne(ctx context.Context, d *device, owed *[]rolled) error {
	if d.former.Load() {
		if err := c.leaveChains(ctx, d, owed); err != nil {
			return err
		}
		d.replace.Store(true)
		done := make(chan struct{})
		d.submit(func(ctx context.Context) {
			d.setUp(ctx, d.client.State().Stream)
			close(done)
		})
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if d.former.Load() {
			return fmt.Errorf("%s did not take the program: %w", d.sw.Name, errNotConnected)
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

// leaveChains takes a switch out of the chains that it is a member of.
func (c *Controller) leaveChains(ctx context.Context, d *device, owed *[]rolled) error {
	without := map[string][]string{}
	if err := c.call(ctx, func() {
		for _, ch := range c.chainsOf(d) {
			members := slices.Clone(ch.m.Status(c.now()).Config.Members)
			without[ch.topo.Name] = slices.DeleteFunc(members, func(m string) bool { return m == d.sw.Name })
		}
	}); err != nil {
		return err
	}
	for name, members := range without {
		// Before it is tried: what is not known to have succeeded may have.
		*owed = append(*owed, rolled{d.sw.Name, name})
		if err := c.change(ctx, name, chain.Change{Members: members, Rest: true}); err != nil {
			return fmt.Errorf("leaving it out of chain %s: %w", name, err)
		}
	}
	return nil
}
