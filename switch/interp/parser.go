package interp

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// maxStates bounds the states that one packet may pass. A parser that goes round takes something of
// the packet each time, or P4 says it may be stopped with the error ParserTimeout; BMv2 would go on
// for ever.
const maxStates = 1 << 14

// parser is a compiled parser.
type parser struct {
	id     int // in events
	init   *parseState
	verify []*checksum
}

// parseState is a compiled state. Its operations return the error that stops the parser, or
// noError.
type parseState struct {
	ops   []parseOp
	key   []keyPart
	one   numFn // the key, where it has one part of one lane
	cases []parseCase
	// the cases, where the key is one and none is a value set
	plain []plainCase
	then  *parseState // where no case matches; nil accepts
}

type parseOp func(*state) uint64

type keyPart struct {
	get       func(*state, []uint64) uint64 // fills the part's lanes; returns an error
	from, to  int                           // of the key's lanes
	lookahead bool
}

type plainCase struct {
	mask, value uint64
	next        *parseState
}

type parseCase struct {
	value, mask []uint64 // by lane of the key; a value is under its mask
	set         *valueSet
	next        *parseState
}

func (c *compiler) parser(p *bmv2json.Parser) *parser {
	states := make([]*parseState, len(p.States))
	for i := range states {
		states[i] = &parseState{}
	}
	at := func(s *bmv2json.ParseState) *parseState {
		if s == nil {
			return nil
		}
		return states[s.Index]
	}
	for i, s := range p.States {
		c.parseState(states[i], s, at)
	}
	return &parser{id: p.ID, init: at(p.Init)}
}

func (c *compiler) parseState(out *parseState, s *bmv2json.ParseState,
	at func(*bmv2json.ParseState) *parseState) {
	if c.p.opts.Trace != nil {
		out.ops = append(out.ops, func(st *state) uint64 {
			st.p.trace("Parser state '%s'", s.Name)
			return noError
		})
	}
	for _, o := range s.Ops {
		out.ops = append(out.ops, c.toldOp(o, c.tracedOp(o, c.parserOp(o))))
	}
	lanes := 0
	for i, k := range s.Key {
		n := lanesOf(s.KeyWidths[i])
		part := keyPart{from: lanes, to: lanes + n}
		if k.Op == bmv2json.OpLookahead {
			part.get, part.lookahead = c.lookahead(k), true
		} else {
			part.get = c.keyField(k, n)
		}
		out.key = append(out.key, part)
		lanes += n
	}
	if len(s.Key) == 1 && lanes == 1 && s.Key[0].Op == bmv2json.OpField {
		k := *s.Key[0]
		k.Signed = false
		out.one = c.load(&k, 64)
	}
	c.keyLanes = max(c.keyLanes, lanes)
	for _, t := range s.Transitions {
		if t.Kind == bmv2json.TransDefault {
			out.then = at(t.Next)
			continue
		}
		pc := parseCase{next: at(t.Next)}
		if t.Mask != nil {
			pc.mask = splitKey(t.Mask, s.KeyWidths, lanes)
		} else {
			pc.mask = fullMask(s.KeyWidths)
		}
		if t.Kind == bmv2json.TransValueSet {
			pc.set = c.p.valueSets[t.Set.Index]
		} else {
			pc.value = splitKey(t.Value, s.KeyWidths, lanes)
			for i, m := range pc.mask {
				pc.value[i] &= m
			}
		}
		out.cases = append(out.cases, pc)
	}
	if out.one == nil || slices.ContainsFunc(out.cases, func(c parseCase) bool { return c.set != nil }) {
		return
	}
	for _, pc := range out.cases {
		out.plain = append(out.plain, plainCase{pc.mask[0], pc.value[0], pc.next})
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

func fullMask(widths []int) []uint64 {
	var out []uint64
	for _, w := range widths {
		for i := 0; i < lanesOf(w)-1; i++ {
			out = append(out, ^uint64(0))
		}
		out = append(out, topMask(w))
	}
	return out
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

func (c *compiler) parserOp(o *bmv2json.ParserOp) parseOp {
	switch o.Kind {
	case bmv2json.ParserExtract, bmv2json.ParserExtractVL:
		return c.extract(o)
	case bmv2json.ParserSet:
		return c.parserSet(o)
	case bmv2json.ParserVerify:
		cond, err := c.boolean(o.Cond), c.index(o.Value)
		return func(st *state) uint64 {
			if cond(st) {
				return noError
			}
			return err(st)
		}
	case bmv2json.ParserAdvance:
		n, short, invalid := c.index(o.Value), c.errs["PacketTooShort"],
			c.errs["ParserInvalidArgument"]
		return func(st *state) uint64 {
			bits := n(st)
			switch {
			case bits%8 != 0:
				return invalid
			case bits/8 > uint64(len(st.frame)-st.pos):
				return short
			}
			st.pos += int(bits / 8)
			return noError
		}
	}
	do := c.primitive(o.Primitive)
	return func(st *state) uint64 { do(st); return noError }
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

// run parses st.frame and returns the error that stopped it. What was taken before the error stays
// taken, as in BMv2.
func (ps *parser) run(st *state) uint64 {
	st.pos = 0
	err := ps.states(st)
	st.payload = st.frame[st.pos:]
	return err
}

func (ps *parser) states(st *state) uint64 {
	s := ps.init
	for n := 0; s != nil; n++ {
		if n == maxStates {
			return st.p.errTimeout
		}
		for _, op := range s.ops {
			if err := op(st); err != noError {
				return err
			}
		}
		next := s.then
		switch {
		case s.plain != nil:
			k := s.one(st)
			for i := range s.plain {
				if c := &s.plain[i]; k&c.mask == c.value {
					next = c.next
					break
				}
			}
		case s.one != nil:
			k := s.one(st)
			for i := range s.cases {
				pc := &s.cases[i]
				if pc.set != nil {
					st.p.key[0] = k
					if !pc.set.contains(st.p.key[:1], pc.mask) {
						continue
					}
				} else if k&pc.mask[0] != pc.value[0] {
					continue
				}
				next = pc.next
				break
			}
		case s.key != nil:
			var err uint64
			if next, err = s.selectNext(st); err != noError {
				return err
			}
		}
		s = next
	}
	return noError
}

func (s *parseState) selectNext(st *state) (*parseState, uint64) {
	last := s.key[len(s.key)-1].to
	key := st.p.key[:last]
	for i := range s.key {
		k := &s.key[i]
		if err := k.get(st, key[k.from:k.to]); err != noError {
			return nil, err
		}
	}
cases:
	for i := range s.cases {
		pc := &s.cases[i]
		if pc.set != nil {
			if pc.set.contains(key, pc.mask) {
				return pc.next, noError
			}
			continue
		}
		for j, v := range key {
			if v&pc.mask[j] != pc.value[j] {
				continue cases
			}
		}
		return pc.next, noError
	}
	return s.then, noError
}

// headerBytes writes a header as it is on the wire; b must have room for it.
func (st *state) headerBytes(b []byte, h int) int {
	hl := &st.lay.headers[h]
	lanes := st.w[hl.base : hl.base+hl.t.lanes]
	if !hl.t.vl {
		depositFields(b, lanes, hl.t.wire)
		return hl.t.bits / 8
	}
	head := hl.t.head / 8
	depositFields(b, lanes, hl.t.wire)
	n := copy(b[head:], st.vl[h])
	depositFields(b[head+n:], lanes, hl.t.after)
	return hl.t.bits/8 + n
}
