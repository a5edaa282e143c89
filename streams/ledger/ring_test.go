package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netcraq/netcraq/internal/racedetector"
)

// record is a record in the ring of the model.
type record struct {
	offset uint64
	size   int
}

// model is a specification of a ring in the simplest form. It has all objects that were ever begun,
// with their records.
type model struct {
	objects [][]record
	next    uint64
}

// reader is a consumer in the model. It knows what it has released, and what it may still read.
type reader struct {
	name  string
	id    ID
	there bool
	held  uint64
	next  uint64
	start uint64 // until the consumer has finished with this record, it may not know the number of missed records
	skip  bool
	lost  bool // the consumer was moved ahead, and does not know it yet
	until int64
}

const (
	objects = 4
	space   = 100
	stall   = 50
	keep    = 80
)

// walk performs a random sequence of operations. It returns an error if the ledger breaks a promise
// of docs/streams.md.
func walk(seed uint64, tell bool) (trace []string, err error) {
	r := rand.New(rand.NewPCG(seed, 1))
	rules := Rules{Skip: seed%4 == 0, Stall: stall, Keep: keep, Names: 3}
	ring, m := New(objects, space, rules), model{}
	var readers []*reader
	now, last := int64(0), ID(0)
	log := func(format string, args ...any) {
		if tell {
			trace = append(trace, fmt.Sprintf("%4d ", now)+fmt.Sprintf(format, args...))
		}
	}
	// blockedSince has the time since which the writer has waited for each reader that releases
	// nothing.
	blockedSince := map[*reader]int64{}
	// All readers have the same owner. Since waySince the writer has found some of them holding
	// object `way`. It does not wait for these readers before it must replace object `spent`.
	way, waySince, spent := -1, int64(0), 0
	for range 400 {
		now += r.Int64N(6)
		switch k := r.IntN(12); {
		case k < 6: // append a record
			size := 8 * (1 + r.IntN(space/8))
			begun := uint64(len(m.objects))
			var used int
			if begun > 0 {
				for _, x := range m.objects[begun-1] {
					used += x.size
				}
			}
			needs := begun == 0 || used+size > space
			if needs == ring.Fits(size) {
				return trace, fmt.Errorf("a record of %d bytes after %d: Fits is %v", size, used, ring.Fits(size))
			}
			var holders []*reader
			if needs && begun >= objects {
				for _, c := range readers {
					if c.held <= begun-objects && !c.skip && !rules.Skip && !c.lost && (c.there || now < c.until) {
						holders = append(holders, c)
					}
				}
			}
			victim := int(begun) - objects
			if len(holders) > 0 && victim != way && victim >= spent {
				way, waySince = victim, now
			}
			over := victim < spent || now >= waySince+keep+stall // the time of the owner is used up
			place, blockers := ring.Append(size, now)
			log("append %d: %+v, blockers %v", size, place, blockers)
			if len(blockers) > 0 {
				patient := false
				for _, c := range holders {
					if c.there {
						if _, ok := blockedSince[c]; !ok {
							blockedSince[c] = now
						}
						patient = patient || now < blockedSince[c]+stall
					} else {
						patient = true
					}
				}
				if !patient || over {
					return trace, fmt.Errorf("the writer waits for %v, and need not", blockers)
				}
				continue
			}
			for _, c := range holders { // these readers were moved ahead, so their time must have been used up
				since, ok := blockedSince[c]
				if !over && (!c.there || !ok || now < since+stall) {
					return trace, fmt.Errorf("object %d was taken from reader %d, which held it", begun-objects, c.id)
				}
			}
			if over && len(holders) > 0 && victim >= spent {
				spent = int(begun)
			}
			moved := uint64(0)
			if needs {
				for _, c := range readers {
					if begun >= objects && c.held <= begun-objects {
						if c.there {
							moved++
							c.lost = !c.skip && !rules.Skip
						} else {
							c.until = min(c.until, now) // from now on this reader holds nothing
						}
						c.held = begun // the reader was moved ahead
						delete(blockedSince, c)
					}
				}
				m.objects = append(m.objects, nil)
			}
			n := len(m.objects) - 1
			want := Place{Object: uint64(n), Offset: m.next, Begins: needs, Count: len(m.objects[n]) + 1, Moved: moved}
			for _, x := range m.objects[n] {
				want.At += x.size
			}
			want.Used = want.At + size
			if place != want {
				return trace, fmt.Errorf("place %+v, not %+v", place, want)
			}
			m.objects[n] = append(m.objects[n], record{m.next, size})
			m.next++
		case k < 8: // a consumer joins
			c := &reader{id: last + 1, there: true, skip: r.IntN(4) == 0}
			if r.IntN(2) == 0 {
				c.name = string(rune('a' + r.IntN(5)))
			}
			oldest := uint64(max(0, len(m.objects)-objects))
			first := m.next
			if oldest < uint64(len(m.objects)) {
				first = m.objects[oldest][0].offset
			}
			from, offset := From(r.IntN(4)), uint64(0)
			ask := first
			var before *reader
			for _, x := range readers {
				if c.name != "" && x.name == c.name {
					before = x
				}
			}
			switch from {
			case At:
				offset = r.Uint64N(m.next + 3)
				ask = offset
			case Latest:
				ask = m.next
			case Known:
				if before != nil {
					ask = before.next
				}
			}
			s, replaced, err := ring.Join(c.id, c.name, from, offset, c.skip, now)
			log("join %+v from %d %d: %+v, %d, %v", *c, from, offset, s, replaced, err)
			if ask > m.next {
				if err == nil {
					return trace, fmt.Errorf("record %d is not there, and somebody joined there", ask)
				}
				continue
			}
			names, idle := map[string]bool{}, false
			for _, x := range readers {
				if x.name != "" {
					names[x.name] = true
					idle = idle || !x.there && now >= x.until
				}
			}
			if c.name != "" && before == nil && len(names) >= rules.Names && !idle {
				if err == nil {
					return trace, fmt.Errorf("a name too many")
				}
				continue
			}
			if err != nil {
				return trace, err
			}
			if start := max(ask, first); s.Offset != start || s.Missed != start-ask {
				return trace, fmt.Errorf("start %+v, asked for %d of %d to %d", s, ask, first, m.next)
			}
			// The object must already contain the record, or be the object that will contain it.
			if s.Object < oldest || s.Object > uint64(len(m.objects)) {
				return trace, fmt.Errorf("object %d of %d to %d", s.Object, oldest, len(m.objects))
			}
			if s.Object < uint64(len(m.objects)) {
				o := m.objects[s.Object]
				if o[0].offset > s.Offset || s.Offset > o[len(o)-1].offset+1 ||
					s.Offset == o[len(o)-1].offset+1 && int(s.Object) != len(m.objects)-1 {
					return trace, fmt.Errorf("object %d has not record %d", s.Object, s.Offset)
				}
			}
			if before != nil && before.there != (replaced == before.id && replaced != 0) {
				return trace, fmt.Errorf("replaced %d", replaced)
			}
			last++
			if r.IntN(5) == 0 { // simulate that the join fails later
				ring.Withdraw(c.id, now)
				log("%d is withdrawn", c.id)
				next, known := ring.Where(c.name)
				switch {
				case c.name == "":
				case known != (before != nil):
					return trace, fmt.Errorf("the name %q: %v after it was withdrawn", c.name, known)
				case known && next != before.next:
					return trace, fmt.Errorf("%q is at %d, not where it was, %d", c.name, next, before.next)
				}
				if before != nil && before.there {
					before.there, before.lost, before.until = false, false, now
					if !before.skip && !rules.Skip {
						before.until = now + keep
					}
					delete(blockedSince, before)
				}
				readers = slices.DeleteFunc(readers, func(x *reader) bool {
					return x.name != "" && !x.there && !has(ring, x.name)
				})
				continue
			}
			c.held, c.next, c.start = s.Object, ask, s.Offset
			var rest []*reader
			for _, x := range readers {
				forgotten := x.name != "" && !x.there && !has(ring, x.name)
				if x != before && !forgotten {
					rest = append(rest, x)
				}
			}
			readers = append(rest, c)
		case k < 10: // a consumer releases objects
			if len(readers) == 0 {
				continue
			}
			c := readers[r.IntN(len(readers))]
			if !c.there {
				continue
			}
			if c.lost && r.IntN(2) == 0 { // a report without progress
				if err := ring.LetGo(c.id, c.held-1, c.next); err != nil {
					return trace, err
				}
				continue
			}
			forged := r.IntN(20) == 0
			held := min(c.held+r.Uint64N(3), uint64(len(m.objects)))
			next := max(c.next, min(c.next+r.Uint64N(5), m.next))
			if forged {
				held = uint64(len(m.objects)) + 1 + r.Uint64()>>1
			}
			err := ring.LetGo(c.id, held, next)
			log("%d lets go of what is before %d, %d: %v", c.id, held, next, err)
			if forged != (err != nil) {
				return trace, fmt.Errorf("held %d of %d: %v", held, len(m.objects), err)
			}
			if !forged {
				if held > c.held {
					delete(blockedSince, c)
				}
				c.held, c.lost = held, false
				if next > c.start {
					c.next = next
				}
			}
		default: // a consumer leaves
			if len(readers) == 0 {
				continue
			}
			n := r.IntN(len(readers))
			c := readers[n]
			if !c.there {
				continue
			}
			ring.Leave(c.id, now)
			log("%d leaves", c.id)
			delete(blockedSince, c)
			if c.name == "" {
				readers = append(readers[:n], readers[n+1:]...)
				continue
			}
			c.there, c.lost, c.until = false, false, now
			if !c.skip && !rules.Skip {
				c.until = now + keep
			}
		}
		if ring.Next() != m.next || ring.Begun() != uint64(len(m.objects)) {
			return trace, fmt.Errorf("next %d, begun %d; the model has %d, %d", ring.Next(), ring.Begun(), m.next, len(m.objects))
		}
		if len(ring.Positions()) > rules.Names {
			return trace, fmt.Errorf("%d names", len(ring.Positions()))
		}
	}
	return trace, nil
}

