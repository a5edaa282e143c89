package progfuzz

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// FrameSource makes frames for any program. Most frames follow the program's parser; some of them
// are damaged.
type FrameSource struct {
	prog *bmv2json.Program
	r    *rand.Rand
	pool [][]byte
}

// NewFrameSource makes a source of frames for a program.
func NewFrameSource(prog *bmv2json.Program, r *rand.Rand) *FrameSource {
	return &FrameSource{prog: prog, r: r}
}

const (
	shortest = 14 // length in bytes of the shortest frame that an interface sends
	longest  = 2000
	kept     = 32
)

// Learn adds a frame that came out of a switch. Next may return it again. Such a frame is useful
// because it has correct checksums and valid headers.
func (s *FrameSource) Learn(frame []byte) {
	if len(frame) < shortest || len(frame) > 1000 {
		return
	}
	if len(s.pool) < kept {
		s.pool = append(s.pool, slices.Clone(frame))
		return
	}
	s.pool[s.r.IntN(kept)] = slices.Clone(frame)
}

// Next returns a frame of at least 14 bytes.
func (s *FrameSource) Next() []byte {
	var frame []byte
	if len(s.pool) > 0 && s.r.IntN(6) == 0 {
		frame = slices.Clone(s.pool[s.r.IntN(len(s.pool))])
	} else {
		frame = s.follow()
	}
	switch s.r.IntN(10) {
	case 0: // Truncate the frame.
		frame = frame[:shortest+s.r.IntN(len(frame)-shortest+1)]
	case 1: // Change some bytes.
		for range 1 + s.r.IntN(4) {
			frame[s.r.IntN(len(frame))] = s.byte()
		}
	}
	if t := binary.BigEndian.Uint16(frame[12:]); t == 0x8100 || t == 0x88a8 {
		// Some engines remove a VLAN tag from the frame and insert it again, so the frame must not
		// begin with a tag. TestHooks in switch/ebpf tests tags.
		frame[12] = 0x11
	}
	return frame
}

// byte returns a random byte. Often it is a small number, or a number at an edge of the range.
func (s *FrameSource) byte() byte {
	switch s.r.IntN(4) {
	case 0:
		return byte(s.r.IntN(4))
	case 1:
		return []byte{0, 1, 0x7f, 0x80, 0xff}[s.r.IntN(5)]
	}
	return byte(s.r.Uint32())
}

// follow chooses a path through the parser. If a select of the parser reads fields of the frame,
// follow sets these fields so that the parser takes the path.
func (s *FrameSource) follow() []byte {
	frame := make([]byte, longest)
	for i := range frame {
		frame[i] = s.byte()
	}
	cursor := 0 // position in bits
	at := map[bmv2json.FieldRef]int{}
	last := map[*bmv2json.HeaderStack]int{} // position of the last element of each stack
	next := map[*bmv2json.HeaderStack]int{}
	take := func(h *bmv2json.Header) {
		for _, f := range h.Type.Fields {
			at[bmv2json.FieldRef{Header: h, Field: f}] = cursor + f.Offset
		}
		cursor += h.Type.FixedBits
	}
	var state *bmv2json.ParseState
	if len(s.prog.Parsers) > 0 {
		state = s.prog.Parsers[0].Init
	}
	for steps := 0; state != nil && steps < 40 && cursor < 8*longest/2; steps++ {
		for _, o := range state.Ops {
			switch {
			case o.Header != nil:
				take(o.Header)
			case o.Stack != nil:
				if n := next[o.Stack]; n < len(o.Stack.Headers) {
					last[o.Stack], next[o.Stack] = cursor, n+1
					take(o.Stack.Headers[n])
				}
			case o.UnionStack != nil:
				take(o.UnionStack.Unions[0].Headers[o.UnionMember])
			case o.Kind == bmv2json.ParserAdvance && o.Value.Op == bmv2json.OpConst &&
				o.Value.Const.IsInt64():
				cursor += int(o.Value.Const.Int64())
			}
		}
		if len(state.Transitions) == 0 {
			break
		}
		tr := state.Transitions[s.r.IntN(len(state.Transitions))]
		if tr.Kind == bmv2json.TransValue {
			value, mask := tr.Value, tr.Mask
			for i, k := range state.Key {
				width := state.KeyWidths[i]
				n := (width + 7) / 8
				where := -1
				switch k.Op {
				case bmv2json.OpLookahead:
					where = cursor + k.Offset
				case bmv2json.OpField:
					if p, ok := at[k.Field]; ok {
						where = p
					}
				case bmv2json.OpStackField:
					if p, ok := last[k.Stack]; ok {
						where = p + k.Stack.Type.Fields[k.Index].Offset
					}
				}
				if where >= 0 && where+width <= 8*longest {
					for bit := range width {
						byteOf, in := n-1-bit/8, bit%8
						if mask == nil || mask[byteOf]>>in&1 == 1 {
							setBit(frame, where+width-1-bit, value[byteOf]>>in&1)
						}
					}
				}
				value = value[n:]
				if mask != nil {
					mask = mask[n:]
				}
			}
		}
		state = tr.Next
	}
	size := min(max(shortest, (cursor+7)/8+s.r.IntN(40)), longest)
	if s.r.IntN(4) == 0 {
		size = min(size+s.r.IntN(200), longest)
	}
	return frame[:size]
}

func setBit(b []byte, i int, v byte) {
	b[i/8] = b[i/8]&^(0x80>>(i%8)) | v<<(7-i%8)
}
