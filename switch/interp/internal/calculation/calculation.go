package calculation

import (
	"math/rand/v2"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// Calculation is a compiled hash or checksum: its inputs put together bit by bit, then the
// algorithm.
type Calculation struct {
	inputs []calcInput
	algo   Hash
	// algo is the Internet checksum
	internet bool
	// Where all inputs are fields and constants their bits are known beforehand, for when all of
	// their headers are valid: the fields as one list, the constants in a template.
	fixed    []packet.WireField
	template []byte
	headers  []int
	// the same fields, for the Internet checksum, and what the constants add to it
	words []sumWord
	konst uint64
}

// sumWord is a field as the Internet checksum (RFC 1071) sees it: a number that is added to a sum
// modulo 65,535, in which 2^16 is 1, so that only its place within a word of 16 bits counts.
type sumWord struct {
	lane  int
	shift uint
}

type calcInput struct {
	header  int // whose validity decides whether the input is there; -1: always
	lane    int
	width   int
	konst   []uint64
	whole   bool // the whole header
	vl      bool // a varbit field
	payload bool
}

// New compiles a calculation; an algorithm of random numbers gets them from random.
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

// precompute finds the places of the inputs, where they have any.
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

// sumWords finds the words of a checksum, where its fields have places.
func (k *Calculation) sumWords() {
	for _, f := range k.fixed {
		shift := uint(-(f.Offset + f.Width)) % 16
		for i := range wideint.Lanes(f.Width) {
			k.words = append(k.words, sumWord{f.Lane + i, shift})
		}
	}
	k.konst = uint64(^uint16(InternetChecksum(k.template)))
}

// sum is the Internet checksum of the inputs, of which all headers are valid.
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

// input puts the inputs together. Bits that fill the last byte are 0; the payload follows on the
// next byte.
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

// Value is the hash or checksum of a packet.
func (k *Calculation) Value(st *packet.State) uint64 {
	if k.internet && k.words != nil && k.allValid(st) {
		return k.sum(st)
	}
	return k.algo(k.input(st))
}

// SetHash replaces the algorithm.
func (k *Calculation) SetHash(fn Hash) { k.algo = fn }
