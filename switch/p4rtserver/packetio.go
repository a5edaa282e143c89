package p4rtserver

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
)

// packetOut injects a packet of a controller (section 16.1).
func (s *Server) packetOut(p *p4v1.PacketOut) error {
	c := s.current.Load()
	if c == nil {
		return translate.Errorf(codes.FailedPrecondition, "no forwarding pipeline configuration is set")
	}
	header, err := c.PacketOut.Pack(p.GetMetadata())
	if err != nil {
		return err
	}
	return s.dev.PacketOut(append(header, p.GetPayload()...))
}

// packetIn handles a frame that the program sent to the CPU port.
func (s *Server) packetIn(frame []byte) {
	c := s.current.Load()
	if c == nil {
		return
	}
	meta, payload, ok := c.PacketIn.Unpack(frame)
	if !ok {
		s.dropped.Add(1)
		s.log.Debug("a frame on the CPU port is shorter than the packet-in header", "bytes",
			len(frame), "header", c.PacketIn.Bytes)
		return
	}
	s.toPrimaries(&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Packet{
		Packet: &p4v1.PacketIn{Payload: payload, Metadata: meta}}})
}
