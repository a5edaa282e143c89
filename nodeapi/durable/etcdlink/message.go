package etcdlink

import (
	"encoding/binary"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// decode reads the one message of an answer.
func decode(b []byte, out message) error {
	if len(b) < prefixBytes || b[0] != 0 || int64(binary.BigEndian.Uint32(b[1:])) != int64(len(b)-prefixBytes) {
		return status.Error(codes.Internal, "the answer is not one message without compression")
	}
	if err := out.Unmarshal(b[prefixBytes:]); err != nil {
		return status.Error(codes.Internal, "the answer's message is not valid: "+err.Error())
	}
	return nil
}

// statusOf returns the error in the trailers of an answer, or nil.
func statusOf(fields []hpack.HeaderField) error {
	code, text := codes.Unknown, ""
	for _, f := range fields {
		switch f.Name {
		case "grpc-status":
			if n, err := strconv.ParseUint(f.Value, 10, 32); err == nil {
				code = codes.Code(n)
			}
		case "grpc-message":
			if text = f.Value; strings.Contains(text, "%") {
				if plain, err := url.PathUnescape(text); err == nil {
					text = plain
				}
			}
		}
	}
	return status.Error(code, text) // nil for codes.OK
}
