package controller

import (
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
)

// tidy makes switches that have come up agree with the directory (ops.Tidy), once all members of a
// chain have their part and have reported.
func (c *Controller) tidy(ch *chainState, st chain.Status) {
	if len(ch.tidying) > 0 || len(ch.untidy) == 0 || !st.MembersReady() {
		return
	}
	untidy := ops.Tidied(ch.untidy, st.Config)
	if len(untidy) == 0 {
		return
	}
	in := ops.Indexes{
		Members: st.Config.Members, Entries: map[string]map[wire.Key]ops.Entry{}, Untidy: untidy,
		Busy: map[wire.Key]bool{}, Older: st.Stale && !ch.tidied, Slots: c.prog.Slots, Entry: c.net().plan.Entry,
		KnowsNoRealms: func(sw string) bool { return c.net().byName[sw].Unguarded() },
	}
	for _, d := range c.net().devices {
		if !slices.Contains(in.Members, d.Spec.Name) {
			in.Others = append(in.Others, d.Spec.Name)
		}
		in.Entries[d.Spec.Name] = d.KeyEntries(ch.topo.ID)
	}
	for _, o := range ch.operations {
		for _, k := range o.Keys {
			in.Busy[k.ID] = true
		}
	}
	ch.tidied = true
	todo := ops.Tidy(c.dir, ch.topo.ID, in)
	if todo.Forgotten > 0 {
		c.events.Add("keys.forgotten", "", ch.topo.Name, fmt.Sprintf("%d keys of the saved state, which is an earlier "+
			"one, are in no member any more: they were removed or have moved", todo.Forgotten))
	}
	if todo.Adopted > 0 {
		c.events.Add("keys.adopted", "", ch.topo.Name, fmt.Sprintf(
			"%d keys are in the switches, and no record says what they are called: they are listed by their KEY_IDs",
			todo.Adopted))
	}
	if todo.Forgotten+todo.Adopted > 0 {
		if todo.Adopted > 0 {
			c.equality.HasKeys(ch.topo.ID)
		}
		c.countKeys(ch)
	}
	c.touch(ch).KnowsKeys()
	if todo.Changed {
		c.save(nil)
	}
	if len(todo.Steps) == 0 {
		return
	}
	ch.tidying = todo.Keys()
	go func() {
		err := ch.ops.Tidy(c.ctx, todo.Steps, func(step ops.TidyStep, err error) {
			c.post(func() { c.tidied(ch, step, err) })
		})
		if err != nil { // the controller is ending
			return
		}
		c.post(func() {
			ch.tidying = nil
			c.touch(ch)
		})
	}()
}

// tidied handles the result of a step.
func (c *Controller) tidied(ch *chainState, step ops.TidyStep, err error) {
	what := map[bool]string{true: "made", false: "dropped"}[step.Insert]
	if err != nil {
		c.events.Add("keys.not-tidied", step.Switch, ch.topo.Name,
			fmt.Sprintf("%d entries not %s: %v", len(step.Entries), what, err))
		return
	}
	c.events.Add("keys.tidied", step.Switch, ch.topo.Name,
		fmt.Sprintf("%d entries of the key index were %s", len(step.Entries), what))
}
