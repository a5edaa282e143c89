package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// From another program to this one (docs/security.md, "Rolling"): of a version before or after, or
// another build of this one. To load a program empties a switch, so a chain whose switches all got
// it at once would lose its values. A switch that runs a program which goes together with this one
// is therefore taken as it is, and gets this one when no chain needs it: one member after the other
// is left out, loaded, and brought in again. So a program is taken back, too: by
// the controller that it is of.
//
// Two programs go together if what both have means the same in both, by its id, and both have what
// no controller does without. What only one has, a register or a table more, does not matter: the
// other's switches do without it meanwhile. One that came before principals goes together with this
// one, too, though its entries lack parameters: until the last switch that knows no principals has
// this one nothing is enforced, for what comes from such a switch has none. So `access` grants
// everything to everybody in the meantime, as before.

// accessTables are those that only a program with principals has.
var accessTables = []string{"access", "session_lease"}

// indispensable is what a controller reads and writes in every switch.
var indispensable = []string{"port_trust", "local_address", "ipv4_lpm", "chain_config", "key_index",
	"versions", "session_request", "session_version", "events", "slot_reads", "slot_forwards", "slot_writes",
	"host_rate", "packet_in", "packet_out"}

// kin is a program that goes together with this one.
type kin struct {
	unguarded bool     // it is of before principals
	lacks     []string // tables of this one's that it has not
}

// kinOf is what a switch runs, if it goes together with this program; nil: it does not.
func (p *program) kinOf(running *configv1.P4Info) *kin {
	if p.unguarded(running) {
		return &kin{unguarded: true, lacks: slices.Concat(watchTables, accessTables, []string{"chain_peer"})}
	}
	ours := p.pipeline.Info.P4Info
	has, want := preambles(running), preambles(ours)
	there := func(name string) bool { return has[want[name]] != "" }
	absent := func(name string) bool { return !there(name) }
	if !p4rt.Agree(running, ours) || slices.ContainsFunc(indispensable, absent) {
		return nil
	}
	return &kin{lacks: slices.DeleteFunc(slices.Clone(ourTables), there)}
}

// preambles is the id of every table, register, counter and so on, by its short name, as a name and
// as a number; and the name by the number.
func preambles(info *configv1.P4Info) map[string]string {
	out := map[string]string{}
	note := func(p *configv1.Preamble) {
		id := fmt.Sprintf("%#x", p.GetId())
		out[cmp.Or(p.GetAlias(), p.GetName())], out[id] = id, id
	}
	for _, x := range info.GetTables() {
		note(x.GetPreamble())
	}
	for _, x := range info.GetRegisters() {
		note(x.GetPreamble())
	}
	for _, x := range info.GetCounters() {
		note(x.GetPreamble())
	}
	for _, x := range info.GetMeters() {
		note(x.GetPreamble())
	}
	for _, x := range info.GetControllerPacketMetadata() {
		note(x.GetPreamble())
	}
	return out
}

// unguarded says whether a P4Info is that of the program before principals, with the sizes of this
// one. Its registers and all else in its tables are the same.
func (p *program) unguarded(running *configv1.P4Info) bool {
	info, err := p4rt.NewInfo(running)
	if err != nil {
		return false
	}
	lacks := func(t string) bool { _, err := info.TableSize(t); return err != nil }
	if !slices.ContainsFunc(accessTables, lacks) ||
		slices.ContainsFunc([]string{"port_trust", "local_address", "ipv4_lpm", "chain_config", "key_index"}, lacks) {
		return false
	}
	for _, name := range p.pipeline.Info.Registers() {
		cells, width, err := p.pipeline.Info.RegisterSize(name)
		haveCells, haveWidth, haveErr := info.RegisterSize(name)
		if err != nil || haveErr != nil || cells != haveCells || width != haveWidth {
			return false
		}
	}
	return true
}

// former says whether the switch runs another program than this one, for now.
func (d *device) former() bool { return d.other.Load() != nil }

// unguarded says whether it runs one of before principals.
func (d *device) unguarded() bool { k := d.other.Load(); return k != nil && k.unguarded }

// lacks says whether its program has no such table.
func (d *device) lacks(table string) bool {
	k := d.other.Load()
	return k != nil && slices.Contains(k.lacks, table)
}

// ensureProgram makes a switch run the program, in one connection, but for one that holds
// something, and runs one that goes together with it: that is taken as it is.
func (d *device) ensureProgram(ctx context.Context, stream int) (p4rt.Pushed, error) {
	pipeline := d.c.prog.pipeline
	running, cookie, err := d.client.Running(ctx)
	if err != nil {
		return p4rt.Kept, err
	}
	mine := running != nil && cookie == pipeline.Cookie
	if running != nil && !mine && !d.replace.Load() {
		k := d.c.prog.kinOf(running)
		keys, err := d.holds(ctx, running)
		switch {
		case err != nil:
			return p4rt.Kept, err
		case k != nil && (keys > 0 || len(k.lacks) > 0):
			d.other.Store(k)
			return p4rt.Kept, nil
		case keys > 0: // of a much earlier version, a later one, or another profile
			return p4rt.Kept, fmt.Errorf("it runs a program of NetCRAQ's that this controller does not know (another profile, or another "+
				"version), and is a member of a chain, with %d keys, whose values would be lost: nothing was changed. Start the "+
				"controller that it is of; or, to begin without these values, restart the switch", keys)
		}
	}
	pushed := p4rt.Kept
	if !mine {
		// Emptied, and not reconciled: some targets keep registers then, and others do not.
		pushed = p4rt.Committed
		if err := d.client.ReloadIn(ctx, stream, pipeline); err != nil {
			return p4rt.Kept, err
		}
	}
	d.other.Store(nil)
	d.replace.Store(false)
	return pushed, nil
}

