package reference

import (
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/matchtables"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// Parser is a compiled parser.
type Parser struct {
	id     int // the parser's id in events
	obs    *packetevents.Observer
	init   *parseState
	verify []*Checksum
	key    []uint64 // buffer for the key that is compared

	errNone, errTimeout uint64
}

// parseState is a compiled parser state. Its operations return the error that stops the parser, or
// noError.
type parseState struct {
	ops   []parseOp
	key   []keyPart
	one   expression.Number // set if the key has only one part, of one lane
	cases []parseCase
	// If one is set and no case is a value set, plain has the cases.
	plain []plainCase
	then  *parseState // the next state if no case matches; nil accepts the packet
}

type keyPart struct {
	get       func(*packet.State, []uint64) uint64 // sets the part's lanes and returns an error
	from, to  int                                  // range of the part's lanes in the key
	lookahead bool
}

type plainCase struct {
	mask, value uint64
	next        *parseState
}

type parseCase struct {
	value, mask []uint64 // indexed by lane of the key; bits of value outside mask are 0
	set         *matchtables.ValueSet
	next        *parseState
}

// Parser compiles a parser.
func (c *Compiler) Parser(p *bmv2json.Parser) *Parser {
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
	return &Parser{id: p.ID, obs: c.Observer, init: at(p.Init), key: make([]uint64, c.KeyLanes),
		errNone: c.errs["NoError"], errTimeout: c.errs["ParserTimeout"]}
}

func (c *Compiler) parseState(out *parseState, s *bmv2json.ParseState,
	at func(*bmv2json.ParseState) *parseState) {
	if obs := c.Observer; obs.HasTrace() {
		out.ops = append(out.ops, func(*packet.State) uint64 {
			obs.Tracef("Parser state '%s'", s.Name)
			return noError
		})
	}
	for _, o := range s.Ops {
		out.ops = append(out.ops, c.toldOp(o, c.tracedOp(o, c.parserOp(o))))
	}
	lanes := 0
	for i, k := range s.Key {
		n := wideint.Lanes(s.KeyWidths[i])
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
		out.one = c.Load(&k, 64)
	}
	c.KeyLanes = max(c.KeyLanes, lanes)
	for _, t := range s.Transitions {
		if t.Kind == bmv2json.TransDefault {
			out.then = at(t.Next)
			continue
		}
		pc := parseCase{next: at(t.Next)}
		if t.Mask != nil {
			pc.mask = splitKey(t.Mask, s.KeyWidths, lanes)
		} else {
			pc.mask = matchtables.KeyMask(s.KeyWidths)
		}
		if t.Kind == bmv2json.TransValueSet {
			pc.set = c.ValueSets[t.Set.Index]
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

func (c *Compiler) parserOp(o *bmv2json.ParserOp) parseOp {
	switch o.Kind {
	case bmv2json.ParserExtract, bmv2json.ParserExtractVL:
		return c.extract(o)
	case bmv2json.ParserSet:
		return c.parserSet(o)
	case bmv2json.ParserVerify:
		cond, err := c.Condition(o.Cond), c.Index(o.Value)
		return func(st *packet.State) uint64 {
			if cond(st) {
				return noError
			}
			return err(st)
		}
	case bmv2json.ParserAdvance:
		n, short, invalid := c.Index(o.Value), c.errs["PacketTooShort"],
			c.errs["ParserInvalidArgument"]
		return func(st *packet.State) uint64 {
			bits := n(st)
			switch {
			case bits%8 != 0:
				return invalid
			case bits/8 > uint64(len(st.Frame)-st.Offset):
				return short
			}
			st.Offset += int(bits / 8)
			return noError
		}
	}
	do := c.primitive(o.Primitive)
	return func(st *packet.State) uint64 { do(st); return noError }
}

// Run parses st.Frame and returns the number of the error that stopped the parser, or that of
// NoError. As in BMv2, headers that were extracted before the error stay extracted.
func (ps *Parser) Run(st *packet.State) uint64 {
	ps.obs.Event(st, packetevents.ParserStart, ps.id, 0)
	st.Offset = 0
	err := ps.states(st)
	st.Payload = st.Frame[st.Offset:]
	ps.obs.Event(st, packetevents.ParserDone, ps.id, 0)
	if err == noError {
		return ps.errNone
	}
	return err
}

// ChecksumsRight verifies the checksums of the parsed packet, and reports whether all are right.
func (ps *Parser) ChecksumsRight(st *packet.State) bool {
	right := true
	for _, k := range ps.verify {
		if !k.right(st) {
			right = false
		}
	}
	return right
}

func (ps *Parser) states(st *packet.State) uint64 {
	s := ps.init
	for n := 0; s != nil; n++ {
		if n == maxStates {
			return ps.errTimeout
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
					ps.key[0] = k
					if !pc.set.Contains(ps.key[:1], pc.mask) {
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
			if next, err = s.selectNext(st, ps.key); err != noError {
				return err
			}
		}
		s = next
	}
	return noError
}

func (s *parseState) selectNext(st *packet.State, key []uint64) (*parseState, uint64) {
	last := s.key[len(s.key)-1].to
	key = key[:last]
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
			if pc.set.Contains(key, pc.mask) {
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

// AddChecksum adds a checksum that ChecksumsRight must verify.
func (ps *Parser) AddChecksum(k *Checksum) { ps.verify = append(ps.verify, k) }
