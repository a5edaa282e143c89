package reference

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// logMessage compiles log_msg(format, values). It replaces each {} in the format by the next value
// in decimal. \{ and \} stand for braces.
func (c *Compiler) logMessage(p *bmv2json.Primitive) expression.Statement {
	parts := bmv2json.SplitFormat(p.Args[0].Str)
	args := p.Args[1].Args
	if len(parts)-1 != len(args) {
		refusal.Panic(p.Path, "log_msg with %d places for %d values", len(parts)-1, len(args))
	}
	log := c.Log
	if log == nil {
		return func(*packet.State) {}
	}
	type value struct {
		fn       expression.WideNumber
		from, to int
	}
	values := make([]value, len(args))
	for i, a := range args {
		n := c.ExactLanes(a)
		values[i].fn = c.WideNumber(a, n)
		values[i].from, values[i].to = c.Scratch(n)
	}
	return func(st *packet.State) {
		var s strings.Builder
		s.WriteString(parts[0])
		for i, v := range values {
			t := st.Scratch[v.from:v.to]
			v.fn(st, t)
			n := wideint.Big(t)
			if t[len(t)-1]>>63 == 1 {
				n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(64*len(t))))
			}
			fmt.Fprintf(&s, "%s%s", n, parts[i+1])
		}
		log(s.String())
	}
}