// holds is how many keys a switch has that runs another program and is a member of a chain: their
// values would be lost with it.
func (d *device) holds(ctx context.Context, running *configv1.P4Info) (keys int, err error) {
	info := d.c.prog.pipeline.Info
	for _, name := range []string{"key_index", "chain_config"} {
		if !sameTable(running, info.P4Info, name) {
			return 0, nil // it is none of NetCRAQ's
		}
	}
	entries, err := d.client.ReadTable(ctx, "key_index")
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	parts, err := d.client.ReadTable(ctx, "chain_config")
	if err != nil {
		return 0, err
	}
	member := func(te *v1.TableEntry) bool {
		e, err := info.Decode(te)
		return err != nil || chain.Role(e.Param("role").Uint64()).Member()
	}
	if !slices.ContainsFunc(parts, member) {
		return 0, nil
	}
	return len(entries), nil
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

// asFormer makes an entry one of the program that the switch runs; nil: it has none for it. What
// both have has the same id, whatever it is called now.
func (d *device) asFormer(info *p4rt.Info, e p4rt.Entry, te *v1.TableEntry) (*v1.TableEntry, error) {
	switch {
	case d.lacks(e.Table):
		return nil, nil
	case !d.unguarded():
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
	return slices.DeleteFunc(slices.Clone(ourTables), d.lacks)
}

// openness is the default of `access`: everything while there is a switch that says no principals,
// else nothing.
func (c *Controller) openness() bool {
	return slices.ContainsFunc(c.net().devices, func(d *device) bool { return d.unguarded() })
}

// writeOpenness writes that default where it is another.
func (d *device) writeOpenness(ctx context.Context) error {
	open := d.c.openness()
	if d.unguarded() || d.open == open {
		return nil
	}
	if err := d.writeDefault(ctx, p4rt.Entry{Table: "access", Default: true, Action: "grant",
		Params: p4rt.Params{"read": open, "write": open}}); err != nil {
		return err
	}
	d.open = open
	return nil
}

// readOpenness reads what it is.
func (d *device) readOpenness(ctx context.Context) error {
	e, ok, err := d.readDefault(ctx, "access")
	if err != nil || !ok {
		d.open = false
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

// rolling is what the controller remembers of replacing programs.
type rolling struct {
	owed  []rolled
	begun *device // its program is being replaced, and that is not done
	open  bool    // access was not enforced when it began
}

// roll loads the program into one switch after the other that runs another one. None is taken
// out of a chain before the one before it is back in: of three members two would be out.
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
				c.post(func() { c.events.add("switch.program-waits", "", "", waits) })
			}
			said = waits
			continue
		}
		if err := c.rollAlone(ctx, next, &r.owed); err != nil {
			if why := next.sw.Name + err.Error(); why != failed {
				failed = why
				c.post(func() {
					c.events.add("switch.program-not-replaced", next.sw.Name, "", err.Error()+"; trying again")
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

// toRoll is the switch to go on with; nil: there is none, or waits says what for.
func (c *Controller) toRoll(r *rolling) (next *device, waits string) {
	r.owed = slices.DeleteFunc(r.owed, c.returned)
	if len(r.owed) > 0 {
		return c.net().byName[r.owed[0].sw], ""
	}
	if r.begun != nil && c.net().byName[r.begun.sw.Name] == r.begun && !r.begun.former() {
		c.rolledOne(r) // somebody else has brought it in
	}
	if next, waits = c.nextToRoll(); next != nil {
		r.begun, r.open = next, r.open || next.unguarded()
	}
	return next, waits
}

// rolledOne: a switch runs this version's program, and is back in its chains.
func (c *Controller) rolledOne(r *rolling) {
	if r.begun != nil {
		c.events.add("switch.program-replaced", r.begun.sw.Name, "", "it runs this version's program, and is back in its chains")
	}
	r.begun = nil
	if r.open && !c.openness() {
		r.open = false
		c.events.add("network.enforces-access", "", "", "all switches run this version's program: access is enforced")
	}
	for _, d := range c.net().devices {
		d.refreshSoon()
	}
}

// rollAlone is rollOne while nobody brings in another switch, or this one: a chain that misses it
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
		if !x.former() || !x.ready {
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

// rollOne loads the program into a switch that runs another one: it is left out of its chains,
// loaded, and brought in again. Then nothing of it is owed; what is, when it fails, it takes up the
// next time.
func (c *Controller) rollOne(ctx context.Context, d *device, owed *[]rolled) error {
	if d.former() {
		if err := c.leaveChains(ctx, d, owed); err != nil {
			return err
		}
		var taken error
		done := make(chan struct{})
		if err := c.call(ctx, func() {
			d.emptying = true
			// While it is empty it routes nothing either.
			c.avoided[d.sw.Name] = true
			c.reroute("switch.avoided", d, "its program is being replaced: routes go around it where they can")
			c.afterOthers(d, func() {
				if taken = c.mayErase(nil, d); taken != nil { // somebody has taken it meanwhile
					c.notErased(d)
					close(done)
					return
				}
				d.submit(func(ctx context.Context) {
					d.replace.Store(true)
					d.setUp(ctx, d.client.State().Stream)
					d.replace.Store(false) // if that failed the chains are asked again
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
			return fmt.Errorf("%s does not get the program now: %w", d.sw.Name, taken)
		}
		if d.former() {
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
