package ebpf

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// verifyChecksums sets checksum_error where a checksum that the program verifies is wrong. One whose field is in a header that is not valid, or whose condition
// does not hold, is taken as right.
func (t *translator) verifyChecksums() {
	for _, k := range t.prog.Checksums {
		if !k.Verify {
			continue
		}
		ok, check := t.newLabel("right"), t.newLabel("check")
		t.where = k.Path
		t.branch(t.checksumApplies(k), check, ok, check, 0)
		t.place(check)
		t.internetChecksum(k.Calc)
		p := t.lay.field(k.Target)
		t.load(asm.R2, rPHV, p.off, p.size)
		t.emit(asm.JEq.Reg(asm.R1, asm.R2, ok))
		t.setStandardConstant(t.std.checksumError, 1)
		t.place(ok)
	}
}

func (t *translator) updateChecksums() {
	for _, k := range t.prog.Checksums {
		if !k.Update {
			continue
		}
		end, update := t.newLabel("updated"), t.newLabel("update")
		t.where = k.Path
		cond := always
		if k.Cond != nil {
			cond = t.condition(k.Cond)
		}
		t.branch(cond, update, end, update, 0)
		t.place(update)
		t.internetChecksum(k.Calc)
		p := t.lay.field(k.Target)
		t.mask(asm.R1, ones(p.width), 0)
		t.store(rPHV, p.off, asm.R1, p.size)
		t.place(end)
	}
}

func (t *translator) checksumApplies(k *bmv2json.Checksum) *condition {
	if k.Target.IsValidity() || k.Target.Field.VL || k.Target.Width() > 64 {
		refuse(k.Path, "a checksum kept in %s", k.Target)
	}
	c := compare(cmpNe, loadField(t.lay.validity(k.Target.Header), 1, 1), konst(0), false)
	if k.Target.Header.Metadata {
		c = always
	}
	if k.Cond != nil {
		c = andCondition(c, t.condition(k.Cond))
	}
	return c
}

// internetChecksum computes the checksum of RFC 1071 over a calculation's inputs into R1.
//
// The inputs are one string of bits, cut into 16-bit words. Modulo 65,535 a bit counts for 2 to the power of its place, whatever the word, so each field is
// added as a number shifted to its place in the last 16 bits that it touches; the order does not matter.
func (t *translator) internetChecksum(k *bmv2json.Calculation) {
	if k.Algo != "csum16" {
		refuse(k.Path, "the checksum algorithm %q", k.Algo)
	}
	t.emit(asm.Mov.Imm(asm.R1, 0))
	bit := 0
	for i := 0; i < len(k.Input); {
		// Fields of one header come and go together.
		j, bits := i, 0
		h := headerOfInput(&k.Input[i])
		for ; j < len(k.Input) && headerOfInput(&k.Input[j]) == h; j++ {
			if k.Input[j].Payload {
				refuse(k.Path, "a checksum over the payload")
			}
			bits += widthOfInput(&k.Input[j])
		}
		skip := t.newLabel("absent")
		if h != nil && !h.Metadata {
			if bits%16 != 0 && j < len(k.Input) {
				refuse(k.Path, "a checksum over %d bits of %s, with more after them", bits, h.Name)
			}
			t.load(asm.R2, rPHV, t.lay.validity(h), 1)
			t.emit(asm.JEq.Imm(asm.R2, 0, skip))
		}
		for ; i < j; i++ {
			bit = t.addToChecksum(&k.Input[i], bit)
		}
		t.place(skip)
	}
	for range 3 { // 64 bits to 33, to 18, to 16
		t.emit(asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 16), asm.And.Imm(asm.R1, 0xffff), asm.Add.Reg(asm.R1, asm.R2))
	}
	t.emit(asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 16), asm.And.Imm(asm.R1, 0xffff), asm.Add.Reg(asm.R1, asm.R2))
	t.emit(asm.Xor.Imm(asm.R1, 0xffff), asm.And.Imm(asm.R1, 0xffff))
}

func headerOfInput(in *bmv2json.CalcInput) *bmv2json.Header {
	if in.Header != nil {
		return in.Header
	}
	return in.Field.Header
}

func widthOfInput(in *bmv2json.CalcInput) int {
	if in.Header != nil {
		return in.Header.Type.FixedBits
	}
	return in.Width
}

// addToChecksum adds one input, which starts at a bit of the string, to R1.
func (t *translator) addToChecksum(in *bmv2json.CalcInput, bit int) int {
	add := func(v *value, width int) {
		bit += width
		v = shlValue(v, uint64((16-bit%16)%16))
		if v.isConst(0) {
			return
		}
		t.compute(v, 1)
		t.emit(asm.Add.Reg(asm.R1, asm.R2))
	}
	// In parts of 32 bits, so that what is shifted fits, and many of them add up.
	parts := func(word func(int) *value, width int) {
		for left := width; left > 0; {
			n := left % 32
			if n == 0 {
				n = 32
			}
			left -= n
			add(andValue(shrValue(word(left/64), uint64(left%64)), konst(ones(n))), n)
		}
	}
	switch {
	case in.Header != nil:
		for _, f := range in.Header.Type.Fields {
			if f.VL {
				refuse(t.where, "a checksum over a field of variable length (%s)", f.Name)
			}
			p := t.lay.field(bmv2json.FieldRef{Header: in.Header, Field: f})
			p.signed = false
			parts(func(i int) *value { return t.wordOfPlace(p, i) }, f.Width)
		}
	case in.Const != nil:
		parts(func(i int) *value { return konst(wordOfBig(in.Const, i)) }, in.Width)
	default:
		if in.Field.IsValidity() || in.Field.Field.VL {
			refuse(t.where, "a checksum over %s", in.Field)
		}
		p := t.lay.field(in.Field)
		p.signed = false
		parts(func(i int) *value { return t.wordOfPlace(p, i) }, p.width)
	}
	return bit
}
