package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/api/wire"
)

// This file checks the versions of names. The version of a name (docs/protocol.md) is the version
// of its KEY_ID plus the key's offset in the directory. Versions of a name only grow, even across
// moves, removals and changes of controller.

// seenAs holds the lowest and the highest version of a name that clients saw under one of its
// KEY_IDs.
type seenAs struct {
	id          wire.Key
	number      int // the KEY_ID's number among those of the name
	first, last Call
	lowest, top wire.Version // the lowest and the highest version of the name
}

// VersionsOfNames finds names whose versions decreased when they got another KEY_ID.
func VersionsOfNames(ops []Call, incarnations map[wire.Key]Incarnation, offsets map[wire.Key]uint64) (
	out []Violation) {
	ids := map[Incarnation]wire.Key{}
	for id, i := range incarnations {
		ids[i] = id
	}
	seen := map[wire.Key]*seenAs{}
	for _, o := range ops {
		if o.Eventual || o.Move || o.Places || o.Version == 0 || o.Outcome != Done && o.Outcome != Failed {
			continue // (An EVENTUAL read may return a version of the slot's earlier key.)
		}
		i := Incarnation{o.Key, int(o.Version >> ComposedShift)}
		id := ids[i]
		offset, told := offsets[id]
		if !told {
			continue
		}
		v := o.Version&(1<<ComposedShift-1) + wire.Version(offset)
		x := seen[id]
		if x == nil {
			x = &seenAs{id: id, number: i.Number, lowest: v, top: v, first: o, last: o}
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
		byName[x.first.Key] = append(byName[x.first.Key], x)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all := byName[name]
		slices.SortFunc(all, func(a, b *seenAs) int { return cmp.Compare(a.number, b.number) })
		for n := 1; n < len(all); n++ {
			was, is := all[n-1], all[n]
			is.top = max(is.top, was.top)
			if is.lowest < was.top || is.lowest == was.top && !sameValue(was.last, is.first) {
				out = append(out, Violation{Kind: NameWentBack, Key: name, What: fmt.Sprintf(
					"as %v it had version %v (%s: %s), and then as %v version %v (%s: %s)", was.id, was.top, was.last.Request(),
					was.last.Result(), is.id, is.lowest, is.first.Request(), is.first.Result())})
				break
			}
		}
	}
	return out
}

// sameValue reports whether two calls show the same value. Calls that show the same version must
// show the same value, even if a move took place between them.
func sameValue(a, b Call) bool {
	value := func(o Call) (string, bool) {
		switch {
		case o.Outcome == Failed:
			return o.Saw, o.Found
		case o.Op == wire.Read:
			return o.Value, o.Found
		}
		return o.Value, !o.Del
	}
	v1, found1 := value(a)
	v2, found2 := value(b)
	return v1 == v2 && found1 == found2
}
