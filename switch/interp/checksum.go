package interp

import "github.com/netcraq/netcraq/switch/bmv2json"

// checksum is a compiled checksum.
type checksum struct {
	id     int
	calc   *calculation
	cond   boolFn // nil: always
	header int    // of the target
	lane   int
	mask   uint64
}

func (c *compiler) checksum(s *bmv2json.Checksum) *checksum {
	if s.Target.IsValidity() || s.Target.Field.VL || s.Target.Width() > 64 {
		refuse(s.Path, "a checksum kept in %s", s.Target)
	}
	out := &checksum{id: s.ID, calc: c.calcs[s.Calc.Index], header: s.Target.Header.Index,
		lane: c.lay.lane(s.Target), mask: topMask(s.Target.Width())}
	if s.Cond != nil {
		out.cond = c.boolean(s.Cond)
	}
	return out
}

// right verifies the checksum. One whose field is in a header that is not valid, or whose condition
// does not hold, is taken as right.
func (k *checksum) right(st *state) bool {
	if !st.valid[k.header] || k.cond != nil && !k.cond(st) {
		return true
	}
	return k.calc.value(st) == st.w[k.lane]
}

func (k *checksum) update(st *state) {
	if k.cond == nil || k.cond(st) {
		st.w[k.lane] = k.calc.value(st) & k.mask
	}
}
