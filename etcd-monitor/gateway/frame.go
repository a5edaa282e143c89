package gateway

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers "proto", which codec falls back to
	"google.golang.org/grpc/mem"
)

// frame is a message as its bytes.
type frame struct{ bytes []byte }

// codec leaves frames as they are, and treats all other messages as gRPC's own codec for protocol buffers does. It bears that one's name, because the name goes over the wire.
type codec struct{ proto encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Name implements [encoding.CodecV2].
func (codec) Name() string { return "proto" }

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.bytes)}, nil
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
		f.bytes = data.Materialize() // gRPC uses its buffers again
		return nil
	}
	if err := c.proto.Unmarshal(data, v); err != nil {
		return fmt.Errorf("gateway: decoding %T: %w", v, err)
	}
	return nil
}
