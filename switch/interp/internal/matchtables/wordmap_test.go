package matchtables

import (
	"math/rand/v2"
	"testing"
)

// TestWordMap checks the contents of a map while it grows and shrinks, and when keys collide.
func TestWordMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, spread := range []uint64{8, 1 << 10, 1 << 63} {
		m, want := newWordMap(), map[uint64]*Entry{}
		for i := range 40_000 {
			key := r.Uint64N(spread)
			if r.IntN(2) == 0 || i < 1000 {
				e := &Entry{}
				m.set(key, e)
				want[key] = e
			} else {
				for k := range want { // take any existing key
					if spread > 1<<20 {
						key = k
					}
					break
				}
				m.set(key, nil)
				delete(want, key)
			}
			if m.len() != len(want) || m.Find(key) != want[key] {
				t.Fatalf("after %d steps: %d keys and not %d", i, m.len(), len(want))
			}
		}
		for key := range spread {
			if key == 5000 {
				break
			}
			if m.Find(key) != want[key] {
				t.Fatalf("key %d is wrong", key)
			}
		}
		for key, e := range want {
			if m.Find(key) != e {
				t.Fatalf("key %d is lost", key)
			}
			m.set(key, nil)
		}
		if m.len() != 0 || len(m.slots) != fewestSlots {
			t.Fatalf("%d keys and %d slots are left", m.len(), len(m.slots))
		}
	}
}
