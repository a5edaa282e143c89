package paperchain

import (
	"net/netip"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/kernelload"
)

// Load implements the in-kernel load for the paper's packets. The same load measures NetCRAQ and
// NetChain.
type Load struct {
	Node netip.Addr // the member to which READs are sent
	Head netip.Addr // the member to which WRITEs are sent
}

var _ kernelload.Protocol = Load{}

// Shape implements [kernelload.Protocol]. Packets have no status and no request number.
func (Load) Shape() kernelload.Shape {
	const none, opShift = -1, 6
	return kernelload.Shape{Port: Port, Size: Size, Op: 0, OpMask: 3 << opShift,
		Replies: [2]byte{byte(ReadReply) << opShift, byte(Acknowledge) << opShift},
		Status:  none, Key: 2, Value: 6, ValueBytes: ValueBytes, Query: [2]int{none, none},
		Answer: [2]int{none, none}, Session: none, Length: none}
}

// Query implements [kernelload.Protocol].
func (l Load) Query(op wire.Op, key wire.Key, request uint32, _ uint16) (netip.AddrPort, []byte, error) {
	p, to := Packet{Op: Read, Key: uint32(key)}, l.Node
	if op == wire.Write {
		p.Op, to = Write, l.Head
		copy(p.Value[:], kernelload.Value(wire.Profile128, key, request))
	}
	return netip.AddrPortFrom(to, Port), p.Marshal(), nil
}
