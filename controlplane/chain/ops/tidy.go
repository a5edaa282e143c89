package ops

import (
	"context"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// Indexes are the acknowledged key_index entries of a chain in the switches, once all members have
// their part and have reported.
type Indexes struct {
	Members []string                      // head first
	Others  []string                      // the other switches
	Entries map[string]map[wire.Key]Entry // by switch
	// Untidy lists the switches that have come up since they were last tidied. Tidy makes and drops
	// their entries. A switch that is being filled is not in Untidy, because Copy gives it its
	// entries.
	Untidy map[string]bool
	Busy   map[wire.Key]bool // keys that operations are changing
	// Older says that the saved directory is older than the last record.
	Older bool
	Slots int                      // number of slots that exist
	Entry func(keyspace.Key) Entry // the entry that a key should have
	// KnowsNoRealms says that a switch's program has no realms: so entries that differ only in the
	// realm are the same to it. nil: all programs have realms.
	KnowsNoRealms func(sw string) bool
}

// Tidied returns the switches that can be tidied now, of those that have come up: all but a joiner.
// A joiner can be tidied when it has become a member or was given up.
func Tidied(untidy map[string]bool, c chain.Config) map[string]bool {
	now := maps.Clone(untidy)
	delete(now, c.Shadow)
	for sw := range now {
		delete(untidy, sw)
	}
	return now
}

// Former selects the key_index entries that a switch must lose before it becomes a member: those
// of keys that were removed, or have moved away, while the switch was out of the chain or out of
// reach. Keys are removed only from members, and a chain without keys accepts a switch as it is.
// had is the switch's role in its present configuration, chain.None if it has none. keys are the
// chain's, and used reports which KEY_IDs were ever given (keyspace.Directory.Used).
//
// If a switch has no part, none of its entries count. A switch that was cut off still has its part
// of an earlier configuration, and cannot be told from a member that continues. So it loses only
// those entries whose KEY_IDs were given and no longer belong to a key. The others may belong to
// keys that a lost or earlier directory does not know (Tidy).
func Former(had chain.Role, keys []keyspace.Key, used func(wire.Key) bool) func(wire.Key) bool {
	known := map[wire.Key]bool{}
	for _, k := range keys {
		known[k.ID], known[k.Alias] = true, true
	}
	without := !had.Member() && had != chain.Shadow
	return func(id wire.Key) bool { return !known[id] && (without || used(id)) }
}

// Tidying holds the steps that make switches and directory agree.
type Tidying struct {
	Steps []TidyStep // in order
	// Adopted, Forgotten and Retired count the keys that the directory has adopted, forgotten and
	// retired. The directory must be saved if it has Changed.
	Adopted, Forgotten, Retired int
	Changed                     bool
}

// TidyStep makes or drops entries at a switch.
type TidyStep struct {
	Switch  string
	Insert  bool
	Entries []Entry
}

// Keys returns the keys whose entries are made or dropped. Nothing else may use them meanwhile.
func (t *Tidying) Keys() map[wire.Key]bool {
	keys := map[wire.Key]bool{}
	for _, s := range t.Steps {
		for _, e := range s.Entries {
			keys[e.ID] = true
		}
	}
	return keys
}

// Tidy compares the key_index entries of switches that have come up with the directory. Missing
// entries are made, tail first; unknown keys that all members have are adopted; all other entries
// are dropped, head first. It compares the switches' present entries, not the ones that they came
// up with: a key that was removed since must not come back under its KEY_ID. A key is unknown only
// if the directory says that its KEY_ID has never been given, because the directory was lost. A
// KEY_ID that was given and no longer belongs to a key is that of a key that was removed or has
// moved away.
func Tidy(dir *keyspace.Directory, id uint8, in Indexes) Tidying {
	var out Tidying
	busy := maps.Clone(in.Busy)
	if busy == nil {
		busy = map[wire.Key]bool{}
	}
	for _, k := range dir.Chain(id) {
		if k.Alias != 0 { // the key is being moved
			busy[k.ID], busy[k.Alias] = true, true
		}
	}
	if in.Older {
		out.Forgotten = forgetGone(dir, id, in, busy)
	}
	out.Adopted = adopt(dir, in, busy)
	if in.Older { // KEY_IDs that were given since the directory was saved, and no longer belong to a key
		dir.Skip(id)
	}
	keys := dir.Chain(id)
	for _, m := range slices.Backward(in.Members) {
		step := TidyStep{Switch: m, Insert: true}
		for _, k := range keys {
			want := in.Entry(k)
			has, ok := in.Entries[m][k.ID]
			same := ok && (has == want || has.Slot == want.Slot && in.KnowsNoRealms != nil && in.KnowsNoRealms(m))
			if k.State == keyspace.Placed && !busy[k.ID] && !same {
				step.Entries = append(step.Entries, want)
			}
		}
		out.add(in, step)
	}
	for _, sw := range slices.Concat(in.Members, in.Others) {
		step := TidyStep{Switch: sw}
		for _, key := range slices.Sorted(maps.Keys(in.Entries[sw])) {
			if busy[key] || !in.Untidy[sw] {
				continue
			}
			k, ok := dir.ByID(key)
			if !ok && dir.Retire(key) { // some controller has given this KEY_ID
				out.Retired++
			}
			if !ok || !slices.Contains(in.Members, sw) || k.State != keyspace.Placed {
				step.Entries = append(step.Entries, Entry{ID: key})
			}
		}
		out.add(in, step)
	}
	out.Changed = in.Older || out.Adopted+out.Retired > 0
	return out
}

// add adds a step at a switch that must be tidied, if the step has entries.
func (t *Tidying) add(in Indexes, step TidyStep) {
	if in.Untidy[step.Switch] && len(step.Entries) > 0 {
		t.Steps = append(t.Steps, step)
	}
}

// forgetGone makes the directory follow the switches if it was saved with an earlier record: a key
// without an entry at any member was removed or has moved since.
func forgetGone(dir *keyspace.Directory, id uint8, in Indexes, busy map[wire.Key]bool) (gone int) {
	for _, k := range slices.Clone(dir.Chain(id)) {
		somewhere := slices.ContainsFunc(in.Members, func(m string) bool { _, ok := in.Entries[m][k.ID]; return ok })
		if k.State == keyspace.Placed && !busy[k.ID] && !somewhere {
			dir.Delete(k.ID)
			gone++
		}
	}
	return gone
}

// adopt adds the keys that all members have and the directory does not know.
func adopt(dir *keyspace.Directory, in Indexes, busy map[wire.Key]bool) int {
	found := map[wire.Key]int{}
	for id, entry := range in.Entries[in.Members[0]] {
		everywhere := !slices.ContainsFunc(in.Members, func(m string) bool {
			e, ok := in.Entries[m][id]
			// a hidden entry belongs to an unfinished addition
			return !ok || e.Slot != entry.Slot || e.Hidden
		})
		if _, ok := dir.ByID(id); !ok && !busy[id] && everywhere && entry.Slot < in.Slots {
			found[id] = entry.Slot
		}
	}
	return len(dir.Adopt(found))
}

// Tidy performs the steps one after the other, and reports each result. A switch that fails will
// come up again, or needs an operator; the others are tidied anyway. The error is ctx's.
func (c *Chain) Tidy(ctx context.Context, steps []TidyStep, told func(TidyStep, error)) error {
	for _, step := range steps {
		s, err := c.Switch(step.Switch)
		if err == nil {
			err = s.target.WriteEntries(ctx, step.Insert, step.Entries)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		told(step, err)
	}
	return nil
}
