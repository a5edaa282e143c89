package interp

import "github.com/netcraq/netcraq/switch/bmv2json"

// hash compiles hash(dst, base, input, max): base + value mod max, in 64 bits.
func (c *compiler) hash(p *bmv2json.Primitive) doFn {
	base, size := c.low(p.Args[1], 64), c.low(p.Args[3], 64)
	k := c.calcs[p.Args[2].Calc.Index]
	store := c.store64(p.Args[0])
	return func(st *state) { store(st, k.value(st)%max(size(st), 1)+base(st)) }
}
