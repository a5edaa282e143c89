package bmthrift

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/target"
)

const (
	// bits of a handle that hold the index; the bits above count earlier uses of the index
	indexBits  = 24
	indexMask  = 1<<indexBits - 1
	maxVersion = 1<<7 - 1 // the largest that keeps a handle non-negative
)

// handles are the handles of one table's entries.
type handles struct {
	slots []slot
	free  []int // indices that are free, in no order
	byKey map[string]int
}

// slot is the table entry that an index stands for.
type slot struct {
	used    bool
	version int
	// the entry's match and priority; other fields are not set
	entry target.TableEntry
	// number of the last sync that found the entry
	seen int
}

func newHandles() *handles { return &handles{byKey: map[string]int{}} }

// keyOf returns a key that is unique among the entries of a table.
func keyOf(e *target.TableEntry) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(e.Priority))
	for _, m := range e.Match {
		b = binary.BigEndian.AppendUint32(b, uint32(m.PrefixLen))
		b = append(b, m.Value...)
		b = append(b, m.Mask...)
	}
	return string(b)
}

func (h *handles) handleAt(i int) idl.Handle {
	return idl.Handle(h.slots[i].version<<indexBits | i)
}

// add gives an entry its handle, or finds the one that it has.
func (h *handles) add(e *target.TableEntry) idl.Handle {
	k := keyOf(e)
	if i, ok := h.byKey[k]; ok {
		return h.handleAt(i)
	}
	var i int
	if len(h.free) > 0 {
		lowest := 0
		for j, f := range h.free {
			if f < h.free[lowest] {
				lowest = j
			}
		}
		i = h.free[lowest]
		h.free = slices.Delete(h.free, lowest, lowest+1)
	} else {
		h.slots = append(h.slots, slot{})
		i = len(h.slots) - 1
	}
	s := &h.slots[i]
	s.used, s.entry = true, target.TableEntry{Match: e.Match, Priority: e.Priority}
	h.byKey[k] = i
	return h.handleAt(i)
}

// remove frees the handle of an entry that is gone.
func (h *handles) remove(i int) {
	s := &h.slots[i]
	delete(h.byKey, keyOf(&s.entry))
	*s = slot{version: (s.version + 1) & maxVersion}
	h.free = append(h.free, i)
}

// find returns the index that a handle contains, or an error code if the handle is not valid.
func (h *handles) find(handle idl.Handle) (int, idl.TableCode) {
	i := int(handle) & indexMask
	switch {
	case handle < 0 || i >= len(h.slots) || !h.slots[i].used:
		return 0, idl.TableCodeInvalidHandle
	case h.slots[i].version != int(handle)>>indexBits:
		return 0, idl.TableCodeExpiredHandle
	}
	return i, 0
}

// sync adds and removes handles for changes by other protocols. New handles of constant entries are
// in the order of the program, which rank returns.
func (h *handles) sync(entries []target.TableEntry, rank func(*target.TableEntry) int) {
	var unknown []int
	now := 0
	for i := range h.slots {
		now = max(now, h.slots[i].seen)
	}
	now++
	for n := range entries {
		if i, ok := h.byKey[keyOf(&entries[n])]; ok {
			h.slots[i].seen = now
		} else {
			unknown = append(unknown, n)
		}
	}
	for i := range h.slots {
		if h.slots[i].used && h.slots[i].seen != now {
			h.remove(i)
		}
	}
	// The engine lists entries in random order. Handles should not depend on it.
	slices.SortFunc(unknown, func(a, b int) int {
		return cmp.Or(cmp.Compare(rank(&entries[a]), rank(&entries[b])),
			cmp.Compare(keyOf(&entries[a]), keyOf(&entries[b])))
	})
	for _, n := range unknown {
		i := int(h.add(&entries[n])) & indexMask
		h.slots[i].seen = now
	}
}
