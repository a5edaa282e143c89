package reference

import (
	"math/bits"
	"math/rand/v2"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
)

// random compiles the primitive random(dst, lo, hi), which stores a number in [lo, hi]. Both bounds
// are at most 64 bits wide. If lo > hi, it stores nothing.
func (c *Compiler) random(p *bmv2json.Primitive) expression.Statement {
	lo, hi := c.Index(p.Args[1]), c.Index(p.Args[2])
	store, random := c.Store(p.Args[0]), c.Random
	return func(st *packet.State) {
		if a, b := lo(st), hi(st); a <= b {
			store(st, randomIn(random, a, b))
		}
	}
}

// randomIn returns a number in [lo, hi].
func randomIn(random *rand.PCG, lo, hi uint64) uint64 {
	v := random.Uint64()
	if span := hi - lo + 1; span != 0 {
		v, _ = bits.Mul64(v, span) // the result is in [0, span)
	}
	return lo + v
}

func (c *Compiler) randomRead(p *bmv2json.Primitive) expression.Statement {
	e, store := p.Args[0].Extern, c.Store(p.Args[1])
	lo, hi := e.Attributes["min"].Number, e.Attributes["max"].Number
	if lo == nil || hi == nil || !lo.IsUint64() || !hi.IsUint64() || lo.Cmp(hi) > 0 {
		refusal.Panic(e.Path, "Random %q without a range of 64 bits", e.Name)
	}
	a, b, random := lo.Uint64(), hi.Uint64(), c.Random
	return func(st *packet.State) { store(st, randomIn(random, a, b)) }
}
