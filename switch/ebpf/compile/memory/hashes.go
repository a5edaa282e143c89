package memory

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// HashAlgorithms maps p4c's names of hash algorithms to this engine's names. The "custom" CRCs have
// BMv2's initial parameters. The parameters of custom CRCs with 16 and 32 bits can be changed
// (custom_crc.go).
var HashAlgorithms = map[string]string{
	"crc32": "crc32", "crc32_custom": "crc32", "crc16": "crc16", "crc16_custom": "crc16",
	"crcCCITT": "ccitt", "crc8_custom": "crc8", "crc64_custom": "crc64",
	"csum16": "csum16", "cksum16": "csum16", "xor16": "xor16", "xor32": "xor32",
	"identity": "identity", "random": "random",
}

// crc is a cyclic redundancy check that is computed with a table. If it is reflected, each byte
// changes v to v >> 8 ^ table[(v ^ byte) & 0xff]. Otherwise the mirror image of this formula
// applies.
type crc struct {
	Width     int
	poly      uint64
	Reflected bool
	Start     uint64
	Final     uint64 // the number with which the result is XORed
}

// CRCs has the cyclic redundancy checks by the names that HashAlgorithms gives them.
var CRCs = map[string]crc{
	"crc32": {32, 0x04c11db7, true, 0xffffffff, 0xffffffff},
	"crc16": {16, 0x8005, true, 0, 0},
	"ccitt": {16, 0x1021, false, 0xffff, 0},
	"crc8":  {8, 0x07, false, 0, 0},
	"crc64": {64, 0x1b, true, 0, 0},
}

// table returns the check's table, with 8 bytes per entry.
func (c crc) table() []byte {
	var out []byte
	mask := ir.Ones(c.Width)
	poly := c.poly
	if c.Reflected {
		poly = bits.Reverse64(poly) >> (64 - c.Width)
	}
	for i := range uint64(256) {
		v := i
		if !c.Reflected {
			v <<= c.Width - 8
		}
		for range 8 {
			switch {
			case c.Reflected && v&1 == 1:
				v = v>>1 ^ poly
			case c.Reflected:
				v >>= 1
			case v>>(c.Width-1)&1 == 1:
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
	MaxHashInput = 512 // in bytes
	tableBytes   = 256 * 8
)

// planHashes finds the calculations that the program uses. It reserves space for the longest input
// and for the CRC tables.
func (p *Plan) planHashes(take func(bytes int) int) {
	p.CRCTables, p.customCRCs = map[string]int{}, map[*bmv2json.Calculation]int{}
	longest := 0
	all := p.selectors()
	for _, k := range p.Prog.Calculations {
		if p.hashed(k) || p.checkedByBytes(k) {
			all = append(all, k)
		}
	}
	for _, k := range all {
		inputs, _ := analysis.WithoutPayload(k)
		longest = max(longest, (analysis.InputBits(inputs)+7)/8+8)
		if slices.Contains(p.Prog.Calculations, k) && customWidth(k.Algo) > 0 {
			p.customCRCs[k] = p.allocate(customBytes)
		} else if name := HashAlgorithms[k.Algo]; CRCs[name].Width > 0 {
			if _, ok := p.CRCTables[name]; !ok {
				p.CRCTables[name] = p.allocate(tableBytes)
			}
		}
	}
	if longest > 0 {
		p.HashMax = longest
		p.HashIn = take(longest + 8)
	}
}

// hashed reports whether a primitive uses a calculation for something other than a checksum.
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

// checkedByBytes reports whether a checksum is computed from the assembled bytes of a calculation's
// inputs.
func (p *Plan) checkedByBytes(k *bmv2json.Calculation) bool {
	inputs, payload := analysis.WithoutPayload(k)
	return slices.ContainsFunc(p.Prog.Checksums,
		func(c *bmv2json.Checksum) bool { return c.Calc == k }) &&
		(HashAlgorithms[k.Algo] != "csum16" || !analysis.AlignedPlaces(inputs, payload, 16))
}

// FillTables writes the tables of all CRCs into the state.
func (p *Plan) FillTables(state []byte) {
	for name, at := range p.CRCTables {
		copy(state[at:], CRCs[name].table())
	}
	for k, at := range p.customCRCs {
		FillCRC(state, at, 0, customWidth(k.Algo), usualCRC(k.Algo))
	}
}
