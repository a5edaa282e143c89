// Package keyspace tracks which keys are in the network. A key has a name (an etcd key, or any
// other), a KEY_ID on the wire, and a slot in the switches' registers. The package keeps this data
// only in memory. The controller's Store saves it, in a file or in etcd.
//
// A KEY_ID consists of the chain's number (8 bits) and a counter (24 bits). A number is not reused
// until all numbers have been used. The reason is that a client may still know a removed key by its
// KEY_ID, and its late write must not reach another key. Slots are reused at once, the lowest free
// one first. That is safe because a slot's versions are never reset.
package keyspace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/netcraq/netcraq/api/wire"
)

// These are the kinds of failure. Errors wrap one of them.
var (
	ErrInvalid  = errors.New("invalid")
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("exists already")
	ErrFull     = errors.New("full")
	// ErrShare says that the caller has as many keys as it may have.
	ErrShare = errors.New("as many as one may have")
)

// State says how far the placement of a key has come.
type State string

const (
	// Adding says that the key is recorded, but may have no entries and no first write yet.
	Adding   State = "adding"
	Placed   State = "placed"   //
	Removing State = "removing" // the removal is recorded, and some switches may no longer have the key
	// Moving says that the move is recorded. Switches may have entries of the key, of its alias, or
	// of both.
	Moving State = "moving"
	Taken  State = "taken" // the key is being moved, and only its alias has entries
)

// numberMask selects the counter in a KEY_ID: 24 of 32 bits. The other bits are the chain's number.
const numberMask = 1<<24 - 1

// MaxName is the longest name, in bytes.
const MaxName = 4096

// Key is a key of the network, as the directory records it.
type Key struct {
	Name  string   `json:"name"`
	ID    wire.Key `json:"id"`
	Slot  int      `json:"slot"`
	State State    `json:"state"`
	// Alias is another KEY_ID for the slot, which only the controller knows. A key has an alias
	// while it is being moved, and otherwise 0.
	Alias wire.Key `json:"alias,omitempty"`
	// Offset is added to a version of the KEY_ID to get the version of the name. See versions.go.
	Offset uint64 `json:"offset,omitempty"`
	// Made is the version by name of the key's first write, and Empty says that this write was a
	// tombstone. While the key's version is Made, no client has written it.
	Made  wire.Version `json:"made,omitempty"`
	Empty bool         `json:"empty,omitempty"`
	// Undone says that a key in state Removing was never Placed. No client was told about the key,
	// so it has left no versions for its name.
	Undone bool `json:"undone,omitempty"`
	// Maker is the caller that requested the key, if the number of that caller's keys is limited;
	// see AddFor.
	Maker string `json:"maker,omitempty"`
}

// Hidden reports whether clients must not find the key under its KEY_ID, because it is being added,
// or is being removed before its addition was finished. The key's slot may still have an earlier
// key's content.
func (k Key) Hidden() bool { return k.State == Adding || k.State == Removing && k.Undone }

// Space says where a chain may place keys. It consists of Count slots, starting at First, which are
// the same at each switch of the chain.
type Space struct {
	Chain uint8 `json:"chain"`
	First int   `json:"first"`
	Count int   `json:"count"`
}

// Snapshot is the saved form of a directory. Several snapshots may share their keys, so callers
// must not change the keys, except by Sort.
type Snapshot struct {
	// Edit counts the changes of a directory. Two snapshots of one directory with the same Edit are
	// equal. Edit is 0 if the snapshot does not come from a Directory.
	Edit uint64           `json:"-"`
	Keys []Key            `json:"keys"`
	Next map[uint8]uint32 `json:"next"` // the counter at which each chain's search for a free KEY_ID starts
	// Retired lists the used KEY_IDs beyond Next that now belong to no key. Callers chose them
	// explicitly.
	Retired []wire.Key `json:"retired,omitempty"`
	// Floor is the highest version by name of the keys that were removed.
	Floor wire.Version `json:"floor,omitempty"`
}

