package keyspace

import (
	"strings"

	"github.com/netcraq/netcraq/api/wire"
)

// A name has versions of its own. Switches give a key's versions by its slot and its chain's epoch.
// So these versions start again, perhaps lower, when the key moves to another chain, or is removed
// and added again. A client that knows keys by name must not see that, because it compares
// versions, swaps by them, and hands them out as fencing tokens. So the versions of a name are
// those of its KEY_ID plus an offset, which the directory stores with the key.
//
//   - A key that moves keeps its version by name: its value is the same, and no client has written
//     it.
//   - A key that is removed raises the floor to the highest of its versions. There is one floor for
//     all names, and a key that is added starts above it. So a name that comes back continues above
//     its earlier versions, and never repeats a version that a client may have kept.
//
// This holds only if the directory is not lost and no earlier copy of it is restored.

// LastFloor is the highest floor above which keys can be added. It leaves room for the versions of
// the existing keys.
const LastFloor = wire.Version(0xFF00) << 48

// Version returns the version by name that corresponds to a version of the KEY_ID.
func (k Key) Version(v wire.Version) wire.Version { return v + wire.Version(k.Offset) }

// Written records the first write of a key that is being added. first is the write's version under
// the KEY_ID. empty says that the write is a tombstone.
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

// takeOver makes a key continue the versions of an old key, whose last version was last.
func (k *Key) takeOver(old *Key, last wire.Version) {
	first := k.Made - wire.Version(k.Offset)
	k.Offset = uint64(old.Version(last) - first)
	k.Made, k.Empty = old.Made, old.Empty
}

// Leave records that no version of a key was above last. Call it before the key is deleted.
func (d *Directory) Leave(id wire.Key, last wire.Version) {
	k := d.ids[id]
	// The name is still in use by another key.
	if k == nil || k.Leftover() || strings.HasPrefix(k.Name, MovingPrefix) {
		return
	}
	if v := k.Version(last); v > d.floor {
		d.floor = v
		d.changed()
	}
}

// groupOf returns the part of a name up to its second slash. The keys of a namespace of the node
// API form one group.
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

// CountPrefix returns the number of keys whose names start with prefix. It is fast if the prefix
// contains two slashes and ends with the second.
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
