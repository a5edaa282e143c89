package ops

import (
	"context"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// Indexes holds the acknowledged key_index entries of a chain in the switches. They are complete
// once all members have their part and have reported.
type Indexes struct {
	Members []string                      // ordered from head to tail
	Others  []string                      // switches that are not members
	Entries map[string]map[wire.Key]Entry // the entries of each switch, by the switch's name and the KEY_ID
	// Untidy lists the switches that have come up since they were last tidied. Tidy inserts and
	// deletes their entries. A switch that is being filled is not in Untidy, because Copy gives it
	// its entries.
	Untidy map[string]bool
	Busy   map[wire.Key]bool // keys that operations are changing
	// Older says that the saved directory is older than the last record.
	Older bool
	Slots int                      // number of slots in the chain's switches
	Entry func(keyspace.Key) Entry // returns the entry that a key should have
	// KnowsNoRealms reports whether a switch's program does not support realms. Entries that differ
	// only in the realm are equal for such a switch. If KnowsNoRealms is nil, all programs support
	// realms.
	KnowsNoRealms func(sw string) bool
}

// Tidied returns the switches that Tidy can handle now, out of those that have come up. A joiner
// must wait until it has become a member or was given up.
func Tidied(untidy map[string]bool, c chain.Config) map[string]bool {
	now := maps.Clone(untidy)
	delete(now, c.Shadow)
	for sw := range now {
		delete(untidy, sw)
	}
	return now
}

// Former selects the key_index entries that must be deleted from a switch before it becomes a
// member. They belong to keys that were removed, or have moved away, while the switch was out of
// the chain or out of reach. Keys are removed only from members, and a chain without keys accepts a
// switch as it is. The parameter had is the switch's role in its present configuration, or
// chain.None if it has none. keys are the chain's, and used reports which KEY_IDs were ever given
// (keyspace.Directory.Used).
//
// If a switch has no part, none of its entries count. A switch that was cut off still has its part
// of an earlier configuration, and cannot be told from a member that continues. So it loses only
// the entries whose KEY_IDs were given and no longer belong to a key. Its other entries may belong
// to keys that a lost or earlier directory does not know (Tidy).
func Former(had chain.Role, keys []keyspace.Key, used func(wire.Key) bool) func(wire.Key) bool {
	known := map[wire.Key]bool{}
	for _, k := range keys {
		known[k.ID], known[k.Alias] = true, true
	}
	without := !had.Member() && had != chain.Shadow
	return func(id wire.Key) bool { return !known[id] && (without || used(id)) }
}

// Tidying holds the steps that make the switches' entries and the directory agree.
type Tidying struct {
	Steps []TidyStep // the steps in the order of execution
	// Adopted, Forgotten and Retired count the keys that the directory has adopted, forgotten and
	// retired. The directory must be saved if it has Changed.
	Adopted, Forgotten, Retired int
	Changed                     bool
}

// TidyStep inserts or deletes entries at one switch.
type TidyStep struct {
	Switch  string
	Insert  bool
	Entries []Entry
}

// Keys returns the keys whose entries are inserted or deleted. Nothing else may use these keys
// meanwhile.
func (t *Tidying) Keys() map[wire.Key]bool {
	keys := map[wire.Key]bool{}
	for _, s := range t.Steps {
		for _, e := range s.Entries {
			keys[e.ID] = true
		}
	}
	return keys
}

// Tidy compares the key_index entries of switches that have come up with the directory. Tidy
// inserts missing entries, tail first. It adopts unknown keys that all members have. It deletes all
// other entries, head first. It compares the switches' present entries, not the entries that they
// came up with, because a key that was removed since must not come back under its KEY_ID. A key is
// unknown only if the directory says that its KEY_ID has never been given, because the directory
// was lost. If a KEY_ID was given and no longer belongs to a key, its key was removed or has moved
// away.
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
	// Skip the KEY_IDs that may have been given since the directory was saved, and no longer belong
	// to a key.
	if in.Older {
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
			// some controller has given this KEY_ID before, although the directory did not know it
			if !ok && dir.Retire(key) {
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

// add adds a step at a switch that must be tidied, unless the step has no entries.
func (t *Tidying) add(in Indexes, step TidyStep) {
	if in.Untidy[step.Switch] && len(step.Entries) > 0 {
		t.Steps = append(t.Steps, step)
	}
}

// forgetGone removes keys from the directory if the directory was saved with an earlier record. A
// key that has no entry at any member was removed or has moved since.
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

// Tidy performs the steps one after the other, and reports each result. If a switch fails, Tidy
// continues with the others, because the switch will come up again or needs an operator. Tidy
// returns an error only if ctx ends.
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
