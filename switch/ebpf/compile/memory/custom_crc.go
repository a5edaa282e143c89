package memory

import (
	"encoding/binary"
	"math/bits"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Custom CRCs. The control plane may change the parameters of each calculation with crc16_custom or
// crc32_custom while packets pass. The state has two copies of the parameters. A change writes the
// copy that no packet reads, and then makes that copy the current one. The CRC is computed from the
// top bit on. Reflected input and output are bit-reversed.

// Layout of a copy of the parameters.
const (
	CustomStart = 0
	CustomFinal = 8              // the number with which the result is XORed
	CustomTurn  = 16             // 1 if the result is bit-reversed before the XOR
	CustomIn    = 24             // the replacement of each input byte
	CustomTable = CustomIn + 256 // 8 bytes for each value of a byte
	CustomCopy  = CustomTable + 256*8
	// customBytes is the size of a calculation's parameters in bytes. It includes the number of the
	// current copy, and both copies.
	customBytes = 8 + 2*CustomCopy
)

// CRC has the parameters of a custom CRC, with the names that the catalogue of CRCs uses.
type CRC struct {
	Polynomial, Init, XorOut uint32
	ReflectIn, ReflectOut    bool
}

// customWidth returns the width of a CRC whose parameters can be changed, or 0 for other
// algorithms.
func customWidth(algo string) int {
	return map[string]int{"crc16_custom": 16, "crc32_custom": 32}[algo]
}

// CustomCRC returns the offset of a calculation's parameters in the state, and the CRC's width. The
// offset is -1 if the program does not use the calculation, or if its parameters cannot be changed.
func (p *Plan) CustomCRC(k *bmv2json.Calculation) (at, width int) {
	if at, ok := p.customCRCs[k]; ok {
		return at, customWidth(k.Algo)
	}
	return -1, customWidth(k.Algo)
}

// usualCRC returns the initial parameters of a custom CRC, which are the same as in BMv2.
func usualCRC(algo string) CRC {
	c := CRCs[HashAlgorithms[algo]]
	return CRC{Polynomial: uint32(c.poly), Init: uint32(c.Start), XorOut: uint32(c.Final),
		ReflectIn: c.Reflected, ReflectOut: c.Reflected}
}

// FillCRC writes parameters into copy number which (0 or 1) of the calculation whose parameters are
// at offset at.
func FillCRC(state []byte, at, which, width int, c CRC) {
	m := state[at+8+which*CustomCopy:][:CustomCopy]
	mask, order := uint32(ir.Ones(width)), binary.NativeEndian
	order.PutUint64(m[CustomStart:], uint64(c.Init&mask))
	order.PutUint64(m[CustomFinal:], uint64(c.XorOut&mask))
	turn := uint64(0)
	if c.ReflectOut {
		turn = 1
	}
	order.PutUint64(m[CustomTurn:], turn)
	for i := range 256 {
		m[CustomIn+i] = byte(i)
		if c.ReflectIn {
			m[CustomIn+i] = bits.Reverse8(byte(i))
		}
		v := uint32(i) << (width - 8)
		for range 8 {
			if v>>(width-1)&1 == 1 {
				v = v<<1 ^ c.Polynomial
			} else {
				v <<= 1
			}
		}
		order.PutUint64(m[CustomTable+8*i:], uint64(v&mask))
	}
}
