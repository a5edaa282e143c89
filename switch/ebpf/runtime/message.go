package runtime

import (
	"encoding/binary"
	"math/big"
	"strings"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// DecodeMessage decodes a record of the ring for log messages. ok is false if the record belongs to
// another pipeline.
func (p *Pipeline) DecodeMessage(b []byte) (text string, ok bool) {
	if len(b) < memory.MessageHeader || binary.NativeEndian.Uint64(b) != p.Number {
		return "", false
	}
	number := binary.NativeEndian.Uint64(b[8:])
	if number >= uint64(len(p.Messages)) {
		return "", false
	}
	b = b[memory.MessageHeader:]
	args := p.Messages[number].Args
	parts := bmv2json.SplitFormat(args[0].Str)
	var s strings.Builder
	s.WriteString(parts[0])
	for i, e := range args[1].Args {
		v := new(big.Int)
		if e.Op == bmv2json.OpConst {
			v.Set(e.Const)
		}
		for range memory.MessageWords(e) {
			if len(b) < 8 {
				return "", false
			}
			v.Or(v.Lsh(v, 64), new(big.Int).SetUint64(binary.NativeEndian.Uint64(b)))
			b = b[8:]
		}
		if width := memory.MessageWidth(e); e.Signed && v.Bit(width-1) == 1 &&
			e.Op != bmv2json.OpConst {
			v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(width)))
		}
		s.WriteString(v.String())
		if i+1 < len(parts) {
			s.WriteString(parts[i+1])
		}
	}
	return s.String(), true
}

// LostMessages returns how many messages were lost because the ring was full. It returns 0 if the
// pipeline is closed.
func (p *Pipeline) LostMessages() uint64 {
	leave, err := p.enter()
	if err != nil {
		return 0
	}
	defer leave()
	if len(p.Messages) == 0 {
		return 0
	}
	return p.State.Load(p.MessagesLost)
}
