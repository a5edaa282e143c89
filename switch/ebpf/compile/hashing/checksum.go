package hashing

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// VerifyChecksums emits code that sets checksum_error if a checksum that the program verifies is
// wrong. A checksum counts as correct if the header of its field is invalid, or if its condition is
// false.
func (t *Hashes) VerifyChecksums() {
	for _, k := range t.Prog.Checksums {
		if !k.Verify {
			continue
		}
		ok, check := t.NewLabel("right"), t.NewLabel("check")
		t.Where = k.Path
		t.Branch(t.checksumApplies(k), check, ok, check, 0)
		t.Bind(check)
		t.checksum(k.Calc)
		p := t.Layout.Field(k.Target)
		t.Load(asm.R2, code.PHV, p.Off, p.Size)
		t.Emit(asm.JEq.Reg(asm.R1, asm.R2, ok))
		t.SetStandardConstant(t.Std.ChecksumError, 1)
		t.Bind(ok)
	}
}

// UpdateChecksums emits code that computes the checksums that the program updates. It runs before
// the deparser writes the headers.
func (t *Hashes) UpdateChecksums() {
	for _, k := range t.Prog.Checksums {
		if !k.Update {
			continue
		}
		end, update := t.NewLabel("updated"), t.NewLabel("update")
		t.Where = k.Path
		cond := ir.Always
		if k.Cond != nil {
			cond = t.Condition(k.Cond)
		}
		t.Branch(cond, update, end, update, 0)
		t.Bind(update)
		t.checksum(k.Calc)
		p := t.Layout.Field(k.Target)
		t.Mask(asm.R1, ir.Ones(p.Width), 0)
		t.Store(code.PHV, p.Off, asm.R1, p.Size)
		t.Bind(end)
	}
}

func (t *Hashes) checksumApplies(k *bmv2json.Checksum) *ir.Condition {
	if k.Target.IsValidity() || k.Target.Field.VL || k.Target.Width() > 64 {
		ir.Refuse(k.Path, "a checksum kept in %s", k.Target)
	}
	c := ir.Compare(ir.CmpNe, t.Valid(k.Target.Header), ir.Const(0),
		false)
	if k.Target.Header.Metadata {
		c = ir.Always
	}
	if k.Cond != nil {
		c = ir.AndCondition(c, t.Condition(k.Cond))
	}
	return c
}

// checksum emits code that computes the value of a calculation into R1. It uses Temp.
func (t *Hashes) checksum(k *bmv2json.Calculation) {
	inputs, payload := analysis.WithoutPayload(k)
	switch name, ok := memory.HashAlgorithms[k.Algo]; {
	case !ok:
		ir.Refuse(k.Path, "the checksum algorithm %q", k.Algo)
	case name == "csum16":
		t.internetChecksum(k, inputs, payload)
	case payload:
		ir.Refuse(k.Path, "the checksum algorithm %q over the payload", k.Algo)
	case name == "random":
		t.Random64()
		t.Emit(asm.Mov.Reg(asm.R1, asm.R0))
	default:
		t.hashInput(k, inputs)
		if !t.callCustomCRC(k) {
			t.callHash(name)
		}
		t.Emit(asm.Mov.Reg(asm.R1, asm.R0))
	}
}

