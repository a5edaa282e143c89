package interp

import (
	"math/bits"
	"math/rand/v2"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// random compiles random(dst, lo, hi): a number of [lo, hi], both 64 bits at most; nothing is
// stored where lo > hi.
func (c *compiler) random(p *bmv2json.Primitive) doFn {
	lo, hi := c.index(p.Args[1]), c.index(p.Args[2])
	store, random := c.store64(p.Args[0]), c.rand
	return func(st *state) {
		if a, b := lo(st), hi(st); a <= b {
			store(st, randomIn(random, a, b))
		}
	}
}

// randomIn is a number of [lo, hi].
func randomIn(random *rand.PCG, lo, hi uint64) uint64 {
	v := random.Uint64()
	if span := hi - lo + 1; span != 0 {
		v, _ = bits.Mul64(v, span) // in [0, span)
	}
	return lo + v
}

func (c *compiler) randomRead(p *bmv2json.Primitive) doFn {
	e, store := p.Args[0].Extern, c.store64(p.Args[1])
	lo, hi := e.Attributes["min"].Number, e.Attributes["max"].Number
	if lo == nil || hi == nil || !lo.IsUint64() || !hi.IsUint64() || lo.Cmp(hi) > 0 {
		refuse(e.Path, "Random %q without a range of 64 bits", e.Name)
	}
	a, b, random := lo.Uint64(), hi.Uint64(), c.rand
	return func(st *state) { store(st, randomIn(random, a, b)) }
}
