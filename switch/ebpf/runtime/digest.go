package runtime

import (
	"encoding/binary"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
	"github.com/netcraq/netcraq/switch/target"
)

// DecodeDigest decodes a record of the ring for digests. ok is false if the record belongs to
// another pipeline.
func (p *Pipeline) DecodeDigest(b []byte) (d target.Digest, ok bool) {
	if len(b) < memory.DigestHeader || binary.NativeEndian.Uint64(b) != p.Number {
		return d, false
	}
	l := p.Prog.LearnList(int(binary.NativeEndian.Uint64(b[8:])))
	if l == nil {
		return d, false
	}
	d.Name = l.Name
	b = b[memory.DigestHeader:]
	for _, width := range l.Widths {
		n := ir.WordsOf(width)
		if len(b) < 8*n {
			return d, false
		}
		var v []byte
		for ; n > 0; n-- {
			v = binary.BigEndian.AppendUint64(v, binary.NativeEndian.Uint64(b))
			b = b[8:]
		}
		d.Fields = append(d.Fields, v[len(v)-(width+7)/8:])
	}
	return d, true
}
