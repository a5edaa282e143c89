package rpc

import (
	"encoding/binary"
	"fmt"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Compact is the framing with lengths. A message is a length of 4 bytes, followed by that many
// bytes of CBOR (RFC 8949). A request is the array [id, func, data, timeoutMs, once, done], with 0
// or null for members that JSON would leave out. A response is the array [id, data, error, more].
// The member data is a map with the same names as in JSON, in which bytes are byte strings.
type Compact struct{}

// LengthBytes is the number of bytes of the length in front of a message.
const LengthBytes = 4

type compactRequest struct {
	_             struct{} `cbor:",toarray"`
	ID            uint64
	Func          string
	Data          cbor.RawMessage
	TimeoutMillis int
	Once, Done    uint64
}

type compactResponse struct {
	_     struct{} `cbor:",toarray"`
	ID    uint64
	Data  any
	Error *nodeapi.Error
	More  bool
}

var (
	CborRead = must(cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: 8, MaxArrayElements: nodeapi.MaxMessage,
		MaxMapPairs: nodeapi.MaxMessage, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
	}.DecMode())
	CborWrite = must(cbor.EncOptions{}.EncMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (Compact) Next(b []byte) ([]byte, int, *nodeapi.Error) {
	if len(b) < LengthBytes {
		return nil, 0, nil
	}
	n := binary.BigEndian.Uint32(b)
	if n > nodeapi.MaxMessage-LengthBytes {
		return nil, 0, errTooLong()
	}
	size := LengthBytes + int(n)
	if len(b) < size {
		return nil, 0, nil
	}
	return b[LengthBytes:size], size, nil
}

func (Compact) Request(message []byte) (Request, error) {
	var r compactRequest
	if err := CborRead.Unmarshal(message, &r); err != nil {
		var parts []cbor.RawMessage
		if CborRead.Unmarshal(message, &parts) == nil && len(parts) > 0 {
			_ = CborRead.Unmarshal(parts[0], &r.ID)
		}
		return Request{ID: r.ID}, fmt.Errorf("this is not a request, an array of id, func, data, timeoutMs, once, done: %w", err)
	}
	if len(r.Data) == 1 && r.Data[0] == cborNull {
		r.Data = nil
	}
	return Request{ID: r.ID, Func: r.Func, Data: jsontext.Value(r.Data), TimeoutMillis: r.TimeoutMillis, Once: r.Once,
		Done: r.Done}, nil
}

const cborNull = 0xf6

func (Compact) Data(raw []byte, into any) error { return CborRead.Unmarshal(raw, into) }

func (Compact) Append(b []byte, r *Response) ([]byte, error) {
	text, err := CborWrite.Marshal(compactResponse{ID: r.ID, Data: r.Data, Error: r.Err, More: r.More})
	if err != nil {
		return b, err
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...), nil
}
