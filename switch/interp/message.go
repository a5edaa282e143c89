package interp

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// logMessage compiles log_msg(format, values): each {} in the format is replaced by the next value,
// in decimal; \{ and \} stand for themselves.
func (c *compiler) logMessage(p *bmv2json.Primitive) doFn {
	parts := bmv2json.SplitFormat(p.Args[0].Str)
	args := p.Args[1].Args
	if len(parts)-1 != len(args) {
		refuse(p.Path, "log_msg with %d places for %d values", len(parts)-1, len(args))
	}
	log := c.log
	if log == nil {
		return func(*state) {}
	}
	type value struct {
		fn       wideFn
		from, to int
	}
	values := make([]value, len(args))
	for i, a := range args {
		n := c.exactLanes(a)
		values[i].fn = c.wide(a, n)
		values[i].from, values[i].to = c.temp(n)
	}
	return func(st *state) {
		var s strings.Builder
		s.WriteString(parts[0])
		for i, v := range values {
			t := st.scratch[v.from:v.to]
			v.fn(st, t)
			n := bigFromLanes(t)
			if t[len(t)-1]>>63 == 1 {
				n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(64*len(t))))
			}
			fmt.Fprintf(&s, "%s%s", n, parts[i+1])
		}
		log(s.String())
	}
}
