package compile

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
	"github.com/netcraq/netcraq/switch/interval"
)

// Hashes. The inputs are put together into bytes in the PHV (inputs.go); then a function goes over
// the bytes. CRCs go by a table of 256 entries in the state.

// hashAlgorithms are the algorithms that p4c calls by name, by what computes them. The "custom"
// CRCs have the parameters that BMv2 starts them with; those of 16 and 32 bits can be changed
// (custom_crc.go).
var hashAlgorithms = map[string]string{
	"crc32": "crc32", "crc32_custom": "crc32", "crc16": "crc16", "crc16_custom": "crc16",
	"crcCCITT": "ccitt", "crc8_custom": "crc8", "crc64_custom": "crc64",
	"csum16": "csum16", "cksum16": "csum16", "xor16": "xor16", "xor32": "xor32",
	"identity": "identity", "random": "random",
}

// crc is a cyclic redundancy check as a table walk: v = v >> 8 ^ table[(v ^ byte) & 0xff] where it
// is reflected, else from the top.
type crc struct {
	width     int
	poly      uint64
	reflected bool
	start     uint64
	final     uint64 // by which the result is inverted
}

var crcs = map[string]crc{
	"crc32": {32, 0x04c11db7, true, 0xffffffff, 0xffffffff},
	"crc16": {16, 0x8005, true, 0, 0},
	"ccitt": {16, 0x1021, false, 0xffff, 0},
	"crc8":  {8, 0x07, false, 0, 0},
	"crc64": {64, 0x1b, true, 0, 0},
}

// table is the check's table, 8 bytes an entry.
func (c crc) table() []byte {
	var out []byte
	mask := ir.Ones(c.width)
	poly := c.poly
	if c.reflected {
		poly = bits.Reverse64(poly) >> (64 - c.width)
	}
	for i := range uint64(256) {
		v := i
		if !c.reflected {
			v <<= c.width - 8
		}
		for range 8 {
			switch {
			case c.reflected && v&1 == 1:
				v = v>>1 ^ poly
			case c.reflected:
				v >>= 1
			case v>>(c.width-1)&1 == 1:
				v = v<<1 ^ poly
			default:
				v <<= 1
			}
			v &= mask
		}
		out = binary.NativeEndian.AppendUint64(out, v)
	}
	return out
}

const (
	maxHashInput = 512 // bytes
	tableBytes   = 256 * 8
)

// planHashes finds what the program hashes, makes room for the longest input, and for the tables.
func (p *Plan) planHashes(take func(bytes int) int) {
	p.crcTables, p.customCRCs = map[string]int{}, map[*bmv2json.Calculation]int{}
	longest := 0
	all := p.selectors()
	for _, k := range p.Prog.Calculations {
		if p.hashed(k) || p.checkedByBytes(k) {
			all = append(all, k)
		}
	}
	for _, k := range all {
		inputs, _ := withoutPayload(k)
		longest = max(longest, (inputBits(inputs)+7)/8+8)
		if slices.Contains(p.Prog.Calculations, k) && customWidth(k.Algo) > 0 {
			p.customCRCs[k] = p.allocate(customBytes)
		} else if name := hashAlgorithms[k.Algo]; crcs[name].width > 0 {
			if _, ok := p.crcTables[name]; !ok {
				p.crcTables[name] = p.allocate(tableBytes)
			}
		}
	}
	if longest > 0 {
		p.hashMax = longest
		p.hashIn = take(longest + 8)
	}
}

// hashed reports whether a primitive uses a calculation, besides checksums.
func (p *Plan) hashed(k *bmv2json.Calculation) bool {
	for _, a := range p.Prog.Actions {
		for _, prim := range a.Primitives {
			for _, e := range prim.Args {
				if e.Op == bmv2json.OpCalculation && e.Calc == k {
					return true
				}
			}
		}
	}
	return false
}

// checkedByBytes reports whether a checksum needs the bytes of a calculation.
func (p *Plan) checkedByBytes(k *bmv2json.Calculation) bool {
	inputs, payload := withoutPayload(k)
	return slices.ContainsFunc(p.Prog.Checksums,
		func(c *bmv2json.Checksum) bool { return c.Calc == k }) &&
		(hashAlgorithms[k.Algo] != "csum16" || !placed(inputs, payload, 16))
}

