package interp

import "github.com/netcraq/netcraq/switch/bmv2json"

// registerAccess compiles reading or writing a cell. An index beyond the array reads and writes
// nothing.
func (c *compiler) registerAccess(p *bmv2json.Primitive) doFn {
	if p.Op == "register_write" {
		return c.registerWrite(p)
	}
	a, idx := c.registers[p.Args[1].Register.Index], c.index(p.Args[2])
	pl := c.placeOf(p.Args[0])
	lane, n, dyn := pl.lane, pl.lanes(), pl.dyn
	mask := topMask(pl.width)
	if dyn == nil && a.lanes == 1 && n == 1 && !a.signed {
		if a.width <= pl.width {
			mask = ^uint64(0)
		}
		return func(st *state) {
			if i := idx(st); i < uint64(len(a.cells)) {
				st.w[lane] = a.cells[i] & mask
			}
		}
	}
	width, signed, k := a.width, a.signed, a.lanes
	return func(st *state) {
		i := idx(st)
		if i >= uint64(a.size) {
			return
		}
		at := lane
		if dyn != nil {
			if at = dyn(st); at < 0 {
				return
			}
		}
		copyExtended(st.w[at:at+n], a.cells[int(i)*k:(int(i)+1)*k], width, signed)
		st.w[at+n-1] &= mask
	}
}

func (c *compiler) registerWrite(p *bmv2json.Primitive) doFn {
	a, idx, src := c.registers[p.Args[0].Register.Index], c.index(p.Args[1]), p.Args[2]
	mask := topMask(a.width)
	if a.lanes == 1 {
		v := c.low(src, a.width)
		return func(st *state) {
			if i := idx(st); i < uint64(len(a.cells)) {
				a.cells[i] = v(st) & mask
			}
		}
	}
	k := a.lanes
	if pl, ok := c.samePlace(src, a.width); ok {
		return func(st *state) {
			if i := idx(st); i < uint64(a.size) {
				copy(a.cells[int(i)*k:(int(i)+1)*k], st.w[pl:pl+k])
			}
		}
	}
	v := c.wide(src, k)
	from, to := c.temp(k)
	return func(st *state) {
		i := idx(st)
		if i >= uint64(a.size) {
			return
		}
		t := st.scratch[from:to]
		v(st, t)
		t[k-1] &= mask
		copy(a.cells[int(i)*k:(int(i)+1)*k], t)
	}
}

// samePlace reports the lane of a field that is exactly width bits.
func (c *compiler) samePlace(e *bmv2json.Expr, width int) (int, bool) {
	if e.Op != bmv2json.OpField || e.Field.IsValidity() || e.Width != width {
		return 0, false
	}
	return c.placeOf(e).lane, true
}

func (c *compiler) executeMeter(p *bmv2json.Primitive) doFn {
	a, idx, store := c.meters[p.Args[0].Meter.Index], c.index(p.Args[1]), c.store64(p.Args[2])
	return func(st *state) {
		if i := idx(st); i < uint64(len(a.cells)) {
			store(st, a.cells[i].color(st.inLen, st.now))
		}
	}
}

// countAt compiles counting a packet. An index beyond the array counts nothing.
func countAt(a *counterArray, idx numFn) doFn {
	return func(st *state) { a.count(idx(st), st.inLen) }
}
