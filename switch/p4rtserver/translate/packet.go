package translate

import (
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/status"
)

// Pack builds the header of a packet-out. A nil packetHeader has no fields.
func (h *packetHeader) Pack(meta []*p4v1.PacketMetadata) ([]byte, error) {
	if h == nil {
		if len(meta) > 0 {
			return nil,
				Invalidf("the program has no packet_out header, yet the packet carries metadata %d",
					meta[0].MetadataId)
		}
		return nil, nil
	}
	values := make([][]byte, len(h.fields))
	for _, m := range meta {
		i, ok := h.byID[m.MetadataId]
		if !ok {
			return nil, Invalidf("the packet_out header has no field %d; it has %v", m.MetadataId, h)
		}
		if values[i] != nil {
			return nil, Invalidf("field %d (%s) of the packet_out header is given twice",
				m.MetadataId, h.fields[i].name)
		}
		v, err := Widen(m.Value, h.fields[i].width)
		if err != nil {
			return nil, Invalidf("field %d (%s) of the packet_out header: %s", m.MetadataId,
				h.fields[i].name, status.Convert(err).Message())
		}
		values[i] = v
	}
	out := make([]byte, h.Bytes)
	at := 0
	for i, f := range h.fields {
		if values[i] == nil && !f.padding {
			return nil, Invalidf("field %d (%s) of the packet_out header is missing", f.id, f.name)
		}
		if values[i] != nil {
			putBits(out, at, f.width, values[i])
		}
		at += f.width
	}
	return out, nil
}

// Unpack splits a frame into the fields of its packet-in header and the rest of the frame. The
// caller must not use the frame afterwards.
func (h *packetHeader) Unpack(frame []byte) ([]*p4v1.PacketMetadata, []byte, bool) {
	if h == nil {
		return nil, frame, true
	}
	if len(frame) < h.Bytes {
		return nil, nil, false
	}
	meta := make([]*p4v1.PacketMetadata, 0, len(h.fields))
	at := 0
	for _, f := range h.fields {
		if !f.padding {
			meta = append(meta, &p4v1.PacketMetadata{MetadataId: f.id,
				Value: Shorten(getBits(frame, at, f.width))})
		}
		at += f.width
	}
	return meta, frame[h.Bytes:], true
}

// getBits reads width bits of b, starting at bit at. The result is right-aligned.
func getBits(b []byte, at, width int) []byte {
	out := make([]byte, (width+7)/8)
	for i := range width {
		if b[(at+i)/8]>>(7-(at+i)%8)&1 == 1 {
			to := len(out)*8 - width + i
			out[to/8] |= 0x80 >> (to % 8)
		}
	}
	return out
}

// putBits writes the low width bits of v (big-endian) into b, starting at bit at.
func putBits(b []byte, at, width int, v []byte) {
	for i := range width {
		from := len(v)*8 - width + i
		if v[from/8]>>(7-from%8)&1 == 1 {
			b[(at+i)/8] |= 0x80 >> ((at + i) % 8)
		}
	}
}
