package guarded

import (
	"sync"

	"github.com/netcraq/netcraq/api/wire"
)

// mostLeft is of how many slots it is remembered what was left in them.
const mostLeft = 1024

// left is what this gateway's writes have left in slots, and in which version: a key that is
// written again is guarded without a look at its slot, by a CAS on that version. It says nothing
// about what a slot has now.
type left struct {
	mu    sync.Mutex
	slots map[string]leftSlot // by the key's name
}

// leftSlot is what a write has left in the slot of a placement.
type leftSlot struct {
	key     placedKey
	version wire.Version
	plain   []byte
}

func newLeft() *left { return &left{slots: map[string]leftSlot{}} }

// put remembers what a slot was left with.
func (l *left) put(key placedKey, version wire.Version, plain []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.slots { // any one: who is written again and again is soon back
		if len(l.slots) < mostLeft {
			break
		}
		delete(l.slots, name)
	}
	l.slots[key.Name] = leftSlot{key, version, plain}
}

// knows says whether it is remembered what was left in the slot of a placement.
func (l *left) knows(key placedKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slots[key.Name].key == key
}

// take gives what was left in the slot of a placement, and forgets it.
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
