package reference

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// extract compiles extract and extract_VL into a header, the next header of a stack, or a member of
// the next element of a union stack.
func (c *Compiler) extract(o *bmv2json.ParserOp) parseOp {
	var take func(*packet.State, int) uint64
	if o.Kind == bmv2json.ParserExtract {
		take = c.takeFixed()
	} else {
		take = c.takeVarbit(o.Length)
	}
	if o.Header != nil {
		h := o.Header.Index
		if o.Kind == bmv2json.ParserExtract {
			return c.extractHeader(h)
		}
		return func(st *packet.State) uint64 { return take(st, h) }
	}
	at, ids := c.nextHeaders(o, func(h *bmv2json.Header) int { return h.Index })
	full := c.errs["StackOutOfBounds"]
	return func(st *packet.State) uint64 {
		n := st.StackCounters[at]
		if n >= len(ids) {
			return full
		}
		if err := take(st, ids[n]); err != noError {
			return err
		}
		st.StackCounters[at] = n + 1
		return noError
	}
}

// nextHeaders calls name for each header of the stack that an extraction fills, and returns the
// results. It also returns the index in State.StackCounters of the stack's number of elements in
// use.
func (c *Compiler) nextHeaders(o *bmv2json.ParserOp, name func(*bmv2json.Header) int) (at int, names []int) {
	if o.Stack != nil {
		for _, h := range o.Stack.Headers {
			names = append(names, name(h))
		}
		return c.StackCounter(o.Stack), names
	}
	for _, u := range o.UnionStack.Unions {
		names = append(names, name(u.Headers[o.UnionMember]))
	}
	return c.UnionStackCounter(o.UnionStack), names
}

// extractHeader compiles the most frequent case, the extraction of a fixed header. Everything about
// the header is bound at compile time.
func (c *Compiler) extractHeader(h int) parseOp {
	hl, short := c.Layout.Headers[h], c.errs["PacketTooShort"]
	size, fields, alone := hl.Type.FixedBits/8, hl.Type.Wire, hl.Siblings == nil
	base, end := hl.Base, hl.Base+hl.Type.Lanes
	return func(st *packet.State) uint64 {
		b := st.Frame[st.Offset:]
		if len(b) < size {
			return short
		}
		packet.ReadFields(st.Lanes[base:end], fields, b)
		if alone {
			st.Valid[h] = true
		} else {
			st.SetValid(h)
		}
		st.Offset += size
		return noError
	}
}

func (c *Compiler) takeFixed() func(*packet.State, int) uint64 {
	short := c.errs["PacketTooShort"]
	return func(st *packet.State, h int) uint64 {
		hl := &st.Layout.Headers[h]
		size := hl.Type.FixedBits / 8
		b := st.Frame[st.Offset:]
		if len(b) < size {
			return short
		}
		packet.ReadFields(st.Lanes[hl.Base:hl.Base+hl.Type.Lanes], hl.Type.Wire, b)
		st.SetValid(h)
		st.Offset += size
		return noError
	}
}

func (c *Compiler) takeVarbit(length *bmv2json.Expr) func(*packet.State, int) uint64 {
	n := c.Index(length)
	short, tooLong, invalid := c.errs["PacketTooShort"], c.errs["HeaderTooShort"],
		c.errs["ParserInvalidArgument"]
	return func(st *packet.State, h int) uint64 {
		hl := &st.Layout.Headers[h]
		bits := n(st)
		if bits%8 != 0 {
			return invalid
		}
		b := st.Frame[st.Offset:]
		if bits/8 > uint64(len(b)) || len(b) < hl.Type.FixedBits/8+int(bits/8) {
			return short
		}
		size := int(bits / 8)
		if hl.Type.FixedBits/8+size > hl.Type.MaxBytes {
			return tooLong
		}
		// A varbit field starts on a byte boundary in every header that p4c accepts (New checks
		// it).
		lanes, head := st.Lanes[hl.Base:hl.Base+hl.Type.Lanes], hl.Type.HeadBits/8
		packet.ReadFields(lanes, hl.Type.Wire, b)
		st.Varbits[h] = append(st.Varbits[h][:0], b[head:head+size]...)
		packet.ReadFields(lanes, hl.Type.AfterVarbit, b[head+size:])
		st.SetValid(h)
		st.Offset += hl.Type.FixedBits/8 + size
		return noError
	}
}