// FillTables writes the tables of the CRCs into the state.
func (p *Plan) FillTables(state []byte) {
	for name, at := range p.crcTables {
		copy(state[at:], crcs[name].table())
	}
	for k, at := range p.customCRCs {
		FillCRC(state, at, 0, customWidth(k.Algo), usualCRC(k.Algo))
	}
}

// hashOf leaves the value of a calculation in R0.
func (t *translator) hashOf(k *bmv2json.Calculation) {
	name, ok := hashAlgorithms[k.Algo]
	if !ok {
		ir.Refuse(k.Path, "the hash algorithm %q", k.Algo)
	}
	if name == "random" {
		t.random64()
		return
	}
	inputs, payload := withoutPayload(k)
	if payload {
		ir.Refuse(k.Path, "a hash over the payload")
	}
	t.hashInput(k, inputs)
	if !t.callCustomCRC(k) {
		t.callHash(name)
	}
}

// hash emits hash(dst, base, input, size): base + value mod size, in 64 bits.
func (t *translator) hash(p *bmv2json.Primitive) {
	k := p.Args[2].Calc
	if ir.WideExpr(p.Args[1]) && !interval.Of(p.Args[1]).Within(interval.U64) ||
		ir.WideExpr(p.Args[3]) && !interval.Of(p.Args[3]).Within(interval.U64) {
		ir.Refuse(p.Path, "a hash with a base or size of more than 64 bits")
	}
	t.hashOf(k)
	t.Store(asm.R10, hashOnStack, asm.R0, 8)
	// The size may be 0, which is as good as 1.
	one := t.NewLabel("one")
	t.Compute(t.Word(p.Args[3], 0), 0)
	t.Load(asm.R0, asm.R10, hashOnStack, 8)
	t.Emit(asm.JNE.Imm(asm.R1, 0, one), asm.Mov.Imm(asm.R1, 1))
	t.Bind(one)
	t.Emit(asm.Mod.Reg(asm.R0, asm.R1))
	t.Store(asm.R10, hashOnStack, asm.R0, 8)
	t.Compute(t.Word(p.Args[1], 0), 0)
	t.Load(asm.R0, asm.R10, hashOnStack, 8)
	t.Emit(asm.Add.Reg(asm.R1, asm.R0))
	t.storeNumber(p.Args[0])
}

// hashOnStack is where a number waits while operands are computed.
const hashOnStack = -80

// storeNumber stores the number in R1 into a field, cut to its width; the upper words of a wide one
// become 0.
func (t *translator) storeNumber(dst *bmv2json.Expr) {
	pl := t.PlaceOf(dst)
	if pl.LastElement {
		ir.Refuse(dst.Path, "assigning to the last element of a stack")
	}
	if !ir.Wide(pl.Width) {
		t.Mask(asm.R1, ir.Ones(pl.Width), 0)
		t.Store(code.PHV, pl.Off, asm.R1, pl.Size)
		return
	}
	n := ir.WordsOf(pl.Width)
	t.Zero(code.PHV, pl.Off, (n-1)*8)
	t.Emit(asm.HostTo(asm.BE, asm.R1, asm.DWord))
	t.Store(code.PHV, pl.Off+(n-1)*8, asm.R1, 8)
}

// random64 leaves 64 random bits in R0. They are the kernel's: not those of the interpreter.
func (t *translator) random64() {
	t.Call(asm.FnGetPrandomU32)
	t.Emit(asm.LSh.Imm(asm.R0, 32))
	t.Store(asm.R10, hashOnStack, asm.R0, 8)
	t.Call(asm.FnGetPrandomU32)
	t.Emit(asm.Mov.Imm32(asm.R1, -1), asm.And.Reg(asm.R0, asm.R1))
	t.Load(asm.R1, asm.R10, hashOnStack, 8)
	t.Emit(asm.Or.Reg(asm.R0, asm.R1))
}

// random emits random(dst, lo, hi). An empty range leaves dst as it is.
func (t *translator) random(p *bmv2json.Primitive) {
	empty, all := t.NewLabel("empty"), t.NewLabel("all")
	lo, hi := t.Index(p.Args[1]), t.Index(p.Args[2])
	t.random64()
	t.Store(asm.R10, hashOnStack, asm.R0, 8)
	t.Compute(hi, 0)
	t.Store(asm.R10, hashOnStack-8, asm.R1, 8)
	t.Compute(lo, 0)
	t.Load(asm.R2, asm.R10, hashOnStack-8, 8)
	t.Load(asm.R0, asm.R10, hashOnStack, 8)
	t.Emit(asm.JGT.Reg(asm.R1, asm.R2, empty), asm.Sub.Reg(asm.R2, asm.R1), asm.Add.Imm(asm.R2, 1),
		asm.JEq.Imm(asm.R2, 0, all), asm.Mod.Reg(asm.R0, asm.R2))
	t.Bind(all)
	t.Emit(asm.Add.Reg(asm.R1, asm.R0))
	t.storeNumber(p.Args[0])
	t.Bind(empty)
}

