package calculation

import (
	"math/rand/v2"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// Calculation is a compiled hash or checksum. It joins its inputs bit by bit, and applies the
// algorithm to the result.
type Calculation struct {
	inputs []calcInput
	algo   Hash
	// internet is set if algo is the Internet checksum.
	internet bool
	// If all inputs are fields and constants and all their headers are valid, their bit positions
	// are known at compile time. Then fixed lists the fields, and template has the constants.
	fixed    []packet.WireField
	template []byte
	headers  []int
	// For the Internet checksum, words has the same fields, and konst is the constants' part of the
	// sum.
	words []sumWord
	konst uint64
}

// sumWord is a field as a summand of the Internet checksum (RFC 1071). The sum is modulo 65,535, in
// which 2^16 equals 1. So only the field's position within a 16-bit word matters.
type sumWord struct {
	lane  int
	shift uint
}

type calcInput struct {
	header  int // the input counts only if this header is valid; -1 if it always counts
	lane    int
	width   int
	konst   []uint64
	whole   bool // the input is the whole header
	vl      bool // the input is a varbit field
	payload bool
}

// New compiles a calculation. Algorithms that return random numbers take them from random.
func New(lay *packet.Layout, algo string, inputs []bmv2json.CalcInput, path string,
	random *rand.PCG) *Calculation {
	fn := Algorithm(algo, random)
	if fn == nil {
		refusal.Panic(path, "the hash algorithm %q", algo)
	}
	out := &Calculation{algo: fn, internet: algo == "csum16" || algo == "cksum16"}
	for _, in := range inputs {
		ci := calcInput{header: -1, width: in.Width}
		switch {
		case in.Payload:
			ci.payload = true
		case in.Header != nil:
			ci.header, ci.whole = in.Header.Index, true
		case in.Const != nil:
			ci.konst = make([]uint64, wideint.Lanes(in.Width))
			wideint.SetBig(ci.konst, in.Const)
			ci.konst[len(ci.konst)-1] &= wideint.TopMask(in.Width)
		case in.Field.IsValidity():
			refusal.Panic(path, "the validity of %s as input", in.Field.Header.Name)
		default:
			ci.header, ci.vl = in.Field.Header.Index, in.Field.Field.VL
			ci.lane = lay.LaneOf(in.Field)
		}
		out.inputs = append(out.inputs, ci)
	}
	out.precompute()
	return out
}

// precompute finds the bit positions of the inputs, if they are fixed.
func (k *Calculation) precompute() {
	bits := 0
	for i := range k.inputs {
		in := &k.inputs[i]
		if in.payload || in.whole || in.vl {
			return
		}
		bits += in.width
	}
	k.template = make([]byte, (bits+7)/8)
	bits = 0
	for i := range k.inputs {
		in := &k.inputs[i]
		if in.konst != nil {
			wideint.WriteWide(k.template, bits, in.width, in.konst)
		} else {
			k.fixed = append(k.fixed, packet.NewWireField(in.lane, bits, in.width))
			if !slices.Contains(k.headers, in.header) {
				k.headers = append(k.headers, in.header)
			}
		}
		bits += in.width
	}
	k.sumWords()
}

// sumWords finds the summands of a checksum, if its fields have fixed positions.
func (k *Calculation) sumWords() {
	for _, f := range k.fixed {
		shift := uint(-(f.Offset + f.Width)) % 16
		for i := range wideint.Lanes(f.Width) {
			k.words = append(k.words, sumWord{f.Lane + i, shift})
		}
	}
	k.konst = uint64(^uint16(InternetChecksum(k.template)))
}

// sum returns the Internet checksum of the inputs if all their headers are valid.
func (k *Calculation) sum(st *packet.State) uint64 {
	sum := k.konst
	for _, x := range k.words {
		v := st.Lanes[x.lane]
		sum += (v>>32)<<x.shift + (v&0xffffffff)<<x.shift
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint64(^uint16(sum))
}

// input joins the inputs to bytes. The last byte is padded with zero bits. The payload starts on
// the next byte.
func (k *Calculation) input(st *packet.State) []byte {
	if k.template != nil && k.allValid(st) {
		b := append(st.Input[:0], k.template...)
		packet.WriteFields(b, st.Lanes, k.fixed)
		st.Input = b
		return b
	}
	bits, payload := 0, false
	b := st.Input[:0]
	grow := func(n int) {
		bits += n
		for len(b) < (bits+7)/8 {
			b = append(b, 0)
		}
	}
	for i := range k.inputs {
		in := &k.inputs[i]
		if in.header >= 0 && !st.Valid[in.header] {
			continue
		}
		at := bits
		switch {
		case in.payload:
			payload = true
		case in.whole:
			at = (bits + 7) &^ 7
			bits = at
			grow(st.HeaderSize(in.header) * 8)
			st.WriteHeader(b[at/8:], in.header)
		case in.vl:
			v := st.Varbits[in.header]
			grow(len(v) * 8)
			for j, x := range v {
				wideint.WriteBits(b, at+j*8, 8, uint64(x))
			}
		case in.konst != nil:
			grow(in.width)
			wideint.WriteWide(b, at, in.width, in.konst)
		default:
			grow(in.width)
			wideint.WriteWide(b, at, in.width, st.Lanes[in.lane:in.lane+wideint.Lanes(in.width)])
		}
	}
	if payload {
		b = append(b, st.CutPayload()...)
	}
	st.Input = b
	return b
}

func (k *Calculation) allValid(st *packet.State) bool {
	for _, h := range k.headers {
		if !st.Valid[h] {
			return false
		}
	}
	return true
}

// Value returns the hash or checksum of a packet.
func (k *Calculation) Value(st *packet.State) uint64 {
	if k.internet && k.words != nil && k.allValid(st) {
		return k.sum(st)
	}
	return k.algo(k.input(st))
}

// SetHash replaces the hash algorithm.
func (k *Calculation) SetHash(fn Hash) { k.algo = fn }
