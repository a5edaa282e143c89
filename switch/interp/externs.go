package interp

import "github.com/netcraq/netcraq/switch/bmv2json"

// PSA's extern objects, as BMv2's psa_switch has them. Counters and meters are arrays like
// v1model's ones. An InternetChecksum belongs to one packet in one of PSA's blocks: its sum is a
// lane of scratch that is 0 when the packet comes in (BMv2 keeps what an earlier packet left).

// externs checks the objects and makes room for the state of those that have one.
func (c *compiler) externs() {
	for _, e := range c.prog.Externs {
		switch e.Type {
		case "Counter", "Meter", "Random":
			c.checksums = append(c.checksums, -1)
		case "Hash":
			if hashAlgorithm(e.Attributes["algo"].Str, c.rand) == nil {
				refuse(e.Path, "the hash algorithm %q", e.Attributes["algo"].Str)
			}
			c.checksums = append(c.checksums, -1)
		case "InternetChecksum":
			at, _ := c.temp(1)
			c.lay.sums = append(c.lay.sums, at)
			c.checksums = append(c.checksums, at)
		default:
			refuse(e.Path, "extern instance %q of type %q", e.Name, e.Type)
		}
	}
}

// externCall compiles a call of a method.
func (c *compiler) externCall(p *bmv2json.Primitive) doFn {
	arg, e := p.Args, p.Args[0].Extern
	switch p.Op {
	case "_Counter_count":
		return countAt(c.counters[e.Counter.Index], c.index(arg[1]))
	case "_Meter_execute":
		a, idx, store := c.meters[e.Meter.Index], c.index(arg[1]), c.store64(arg[2])
		return func(st *state) {
			if i := idx(st); i < uint64(len(a.cells)) {
				store(st, (a.cells[i].color(st.inLen, st.now)+1)%3) // PSA's order is red, green, yellow
			}
		}
	case "_Random_read":
		return c.randomRead(p)
	case "_Hash_get_hash":
		fn, in, store := hashAlgorithm(e.Attributes["algo"].Str, c.rand), c.bitString(arg[2]),
			c.store64(arg[1])
		return func(st *state) { store(st, fn(in(st))) }
	case "_Hash_get_hash_mod":
		fn, in, store := hashAlgorithm(e.Attributes["algo"].Str, c.rand), c.bitString(arg[3]),
			c.store64(arg[1])
		base, size := c.low(arg[2], 64), c.low(arg[4], 64)
		return func(st *state) { store(st, base(st)+fn(in(st))%max(size(st), 1)) }
	}
	return c.checksumCall(p)
}

// checksumCall compiles the methods of InternetChecksum. The sum is kept as RFC 1071 has it before
// it is complemented.
func (c *compiler) checksumCall(p *bmv2json.Primitive) doFn {
	arg, at := p.Args, c.checksums[p.Args[0].Extern.Index]
	switch p.Op {
	case "_InternetChecksum_clear":
		return func(st *state) { st.scratch[at] = 0 }
	case "_InternetChecksum_add", "_InternetChecksum_subtract":
		in, add := c.bitString(arg[1]), p.Op == "_InternetChecksum_add"
		if bits := listBits(arg[1]); bits%16 != 0 {
			refuse(arg[1].Path, "an InternetChecksum over %d bits, which are no whole 16 bit words",
				bits)
		}
		return func(st *state) {
			sum, b := st.scratch[at], in(st)
			// BMv2 leaves out the words before the first that is not 0, which makes a difference
			// where 0 is subtracted: +0 or -0.
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
			st.scratch[at] = sum
		}
	case "_InternetChecksum_get":
		store := c.store64(arg[1])
		return func(st *state) { store(st, ^st.scratch[at]&0xffff) }
	case "_InternetChecksum_get_verify":
		store, want := c.store64(arg[1]), c.low(arg[2], 64)
		return func(st *state) {
			right := uint64(0)
			if want(st)&0xffff == ^st.scratch[at]&0xffff {
				right = 1
			}
			store(st, right)
		}
	case "_InternetChecksum_get_state":
		store := c.store64(arg[1])
		return func(st *state) { store(st, st.scratch[at]) }
	case "_InternetChecksum_set_state":
		v := c.low(arg[1], 64)
		return func(st *state) { st.scratch[at] = v(st) & 0xffff }
	}
	refuse(p.Path, "the primitive %q", p.Op)
	return nil
}

// listBits is how many bits the values of a list have together. What has no width of its own is
// refused.
func listBits(list *bmv2json.Expr) (bits int) {
	for _, a := range list.Args {
		if a.Width == 0 || a.Op == bmv2json.OpField && !a.Field.IsValidity() && a.Field.Field.VL {
			refuse(a.Path, "a %q of no fixed width in a list of fields", a.Op)
		}
		bits += a.Width
	}
	return bits
}

// bitString compiles putting the values of a list one behind the other, big endian. Bits that fill
// the first byte are 0. The result is good until the next one.
func (c *compiler) bitString(list *bmv2json.Expr) func(*state) []byte {
	type part struct {
		v        wideFn
		from, to int // of scratch
		at       int // bits
		width    int
	}
	bits := listBits(list)
	size := (bits + 7) / 8
	at := size*8 - bits
	var parts []part
	for _, a := range list.Args {
		n := lanesOf(a.Width)
		q := part{v: c.wide(a, n), at: at, width: a.Width}
		q.from, q.to = c.temp(n)
		parts = append(parts, q)
		at += a.Width
	}
	return func(st *state) []byte {
		b := append(st.bits[:0], make([]byte, size)...)
		for i := range parts {
			q := &parts[i]
			t := st.scratch[q.from:q.to]
			q.v(st, t)
			t[len(t)-1] &= topMask(q.width)
			writeWide(b, q.at, q.width, t)
		}
		st.bits = b
		return b
	}
}