// Directory holds the keys of all chains. It is not safe for concurrent use.
type Directory struct {
	spaces map[uint8]Space
	names  map[string]*Key
	ids    map[wire.Key]*Key
	// slots of all chains in one map, because spaces may have moved since a key was placed
	slots  map[int]*Key
	counts map[uint8]int
	next   map[uint8]uint32
	// retired lists the used KEY_IDs beyond next. KEY_IDs below next are not given again anyway. A
	// used KEY_ID must not come back in another slot, where its versions would restart lower.
	// Otherwise a late acknowledgement from its earlier use would look newer.
	retired map[wire.Key]bool
	lowest  map[uint8]int // for each chain, the lowest slot of its space that may be free
	groups  map[string]int
	makers  map[maker]int
	floor   wire.Version

	edit     uint64 // number of changes so far
	snapshot *Snapshot
	chains   map[uint8][]Key // cached results of Chain since the last change
}

// maker is a caller that adds keys to a chain.
type maker struct {
	chain uint8
	name  string
}

// changed counts a change, and drops cached results.
func (d *Directory) changed() {
	d.edit++
	d.snapshot, d.chains = nil, map[uint8][]Key{}
}

// New makes a directory from its saved state. The zero Snapshot makes an empty directory.
func New(spaces []Space, s Snapshot) (*Directory, error) {
	d := &Directory{spaces: map[uint8]Space{}, names: map[string]*Key{}, ids: map[wire.Key]*Key{},
		slots:  map[int]*Key{},
		counts: map[uint8]int{}, next: map[uint8]uint32{}, retired: map[wire.Key]bool{}, lowest: map[uint8]int{},
		groups: map[string]int{}, makers: map[maker]int{}, floor: s.Floor}
	d.SetSpaces(spaces)
	for _, k := range s.Keys {
		if k.Name == "" || !slices.Contains([]State{Adding, Placed, Removing, Moving, Taken}, k.State) {
			return nil, fmt.Errorf("the saved directory is damaged: it has a key %q (%v) in the state %q. Put the "+
				"newest copy of it back", k.Name, k.ID, k.State)
		}
		if d.names[k.Name] != nil || d.ids[k.ID] != nil || d.slots[k.Slot] != nil {
			return nil, fmt.Errorf("the saved directory has the name %q, the KEY_ID %v or the slot %d twice: it is "+
				"damaged. Put the newest copy of it back", k.Name, k.ID, k.Slot)
		}
		d.put(k)
	}
	for c, n := range s.Next {
		d.next[c] = n
	}
	for _, id := range s.Retired {
		d.retired[id] = true
	}
	d.changed()
	return d, nil
}

// SetSpaces sets the chains and their slots from now on. Existing keys stay where they are.
func (d *Directory) SetSpaces(spaces []Space) {
	clear(d.spaces)
	for _, sp := range spaces {
		d.spaces[sp.Chain] = sp
		d.lowest[sp.Chain] = sp.First
		if _, ok := d.next[sp.Chain]; !ok { // a chain that is added again continues its counter
			d.next[sp.Chain] = 1
		}
	}
	d.changed()
}

// Spaces returns the chains' slots, ordered by chain.
func (d *Directory) Spaces() []Space {
	return slices.SortedFunc(maps.Values(d.spaces), func(a, b Space) int { return int(a.Chain) - int(b.Chain) })
}

func (d *Directory) put(k Key) *Key {
	p := &k
	d.names[k.Name], d.ids[k.ID], d.slots[k.Slot] = p, p, p
	d.counts[k.ID.Chain()]++
	d.count(k.Name, 1)
	d.countMaker(p, 1)
	d.changed()
	return p
}

// countMaker adds n to the number of keys of a key's maker, if that number is limited.
func (d *Directory) countMaker(k *Key, n int) {
	if k.Maker == "" {
		return
	}
	of := maker{k.ID.Chain(), k.Maker}
	if d.makers[of] += n; d.makers[of] == 0 {
		delete(d.makers, of)
	}
}

