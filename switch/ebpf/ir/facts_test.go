package ir

import (
	"math/rand/v2"
	"testing"
)

// TestFacts creates random facts about two fields, and checks them with every packet. A join of two
// sets of facts must hold for the packets of both sets. If one set of facts implies another set,
// the implied facts must hold for the same packets. Assuming a condition must not exclude a packet
// for which the condition is true.
func TestFacts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const values = 4
	draw := func() Facts {
		f := Facts{}
		for off := range 2 {
			switch r.IntN(4) {
			case 0:
			case 1:
				f = f.With(off, r.Uint64N(values))
			default:
				var not []uint64
				for v := range uint64(values) {
					if r.IntN(3) == 0 {
						not = append(not, v)
					}
				}
				if len(not) > 0 {
					f[off] = Fact{Not: not}
				}
			}
		}
		return f
	}
	type packet [2]uint64
	fits := func(f Facts, p packet) bool {
		for off, k := range f {
			if k.excludes(p[off]) {
				return false
			}
		}
		return true
	}
	var packets []packet
	for a := range uint64(values) {
		for b := range uint64(values) {
			packets = append(packets, packet{a, b})
		}
	}
	implied, joined := 0, 0
	for range 20_000 {
		f, g := draw(), draw()
		both := f.Join(g)
		if len(both) > 0 {
			joined++
		}
		if !f.Implies(both) || !g.Implies(both) {
			t.Fatalf("%v and %v have %v in common, which is not known of both", f, g, both)
		}
		implies := f.Implies(g)
		if implies && len(g) > 0 {
			implied++
		}
		for _, p := range packets {
			if (fits(f, p) || fits(g, p)) && !fits(both, p) {
				t.Fatalf("%v or %v: %v is lost by %v", f, g, p, both)
			}
			if implies && fits(f, p) && !fits(g, p) {
				t.Fatalf("%v implies %v, which %v is not", f, g, p)
			}
		}
		off, k := r.IntN(2), r.Uint64N(values)
		c := Compare(CmpEq, LoadPHV(off, 1, 2), Const(k), false)
		holds := func(p packet) bool { return p[off] == k }
		if r.IntN(2) == 0 {
			c = notCondition(c)
			holds = func(p packet) bool { return p[off] != k }
		}
		if other := r.Uint64N(values); r.IntN(2) == 0 {
			first := holds
			d := Compare(CmpEq, LoadPHV(1-off, 1, 2), Const(other), false)
			if r.IntN(2) == 0 {
				c = AndCondition(c, d)
				holds = func(p packet) bool { return first(p) && p[1-off] == other }
			} else {
				c = orCondition(c, d)
				holds = func(p packet) bool { return first(p) || p[1-off] == other }
			}
		}
		yes, no := f.Assume(c, true), f.Assume(c, false)
		for _, p := range packets {
			switch {
			case !fits(f, p):
			case holds(p) && !fits(yes, p):
				t.Fatalf("%v, and the condition holds: %v is lost by %v", f, p, yes)
			case !holds(p) && !fits(no, p):
				t.Fatalf("%v, and the condition does not hold: %v is lost by %v", f, p, no)
			}
		}
	}
	if implied < 100 || joined < 1000 {
		t.Errorf("%d implications and %d joins are too few to say anything", implied, joined)
	}
}
