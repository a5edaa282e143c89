package etcdlink

import (
	"encoding/binary"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// decode decodes the answer of a call, which must be one message.
func decode(b []byte, out message) error {
	if len(b) < prefixBytes || b[0] != 0 || int64(binary.BigEndian.Uint32(b[1:])) != int64(len(b)-prefixBytes) {
		return status.Error(codes.Internal, "the answer is not one message without compression")
	}
	if err := out.Unmarshal(b[prefixBytes:]); err != nil {
		return status.Error(codes.Internal, "the answer's message is not valid: "+err.Error())
	}
	return nil
}