// callHash leaves the hash of the bytes that hashInput has put together in R0.
func (t *translator) callHash(name string) {
	t.Emit(asm.Mov.Reg(asm.R1, code.Temp), asm.Mov.Reg(asm.R2, code.PHV),
		asm.Add.Imm(asm.R2, int32(t.hashIn)))
	t.CallFunction(t.hashFunction(name))
}

// hashFunction is the function that goes over the bytes: R1 is how many there are, R2 where. It
// returns the value in R0.
func (t *translator) hashFunction(name string) string {
	full := "hash_" + name
	return t.once(full, func() {
		next, done := full+".next", full+".done"
		const bytesAt, count, i, v = asm.R6, asm.R7, asm.R8, asm.R9
		check, isCRC := crcs[name]
		t.Emit(asm.Mov.Reg(count, asm.R1), asm.Mov.Reg(bytesAt, asm.R2), asm.Mov.Imm(i, 0))
		t.LoadConstant(v, check.start)
		t.Bind(next)
		t.Emit(asm.JGE.Reg(i, count, done), asm.JGE.Imm(i, int32(t.hashMax), done))
		t.Emit(asm.Mov.Reg(asm.R1, bytesAt), asm.Add.Reg(asm.R1, i))
		t.Load(asm.R2, asm.R1, 0, 1) // the byte
		switch {
		case isCRC:
			t.Emit(asm.Mov.Reg(asm.R3, v))
			if !check.reflected && check.width > 8 {
				t.Emit(asm.RSh.Imm(asm.R3, int32(check.width-8)))
			}
			t.Emit(asm.Xor.Reg(asm.R3, asm.R2), asm.And.Imm(asm.R3, 0xff), asm.LSh.Imm(asm.R3, 3))
			t.stateAddress(asm.R4, t.crcTables[name])
			t.Emit(asm.Add.Reg(asm.R4, asm.R3))
			t.Load(asm.R4, asm.R4, 0, 8)
			switch {
			case check.width == 8:
				t.Emit(asm.Mov.Imm(v, 0))
			case check.reflected:
				t.Emit(asm.RSh.Imm(v, 8))
			default:
				t.Emit(asm.LSh.Imm(v, 8))
			}
			t.Emit(asm.Xor.Reg(v, asm.R4))
			if !check.reflected {
				t.Mask(v, ir.Ones(check.width), 3)
			}
		case name == "identity": // the first eight bytes, or all where there are fewer
			t.Emit(asm.JGE.Imm(i, 8, done), asm.LSh.Imm(v, 8), asm.Or.Reg(v, asm.R2))
		default: // by words: the byte goes to its place in one
			size := map[string]int32{"csum16": 2, "xor16": 2, "xor32": 4}[name]
			t.Emit(asm.Mov.Reg(asm.R3, i), asm.And.Imm(asm.R3, size-1), asm.Xor.Imm(asm.R3, size-1),
				asm.LSh.Imm(asm.R3, 3), asm.LSh.Reg(asm.R2, asm.R3))
			if name == "csum16" {
				t.Emit(asm.Add.Reg(v, asm.R2))
			} else {
				t.Emit(asm.Xor.Reg(v, asm.R2))
			}
		}
		t.Emit(asm.Add.Imm(i, 1))
		t.Jump(next)
		t.Bind(done)
		switch {
		case isCRC && check.final != 0:
			t.LoadConstant(asm.R1, check.final)
			t.Emit(asm.Xor.Reg(v, asm.R1))
		case name == "csum16":
			for range 3 {
				t.Emit(asm.Mov.Reg(asm.R1, v), asm.RSh.Imm(asm.R1, 16), asm.And.Imm(v, 0xffff),
					asm.Add.Reg(v, asm.R1))
			}
			t.Emit(asm.Xor.Imm(v, 0xffff), asm.And.Imm(v, 0xffff))
		}
		t.Emit(asm.Mov.Reg(asm.R0, v), asm.Return())
	})
}
