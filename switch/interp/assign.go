package interp

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interval"
)

// assign compiles dst = src, cut to dst's width.
func (c *exprCompiler) assign(dst, src *bmv2json.Expr) doFn {
	if src.Type == bmv2json.TypeBool {
		src = &bmv2json.Expr{Op: bmv2json.OpBoolToData, Right: src, Path: src.Path}
	}
	if dst.Op == bmv2json.OpField && dst.Field.Field.VL {
		return c.assignVL(dst, src)
	}
	pl := c.placeOf(dst)
	lane, width, n := pl.lane, pl.width, pl.lanes()
	if n > 1 {
		return c.assignWide(pl, src)
	}
	mask := topMask(width)
	v := c.low(src, width)
	if dyn := pl.dyn; dyn != nil {
		return func(st *state) {
			x := v(st)
			if at := dyn(st); at >= 0 {
				st.w[at] = x & mask
			}
		}
	}
	if src.Op == bmv2json.OpConst {
		k := interval.Word(src.Const, 0) & mask
		return func(st *state) { st.w[lane] = k }
	}
	if from, ok := c.fixedLane(src); ok && src.Width <= width {
		return func(st *state) { st.w[lane] = st.w[from] }
	}
	return func(st *state) { st.w[lane] = v(st) & mask }
}

func (c *exprCompiler) assignWide(pl place, src *bmv2json.Expr) doFn {
	lane, n, mask := pl.lane, pl.lanes(), topMask(pl.width)
	if pl.dyn == nil && src.Op == bmv2json.OpField && src.Width == pl.width {
		from := c.placeOf(src).lane
		return func(st *state) { copy(st.w[lane:lane+n], st.w[from:from+n]) }
	}
	v := c.wide(src, n)
	from, to := c.temp(n)
	dyn := pl.dyn
	return func(st *state) {
		t := st.scratch[from:to]
		v(st, t)
		at := lane
		if dyn != nil {
			if at = dyn(st); at < 0 {
				return
			}
		}
		copy(st.w[at:at+n], t)
		st.w[at+n-1] &= mask
	}
}

func (c *exprCompiler) assignVL(dst, src *bmv2json.Expr) doFn {
	if src.Op != bmv2json.OpField || src.Field.IsValidity() || !src.Field.Field.VL {
		refuse(src.Path, "a varbit field set from a %q", src.Op)
	}
	d, s, limit := dst.Field.Header.Index, src.Field.Header.Index, dst.Width/8
	return func(st *state) {
		if d != s {
			st.vl[d] = append(st.vl[d][:0], st.vl[s][:min(len(st.vl[s]), limit)]...)
		}
	}
}

// oldArithmetic compiles the primitives of P4_14 as the expressions that they are.
func (c *compiler) oldArithmetic(p *bmv2json.Primitive) doFn {
	op := map[string]bmv2json.ExprOp{
		"add_to_field": bmv2json.OpAdd, "subtract_from_field": bmv2json.OpSub,
		"add": bmv2json.OpAdd, "subtract": bmv2json.OpSub,
		"bit_xor": bmv2json.OpBitXor, "bit_or": bmv2json.OpBitOr, "bit_and": bmv2json.OpBitAnd,
		"shift_left": bmv2json.OpShl, "shift_right": bmv2json.OpShr,
	}[p.Op]
	l, r := p.Args[0], p.Args[1]
	if len(p.Args) == 3 {
		l, r = p.Args[1], p.Args[2]
	}
	return c.assign(p.Args[0], &bmv2json.Expr{Op: op, Left: l, Right: r, Path: p.Path})
}

// store64 compiles storing a number of 64 bits.
func (c *exprCompiler) store64(dst *bmv2json.Expr) func(*state, uint64) {
	pl := c.placeOf(dst)
	lane, n, mask, dyn := pl.lane, pl.lanes(), topMask(pl.width), pl.dyn
	if n > 1 {
		mask = ^uint64(0)
	}
	return func(st *state, v uint64) {
		at := lane
		if dyn != nil {
			if at = dyn(st); at < 0 {
				return
			}
		}
		st.w[at] = v & mask
		clear(st.w[at+1 : at+n])
	}
}