func has(r *Ring, name string) bool {
	_, ok := r.Where(name)
	return ok
}

// TestWalks checks random sequences of operations. No object may be taken from a consumer before
// its time is used up, and the writer may never wait without a reason. Every record must get the
// next offset and the right place.
func TestWalks(t *testing.T) {
	walks := uint64(1000)
	if racedetector.Enabled { // the race detector cannot find anything, because there is only one goroutine
		walks = 100
	}
	for seed := range walks {
		if _, err := walk(seed, false); err != nil {
			trace, _ := walk(seed, true)
			for _, line := range trace {
				t.Log(line)
			}
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestRestore checks that a ledger that is restored from the ring of another ledger continues
// correctly.
func TestRestore(t *testing.T) {
	rules := Rules{Stall: stall, Keep: keep, Names: 2}
	a := New(objects, space, rules)
	var all []Held
	for range 50 {
		p, blockers := a.Append(40, 0)
		if blockers != nil {
			t.Fatal(blockers)
		}
		if p.Begins {
			all = append(all, Held{First: p.Offset})
		}
		all[len(all)-1].Used, all[len(all)-1].Count = p.Used, p.Count
	}
	base := uint64(len(all) - objects)
	b, err := Restore(objects, space, rules, base, a.Next(), all[base:])
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		p, _ := a.Append(24, 0)
		q, _ := b.Append(24, 0)
		if p != q {
			t.Fatalf("%+v, restored %+v", p, q)
		}
	}
	if _, err := Restore(objects, space, rules, base, a.Next(), []Held{all[base], all[base+2]}); err == nil {
		t.Error("objects with a gap between them were taken")
	}
	b.Remember("x", 1, 0)
	s, _, err := b.Join(1, "x", Known, 0, false, 0)
	if _, first := b.Oldest(); err != nil || s.Offset != first || s.Missed != first-1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestOwners checks that consumers with the same name but different owners are independent. An
// owner with many names cannot displace the names of an owner with fewer.
func TestOwners(t *testing.T) {
	const names = 4
	r := New(objects, space, Rules{Stall: stall, Keep: keep, Names: names})
	for range 3 {
		r.Append(24, 0)
	}
	commit := func(owner, name string, next uint64, now int64) error { return r.Commit(Owned(owner, name), next, now) }
	for _, name := range []string{"a", "b", "c"} {
		if err := commit("mine", name, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	many := 0
	// run the checks before and after the objects' holding time has passed
	for now := int64(0); now < 3*keep; now += keep {
		for i := range 3 * names {
			if err := commit("other", string(rune('a'+i)), 3, now); err == nil {
				many++
			}
		}
	}
	if many == 0 || many == 3*3*names {
		t.Errorf("an owner has had %d names", many)
	}
	if n := len(r.Positions()); n > 2*names {
		t.Errorf("%d names are remembered", n)
	}
	for _, name := range []string{"a", "b", "c"} {
		if next, known := r.Where(Owned("mine", name)); !known || next != 1 {
			t.Errorf("%s is at %d, known: %v", name, next, known)
		}
	}
	// A third owner gets its share of names. One of the two owners with more names loses a name
	// that holds no objects.
	for _, name := range []string{"a", "b"} {
		if err := commit("third", name, 2, 4*keep); err != nil {
			t.Error(err)
		}
	}
	// A name from an earlier version of the server belongs to the first owner that uses it.
	r = New(objects, space, Rules{Keep: keep, Names: names})
	r.Append(24, 0)
	r.Remember("old", 1, 0)
	if err := commit("mine", "new", 1, 0); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		owner, name string
		known       bool
	}{{"other", Owned("mine", "new"), false}, {"mine", "old", true}, {"other", "old", false}} {
		if _, known := r.Where(Owned(x.owner, x.name)); known != x.known {
			t.Errorf("%s has a consumer %q: %v", x.owner, x.name, known)
		}
	}
}

// TestHeldUpByOneOwner checks the time for which one owner can delay the writer for an object. It
// must not exceed the time that one consumer that leaves and returns can cause. That holds even if
// the owner uses many names, or many consumers without a name. Afterwards the writer does not wait
// for this owner for one round of the ring, but still waits for other owners.
func TestHeldUpByOneOwner(t *testing.T) {
	const names = 64
	full := func() *Ring {
		r := New(objects, space, Rules{Stall: stall, Keep: keep, Names: names})
		for range objects {
			r.Append(space, 0)
		}
		return r
	}
	id := ID(0)
	join := func(r *Ring, name string, now int64) ID {
		id++
		if _, _, err := r.Join(id, name, Earliest, 0, false, now); err != nil {
			t.Fatal(err)
		}
		return id
	}
	name := func(n int64) string { return Owned("mine", fmt.Sprint(n%names)) }
	for what, hold := range map[string]func(r *Ring, now int64){
		"reads by many names": func(r *Ring, now int64) {
			_, first := r.Oldest()
			if err := r.Commit(name(now), first, now); err != nil {
				t.Fatal(err)
			}
		},
		"subscribes by many names": func(r *Ring, now int64) { r.Leave(join(r, name(now), now), now) },
		"without names": func(r *Ring, now int64) {
			before := id
			join(r, Owned("mine", ""), now)
			r.Leave(before, now)
		},
	} {
		r, last, objectsHad := full(), int64(0), 0
		for now := int64(0); objectsHad < 3*objects; now++ {
			hold(r, now)
			for {
				if _, blockers := r.Append(space, now); len(blockers) > 0 {
					break
				}
				if objectsHad%objects == 0 && now-last != keep+stall || objectsHad%objects != 0 && now != last {
					t.Fatalf("%s: the writer waited %d for object %d", what, now-last, objectsHad)
				}
				last = now
				objectsHad++
				hold(r, now)
			}
			if now > last+keep+stall {
				t.Fatalf("%s: the writer waits for longer than %d", what, keep+stall)
			}
		}
		if n := len(r.waits); n > 1 {
			t.Errorf("%s: %d owners are remembered", what, n)
		}
		// The writer still waits for another owner's consumer.
		other := join(r, Owned("other", ""), last)
		_, blockers := r.Append(space, last)
		if !slices.ContainsFunc(blockers, func(b Blocker) bool { return b.ID == other && b.Until == last+stall }) {
			t.Errorf("%s: another owner's consumer is not waited for: %v", what, blockers)
		}
	}
}
