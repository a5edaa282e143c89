package compile

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Custom CRCs. The parameters of crc16_custom and crc32_custom may be changed while packets pass,
// for each calculation that has one. They are in the state, twice: a change writes the copy that no
// packet reads and then makes it the current one. The check goes from the top; what is reflected is
// turned round on its way in and out.

// What a copy has, by where.
const (
	customStart = 0
	customFinal = 8              // by which the result is inverted
	customTurn  = 16             // 1: the result is turned round before
	customIn    = 24             // what each byte is taken for
	customTable = customIn + 256 // 8 bytes for each byte
	customCopy  = customTable + 256*8
	// customBytes is what a calculation takes: the number of the current copy, and both copies.
	customBytes = 8 + 2*customCopy
)

// CRC are the parameters of a custom CRC, as the catalogue of CRCs names them.
type CRC struct {
	Polynomial, Init, XorOut uint32
	ReflectIn, ReflectOut    bool
}

// customWidth is the width of an algorithm whose parameters can be changed; 0 for others.
func customWidth(algo string) int {
	return map[string]int{"crc16_custom": 16, "crc32_custom": 32}[algo]
}

// CustomCRC is where the parameters of a calculation are in the state, and its width; -1 where
// nothing in the program uses it, or it has none.
func (p *Plan) CustomCRC(k *bmv2json.Calculation) (at, width int) {
	if at, ok := p.customCRCs[k]; ok {
		return at, customWidth(k.Algo)
	}
	return -1, customWidth(k.Algo)
}

// usualCRC are the parameters that a custom CRC begins with, as in BMv2.
func usualCRC(algo string) CRC {
	c := crcs[hashAlgorithms[algo]]
	return CRC{Polynomial: uint32(c.poly), Init: uint32(c.start), XorOut: uint32(c.final),
		ReflectIn: c.reflected, ReflectOut: c.reflected}
}

// FillCRC writes parameters into one of the copies, 0 or 1, of a calculation at some place.
func FillCRC(state []byte, at, which, width int, c CRC) {
	m := state[at+8+which*customCopy:][:customCopy]
	mask, order := uint32(ir.Ones(width)), binary.NativeEndian
	order.PutUint64(m[customStart:], uint64(c.Init&mask))
	order.PutUint64(m[customFinal:], uint64(c.XorOut&mask))
	turn := uint64(0)
	if c.ReflectOut {
		turn = 1
	}
	order.PutUint64(m[customTurn:], turn)
	for i := range 256 {
		m[customIn+i] = byte(i)
		if c.ReflectIn {
			m[customIn+i] = bits.Reverse8(byte(i))
		}
		v := uint32(i) << (width - 8)
		for range 8 {
			if v>>(width-1)&1 == 1 {
				v = v<<1 ^ c.Polynomial
			} else {
				v <<= 1
			}
		}
		order.PutUint64(m[customTable+8*i:], uint64(v&mask))
	}
}

// callCustomCRC leaves the custom CRC of the bytes that hashInput has put together in R0, where the
// calculation has one.
func (t *translator) callCustomCRC(k *bmv2json.Calculation) bool {
	at, width := t.CustomCRC(k)
	if at < 0 {
		return false
	}
	name := fmt.Sprintf("custom_crc_%d", k.Index)
	t.Emit(asm.Mov.Reg(asm.R1, code.Temp), asm.Mov.Reg(asm.R2, code.PHV),
		asm.Add.Imm(asm.R2, int32(t.hashIn)))
	t.CallFunction(name)
	t.once(name, func() { t.customCRC(name, at, width) })
	return true
}

// customCRC is the function that goes over the bytes: R1 is how many there are, R2 where.
func (t *translator) customCRC(name string, at, width int) {
	const params, bytesAt, count, i, v = asm.R5, asm.R6, asm.R7, asm.R8, asm.R9
	next, done, straight := name+".next", name+".done", name+".straight"
	t.Emit(asm.Mov.Reg(count, asm.R1), asm.Mov.Reg(bytesAt, asm.R2), asm.Mov.Imm(i, 0))
	t.stateAddress(params, at)
	t.Load(asm.R4, params, 0, 8)
	t.Emit(asm.And.Imm(asm.R4, 1), asm.Mul.Imm(asm.R4, customCopy), asm.Add.Reg(params, asm.R4),
		asm.Add.Imm(params, 8))
	t.Load(v, params, customStart, 8)
	t.Bind(next)
	t.Emit(asm.JGE.Reg(i, count, done), asm.JGE.Imm(i, int32(t.hashMax), done))
	t.Emit(asm.Mov.Reg(asm.R1, bytesAt), asm.Add.Reg(asm.R1, i))
	t.Load(asm.R2, asm.R1, 0, 1)
	t.Emit(asm.Mov.Reg(asm.R3, params), asm.Add.Reg(asm.R3, asm.R2))
	t.Load(asm.R2, asm.R3, customIn, 1)
	t.Emit(asm.Mov.Reg(asm.R3, v), asm.RSh.Imm(asm.R3, int32(width-8)), asm.Xor.Reg(asm.R3, asm.R2),
		asm.And.Imm(asm.R3, 0xff), asm.LSh.Imm(asm.R3, 3), asm.Mov.Reg(asm.R4, params),
		asm.Add.Reg(asm.R4, asm.R3))
	t.Load(asm.R4, asm.R4, customTable, 8)
	t.Emit(asm.LSh.Imm(v, 8), asm.Xor.Reg(v, asm.R4))
	t.Mask(v, ir.Ones(width), 3)
	t.Emit(asm.Add.Imm(i, 1))
	t.Jump(next)
	t.Bind(done)
	t.Load(asm.R1, params, customTurn, 8)
	t.Emit(asm.JEq.Imm(asm.R1, 0, straight))
	// Each step exchanges halves of what is left.
	for n, half := range []int32{0x55555555, 0x33333333, 0x0f0f0f0f, 0x00ff00ff, 0x0000ffff} {
		shift := int32(1) << n
		if int(shift) == width {
			break
		}
		t.Emit(asm.Mov.Reg(asm.R1, v), asm.RSh.Imm(asm.R1, shift), asm.And.Imm(asm.R1, half),
			asm.And.Imm(v, half), asm.LSh.Imm(v, shift), asm.Or.Reg(v, asm.R1))
	}
	t.Bind(straight)
	t.Load(asm.R1, params, customFinal, 8)
	t.Emit(asm.Xor.Reg(v, asm.R1))
	t.Mask(v, ir.Ones(width), 3)
	t.Emit(asm.Mov.Reg(asm.R0, v), asm.Return())
}
