package reference

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/calculation"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// Checksum is a compiled checksum of v1model.
type Checksum struct {
	id     int
	calc   *calculation.Calculation
	cond   expression.Condition // nil if the checksum always applies
	header int                  // index of the header that contains the checksum's field
	lane   int
	mask   uint64
}

// Checksum compiles a checksum of v1model.
func (c *Compiler) Checksum(s *bmv2json.Checksum) *Checksum {
	if s.Target.IsValidity() || s.Target.Field.VL || s.Target.Width() > 64 {
		refusal.Panic(s.Path, "a checksum kept in %s", s.Target)
	}
	out := &Checksum{id: s.ID, calc: c.Calculations[s.Calc.Index], header: s.Target.Header.Index,
		lane: c.Layout.LaneOf(s.Target), mask: wideint.TopMask(s.Target.Width())}
	if s.Cond != nil {
		out.cond = c.Condition(s.Cond)
	}
	return out
}

// right verifies the checksum. A checksum counts as right if the header of its field is invalid, or
// if its condition is false.
func (k *Checksum) right(st *packet.State) bool {
	if !st.Valid[k.header] || k.cond != nil && !k.cond(st) {
		return true
	}
	return k.calc.Value(st) == st.Lanes[k.lane]
}

func (k *Checksum) update(st *packet.State) {
	if k.cond == nil || k.cond(st) {
		st.Lanes[k.lane] = k.calc.Value(st) & k.mask
	}
}