// Snapshot returns the directory for saving, with the keys in no particular order. The result is
// cached, because the controller saves the directory with every step of a chain's change, and the
// directory itself has usually not changed.
func (d *Directory) Snapshot() Snapshot {
	if d.snapshot == nil {
		d.snapshot = &Snapshot{Edit: d.edit + 1, Next: maps.Clone(d.next), Keys: make([]Key, 0,
			len(d.ids)), Retired: slices.Sorted(maps.Keys(d.retired)), Floor: d.floor}
		for _, k := range d.ids {
			d.snapshot.Keys = append(d.snapshot.Keys, *k)
		}
	}
	return *d.snapshot
}

// List returns the keys whose names start with prefix and for which want returns true, ordered by
// name.
func (s *Snapshot) List(prefix string, want func(Key) bool) []Key {
	var out []Key
	for _, k := range s.Keys {
		if strings.HasPrefix(k.Name, prefix) && want(k) {
			out = append(out, k)
		}
	}
	sortKeys(out)
	return out
}

// Sort sorts a snapshot's keys by name.
func (s *Snapshot) Sort() { sortKeys(s.Keys) }

func sortKeys(keys []Key) {
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
}

// Add records a key as Adding. If id is nil, it takes the next free number.
func (d *Directory) Add(chain uint8, name string, id *wire.Key) (Key, error) {
	return d.AddFor("", chain, name, id)
}

// AddFor is Add for a caller (by) whose number of keys is limited. Such a caller may have one key
// of a chain, or n keys if at least n slots of the chain then stay free for others. If by is "",
// there is no limit.
func (d *Directory) AddFor(by string, chain uint8, name string, id *wire.Key) (Key, error) {
	sp, ok := d.spaces[chain]
	switch {
	case !ok:
		return Key{}, fmt.Errorf("%w: there is no chain %d", ErrNotFound, chain)
	case name == "" || len(strings.TrimPrefix(name, MovingPrefix)) > MaxName:
		return Key{}, fmt.Errorf("%w: a key's name has 1 to %d bytes, this one %d", ErrInvalid, MaxName, len(name))
	case !utf8.ValidString(name):
		return Key{}, fmt.Errorf("%w: the key's name is not UTF-8 text", ErrInvalid)
	case strings.HasPrefix(name, adoptedPrefix):
		return Key{}, fmt.Errorf("%w: names that start with %s are for keys whose name is not known", ErrInvalid, adoptedPrefix)
	case d.names[name] != nil:
		return Key{}, fmt.Errorf("%w: the key %q is placed in chain %d as %v", ErrExists, name, d.names[name].ID.Chain(), d.names[name].ID)
	}
	if d.floor > LastFloor {
		return Key{}, fmt.Errorf("%w: versions are used up (%v): begin with a new directory", ErrFull, d.floor)
	}
	free := sp.Count - d.counts[chain]
	if has := d.makers[maker{chain, by}]; by != "" && free > 0 && has+1 > max(1, free-1) {
		return Key{}, fmt.Errorf("%w: of the %d slots of chain %d %s has %d, and %d are free. It may not have more than it leaves for others: remove keys",
			ErrShare, sp.Count, chain, by, has, free)
	}
	k := Key{Name: name, State: Adding, Maker: by}
	if id != nil {
		switch other := d.ids[*id]; {
		case id.Chain() != chain:
			return Key{}, fmt.Errorf("%w: the KEY_ID %v is of chain %d (its top byte), not %d", ErrInvalid, *id, id.Chain(), chain)
		case other != nil:
			return Key{}, fmt.Errorf("%w: the KEY_ID %v is that of %q", ErrExists, *id, other.Name)
		case d.used(*id):
			return Key{}, fmt.Errorf("%w: the KEY_ID %v may have been used before, and must not come back: choose one from %v on, or leave the choice to the controller",
				ErrInvalid, *id, wire.MakeKey(chain, d.next[chain]))
		}
		k.ID = *id
	}
	for k.Slot = d.lowest[chain]; d.slots[k.Slot] != nil; k.Slot++ {
	}
	d.lowest[chain] = k.Slot
	if k.Slot >= sp.First+sp.Count {
		return Key{}, fmt.Errorf("%w: all %d slots of chain %d are taken: remove keys, or give the chain more slots", ErrFull, sp.Count, chain)
	}
	if id == nil {
		k.ID = d.number(chain)
	}
	return *d.put(k), nil
}

