package netchain

import (
	"net/netip"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/kernelload"
)

// Load implements the in-kernel load generator with NetChain's packets. The same generator measures
// NetCRAQ. Load sends a READ to the tail, and a WRITE to the head.
//
// NetChain's packets have no number that matches an answer with its query, so [Packet.Tag] adds
// such a number.
type Load struct {
	Chain   []netip.Addr // addresses of the chain's switches, head first
	SeqBits int
}

var _ kernelload.Protocol = Load{}

// Shape implements [kernelload.Protocol].
func (l Load) Shape() kernelload.Shape {
	last := Size(l.SeqBits) - 4
	return kernelload.Shape{Port: Port, Size: Size(l.SeqBits), Op: 0, Status: 1, Key: 4,
		Replies: [2]byte{byte(ReadReply), byte(WriteReply)}, OpMask: 0xff,
		Value: fixedBytes + l.SeqBits/8, ValueBytes: ValueBytes,
		Query: [2]int{last, last}, Answer: [2]int{last, last - 4*(len(l.Chain)-1)}, Session: -1, Length: -1}
}

// Query implements [kernelload.Protocol].
func (l Load) Query(op wire.Op, key wire.Key, request uint32, _ uint16) (netip.AddrPort, []byte, error) {
	p := Packet{Op: Op(op), Key: uint32(key), Tag: request}
	if op == wire.Write {
		copy(p.Value[:], kernelload.Value(wire.Profile128, key, request))
	}
	to := p.Request(l.Chain)
	b, err := p.Marshal(l.SeqBits)
	if err != nil {
		return netip.AddrPort{}, nil, err
	}
	return netip.AddrPortFrom(to, Port), b, nil
}
