package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/wire"
)

// tidy compares the key_index entries of switches that have come up with the directory, once all
// members have their part and have been heard: entries that are missing are made, tail first; keys
// that all members have and nobody remembers are taken in; all others are dropped, head first. What
// is compared is what the switches have now, not when they came: a key that has gone since must not
// come back under its KEY_ID. Nobody remembers a key only if its KEY_ID has never been given, as
// far as the directory knows (it was lost): one that was given and is no key's any more was removed
// or has moved away.
func (c *Controller) tidy(ch *chainState, st chain.Status) {
	if len(ch.tidying) > 0 || len(ch.untidy) == 0 || !st.Decided {
		return
	}
	for _, m := range st.Members {
		if !m.Ready {
			return
		}
	}
	busy := map[wire.Key]bool{}
	for _, o := range ch.operations {
		for _, k := range o.Keys {
			busy[k.ID] = true
		}
	}
	for _, k := range c.dir.Chain(ch.topo.ID) {
		if k.Alias != 0 { // it is being moved
			busy[k.ID], busy[k.Alias] = true, true
		}
	}
	first := !ch.tidied
	ch.tidied = true
	members := st.Config.Members
	entries := map[string]map[wire.Key]ops.Entry{}
	for _, d := range c.net().devices {
		if ch.untidy[d.sw.Name] || slices.Contains(members, d.sw.Name) {
			entries[d.sw.Name] = d.slotsOf(ch.topo.ID)
		}
	}
	if st.Stale && first {
		c.forgetGone(ch, entries, members, busy)
	}
	// Keys that nobody remembers.
	found := map[wire.Key]int{}
	for id, entry := range entries[members[0]] {
		everywhere := !slices.ContainsFunc(members, func(m string) bool {
			s, ok := entries[m][id]
			return !ok || s.Slot != entry.Slot
		})
		if _, ok := c.dir.ByID(id); !ok && !busy[id] && everywhere && entry.Slot < c.prog.slots {
			found[id] = entry.Slot
		}
	}
	if adopted := len(c.dir.Adopt(found)); adopted > 0 {
		c.events.add("keys.adopted", "", ch.topo.Name, fmt.Sprintf(
			"%d keys are in the switches, and no record says what they are called: they are listed by their KEY_IDs", adopted))
		c.touch(ch).SetKeys(c.dir.Count(ch.topo.ID))
		c.save(nil)
	}
	if st.Stale && first { // those that were given since the directory was saved, and are no key's any more
		c.dir.Skip(ch.topo.ID)
		c.save(nil)
	}
	type work struct {
		d      *device
		insert bool
		keys   []ops.Entry
	}
	var todo []work
	retired := 0
	keys := c.dir.Chain(ch.topo.ID)
	for _, m := range slices.Backward(members) {
		if !ch.untidy[m] {
			continue
		}
		w := work{d: c.net().byName[m], insert: true}
		for _, k := range keys {
			want := c.net().plan.entryOf(k)
			if has, ok := entries[m][k.ID]; k.State == keyspace.Placed && !busy[k.ID] &&
				(!ok || has.Slot != want.Slot || has.Realm != want.Realm && !w.d.unguarded.Load()) {
				w.keys = append(w.keys, want)
			}
		}
		todo = append(todo, w)
	}
	for _, d := range c.orderedBy(members) {
		if !ch.untidy[d.sw.Name] {
			continue
		}
		w := work{d: d}
		for id := range entries[d.sw.Name] {
			k, ok := c.dir.ByID(id)
			if !ok && !busy[id] {
				c.dir.Retire(id) // somebody has given it
				retired++
			}
			if !busy[id] && (!ok || !slices.Contains(members, d.sw.Name) || k.State != keyspace.Placed) {
				w.keys = append(w.keys, ops.Entry{ID: id})
			}
		}
		todo = append(todo, w)
	}
	clear(ch.untidy)
	if retired > 0 {
		c.save(nil)
	}
	todo = slices.DeleteFunc(todo, func(w work) bool { return len(w.keys) == 0 })
	if len(todo) == 0 {
		return
	}
	ch.tidying = map[wire.Key]bool{}
	for _, w := range todo {
		for _, k := range w.keys {
			ch.tidying[k.ID] = true
		}
	}
	go func() {
		for _, w := range todo {
			done := make(chan error, 1)
			w.d.submit(func(ctx context.Context) { done <- w.d.writeKeys(ctx, w.insert, w.keys) })
			var err error
			select {
			case err = <-done:
			case <-c.ctx.Done():
				return
			}
			what := map[bool]string{true: "made", false: "dropped"}[w.insert]
			c.post(func() {
				if err != nil {
					// It will come up again, or an operator must look.
					c.events.add("keys.not-tidied", w.d.sw.Name, ch.topo.Name, fmt.Sprintf("%d entries not %s: %v", len(w.keys), what, err))
				} else {
					c.events.add("keys.tidied", w.d.sw.Name, ch.topo.Name, fmt.Sprintf("%d entries of the key index were %s", len(w.keys), what))
				}
			})
		}
		c.post(func() {
			ch.tidying = nil
			c.touch(ch)
		})
	}()
}

// forgetGone has the directory follow the switches where it was saved with a record that is an
// earlier one: a key of which no member has an entry was removed or has moved since.
func (c *Controller) forgetGone(ch *chainState, entries map[string]map[wire.Key]ops.Entry, members []string,
	busy map[wire.Key]bool) {
	gone := 0
	for _, k := range slices.Clone(c.dir.Chain(ch.topo.ID)) {
		somewhere := slices.ContainsFunc(members, func(m string) bool { _, ok := entries[m][k.ID]; return ok })
		if k.State == keyspace.Placed && !busy[k.ID] && !somewhere {
			c.dir.Delete(k.ID)
			gone++
		}
	}
	if gone > 0 {
		c.events.add("keys.forgotten", "", ch.topo.Name, fmt.Sprintf("%d keys of the saved state, which is an earlier "+
			"one, are in no member any more: they were removed or have moved", gone))
		c.touch(ch).SetKeys(c.dir.Count(ch.topo.ID))
	}
}

// orderedBy is all devices, those that are named first.
func (c *Controller) orderedBy(names []string) []*device {
	var out []*device
	for _, n := range names {
		out = append(out, c.net().byName[n])
	}
	for _, d := range c.net().devices {
		if !slices.Contains(names, d.sw.Name) {
			out = append(out, d)
		}
	}
	return out
}
