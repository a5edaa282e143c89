package keyspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netcraq/netcraq/api/wire"
)

func fresh(t *testing.T) *Directory {
	t.Helper()
	d, err := New([]Space{{Chain: 0, First: 0, Count: 3}, {Chain: 7, First: 3, Count: 2}}, Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func add(t *testing.T, d *Directory, chain uint8, name string) Key {
	t.Helper()
	k, err := d.Add(chain, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestNumbersAndSlots(t *testing.T) {
	d := fresh(t)
	a, b, c := add(t, d, 0, "a"), add(t, d, 0, "b"), add(t, d, 7, "c")
	if a.ID != 0x00000001 || a.Slot != 0 || b.ID != 0x00000002 || b.Slot != 1 || c.ID != 0x07000001 ||
		c.Slot != 3 || a.State != Adding {
		t.Error(a, b, c)
	}
	d.Delete(a.ID)
	// The slot is reused at once, but the KEY_ID is not.
	if e := add(t, d, 0, "e"); e.ID != 0x00000003 || e.Slot != 0 {
		t.Error(e)
	}
	if f := add(t, d, 0, "f"); f.Slot != 2 {
		t.Error(f)
	}
	if _, err := d.Add(0, "g", nil); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "all 3 slots") {
		t.Error(err)
	}
	if d.Count(0) != 3 || d.Count(7) != 1 {
		t.Error(d.Count(0), d.Count(7))
	}
	if k := d.slots[3]; k == nil || k.Name != "c" {
		t.Error(k)
	}
}

func TestChosenID(t *testing.T) {
	d := fresh(t)
	id := wire.MakeKey(0, 1)
	if k, err := d.Add(0, "x", &id); err != nil || k.ID != id {
		t.Fatal(k, err)
	}
	if k := add(t, d, 0, "y"); k.ID != 2 { // the counter skips a KEY_ID that was chosen explicitly
		t.Error(k)
	}
	other := wire.MakeKey(7, 1)
	for _, c := range []struct {
		name string
		id   *wire.Key
		want error
	}{{"z", &id, ErrExists}, {"z", &other, ErrInvalid}, {"x", nil, ErrExists}, {"", nil, ErrInvalid},
		{"\xff", nil, ErrInvalid},
		{strings.Repeat("n", MaxName+1), nil, ErrInvalid}, {"keyid:1", nil, ErrInvalid}} {
		if _, err := d.Add(0, c.name, c.id); !errors.Is(err, c.want) {
			t.Errorf("%q %v: %v, want %v", c.name, c.id, err, c.want)
		}
	}
	if _, err := d.Add(9, "z", nil); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	d := fresh(t)
	a := add(t, d, 0, "/registry/a")
	two := add(t, d, 0, "1") // the name "1" looks like another key's KEY_ID
	for in, want := range map[string]Key{"/registry/a": a, "0x00000001": a, "1": two, "2": two} {
		if k, err := d.Find(0, in); err != nil || k != want {
			t.Errorf("%q: %v %v, want %v", in, k, err, want)
		}
	}
	for _, in := range []string{"b", "0x07000001", "3"} {
		if _, err := d.Find(0, in); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", in, err)
		}
	}
	if _, err := d.Find(7, "/registry/a"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if l := d.List("/registry/"); len(l) != 1 || l[0] != a {
		t.Error(l)
	}
}

// TestSnapshot: after a directory is saved and loaded, it is the same as before, including its next
// numbers.
func TestSnapshot(t *testing.T) {
	d := fresh(t)
	for i := range 3 {
		k := add(t, d, 0, fmt.Sprint("k", i))
		d.SetState(k.ID, Placed)
	}
	d.Delete(2)
	b, err := json.Marshal(d.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var s Snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	e, err := New([]Space{{Chain: 0, Count: 3}}, s)
	if err != nil {
		t.Fatal(err)
	}
	before, after := d.Snapshot(), e.Snapshot()
	before.Edit, after.Edit = 0, 0 // the numbers of changes differ between two directories
	before.Sort()
	after.Sort()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	if k := add(t, e, 0, "new"); k.ID != 4 || k.Slot != 1 {
		t.Error(k)
	}
	s.Keys = append(s.Keys, s.Keys[0])
	if _, err := New(nil, s); err == nil {
		t.Error("a directory with a key twice was read")
	}
}

func TestAdopt(t *testing.T) {
	d := fresh(t)
	// Adopting the higher KEY_ID does not mark the lower KEY_ID as used, because both are found
	// together.
	got := d.Adopt(map[wire.Key]int{wire.MakeKey(0, 9): 1, wire.MakeKey(0, 5): 3})
	if len(got) != 2 || got[0].ID != 5 || got[1].Name != "keyid:0x00000009" || got[1].State != Placed || got[1].Slot != 1 {
		t.Fatal(got)
	}
	if got := d.Adopt(map[wire.Key]int{wire.MakeKey(0, 10): 1}); len(got) != 0 {
		t.Errorf("into a slot that is another key's: %v", got)
	}
	a, b := add(t, d, 0, "a"), add(t, d, 0, "b")
	if a.ID != 10 || a.Slot != 0 || b.Slot != 2 {
		t.Error(a, b)
	}
	// All KEY_IDs here were used: a removed KEY_ID, an alias, a number below the next one that was
	// never given, and a KEY_ID that was found and dropped.
	alias := d.StartMove(b.ID).Alias
	d.StayPut(b.ID)
	d.Delete(a.ID)
	d.Retire(wire.MakeKey(0, 4))
	d.Retire(wire.MakeKey(0, 77))
	chosen := wire.MakeKey(0, 99)
	if _, err := d.Add(0, "chosen", &chosen); err != nil {
		t.Fatal(err)
	}
	d.Delete(chosen)
	for _, id := range []wire.Key{a.ID, alias, 4, 77, chosen} {
		if got := d.Adopt(map[wire.Key]int{id: 7}); len(got) != 0 {
			t.Errorf("%v was used, and is adopted: %v", id, got)
		}
		if _, err := d.Add(0, "again", &id); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v was used, and is given again: %v", id, err)
		}
	}
}

// TestAnswersAreKept: a directory caches answers while it does not change, and computes them again
// after a change.
func TestAnswersAreKept(t *testing.T) {
	d := fresh(t)
	a := add(t, d, 0, "a")
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"add", func() { add(t, d, 0, "b") }},
		{"place", func() { d.SetState(a.ID, Placed) }},
		{"delete", func() { d.Delete(a.ID) }},
		{"adopt", func() {
			if got := d.Adopt(map[wire.Key]int{wire.MakeKey(7, 9): 4}); len(got) != 1 {
				t.Fatal(got)
			}
		}},
	} {
		name, change := step.name, step.change
		before, keys := d.Snapshot(), len(d.Chain(0))+len(d.Chain(7))
		if again := d.Snapshot(); again.Edit != before.Edit || again.Edit == 0 {
			t.Errorf("%s: edit %d, then %d without a change", name, before.Edit, again.Edit)
		}
		change()
		after := d.Snapshot()
		if after.Edit <= before.Edit {
			t.Errorf("%s: edit %d, then %d", name, before.Edit, after.Edit)
		}
		if n := len(d.Chain(0)) + len(d.Chain(7)); n != len(after.Keys) || name != "place" && n == keys {
			t.Errorf("%s: %d keys in chains, %d in the snapshot, %d before", name, n, len(after.Keys), keys)
		}
		if k, ok := d.ByID(a.ID); name == "place" && ok && d.Chain(0)[0].State != k.State {
			t.Errorf("Chain says %v", d.Chain(0)[0])
		}
	}
}

// TestMove: a key's name passes to its successor. The old key keeps only its slot, under its alias.
func TestMove(t *testing.T) {
	d := fresh(t)
	a := add(t, d, 0, "a")
	d.SetState(a.ID, Placed)
	before := d.Snapshot().Edit
	moving := d.StartMove(a.ID)
	if moving.State != Moving || moving.Alias == 0 || moving.Alias == a.ID || moving.Alias.Chain() != 0 ||
		d.Snapshot().Edit == before {
		t.Errorf("%+v", moving)
	}
	d.StayPut(a.ID)
	if k, _ := d.ByName("a"); k != (Key{Name: "a", ID: a.ID, Slot: a.Slot, State: Placed}) {
		t.Errorf("back: %+v", k)
	}
	moving = d.StartMove(a.ID)
	d.SetState(a.ID, Taken)
	to := add(t, d, 7, MovingPrefix+"a")
	left := d.FinishMove(a.ID, to.ID, 0)
	if left.ID != moving.Alias || left.Slot != a.Slot || left.State != Removing {
		t.Errorf("left: %+v", left)
	}
	if k, _ := d.ByName("a"); k != (Key{Name: "a", ID: to.ID, Slot: to.Slot, State: Placed}) {
		t.Errorf("moved: %+v", k)
	}
	if _, ok := d.ByID(a.ID); ok || d.Count(0) != 1 || d.Count(7) != 1 {
		t.Errorf("%+v", d.Snapshot())
	}
	if _, err := New([]Space{{Chain: 0, Count: 4}, {Chain: 7, First: 4, Count: 4}}, d.Snapshot()); err != nil {
		t.Error(err)
	}
}

// TestKeyIDsDoNotComeBack: a used KEY_ID is not given again, even if the caller chose it, and even
// after a restart.
func TestKeyIDsDoNotComeBack(t *testing.T) {
	spaces := []Space{{Chain: 0, Count: 8}}
	d, err := New(spaces, Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	given := add(t, d, 0, "given")
	chosen := given.ID + 2
	if _, err := d.Add(0, "chosen", &chosen); err != nil {
		t.Fatal(err)
	}
	d.Delete(given.ID)
	d.Delete(chosen)
	if d, err = New(spaces, d.Snapshot()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []wire.Key{given.ID, chosen} {
		if _, err := d.Add(0, "again", &id); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v is given again: %v", id, err)
		}
	}
	if a, b := add(t, d, 0, "a"), add(t, d, 0, "b"); a.ID != given.ID+1 || b.ID != given.ID+3 {
		t.Errorf("the next are %v and %v", a.ID, b.ID)
	}
}

// TestOneMaker: the number of keys of some callers is limited. Such a caller has at most as many
// keys of a chain as slots stay free there for others, whatever happens to the directory.
func TestOneMaker(t *testing.T) {
	spaces := []Space{{Chain: 1, First: 0, Count: 100}, {Chain: 2, First: 100, Count: 2}}
	d, err := New(spaces, Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	take := func(by string, chain uint8) (n int) {
		t.Helper()
		for {
			made++
			if _, err := d.AddFor(by, chain, fmt.Sprint("key", made), nil); err != nil {
				if !errors.Is(err, ErrShare) && !errors.Is(err, ErrFull) {
					t.Fatal(err)
				}
				return n
			}
			n++
		}
	}
	if n := take("worker1", 1); n != 50 {
		t.Errorf("one node has %d of 100", n)
	}
	if d, err = New(spaces, d.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if n := take("worker1", 1); n != 0 {
		t.Errorf("it has %d more with another controller", n)
	}
	if n := take("worker2", 1); n != 25 {
		t.Errorf("another node has %d of 50", n)
	}
	if _, err := d.AddFor("worker1", 1, "x", nil); !errors.Is(err, ErrShare) ||
		!strings.Contains(err.Error(), "worker1 has 50, and 25 are free") {
		t.Error(err)
	}
	if _, err := d.AddFor("worker1", 1, "key1", nil); !errors.Is(err, ErrExists) {
		t.Errorf("a key that is there already: %v", err)
	}
	for _, k := range d.Chain(1)[:20] { // all of these keys belong to worker1
		d.Delete(k.ID)
	}
	// worker1 has 30 keys, and 45 slots are free.
	if n := take("worker1", 1); n != 7 {
		t.Errorf("after it has removed 20 it has %d more", n)
	}
	for _, by := range []string{"worker1", "worker2"} { // a caller without keys gets one key, even if it is the last
		if n := take(by, 2); n != 1 {
			t.Errorf("%s has %d of 2", by, n)
		}
	}
	// A key that moves stays a key of the same caller.
	from := d.Chain(2)[0]
	d.SetState(from.ID, Placed)
	d.StartMove(from.ID)
	to, err := d.Add(1, MovingPrefix+from.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	left := d.FinishMove(from.ID, to.ID, 1)
	d.Delete(left.ID)
	if k, _ := d.ByID(to.ID); k.Maker != from.Maker || take(from.Maker, 2) != 1 {
		t.Errorf("a key of %s has moved, and is %s's", from.Maker, k.Maker)
	}
	if n := take("", 1); n != 100-30-7-25-1 {
		t.Errorf("those who may have all have %d", n)
	}
}