// number returns a KEY_ID that was never used. If all KEY_IDs were used, it returns the one that
// has been unused for the longest time.
func (d *Directory) number(chain uint8) wire.Key {
	const numbers = numberMask + 1
	n := d.next[chain] % numbers
	for n == 0 || d.ids[wire.MakeKey(chain, n)] != nil || d.retired[wire.MakeKey(chain, n)] {
		n = (n + 1) % numbers
	}
	d.next[chain] = (n + 1) % numbers
	return wire.MakeKey(chain, n)
}

// skipped is how many numbers of KEY_IDs Skip passes over. It is far above the numbers that are
// given between two saved copies of a directory, and small compared with the 2^24 numbers that
// exist.
const skipped = 1 << 16

// Skip skips numbers that a chain's keys may have used since the directory was saved. Call it if
// the directory turns out to be out of date. Call Adopt first, because existing keys may have such
// numbers.
func (d *Directory) Skip(chain uint8) {
	if n := d.next[chain]; n+skipped <= numberMask {
		d.next[chain] = n + skipped
	}
	d.changed()
}

// used reports whether a KEY_ID may have been the KEY_ID or the alias of a key before.
func (d *Directory) used(id wire.Key) bool {
	return uint32(id)&numberMask < d.next[id.Chain()] || d.retired[id]
}

// Used returns a function that reports whether a KEY_ID of a chain may have been the KEY_ID or the
// alias of a key up to now. Later changes do not affect the function, and any goroutine may call
// it.
func (d *Directory) Used(chain uint8) func(wire.Key) bool {
	next, retired := d.next[chain], map[wire.Key]bool{}
	for id := range d.retired {
		if id.Chain() == chain {
			retired[id] = true
		}
	}
	return func(id wire.Key) bool { return uint32(id)&numberMask < next || retired[id] }
}

// StartMove records a key as Moving, and gives it an alias.
func (d *Directory) StartMove(id wire.Key) Key {
	k := d.ids[id]
	k.State, k.Alias = Moving, d.number(id.Chain())
	d.changed()
	return *k
}

// StayPut records that a key is not moved after all.
func (d *Directory) StayPut(id wire.Key) {
	if k := d.ids[id]; k != nil {
		k.State, k.Alias = Placed, 0
		d.changed()
	}
}

// FinishMove gives a key's name to another key, which becomes Placed. last is the old key's last
// version. It becomes the version by name of the new key's first write. The old key remains, under
// its alias, in state Removing, and only occupies its slot.
func (d *Directory) FinishMove(from, to wire.Key, last wire.Version) (left Key) {
	old, now := *d.ids[from], d.ids[to]
	d.Delete(from)
	d.rename(now, old.Name)
	now.State = Placed
	now.takeOver(&old, last)
	d.countMaker(now, -1)
	now.Maker = old.Maker
	d.countMaker(now, 1)
	return d.leftover(&old)
}

// leftover turns a key that has lost its name into a leftover, which only occupies its slot.
func (d *Directory) leftover(old *Key) Key {
	return *d.put(Key{Name: movedPrefix + old.Alias.String(), ID: old.Alias, Slot: old.Slot, State: Removing})
}

// Release takes a key's name away, as FinishMove does, but does not give the name to another key.
func (d *Directory) Release(id wire.Key, last wire.Version) (left Key) {
	old := *d.ids[id]
	d.Leave(id, last)
	d.Delete(id)
	return d.leftover(&old)
}

func (d *Directory) rename(k *Key, name string) {
	delete(d.names, k.Name)
	d.count(k.Name, -1)
	k.Name = name
	d.names[name] = k
	d.count(name, 1)
}

// movedPrefix starts the names of leftovers of moved keys. MovingPrefix starts the names of keys
// that will replace others.
const (
	movedPrefix  = "moved:"
	MovingPrefix = "moving:"
)

// FinalName returns the name of a key. For a key that will replace another key, it returns the name
// that the key will have then.
func (k Key) FinalName() string { return strings.TrimPrefix(k.Name, MovingPrefix) }

// Leftover reports whether a key is the leftover of a key that was moved away.
func (k Key) Leftover() bool { return strings.HasPrefix(k.Name, movedPrefix) }

