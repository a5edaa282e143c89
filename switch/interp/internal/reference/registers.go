package reference

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/arrays"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// registerAccess compiles reading or writing a register cell. An index beyond the array does
// nothing.
func (c *Compiler) registerAccess(p *bmv2json.Primitive) expression.Statement {
	if p.Op == "register_write" {
		return c.registerWrite(p)
	}
	a, idx := c.Registers[p.Args[1].Register.Index], c.Index(p.Args[2])
	pl := c.PlaceOf(p.Args[0])
	lane, n, dyn := pl.Lane, pl.Lanes(), pl.Find
	mask := wideint.TopMask(pl.Width)
	if dyn == nil && a.Lanes == 1 && n == 1 && !a.Signed {
		if a.Width <= pl.Width {
			mask = ^uint64(0)
		}
		return func(st *packet.State) {
			if i := idx(st); i < uint64(len(a.Cells)) {
				st.Lanes[lane] = a.Cells[i] & mask
			}
		}
	}
	width, signed, k := a.Width, a.Signed, a.Lanes
	return func(st *packet.State) {
		i := idx(st)
		if i >= uint64(a.Size) {
			return
		}
		at := lane
		if dyn != nil {
			if at = dyn(st); at < 0 {
				return
			}
		}
		wideint.CopyExtended(st.Lanes[at:at+n], a.Cells[int(i)*k:(int(i)+1)*k], width, signed)
		st.Lanes[at+n-1] &= mask
	}
}

func (c *Compiler) registerWrite(p *bmv2json.Primitive) expression.Statement {
	a, idx, src := c.Registers[p.Args[0].Register.Index], c.Index(p.Args[1]), p.Args[2]
	mask := wideint.TopMask(a.Width)
	if a.Lanes == 1 {
		v := c.Number(src, a.Width)
		return func(st *packet.State) {
			if i := idx(st); i < uint64(len(a.Cells)) {
				a.Cells[i] = v(st) & mask
			}
		}
	}
	k := a.Lanes
	if pl, ok := c.samePlace(src, a.Width); ok {
		return func(st *packet.State) {
			if i := idx(st); i < uint64(a.Size) {
				copy(a.Cells[int(i)*k:(int(i)+1)*k], st.Lanes[pl:pl+k])
			}
		}
	}
	v := c.WideNumber(src, k)
	from, to := c.Scratch(k)
	return func(st *packet.State) {
		i := idx(st)
		if i >= uint64(a.Size) {
			return
		}
		t := st.Scratch[from:to]
		v(st, t)
		t[k-1] &= mask
		copy(a.Cells[int(i)*k:(int(i)+1)*k], t)
	}
}

// samePlace returns the lane of a field that has a fixed lane and is exactly width bits wide. It
// returns false for other expressions.
func (c *Compiler) samePlace(e *bmv2json.Expr, width int) (int, bool) {
	if e.Op != bmv2json.OpField || e.Field.IsValidity() || e.Width != width {
		return 0, false
	}
	return c.PlaceOf(e).Lane, true
}

func (c *Compiler) executeMeter(p *bmv2json.Primitive) expression.Statement {
	a, idx, store := c.Meters[p.Args[0].Meter.Index], c.Index(p.Args[1]), c.Store(p.Args[2])
	return func(st *packet.State) {
		if color, ok := a.ColorAt(idx(st), st.ReceivedLength, st.Now); ok {
			store(st, color)
		}
	}
}

// countAt compiles counting a packet in the cell at an index. An index beyond the array counts
// nothing.
func countAt(a *arrays.Counter, idx expression.Number) expression.Statement {
	return func(st *packet.State) { a.Count(idx(st), st.ReceivedLength) }
}
