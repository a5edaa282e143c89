package reference

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// hash compiles the primitive hash(dst, base, input, max), which computes base + value mod max in
// 64 bits.
func (c *Compiler) hash(p *bmv2json.Primitive) expression.Statement {
	base, size := c.Number(p.Args[1], 64), c.Number(p.Args[3], 64)
	k := c.Calculations[p.Args[2].Calc.Index]
	store := c.Store(p.Args[0])
	return func(st *packet.State) { store(st, k.Value(st)%max(size(st), 1)+base(st)) }
}
