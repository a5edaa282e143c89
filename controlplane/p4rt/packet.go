package p4rt

import (
	"fmt"
	"slices"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// PacketIn is a packet that a switch sent to the controller.
type PacketIn struct {
	Payload  []byte            // the packet without the packet-in header
	Metadata map[string]uint64 // the fields of the program's controller header "packet_in", by name
}

// PacketOut makes a packet-out. metadata sets the fields of the program's controller header
// "packet_out" by name. Fields that are left out are sent as 0, because all must be sent
// (P4Runtime 1.5, section 16.1). Padding counts as a field.
func (i *Info) PacketOut(payload []byte, metadata map[string]uint64) (*v1.PacketOut, error) {
	h, err := i.packets.find("packet_out")
	if err != nil {
		return nil, err
	}
	out := &v1.PacketOut{Payload: payload}
	given := 0
	for _, m := range h.Metadata {
		x, ok := metadata[m.Name]
		if ok {
			given++
		}
		v, err := MakeValue(x, int(m.Bitwidth))
		if err != nil {
			return nil, fmt.Errorf("packet-out field %s: %w", m.Name, err)
		}
		out.Metadata = append(out.Metadata, &v1.PacketMetadata{MetadataId: m.Id, Value: v})
	}
	if given != len(metadata) {
		for _, name := range sorted(metadata) {
			if !slices.ContainsFunc(h.Metadata, func(m *configv1.ControllerPacketMetadata_Metadata) bool {
				return m.Name == name
			}) {
				return nil, fmt.Errorf("the program's packet_out header has no field %s", name)
			}
		}
	}
	return out, nil
}

// PacketIn decodes a packet-in. It omits fields that the P4Info does not name.
func (i *Info) PacketIn(p *v1.PacketIn) PacketIn {
	in := PacketIn{Payload: p.Payload, Metadata: map[string]uint64{}}
	h, err := i.packets.find("packet_in")
	if err != nil {
		return in
	}
	for _, m := range p.Metadata {
		if d := slices.IndexFunc(h.Metadata, func(d *configv1.ControllerPacketMetadata_Metadata) bool {
			return d.Id == m.MetadataId
		}); d >= 0 {
			in.Metadata[h.Metadata[d].Name] = Value(m.Value).Uint64()
		}
	}
	return in
}
