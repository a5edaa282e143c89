package reference

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/calculation"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
)

// PSA's extern objects, with the behavior of BMv2's psa_switch. Counters and meters are arrays like
// v1model's. An InternetChecksum belongs to one packet in one of PSA's blocks. Its sum is in a
// scratch lane that is 0 when the packet arrives. BMv2 keeps the sum of an earlier packet.

// externs checks the extern objects, and reserves space for the objects that have state.
func (c *Compiler) externs() {
	for _, e := range c.Source.Externs {
		switch e.Type {
		case "Counter", "Meter", "Random":
			c.checksums = append(c.checksums, -1)
		case "Hash":
			if calculation.Algorithm(e.Attributes["algo"].Str, c.Random) == nil {
				refusal.Panic(e.Path, "the hash algorithm %q", e.Attributes["algo"].Str)
			}
			c.checksums = append(c.checksums, -1)
		case "InternetChecksum":
			at, _ := c.Scratch(1)
			c.Layout.Zeroed = append(c.Layout.Zeroed, at)
			c.checksums = append(c.checksums, at)
		default:
			refusal.Panic(e.Path, "extern instance %q of type %q", e.Name, e.Type)
		}
	}
}

// externCall compiles a call of an extern object's method.
func (c *Compiler) externCall(p *bmv2json.Primitive) expression.Statement {
	arg, e := p.Args, p.Args[0].Extern
	switch p.Op {
	case "_Counter_count":
		return countAt(c.Counters[e.Counter.Index], c.Index(arg[1]))
	case "_Meter_execute":
		a, idx, store := c.Meters[e.Meter.Index], c.Index(arg[1]), c.Store(arg[2])
		return func(st *packet.State) {
			if color, ok := a.ColorAt(idx(st), st.ReceivedLength, st.Now); ok {
				store(st, (color+1)%3) // PSA's order of colours is red, green, yellow.
			}
		}
	case "_Random_read":
		return c.randomRead(p)
	case "_Hash_get_hash":
		fn, in, store := calculation.Algorithm(e.Attributes["algo"].Str, c.Random), c.bitString(arg[2]),
			c.Store(arg[1])
		return func(st *packet.State) { store(st, fn(in(st))) }
	case "_Hash_get_hash_mod":
		fn, in, store := calculation.Algorithm(e.Attributes["algo"].Str, c.Random), c.bitString(arg[3]),
			c.Store(arg[1])
		base, size := c.Number(arg[2], 64), c.Number(arg[4], 64)
		return func(st *packet.State) { store(st, base(st)+fn(in(st))%max(size(st), 1)) }
	}
	return c.checksumCall(p)
}

// checksumCall compiles the methods of InternetChecksum. The scratch lane contains the sum of RFC
// 1071 before its complement is taken.
func (c *Compiler) checksumCall(p *bmv2json.Primitive) expression.Statement {
	arg, at := p.Args, c.checksums[p.Args[0].Extern.Index]
	switch p.Op {
	case "_InternetChecksum_clear":
		return func(st *packet.State) { st.Scratch[at] = 0 }
	case "_InternetChecksum_add", "_InternetChecksum_subtract":
		in, add := c.bitString(arg[1]), p.Op == "_InternetChecksum_add"
		if bits := listBits(arg[1]); bits%16 != 0 {
			refusal.Panic(arg[1].Path, "an InternetChecksum over %d bits, which are no whole 16 bit words",
				bits)
		}
		return func(st *packet.State) {
			sum, b := st.Scratch[at], in(st)
			// BMv2 skips all zero words at the beginning. If 0 is subtracted, this decides between
			// +0 and -0.
			for len(b) > 0 && b[0]|b[1] == 0 {
				b = b[2:]
			}
			for ; len(b) > 0; b = b[2:] {
				word := uint64(b[0])<<8 | uint64(b[1])
				if !add {
					word ^= 0xffff
				}
				sum += word
				sum = sum>>16 + sum&0xffff
			}
			st.Scratch[at] = sum
		}
	case "_InternetChecksum_get":
		store := c.Store(arg[1])
		return func(st *packet.State) { store(st, ^st.Scratch[at]&0xffff) }
	case "_InternetChecksum_get_verify":
		store, want := c.Store(arg[1]), c.Number(arg[2], 64)
		return func(st *packet.State) {
			right := uint64(0)
			if want(st)&0xffff == ^st.Scratch[at]&0xffff {
				right = 1
			}
			store(st, right)
		}
	case "_InternetChecksum_get_state":
		store := c.Store(arg[1])
		return func(st *packet.State) { store(st, st.Scratch[at]) }
	case "_InternetChecksum_set_state":
		v := c.Number(arg[1], 64)
		return func(st *packet.State) { st.Scratch[at] = v(st) & 0xffff }
	}
	refusal.Panic(p.Path, "the primitive %q", p.Op)
	return nil
}

// listBits returns the total width of the values in a list. It refuses values that have no width of
// their own.
func listBits(list *bmv2json.Expr) (bits int) {
	for _, a := range list.Args {
		if a.Width == 0 || a.Op == bmv2json.OpField && !a.Field.IsValidity() && a.Field.Field.VL {
			refusal.Panic(a.Path, "a %q of no fixed width in a list of fields", a.Op)
		}
		bits += a.Width
	}
	return bits
}

// bitString compiles joining the values of a list to big-endian bytes. The first byte is padded
// with zero bits. The result is valid until the next call.
func (c *Compiler) bitString(list *bmv2json.Expr) func(*packet.State) []byte {
	type part struct {
		v        expression.WideNumber
		from, to int // range of scratch lanes
		at       int // position of the first bit
		width    int
	}
	bits := listBits(list)
	size := (bits + 7) / 8
	at := size*8 - bits
	var parts []part
	for _, a := range list.Args {
		n := wideint.Lanes(a.Width)
		q := part{v: c.WideNumber(a, n), at: at, width: a.Width}
		q.from, q.to = c.Scratch(n)
		parts = append(parts, q)
		at += a.Width
	}
	return func(st *packet.State) []byte {
		b := append(st.Input[:0], make([]byte, size)...)
		for i := range parts {
			q := &parts[i]
			t := st.Scratch[q.from:q.to]
			q.v(st, t)
			t[len(t)-1] &= wideint.TopMask(q.width)
			wideint.WriteWide(b, q.at, q.width, t)
		}
		st.Input = b
		return b
	}
}
