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
		t.bind(check)
		t.checksum(k.Calc)
		p := t.lay.field(k.Target)
		t.load(asm.R2, rPHV, p.off, p.size)
		t.emit(asm.JEq.Reg(asm.R1, asm.R2, ok))
		t.setStandardConstant(t.std.checksumError, 1)
		t.bind(ok)
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
		t.bind(update)
		t.checksum(k.Calc)
		p := t.lay.field(k.Target)
		t.mask(asm.R1, ones(p.width), 0)
		t.store(rPHV, p.off, asm.R1, p.size)
		t.bind(end)
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

// checksum computes the value of a calculation into R1. It uses rTemp.
func (t *translator) checksum(k *bmv2json.Calculation) {
	inputs, payload := withoutPayload(k)
	switch name, ok := hashAlgorithms[k.Algo]; {
	case !ok:
		refuse(k.Path, "the checksum algorithm %q", k.Algo)
	case name == "csum16":
		t.internetChecksum(k, inputs, payload)
	case payload:
		refuse(k.Path, "the checksum algorithm %q over the payload", k.Algo)
	case name == "random":
		t.random64()
		t.emit(asm.Mov.Reg(asm.R1, asm.R0))
	default:
		t.hashInput(k, inputs)
		t.callHash(name)
		t.emit(asm.Mov.Reg(asm.R1, asm.R0))
	}
}

// internetChecksum computes the checksum of RFC 1071 into R1.
//
// The inputs are one string of bits, cut into 16-bit words. Modulo 65,535 a bit counts for 2 to the power of its place, whatever the word, so each field is
// added as a number shifted to its place in the last 16 bits that it touches; the order does not matter.
//
// The place is known beforehand where no header that may be missing moves what is behind it by anything but whole words, or
// where all headers are there. For packets without one of the others the bytes are put together as for a hash.
func (t *translator) internetChecksum(k *bmv2json.Calculation, inputs []bmv2json.CalcInput, payload bool) {
	if payload { // first, as it calls
		t.payloadSum()
	}
	if placed(inputs, payload, 16) {
		t.emit(asm.Mov.Imm(asm.R1, 0))
		for bit, i := 0, 0; i < len(inputs); {
			h, absent := neededBy(&inputs[i]), t.newLabel("absent")
			if h != nil {
				t.load(asm.R2, rPHV, t.lay.validity(h), 1)
				t.emit(asm.JEq.Imm(asm.R2, 0, absent))
			}
			for ; i < len(inputs) && neededBy(&inputs[i]) == h; i++ {
				bit = t.addToChecksum(&inputs[i], bit)
			}
			t.bind(absent)
		}
		if payload {
			t.addPayload((inputBits(inputs)+7)/8%2 == 1)
		}
		t.foldChecksum()
		return
	}
	some, done := t.newLabel("some"), t.newLabel("summed")
	if ok, needed := fixed(inputs); ok {
		t.unlessAll(needed, some)
		t.emit(asm.Mov.Imm(asm.R1, 0))
		bit := 0
		for i := range inputs {
			if inputs[i].Header != nil {
				bit = (bit + 7) &^ 7
			}
			bit = t.addToChecksum(&inputs[i], bit)
		}
		if payload {
			t.addPayload((bit+7)/8%2 == 1)
		}
		t.jump(done)
		t.bind(some)
	}
	t.hashInputEach(k, inputs)
	t.callHash("csum16")
	t.emit(asm.Mov.Reg(asm.R1, asm.R0), asm.Xor.Imm(asm.R1, 0xffff))
	if payload {
		even := t.newLabel("even")
		t.emit(asm.And.Imm(rTemp, 1), asm.JEq.Imm(rTemp, 0, even))
		t.addPayload(true)
		t.jump(done)
		t.bind(even)
		t.addPayload(false)
	}
	t.bind(done)
	t.foldChecksum()
}

// foldChecksum makes a checksum of the sum in R1.
func (t *translator) foldChecksum() {
	for range 4 { // 64 bits to 33, to 18, to 17, to 16
		t.emit(asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 16), asm.And.Imm(asm.R1, 0xffff), asm.Add.Reg(asm.R1, asm.R2))
	}
	t.emit(asm.Xor.Imm(asm.R1, 0xffff), asm.And.Imm(asm.R1, 0xffff))
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
	t.operands(in, t.where, func(word func(int) *value, width int) {
		for left := width; left > 0; {
			n := left % 32
			if n == 0 {
				n = 32
			}
			left -= n
			add(andValue(shrValue(word(left/64), uint64(left%64)), konst(ones(n))), n)
		}
	})
	return bit
}

// payloadOnStack is where the sum of the payload waits.
const payloadOnStack = -112

const (
	payloadChunk  = 512 // bytes: as many as bpf_csum_diff takes in any kernel
	payloadChunks = 140 // enough for 64 KiB and headers
)

// payloadSum leaves the sum of the frame's bytes behind its headers in payloadOnStack, as 16-bit words in the machine's
// order of bytes.
func (t *translator) payloadSum() {
	const name = "payload"
	t.emit(asm.Mov.Reg(asm.R1, rCtx), asm.Mov.Reg(asm.R2, rPHV))
	t.callFunction(name)
	t.store(asm.R10, payloadOnStack, asm.R0, 8)
	for _, f := range t.functions {
		if f.name == name {
			return
		}
	}
	t.functions = append(t.functions, t.function(name, t.sumPayload))
}

