package guarded

import (
	"sync"

	"github.com/netcraq/netcraq/api/wire"
)

// mostLeft bounds the number of slots whose last cell the gateway remembers.
const mostLeft = 1024

// left remembers the cells that this gateway's writes have left in slots, with their versions. When
// a key is written again, the gateway guards it by a CAS on the remembered version, without reading
// the slot first. If the slot has changed meanwhile, the CAS fails.
type left struct {
	mu    sync.Mutex
	slots map[string]leftSlot // by the name of the key
}

// leftSlot is the cell that a write has left in the slot of a placement.
type leftSlot struct {
	key     placedKey
	version wire.Version
	plain   []byte
}

func newLeft() *left { return &left{slots: map[string]leftSlot{}} }

// put remembers the cell that a write has left in a slot.
func (l *left) put(key placedKey, version wire.Version, plain []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Any entry may be dropped. A key that is written often will soon be remembered again.
	for name := range l.slots {
		if len(l.slots) < mostLeft {
			break
		}
		delete(l.slots, name)
	}
	l.slots[key.Name] = leftSlot{key, version, plain}
}

// knows reports whether the cell in the slot of a placement is remembered.
func (l *left) knows(key placedKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slots[key.Name].key == key
}

// take returns the remembered cell of a placement's slot, and forgets the cell.
func (l *left) take(key placedKey) (slot, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.slots[key.Name]
	delete(l.slots, key.Name)
	if !ok || s.key != key {
		return slot{}, false
	}
	return slot{version: s.version, plain: s.plain}, true
}