func (c *Compiler) parserSet(o *bmv2json.ParserOp) parseOp {
	if o.Value.Op != bmv2json.OpLookahead {
		do := c.Assign(&bmv2json.Expr{Op: bmv2json.OpField, Field: o.Dest, Width: o.Dest.Width(),
			Path: o.Path}, o.Value)
		return func(st *packet.State) uint64 { do(st); return noError }
	}
	get := c.lookahead(o.Value)
	lane, width := c.Layout.LaneOf(o.Dest), o.Dest.Width()
	n := max(wideint.Lanes(o.Value.Width), wideint.Lanes(width))
	from, to := c.Scratch(n)
	return func(st *packet.State) uint64 {
		t := st.Scratch[from:to]
		clear(t)
		if err := get(st, t[:wideint.Lanes(o.Value.Width)]); err != noError {
			return err
		}
		storeLanes(st.Lanes[lane:lane+wideint.Lanes(width)], t, width)
		return noError
	}
}

// storeLanes copies src, truncated to a field of width bits.
func storeLanes(dst, src []uint64, width int) {
	copy(dst, src)
	dst[len(dst)-1] &= wideint.TopMask(width)
}

func (c *Compiler) lookahead(e *bmv2json.Expr) func(*packet.State, []uint64) uint64 {
	off, width, short := e.Offset, e.Width, c.errs["PacketTooShort"]
	return func(st *packet.State, key []uint64) uint64 {
		if st.Offset*8+off+width > len(st.Frame)*8 {
			return short
		}
		if width <= 64 {
			key[0] = wideint.ReadBits(st.Frame, st.Offset*8+off, width)
		} else {
			wideint.ReadWide(key, st.Frame, st.Offset*8+off, width)
		}
		return noError
	}
}

// keyField compiles reading a field into the key. The last element of an empty stack is an error,
// as P4 requires. BMv2 would read arbitrary data.
func (c *Compiler) keyField(e *bmv2json.Expr, n int) func(*packet.State, []uint64) uint64 {
	if e.Op == bmv2json.OpField && e.Field.IsValidity() {
		v := c.Load(e, 64)
		return func(st *packet.State, key []uint64) uint64 { key[0] = v(st); return noError }
	}
	pl := c.PlaceOf(e)
	if pl.Find == nil {
		lane := pl.Lane
		return func(st *packet.State, key []uint64) uint64 {
			copy(key, st.Lanes[lane:lane+n])
			return noError
		}
	}
	dyn, empty := pl.Find, c.errs["StackOutOfBounds"]
	return func(st *packet.State, key []uint64) uint64 {
		at := dyn(st)
		if at < 0 {
			return empty
		}
		copy(key, st.Lanes[at:at+n])
		return noError
	}
}

// splitKey splits a concatenation of numbers into lanes. Each number is padded to whole bytes.
func splitKey(b []byte, widths []int, lanes int) []uint64 {
	out := make([]uint64, lanes)
	at := 0
	for _, w := range widths {
		n := (w + 7) / 8
		wideint.SetBytes(out[at:at+wideint.Lanes(w)], b[:n])
		b = b[n:]
		at += wideint.Lanes(w)
	}
	return out
}

// parseOp is an operation of a parser. It returns the error that stops the parser, or noError.
type parseOp func(*packet.State) uint64

// noError is the result of an operation that does not stop the parser.
const noError = ^uint64(0)
