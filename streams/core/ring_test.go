package core

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/netcraq/netcraq/internal/racedetector"
)

// record is one of the model's ring.
type record struct {
	offset uint64
	size   int
}

// model is what a ring has to be, in as plain a way as can be: every object that was ever begun,
// with its records.
type model struct {
	objects [][]record
	next    uint64
}

// reader is a consumer of the model: what it has let go of, and what it may still look at.
type reader struct {
	name  string
	id    ID
	there bool
	held  uint64
	next  uint64
	skip  bool
	lost  bool // it was moved on, and has not heard of that
	until int64
}

const (
	objects = 4
	space   = 100
	stall   = 50
	keep    = 80
)

// walk does a random walk, and fails where the ledger breaks what docs/streams.md promises.
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
	// blockedSince is since when the writer has waited for a reader that lets go of nothing.
	blockedSince := map[*reader]int64{}
	for range 400 {
		now += r.Int64N(6)
		switch k := r.IntN(12); {
		case k < 6: // append
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
				if !patient {
					return trace, fmt.Errorf("the writer waits for %v, and need not", blockers)
				}
				continue
			}
			for _, c := range holders { // it was taken from them: they had their time
				since, ok := blockedSince[c]
				if !c.there || !ok || now < since+stall {
					return trace, fmt.Errorf("object %d was taken from reader %d, which held it", begun-objects, c.id)
				}
			}
			moved := uint64(0)
			if needs {
				for _, c := range readers {
					if begun >= objects && c.held <= begun-objects {
						if c.there {
							moved++
							c.lost = !c.skip && !rules.Skip
						}
						c.held = begun // moved on
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
		case k < 8: // somebody joins
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
			// The object is the one that has the record, or will have it.
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
			c.held, c.next = s.Object, s.Offset
			var rest []*reader
			for _, x := range readers {
				forgotten := x.name != "" && !x.there && !has(ring, x.name)
				if x != before && !forgotten {
					rest = append(rest, x)
				}
			}
			readers = append(rest, c)
		case k < 10: // somebody lets go
			if len(readers) == 0 {
				continue
			}
			c := readers[r.IntN(len(readers))]
			if !c.there {
				continue
			}
			if c.lost && r.IntN(2) == 0 { // it is where it was, and has done nothing
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
				c.held, c.next, c.lost = held, next, false
			}
		default: // somebody goes
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

// TestWalks: whatever comes in whatever order, no object is taken from somebody who holds it before
// its time is over, nobody waits for no reason, and every record has the next offset and its place.
func TestWalks(t *testing.T) {
	walks := uint64(1000)
	if racedetector.Enabled { // there is one goroutine
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

// TestRestore: a ledger that is made of what another one's ring has goes on where that was.
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