// internetChecksum emits code that computes the checksum of RFC 1071 into R1.
//
// The inputs form one string of bits, which is cut into 16-bit words. Modulo 65,535 the value of a
// bit depends only on its position within a word. So the code adds each field as a number, shifted
// to its position in the last 16 bits that it touches. The order of the additions does not matter.
//
// The position is known at compile time if every optional header before it has a whole number of
// words, or if all headers are valid. For packets that lack one of the other headers, the code
// assembles the bytes as for a hash.
func (t *Hashes) internetChecksum(k *bmv2json.Calculation, inputs []bmv2json.CalcInput,
	payload bool) {
	if payload { // The payload comes first because its sum needs a call.
		t.payloadSum()
	}
	if analysis.AlignedPlaces(inputs, payload, 16) {
		t.Emit(asm.Mov.Imm(asm.R1, 0))
		for bit, i := 0, 0; i < len(inputs); {
			h, absent := analysis.NeededBy(&inputs[i]), t.NewLabel("absent")
			if h != nil {
				t.Load(asm.R2, code.PHV, t.Layout.Validity(h), 1)
				t.Emit(asm.JEq.Imm(asm.R2, 0, absent))
			}
			for ; i < len(inputs) && analysis.NeededBy(&inputs[i]) == h; i++ {
				bit = t.addToChecksum(&inputs[i], bit)
			}
			t.Bind(absent)
		}
		if payload {
			t.addPayload((analysis.InputBits(inputs)+7)/8%2 == 1)
		}
		t.foldChecksum()
		return
	}
	some, done := t.NewLabel("some"), t.NewLabel("summed")
	if ok, needed := analysis.FixedPlaces(inputs); ok {
		t.unlessAll(needed, some)
		t.Emit(asm.Mov.Imm(asm.R1, 0))
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
		t.Jump(done)
		t.Bind(some)
	}
	t.hashInputEach(k, inputs)
	t.callHash("csum16")
	t.Emit(asm.Mov.Reg(asm.R1, asm.R0), asm.Xor.Imm(asm.R1, 0xffff))
	if payload {
		even := t.NewLabel("even")
		t.Emit(asm.And.Imm(code.Temp, 1), asm.JEq.Imm(code.Temp, 0, even))
		t.addPayload(true)
		t.Jump(done)
		t.Bind(even)
		t.addPayload(false)
	}
	t.Bind(done)
	t.foldChecksum()
}

// foldChecksum emits code that converts the sum in R1 to a checksum.
func (t *Hashes) foldChecksum() {
	for range 4 { // each addition shortens the sum: from 64 bits to 33, 18, 17 and 16
		t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 16), asm.And.Imm(asm.R1, 0xffff),
			asm.Add.Reg(asm.R1, asm.R2))
	}
	t.Emit(asm.Xor.Imm(asm.R1, 0xffff), asm.And.Imm(asm.R1, 0xffff))
}

// addToChecksum emits code that adds one input to R1. The input starts at the given bit of the
// string. It returns the bit after the input.
func (t *Hashes) addToChecksum(in *bmv2json.CalcInput, bit int) int {
	add := func(v *ir.Value, width int) {
		bit += width
		v = ir.Shl(v, uint64((16-bit%16)%16))
		if v.IsConst(0) {
			return
		}
		t.Compute(v, 1)
		t.Emit(asm.Add.Reg(asm.R1, asm.R2))
	}
	// Adding 32 bits at a time leaves room for shifted values and for the sum of many values.
	t.operands(in, t.Where, func(word func(int) *ir.Value, width int) {
		for left := width; left > 0; {
			n := left % 32
			if n == 0 {
				n = 32
			}
			left -= n
			add(ir.And(ir.Shr(word(left/64), uint64(left%64)), ir.Const(ir.Ones(n))), n)
		}
	})
	return bit
}

// payloadOnStack is the stack offset of the payload's sum.
const payloadOnStack = -112

const (
	payloadChunk  = 512 // number of bytes that bpf_csum_diff accepts in every kernel
	payloadChunks = 140 // enough for 64 KiB and headers
)

// payloadSum emits code that adds up the frame's bytes after its headers as 16-bit words in the
// machine's byte order. It leaves the sum in payloadOnStack.
func (t *Hashes) payloadSum() {
	const name = "payload"
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.PHV))
	t.CallFunction(name)
	t.Store(asm.R10, payloadOnStack, asm.R0, 8)
	t.FunctionOnce(name, t.sumPayload)
}

// addPayload emits code that adds the sum in payloadOnStack to R1. The bytes of the sum are swapped
// if the payload begins on an odd byte, and also on a little-endian machine. The two swaps cancel
// each other.
func (t *Hashes) addPayload(odd bool) {
	t.Load(asm.R2, asm.R10, payloadOnStack, 8)
	if odd {
		t.Emit(asm.HostTo(asm.LE, asm.R2, asm.Half))
	} else {
		t.Emit(asm.HostTo(asm.BE, asm.R2, asm.Half))
	}
	t.Emit(asm.Add.Reg(asm.R1, asm.R2))
}

// Layout of the part of sumPayload's stack that its loop body sumChunk also uses.
const (
	sumShared = -40 // stack offset of the part that sumChunk also uses
	sumCtx    = 0
	sumPHV    = 8
	sumAt     = 16 // the current offset in the frame
	sumSum    = 24
)

