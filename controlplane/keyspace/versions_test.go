package keyspace

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/netcraq/netcraq/api/wire"
)

// place adds a key, and records its first write with the given version.
func place(t *testing.T, d *Directory, chain uint8, name string, first wire.Version) Key {
	t.Helper()
	k := add(t, d, chain, name)
	d.SetState(k.ID, Placed)
	d.Written(k.ID, first, true)
	k, _ = d.ByID(k.ID)
	return k
}

// TestVersionsOfANameGrow: a name's versions grow over moves to chains with lower epochs, removals,
// and other slots. A move alone does not change the version.
func TestVersionsOfANameGrow(t *testing.T) {
	d := fresh(t)
	a := place(t, d, 0, "a", wire.MakeVersion(9, 5))
	if a.Offset != 0 || a.Made != wire.MakeVersion(9, 5) || !a.Empty {
		t.Fatalf("%+v", a)
	}
	// The key moves to a chain with a lower epoch.
	last := wire.MakeVersion(9, 1000)
	d.StartMove(a.ID)
	to := place(t, d, 7, MovingPrefix+"a", wire.MakeVersion(2, 3))
	left := d.FinishMove(a.ID, to.ID, last)
	b, _ := d.ByName("a")
	if got := b.Version(wire.MakeVersion(2, 3)); got != last {
		t.Errorf("a move has made of %v: %v", last, got)
	}
	if b.Made != a.Made || !b.Empty {
		t.Errorf("nobody has written it, or somebody: %+v, before %+v", b, a)
	}
	if got := b.Version(wire.MakeVersion(3, 4)); got <= last {
		t.Errorf("then %v", got)
	}
	// The leftover's versions do not affect the name.
	d.Leave(left.ID, wire.MakeVersion(1000, 0))
	d.Delete(left.ID)
	// The key moves back to a chain with a higher epoch, so its offset is negative.
	d.StartMove(b.ID)
	last = b.Version(wire.MakeVersion(3, 4))
	back := place(t, d, 0, MovingPrefix+"a", wire.MakeVersion(40, 1))
	d.Delete(d.FinishMove(b.ID, back.ID, wire.MakeVersion(3, 4)).ID)
	c, _ := d.ByName("a")
	if got := c.Version(wire.MakeVersion(40, 1)); got != last {
		t.Errorf("a move has made of %v: %v", last, got)
	}
	// The key is removed, and added again in the chain with the lower epoch.
	last = c.Version(wire.MakeVersion(40, 77))
	d.Leave(c.ID, wire.MakeVersion(40, 77))
	d.Delete(c.ID)
	b2, err := json.Marshal(d.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var s Snapshot
	if err := json.Unmarshal(b2, &s); err != nil {
		t.Fatal(err)
	}
	if d, err = New([]Space{{Chain: 0, First: 0, Count: 3}, {Chain: 7, First: 3, Count: 2}}, s); err != nil {
		t.Fatal(err)
	}
	again := place(t, d, 7, "a", wire.MakeVersion(2, 8))
	if again.Made <= last || again.Version(wire.MakeVersion(2, 9)) <= again.Made {
		t.Errorf("%v, after %v", again.Made, last)
	}
	// The name is released, and then added again.
	d.StartMove(again.ID)
	left = d.Release(again.ID, wire.MakeVersion(2, 99))
	if _, ok := d.ByName("a"); ok || left.Slot != again.Slot || !left.Leftover() || left.State != Removing {
		t.Errorf("%+v", left)
	}
	spaces := []Space{{Chain: 0, First: 0, Count: 3}, {Chain: 7, First: 3, Count: 2}}
	if _, err := New(spaces, d.Snapshot()); err != nil {
		t.Error(err)
	}
	if k := place(t, d, 7, "a", wire.MakeVersion(2, 1)); k.Made <= again.Version(wire.MakeVersion(2, 99)) {
		t.Errorf("%v, after %v", k.Made, again.Version(wire.MakeVersion(2, 99)))
	}
	// A key whose first version is above all earlier ones gets no offset.
	if k := place(t, d, 0, "z", wire.MakeVersion(500, 1)); k.Offset != 0 {
		t.Errorf("%+v", k)
	}
	d.floor = LastFloor + 1
	if _, err := d.Add(0, "more", nil); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}

// TestCountPrefix: keys below a group's prefix are counted by counters, and keys below other
// prefixes by a search. A moving key counts once.
func TestCountPrefix(t *testing.T) {
	d := fresh(t)
	a := add(t, d, 0, "node/shop/a")
	add(t, d, 0, "node/shop/b/c")
	add(t, d, 7, "node/shop2/a")
	expect := func(want map[string]int) {
		t.Helper()
		for prefix, n := range want {
			if got := d.CountPrefix(prefix); got != n {
				t.Errorf("%q: %d, want %d", prefix, got, n)
			}
		}
	}
	expect(map[string]int{"node/shop/": 2, "node/shop2/": 1, "node/": 3, "node/shop": 3, "node/shop/b/": 1, "x/y/": 0, "": 3})
	d.SetState(a.ID, Placed)
	d.StartMove(a.ID)
	to := add(t, d, 7, MovingPrefix+"node/shop/a")
	expect(map[string]int{"node/shop/": 2})
	left := d.FinishMove(a.ID, to.ID, 1)
	expect(map[string]int{"node/shop/": 2, MovingPrefix + "node/shop/": 0})
	d.Delete(left.ID)
	d.Delete(to.ID)
	expect(map[string]int{"node/shop/": 1, "node/": 2})
}
