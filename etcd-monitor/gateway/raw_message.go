package gateway

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers "proto", to which codec falls back
	"google.golang.org/grpc/mem"
)

// frame is a message as bytes, unparsed.
type frame struct{ bytes []byte }

// pieces is a message as several byte slices. Other streams may send the same slices at the same
// time.
type pieces [][]byte

func (p pieces) len() (n int) {
	for _, b := range p {
		n += len(b)
	}
	return n
}

// body returns the address of the last piece. For a message that goes to many streams, this piece
// has most of the bytes.
func (p pieces) body() *byte {
	if len(p) == 0 || len(p[len(p)-1]) == 0 {
		return nil
	}
	return &p[len(p)-1][0]
}

// codec leaves frames unchanged. It handles all other messages like gRPC's own codec for protocol
// buffers. It has the same name as gRPC's codec, because the name is sent over the wire.
type codec struct{ proto encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Name implements [encoding.CodecV2].
func (codec) Name() string { return "proto" }

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *frame:
		return mem.BufferSlice{mem.SliceBuffer(m.bytes)}, nil
	case pieces:
		out := make(mem.BufferSlice, 0, len(m))
		for _, b := range m {
			if len(b) > 0 {
				out = append(out, mem.SliceBuffer(b))
			}
		}
		return out, nil
	}
	b, err := c.proto.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("gateway: encoding %T: %w", v, err)
	}
	return b, nil
}

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.bytes = data.Materialize() // Materialize copies, because gRPC reuses its buffers
		return nil
	}
	if err := c.proto.Unmarshal(data, v); err != nil {
		return fmt.Errorf("gateway: decoding %T: %w", v, err)
	}
	return nil
}