// sumPayload emits the function that adds up the payload to 16 bits, in the machine's byte order.
func (t *Hashes) sumPayload() {
	t.Store(asm.R10, sumShared+sumCtx, asm.R1, 8)
	t.Store(asm.R10, sumShared+sumPHV, asm.R2, 8)
	t.Load(asm.R3, asm.R2, memory.PHVHead, 4)
	t.Store(asm.R10, sumShared+sumAt, asm.R3, 8)
	t.StoreConstant(asm.R10, sumShared+sumSum, 0, 8)
	t.Emit(asm.Mov.Imm(asm.R1, payloadChunks))
	t.LoadFunction(asm.R2, "chunk")
	t.Emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, sumShared), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnLoop)
	t.Load(asm.R0, asm.R10, sumShared+sumSum, 8)
	t.Emit(asm.LSh.Imm(asm.R0, 32), asm.RSh.Imm(asm.R0, 32))
	for range 2 {
		t.Emit(asm.Mov.Reg(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, 16), asm.And.Imm(asm.R0, 0xffff),
			asm.Add.Reg(asm.R0, asm.R1))
	}
	t.Emit(asm.Return())
	t.FunctionOnce("chunk", t.sumChunk)
}

// sumChunk emits the function that adds one chunk of the payload. The loop calls it until it
// returns 1.
func (t *Hashes) sumChunk() {
	end := "chunk.end"
	t.Emit(asm.Mov.Reg(code.Entry, asm.R2))
	t.Load(code.Ctx, code.Entry, sumCtx, 8)
	t.Load(code.PHV, code.Entry, sumPHV, 8)
	t.StoreConstant(asm.R10, -4, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.Maps.Buffer), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, end), asm.Mov.Reg(code.Temp, asm.R0))
	whole := t.NewLabel("whole")
	t.Load(asm.R4, code.PHV, memory.PHVLen, 4)
	if t.Requests.Any() { // The payload does not include bytes that were cut off, as in BMv2.
		uncut := t.NewLabel("uncut")
		t.Load(asm.R1, code.PHV, t.Requests.Cut, 4)
		t.Load(asm.R2, code.PHV, memory.PHVHead, 4)
		t.Emit(asm.Add.Reg(asm.R1, asm.R2), asm.JLE.Reg(asm.R4, asm.R1, uncut),
			asm.Mov.Reg(asm.R4, asm.R1))
		t.Bind(uncut)
	}
	t.Load(asm.R2, code.Entry, sumAt, 8)
	t.Emit(asm.JLE.Reg(asm.R4, asm.R2, end), asm.Sub.Reg(asm.R4, asm.R2),
		asm.JLE.Imm(asm.R4, payloadChunk, whole), asm.Mov.Imm(asm.R4, payloadChunk))
	t.Bind(whole)
	// The condition is never true, but the verifier needs it.
	t.Emit(asm.JEq.Imm(asm.R4, 0, end), asm.JGT.Imm(asm.R4, payloadChunk, end))
	t.Emit(asm.Mov.Reg(asm.R3, code.Temp), asm.Add.Reg(asm.R3, asm.R4))
	t.StoreConstant(asm.R3, 0, 0, 4) // zeros pad the last word
	t.Store(asm.R10, -16, asm.R4, 8)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R2), asm.Add.Reg(asm.R1, asm.R4))
	t.Store(code.Entry, sumAt, asm.R1, 8)
	t.Emit(asm.Mov.Reg(asm.R3, code.Temp))
	t.LoadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, end))
	t.Load(asm.R4, asm.R10, -16, 8)
	t.Emit(asm.Add.Imm(asm.R4, 3), asm.And.Imm(asm.R4, payloadChunk*2-4))
	t.Load(asm.R5, code.Entry, sumSum, 8)
	t.Emit(asm.Mov.Reg(asm.R3, code.Temp), asm.Mov.Imm(asm.R1, 0), asm.Mov.Imm(asm.R2, 0))
	t.Call(asm.FnCsumDiff)
	t.Store(code.Entry, sumSum, asm.R0, 8)
	t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
	t.Bind(end)
	t.Emit(asm.Mov.Imm(asm.R0, 1), asm.Return())
}
