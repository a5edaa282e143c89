package server

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/netcraq/netcraq/api/node"
)

// compact is the framing by length: 4 bytes, then as many of CBOR (RFC 8949). A request is the
// array [id, func, data, timeoutMs, once, done], whose last elements may be left out, and a
// response [id, data, error, more]. data is a map with the names that JSON has; bytes are byte
// strings.
type compact struct{}

const lengthBytes = 4

type compactResponse struct {
	_     struct{} `cbor:",toarray"`
	ID    uint64
	Data  any
	Error *node.Error
	More  bool
}

var (
	cborRead = must(cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: 8, MaxArrayElements: node.MaxMessage,
		MaxMapPairs: node.MaxMessage, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
	}.DecMode())
	cborWrite = must(cbor.EncOptions{}.EncMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (compact) next(b []byte) ([]byte, int, *node.Error) {
	if len(b) < lengthBytes {
		return nil, 0, nil
	}
	n := binary.BigEndian.Uint32(b)
	if n > node.MaxMessage-lengthBytes {
		return nil, 0, errTooLong()
	}
	size := lengthBytes + int(n)
	if len(b) < size {
		return nil, 0, nil
	}
	return b[lengthBytes:size], size, nil
}

// The elements of a request, of which those from the fourth on may be missing.
const fewestElements, mostElements = 2, 6

func (compact) request(message []byte) (request, error) {
	var parts []cbor.RawMessage
	if err := cborRead.Unmarshal(message, &parts); err != nil {
		return request{}, fmt.Errorf("this is no request: %w", err)
	}
	var r request
	if len(parts) > 0 {
		_ = cborRead.Unmarshal(parts[0], &r.ID)
	}
	if len(parts) < fewestElements || len(parts) > mostElements {
		return r, fmt.Errorf("this is no request: it has %d elements", len(parts))
	}
	var err error
	for i, into := range []any{&r.ID, &r.Func, nil, &r.TimeoutMillis, &r.Once, &r.Done}[:len(parts)] {
		if into != nil {
			err = errors.Join(err, cborRead.Unmarshal(parts[i], into))
		} else if string(parts[i]) != "\xf6" { // null
			r.Data = jsontext.Value(parts[i])
		}
	}
	return r, err
}

func (compact) data(raw []byte, into any) error { return cborRead.Unmarshal(raw, into) }

func (compact) append(b []byte, r *response) ([]byte, error) {
	text, err := cborWrite.Marshal(compactResponse{ID: r.id, Data: r.data, Error: r.err, More: r.more})
	if err != nil {
		return b, err
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...), nil
}