// addPayload adds that sum to R1. Where the payload begins on an odd byte its words are turned round, as they are in a
// machine with the low byte first.
func (t *translator) addPayload(odd bool) {
	t.load(asm.R2, asm.R10, payloadOnStack, 8)
	if odd {
		t.emit(asm.HostTo(asm.LE, asm.R2, asm.Half))
	} else {
		t.emit(asm.HostTo(asm.BE, asm.R2, asm.Half))
	}
	t.emit(asm.Add.Reg(asm.R1, asm.R2))
}

// What sumPayload and its loop share, on sumPayload's stack.
const (
	sumShared = -40 // where it starts
	sumCtx    = 0
	sumPHV    = 8
	sumAt     = 16 // how far into the frame
	sumSum    = 24
)

// sumPayload is the function that adds up the payload, in the machine's order of bytes, to 16 bits.
func (t *translator) sumPayload() {
	t.store(asm.R10, sumShared+sumCtx, asm.R1, 8)
	t.store(asm.R10, sumShared+sumPHV, asm.R2, 8)
	t.load(asm.R3, asm.R2, phvHead, 4)
	t.store(asm.R10, sumShared+sumAt, asm.R3, 8)
	t.storeConstant(asm.R10, sumShared+sumSum, 0, 8)
	t.emit(asm.Mov.Imm(asm.R1, payloadChunks))
	t.functionPointer(asm.R2, "chunk")
	t.emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, sumShared), asm.Mov.Imm(asm.R4, 0))
	t.call(asm.FnLoop)
	t.load(asm.R0, asm.R10, sumShared+sumSum, 8)
	t.emit(asm.LSh.Imm(asm.R0, 32), asm.RSh.Imm(asm.R0, 32))
	for range 2 {
		t.emit(asm.Mov.Reg(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, 16), asm.And.Imm(asm.R0, 0xffff), asm.Add.Reg(asm.R0, asm.R1))
	}
	t.emit(asm.Return())
	t.functions = append(t.functions, t.function("chunk", t.sumChunk))
}

// sumChunk is called for one chunk after the other, until it returns 1.
func (t *translator) sumChunk() {
	end := "chunk.end"
	t.emit(asm.Mov.Reg(rEntry, asm.R2))
	t.load(rCtx, rEntry, sumCtx, 8)
	t.load(rPHV, rEntry, sumPHV, 8)
	t.storeConstant(asm.R10, -4, 0, 4)
	t.emit(asm.LoadMapPtr(asm.R1, t.fds.buffer), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -4))
	t.call(asm.FnMapLookupElem)
	t.emit(asm.JEq.Imm(asm.R0, 0, end), asm.Mov.Reg(rTemp, asm.R0))
	whole := t.newLabel("whole")
	t.load(asm.R4, rPHV, phvLen, 4)
	if t.requests.any() { // what is cut off is no payload any more, as in BMv2
		uncut := t.newLabel("uncut")
		t.load(asm.R1, rPHV, t.requests.cut, 4)
		t.load(asm.R2, rPHV, phvHead, 4)
		t.emit(asm.Add.Reg(asm.R1, asm.R2), asm.JLE.Reg(asm.R4, asm.R1, uncut), asm.Mov.Reg(asm.R4, asm.R1))
		t.bind(uncut)
	}
	t.load(asm.R2, rEntry, sumAt, 8)
	t.emit(asm.JLE.Reg(asm.R4, asm.R2, end), asm.Sub.Reg(asm.R4, asm.R2), asm.JLE.Imm(asm.R4, payloadChunk, whole), asm.Mov.Imm(asm.R4, payloadChunk))
	t.bind(whole)
	t.emit(asm.JEq.Imm(asm.R4, 0, end), asm.JGT.Imm(asm.R4, payloadChunk, end)) // never: for the verifier
	t.emit(asm.Mov.Reg(asm.R3, rTemp), asm.Add.Reg(asm.R3, asm.R4))
	t.storeConstant(asm.R3, 0, 0, 4) // what fills the last word
	t.store(asm.R10, -16, asm.R4, 8)
	t.emit(asm.Mov.Reg(asm.R1, asm.R2), asm.Add.Reg(asm.R1, asm.R4))
	t.store(rEntry, sumAt, asm.R1, 8)
	t.emit(asm.Mov.Reg(asm.R3, rTemp))
	t.loadBytes()
	t.emit(asm.JNE.Imm(asm.R0, 0, end))
	t.load(asm.R4, asm.R10, -16, 8)
	t.emit(asm.Add.Imm(asm.R4, 3), asm.And.Imm(asm.R4, payloadChunk*2-4))
	t.load(asm.R5, rEntry, sumSum, 8)
	t.emit(asm.Mov.Reg(asm.R3, rTemp), asm.Mov.Imm(asm.R1, 0), asm.Mov.Imm(asm.R2, 0))
	t.call(asm.FnCsumDiff)
	t.store(rEntry, sumSum, asm.R0, 8)
	t.emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	t.bind(end)
	t.emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
}
