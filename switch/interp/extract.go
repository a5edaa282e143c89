package interp

import "github.com/netcraq/netcraq/switch/bmv2json"

// extract compiles extract and extract_VL, into a header, the next of a stack, or a member of the
// next of a union stack.
func (c *compiler) extract(o *bmv2json.ParserOp) parseOp {
	var take func(*state, int) uint64
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
		return func(st *state) uint64 { return take(st, h) }
	}
	at, ids := c.nextHeaders(o, func(h *bmv2json.Header) int { return h.Index })
	full := c.errs["StackOutOfBounds"]
	return func(st *state) uint64 {
		n := st.next[at]
		if n >= len(ids) {
			return full
		}
		if err := take(st, ids[n]); err != noError {
			return err
		}
		st.next[at] = n + 1
		return noError
	}
}

// nextHeaders are the headers of the stack that an extraction goes on with, by what names them, and
// which of state.next says how many there are already.
func (c *compiler) nextHeaders(o *bmv2json.ParserOp, name func(*bmv2json.Header) int) (at int, names []int) {
	if o.Stack != nil {
		for _, h := range o.Stack.Headers {
			names = append(names, name(h))
		}
		return c.stackNext(o.Stack), names
	}
	for _, u := range o.UnionStack.Unions {
		names = append(names, name(u.Headers[o.UnionMember]))
	}
	return c.unionStackNext(o.UnionStack), names
}

// extractHeader is the common case, with everything that is known of the header bound beforehand.
func (c *compiler) extractHeader(h int) parseOp {
	hl, short := c.lay.headers[h], c.errs["PacketTooShort"]
	size, fields, base, end, alone := hl.t.bits/8, hl.t.wire, hl.base, hl.base+hl.t.lanes,
		hl.siblings == nil
	return func(st *state) uint64 {
		b := st.frame[st.pos:]
		if len(b) < size {
			return short
		}
		extractFields(st.w[base:end], fields, b)
		if alone {
			st.valid[h] = true
		} else {
			st.setValid(h)
		}
		st.pos += size
		return noError
	}
}

func (c *compiler) takeFixed() func(*state, int) uint64 {
	short := c.errs["PacketTooShort"]
	return func(st *state, h int) uint64 {
		hl := &st.lay.headers[h]
		size := hl.t.bits / 8
		b := st.frame[st.pos:]
		if len(b) < size {
			return short
		}
		extractFields(st.w[hl.base:hl.base+hl.t.lanes], hl.t.wire, b)
		st.setValid(h)
		st.pos += size
		return noError
	}
}

func (c *compiler) takeVarbit(length *bmv2json.Expr) func(*state, int) uint64 {
	n := c.index(length)
	short, tooLong, invalid := c.errs["PacketTooShort"], c.errs["HeaderTooShort"],
		c.errs["ParserInvalidArgument"]
	return func(st *state, h int) uint64 {
		hl := &st.lay.headers[h]
		bits := n(st)
		if bits%8 != 0 {
			return invalid
		}
		b := st.frame[st.pos:]
		if bits/8 > uint64(len(b)) || len(b) < hl.t.bits/8+int(bits/8) {
			return short
		}
		size := int(bits / 8)
		if hl.t.bits/8+size > hl.t.max {
			return tooLong
		}
		// A varbit field starts on a byte in every header that p4c lets through (New checks it).
		lanes, head := st.w[hl.base:hl.base+hl.t.lanes], hl.t.head/8
		extractFields(lanes, hl.t.wire, b)
		st.vl[h] = append(st.vl[h][:0], b[head:head+size]...)
		extractFields(lanes, hl.t.after, b[head+size:])
		st.setValid(h)
		st.pos += hl.t.bits/8 + size
		return noError
	}
}

func (c *compiler) parserSet(o *bmv2json.ParserOp) parseOp {
	if o.Value.Op != bmv2json.OpLookahead {
		do := c.assign(&bmv2json.Expr{Op: bmv2json.OpField, Field: o.Dest, Width: o.Dest.Width(),
			Path: o.Path}, o.Value)
		return func(st *state) uint64 { do(st); return noError }
	}
	get := c.lookahead(o.Value)
	lane, width := c.lay.lane(o.Dest), o.Dest.Width()
	n := max(lanesOf(o.Value.Width), lanesOf(width))
	from, to := c.temp(n)
	return func(st *state) uint64 {
		t := st.scratch[from:to]
		clear(t)
		if err := get(st, t[:lanesOf(o.Value.Width)]); err != noError {
			return err
		}
		storeLanes(st.w[lane:lane+lanesOf(width)], t, width)
		return noError
	}
}

// storeLanes cuts src to a field of width bits.
func storeLanes(dst, src []uint64, width int) {
	copy(dst, src)
	dst[len(dst)-1] &= topMask(width)
}

func (c *compiler) lookahead(e *bmv2json.Expr) func(*state, []uint64) uint64 {
	off, width, short := e.Offset, e.Width, c.errs["PacketTooShort"]
	return func(st *state, key []uint64) uint64 {
		if st.pos*8+off+width > len(st.frame)*8 {
			return short
		}
		if width <= 64 {
			key[0] = readBits(st.frame, st.pos*8+off, width)
		} else {
			readWide(key, st.frame, st.pos*8+off, width)
		}
		return noError
	}
}

// keyField compiles reading a field into the key. The last element of an empty stack is an error,
// as P4 says; BMv2 reads whatever is there.
func (c *compiler) keyField(e *bmv2json.Expr, n int) func(*state, []uint64) uint64 {
	if e.Op == bmv2json.OpField && e.Field.IsValidity() {
		v := c.load(e, 64)
		return func(st *state, key []uint64) uint64 { key[0] = v(st); return noError }
	}
	pl := c.placeOf(e)
	if pl.dyn == nil {
		lane := pl.lane
		return func(st *state, key []uint64) uint64 { copy(key, st.w[lane:lane+n]); return noError }
	}
	dyn, empty := pl.dyn, c.errs["StackOutOfBounds"]
	return func(st *state, key []uint64) uint64 {
		at := dyn(st)
		if at < 0 {
			return empty
		}
		copy(key, st.w[at:at+n])
		return noError
	}
}

// splitKey takes apart a concatenation of byte-padded parts.
func splitKey(b []byte, widths []int, lanes int) []uint64 {
	out := make([]uint64, lanes)
	at := 0
	for _, w := range widths {
		n := (w + 7) / 8
		lanesFromBytes(out[at:at+lanesOf(w)], b[:n])
		b = b[n:]
		at += lanesOf(w)
	}
	return out
}
