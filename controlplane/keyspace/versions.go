package keyspace

import (
	"strings"

	"github.com/netcraq/netcraq/api/wire"
)

// The versions of a name. Switches give a key's versions by its slot and its chain's epoch, so they
// start again, and perhaps lower, when the key moves to another chain, or is removed and comes
// back. A client that knows keys by name must not see that: it compares versions, swaps by them,
// and hands them out as fencing tokens. So a name has versions of its own: those of its KEY_ID plus
// an offset that the directory has with the key.
//
//   - A key that moves keeps its version by name: the value is the same, and nobody has written it.
//   - A key that is removed leaves the highest of its versions in the floor, which is one for all
//     names, and a key that is added begins above it. So a name that comes back goes on above what
//     it had, and no version that somebody has kept is met again.
//
// Both are exact only as long as the directory is not lost, nor an earlier copy put back.

// LastFloor is the highest floor above which keys are added. It leaves room for the versions of the
// keys that are there.
const LastFloor = wire.Version(0xFF00) << 48

// Version is the version by name of a version of the KEY_ID.
func (k Key) Version(v wire.Version) wire.Version { return v + wire.Version(k.Offset) }

// Written records the first write of a key that is being added, which is a tombstone if the key is
// empty: first is its version under the KEY_ID.
func (d *Directory) Written(id wire.Key, first wire.Version, empty bool) {
	k := d.ids[id]
	if k == nil {
		return
	}
	k.Offset = 0
	if first <= d.floor {
		k.Offset = uint64(d.floor + 1 - first)
	}
	k.Made, k.Empty = k.Version(first), empty
	d.changed()
}

// takeOver continues the versions of a key whose last one was last.
func (k *Key) takeOver(old *Key, last wire.Version) {
	first := k.Made - wire.Version(k.Offset)
	k.Offset = uint64(old.Version(last) - first)
	k.Made, k.Empty = old.Made, old.Empty
}

// Leave records that a key which is about to be deleted had no version above last.
func (d *Directory) Leave(id wire.Key, last wire.Version) {
	k := d.ids[id]
	if k == nil || k.Leftover() || strings.HasPrefix(k.Name, MovingPrefix) { // the name lives on
		return
	}
	if v := k.Version(last); v > d.floor {
		d.floor = v
		d.changed()
	}
}

// groupOf is the part of a name up to its second slash: the keys of a namespace of the node API
// are one group.
func groupOf(name string) (string, bool) {
	first := strings.IndexByte(name, '/')
	if first < 0 {
		return "", false
	}
	second := strings.IndexByte(name[first+1:], '/')
	if second < 0 {
		return "", false
	}
	return name[:first+second+2], true
}

func (d *Directory) count(name string, n int) {
	if g, ok := groupOf(name); ok {
		if d.groups[g] += n; d.groups[g] == 0 {
			delete(d.groups, g)
		}
	}
}

// CountPrefix is the number of keys whose names start with prefix. It is fast if the prefix has two
// slashes and ends with the second.
func (d *Directory) CountPrefix(prefix string) (n int) {
	if g, ok := groupOf(prefix); ok && g == prefix {
		return d.groups[g]
	}
	for name := range d.names {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}
