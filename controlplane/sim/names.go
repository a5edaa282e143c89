package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/api/wire"
)

// Versions of a name (docs/protocol.md): those of its KEY_ID and the offset that the directory has
// with the key. They only grow, over moves and removals, and controllers that come and go.

// seenAs is the versions of a name that were seen under one of its KEY_IDs, from the lowest to the
// highest.
type seenAs struct {
	id          wire.Key
	number      int // of the KEY_ID, of those that the name has had
	first, last operationOf
	lowest, top wire.Version // by name
}

// versionsOfNames looks for names whose versions went back when they were given another KEY_ID.
func versionsOfNames(ops []operationOf, incarnations map[wire.Key]incarnation, offsets map[wire.Key]uint64) (
	out []Violation) {
	ids := map[incarnation]wire.Key{}
	for id, i := range incarnations {
		ids[i] = id
	}
	seen := map[wire.Key]*seenAs{}
	for _, o := range ops {
		if o.eventual || o.move || o.places || o.version == 0 || o.outcome != done && o.outcome != failed {
			continue // (an EVENTUAL read may tell what the slot's key of before has left)
		}
		i := incarnation{o.key, int(o.version >> composedShift)}
		id := ids[i]
		offset, told := offsets[id]
		if !told {
			continue
		}
		v := o.version&(1<<composedShift-1) + wire.Version(offset)
		x := seen[id]
		if x == nil {
			x = &seenAs{id: id, number: i.number, lowest: v, top: v, first: o, last: o}
			seen[id] = x
		}
		if v < x.lowest {
			x.lowest, x.first = v, o
		}
		if v > x.top {
			x.top, x.last = v, o
		}
	}
	byName := map[wire.Key][]*seenAs{}
	for _, x := range seen {
		byName[x.first.key] = append(byName[x.first.key], x)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all := byName[name]
		slices.SortFunc(all, func(a, b *seenAs) int { return cmp.Compare(a.number, b.number) })
		for n := 1; n < len(all); n++ {
			was, is := all[n-1], all[n]
			is.top = max(is.top, was.top)
			if is.lowest < was.top || is.lowest == was.top && !sameValue(was.last, is.first) {
				out = append(out, Violation{Kind: NameWentBack, Key: name, What: fmt.Sprintf(
					"as %v it had version %v (%s: %s), and then as %v version %v (%s: %s)", was.id, was.top, was.last.request(),
					was.last.result(), is.id, is.lowest, is.first.request(), is.first.result())})
				break
			}
		}
	}
	return out
}

// sameValue says whether two calls tell of the same value, as they do of one version before and
// after a move.
func sameValue(a, b operationOf) bool {
	value := func(o operationOf) (string, bool) {
		switch {
		case o.outcome == failed:
			return o.saw, o.found
		case o.op == wire.Read:
			return o.value, o.found
		}
		return o.value, !o.del
	}
	v1, found1 := value(a)
	v2, found2 := value(b)
	return v1 == v2 && found1 == found2
}
