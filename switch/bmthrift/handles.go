package bmthrift

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/target"
)

const (
	// The lowest indexBits bits of a handle are an index. The bits above count earlier uses of the
	// index.
	indexBits  = 24
	indexMask  = 1<<indexBits - 1
	maxVersion = 1<<7 - 1 // the largest version with which a handle is not negative
)

// handles maps the entries of one table to their handles.
type handles struct {
	slots []slot
	free  []int // free indices, in no particular order
	byKey map[string]int
}

// slot is the table entry to which an index belongs.
type slot struct {
	used    bool
	version int
	// the entry's match and priority; other fields are not set
	entry target.TableEntry
	// sequence number of the last sync that found the entry
	seen int
}

func newHandles() *handles { return &handles{byKey: map[string]int{}} }

// keyOf returns a string that identifies an entry within its table.
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

// add returns the handle of an entry. It creates the handle if the entry has none.
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

// remove frees the handle of a deleted entry.
func (h *handles) remove(i int) {
	s := &h.slots[i]
	delete(h.byKey, keyOf(&s.entry))
	*s = slot{version: (s.version + 1) & maxVersion}
	h.free = append(h.free, i)
}

// find returns the index that a handle contains. It returns an error code if the handle is not
// valid.
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

// sync creates handles for entries that other protocols added, and frees the handles of entries
// that they removed. Const entries get their handles in the program's order, which rank returns.
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
	// The engine lists entries in random order, but handles should not depend on that order.
	slices.SortFunc(unknown, func(a, b int) int {
		return cmp.Or(cmp.Compare(rank(&entries[a]), rank(&entries[b])),
			cmp.Compare(keyOf(&entries[a]), keyOf(&entries[b])))
	})
	for _, n := range unknown {
		i := int(h.add(&entries[n])) & indexMask
		h.slots[i].seen = now
	}
}
