package expression

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/interval"
)

// Assign compiles dst = src, truncated to the width of dst.
func (c *Compiler) Assign(dst, src *bmv2json.Expr) Statement {
	if src.Type == bmv2json.TypeBool {
		src = &bmv2json.Expr{Op: bmv2json.OpBoolToData, Right: src, Path: src.Path}
	}
	if dst.Op == bmv2json.OpField && dst.Field.Field.VL {
		return c.AssignVarbit(dst, src)
	}
	pl := c.PlaceOf(dst)
	lane, width, n := pl.Lane, pl.Width, pl.Lanes()
	if n > 1 {
		return c.assignWide(pl, src)
	}
	mask := wideint.TopMask(width)
	v := c.Number(src, width)
	if dyn := pl.Find; dyn != nil {
		return func(st *packet.State) {
			x := v(st)
			if at := dyn(st); at >= 0 {
				st.Lanes[at] = x & mask
			}
		}
	}
	if src.Op == bmv2json.OpConst {
		k := interval.Word(src.Const, 0) & mask
		return func(st *packet.State) { st.Lanes[lane] = k }
	}
	if from, ok := c.FixedLane(src); ok && src.Width <= width {
		return func(st *packet.State) { st.Lanes[lane] = st.Lanes[from] }
	}
	return func(st *packet.State) { st.Lanes[lane] = v(st) & mask }
}

func (c *Compiler) assignWide(pl Place, src *bmv2json.Expr) Statement {
	lane, n, mask := pl.Lane, pl.Lanes(), wideint.TopMask(pl.Width)
	if pl.Find == nil && src.Op == bmv2json.OpField && src.Width == pl.Width {
		from := c.PlaceOf(src).Lane
		return func(st *packet.State) { copy(st.Lanes[lane:lane+n], st.Lanes[from:from+n]) }
	}
	v := c.WideNumber(src, n)
	from, to := c.Scratch(n)
	dyn := pl.Find
	return func(st *packet.State) {
		t := st.Scratch[from:to]
		v(st, t)
		at := lane
		if dyn != nil {
			if at = dyn(st); at < 0 {
				return
			}
		}
		copy(st.Lanes[at:at+n], t)
		st.Lanes[at+n-1] &= mask
	}
}

// AssignVarbit compiles dst = src for fields of variable length.
func (c *Compiler) AssignVarbit(dst, src *bmv2json.Expr) Statement {
	if src.Op != bmv2json.OpField || src.Field.IsValidity() || !src.Field.Field.VL {
		refusal.Panic(src.Path, "a varbit field set from a %q", src.Op)
	}
	d, s, limit := dst.Field.Header.Index, src.Field.Header.Index, dst.Width/8
	return func(st *packet.State) {
		if d != s {
			st.Varbits[d] = append(st.Varbits[d][:0], st.Varbits[s][:min(len(st.Varbits[s]), limit)]...)
		}
	}
}

// Store compiles storing a 64-bit number into dst.
func (c *Compiler) Store(dst *bmv2json.Expr) func(*packet.State, uint64) {
	pl := c.PlaceOf(dst)
	lane, n, mask, dyn := pl.Lane, pl.Lanes(), wideint.TopMask(pl.Width), pl.Find
	if n > 1 {
		mask = ^uint64(0)
	}
	return func(st *packet.State, v uint64) {
		at := lane
		if dyn != nil {
			if at = dyn(st); at < 0 {
				return
			}
		}
		st.Lanes[at] = v & mask
		clear(st.Lanes[at+1 : at+n])
	}
}