// adoptedPrefix starts the names of keys that were found in the switches and that the directory
// does not know.
const adoptedPrefix = "keyid:"

// Adopt adds keys that were found in the switches, by their KEY_IDs and slots. It makes their names
// from their KEY_IDs, and returns the keys that it added. Pass all found keys in one call. Adopt
// does not add a KEY_ID that was given before and whose key was removed or has moved away. Nor does
// it add a KEY_ID whose slot belongs to another key.
func (d *Directory) Adopt(found map[wire.Key]int) (adopted []Key) {
	var fit []wire.Key
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if !d.used(id) && d.ids[id] == nil {
			fit = append(fit, id)
		}
	}
	for _, id := range fit {
		if d.slots[found[id]] != nil {
			continue
		}
		if n := uint32(id) & numberMask; n >= d.next[id.Chain()] {
			d.next[id.Chain()] = n + 1
		}
		adopted = append(adopted, *d.put(Key{Name: adoptedPrefix + id.String(), ID: id, Slot: found[id],
			State: Placed}))
	}
	return adopted
}

// Retire records that some controller has used a KEY_ID, so that the KEY_ID is not given again. It
// reports whether the directory did not know this before.
func (d *Directory) Retire(id wire.Key) bool {
	unknown := !d.used(id) && d.ids[id] == nil
	if unknown {
		d.retired[id] = true
		d.changed()
	}
	return unknown
}

// SetState changes a key's state.
func (d *Directory) SetState(id wire.Key, s State) {
	if k := d.ids[id]; k != nil && k.State != s {
		k.Undone = k.State == Adding && s == Removing
		k.State = s
		d.changed()
	}
}

// Delete forgets a key and frees its slot.
func (d *Directory) Delete(id wire.Key) {
	k := d.ids[id]
	if k == nil {
		return
	}
	delete(d.names, k.Name)
	delete(d.ids, k.ID)
	delete(d.slots, k.Slot)
	d.count(k.Name, -1)
	d.countMaker(k, -1)
	if !d.used(id) {
		d.retired[id] = true
	}
	d.changed()
	d.counts[id.Chain()]--
	if c := id.Chain(); k.Slot < d.lowest[c] && k.Slot >= d.spaces[c].First {
		d.lowest[c] = k.Slot
	}
}

// ByName finds a key by its name.
func (d *Directory) ByName(name string) (Key, bool) { return value(d.names[name]) }

// ByID finds a key by its KEY_ID.
func (d *Directory) ByID(id wire.Key) (Key, bool) { return value(d.ids[id]) }

func value(k *Key) (Key, bool) {
	if k == nil {
		return Key{}, false
	}
	return *k, true
}

// Find finds a key of a chain by its name, or by its KEY_ID in text form.
func (d *Directory) Find(chain uint8, nameOrID string) (Key, error) {
	if k, ok := d.ByName(nameOrID); ok && k.ID.Chain() == chain {
		return k, nil
	}
	if id, err := wire.ParseKey(nameOrID); err == nil {
		if k, ok := d.ByID(id); ok && id.Chain() == chain {
			return k, nil
		}
	}
	return Key{}, fmt.Errorf("%w: no key %q is placed in chain %d", ErrNotFound, nameOrID, chain)
}

// List returns the keys whose names start with prefix, ordered by name.
func (d *Directory) List(prefix string) []Key {
	var out []Key
	for name, k := range d.names {
		if strings.HasPrefix(name, prefix) {
			out = append(out, *k)
		}
	}
	sortKeys(out)
	return out
}

// Chain returns the keys of a chain, ordered by KEY_ID.
func (d *Directory) Chain(chain uint8) []Key {
	if out, ok := d.chains[chain]; ok {
		return out
	}
	var out []Key
	for id, k := range d.ids {
		if id.Chain() == chain {
			out = append(out, *k)
		}
	}
	slices.SortFunc(out, func(a, b Key) int { return int(int64(a.ID) - int64(b.ID)) })
	d.chains[chain] = out
	return out
}

// Count returns the number of keys of a chain.
func (d *Directory) Count(chain uint8) int { return d.counts[chain] }
