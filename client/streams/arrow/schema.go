package streamsarrow

import (
	"bytes"
	"math"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// A schema is a message of Arrow's IPC format. The message consists of 0xFFFFFFFF, the length, and
// a FlatBuffers table. arrow-go reads it with Go's FlatBuffers library, which verifies nothing. In
// a hostile table, offsets could form cycles, or point many times to the same place, so that
// reading would never end. So this file verifies the table before arrow-go reads it.

const (
	maxDepth   = 64 // maximum depth of nested types
	maxSchemas = 64 // maximum number of remembered schemas
	// total size of the remembered messages; decoded schemas take a multiple of it
	maxSchemaBytes = 1 << 20
)

// schemas remembers decoded schemas by the bytes of their messages, because a stream's batches
// usually have the same schema.
type schemas struct {
	mu    sync.Mutex
	of    map[string]*arrow.Schema
	bytes int
}

func (s *schemas) read(message []byte) (*arrow.Schema, error) {
	s.mu.Lock()
	known := s.of[string(message)]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	message = bytes.Clone(message) // copied, because the ring may overwrite the message meanwhile
	found, err := readSchema(message)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil || len(s.of) >= maxSchemas || s.bytes+len(message) > maxSchemaBytes {
		s.of, s.bytes = map[string]*arrow.Schema{}, 0
	}
	s.of[string(message)] = found
	s.bytes += len(message)
	return found, nil
}

func readSchema(message []byte) (schema *arrow.Schema, err error) {
	if len(message) < 8 || le.Uint32(message) != math.MaxUint32 ||
		uint64(le.Uint32(message[4:])) > uint64(len(message)-8) {
		return nil, garbage("it has no schema")
	}
	message = message[:8+le.Uint32(message[4:])]
	v := verifier{b: message[8:]}
	if v.message(); v.bad {
		return nil, garbage("its schema is none")
	}
	// ipc.NewReader turns panics into errors.
	r, err := ipc.NewReader(bytes.NewReader(message), ipc.WithEnsureNativeEndian(false))
	if err != nil {
		return nil, garbage("its schema: %v", err)
	}
	defer r.Release()
	if !r.Schema().IsNativeEndian() {
		return nil, garbage("it is big-endian")
	}
	for _, f := range r.Schema().Fields() {
		if err := check(f.Type); err != nil {
			return nil, garbage("%v", err)
		}
	}
	return r.Schema(), nil
}

// check returns an error if a type's arrays cannot be sent.
func check(t arrow.DataType) error {
	s, err := shapeOf(t)
	for _, child := range s.children {
		if err == nil {
			err = check(child)
		}
	}
	return err
}

// writeSchema returns the message of a schema.
func writeSchema(s *arrow.Schema) ([]byte, error) {
	var out bytes.Buffer
	if err := ipc.NewWriter(&out, ipc.WithSchema(s)).Close(); err != nil {
		return nil, err
	}
	// this leaves out the end-of-stream marker
	return out.Bytes()[:8+le.Uint32(out.Bytes()[4:])], nil
}

// verifier checks the parts of a FlatBuffers table that arrow-go reads.
type verifier struct {
	b       []byte
	bad     bool
	fields  int
	strings int // total size of all strings
}

// These are the types in FlatBuffers' union Type of Arrow's Schema.fbs.
const (
	fbTimestamp = 10
	fbUnion     = 14
	// LargeList, the last supported type; run-end encoded arrays and views have higher numbers
	fbLast = 21
)

func (v *verifier) half(at uint64) uint64 {
	if at+2 > uint64(len(v.b)) {
		v.bad = true
		return 0
	}
	return uint64(le.Uint16(v.b[at:]))
}

func (v *verifier) word(at uint64) uint64 {
	if at+4 > uint64(len(v.b)) {
		v.bad = true
		return 0
	}
	return uint64(le.Uint32(v.b[at:]))
}

// field returns the position of a table's n-th field. It returns 0 if the table does not have the
// field.
func (v *verifier) field(table uint64, n int) uint64 {
	vtable := int64(table) - int64(int32(v.word(table)))
	if v.bad || vtable < 0 {
		v.bad = true
		return 0
	}
	slot := uint64(4 + 2*n)
	// arrow-go's FlatBuffers library has the same condition. It does not check slot+2.
	if size := v.half(uint64(vtable)); v.bad || slot >= size {
		return 0
	}
	if at := v.half(uint64(vtable) + slot); at != 0 {
		return table + at
	}
	return 0
}

// follow returns the position to which the offset at `at` points.
func (v *verifier) follow(at uint64) uint64 {
	if at == 0 {
		return 0
	}
	to := at + v.word(at)
	v.word(to) // check the first word, because tables, vectors and strings begin with one
	return to
}

func (v *verifier) byte(at uint64) byte {
	if at == 0 || at >= uint64(len(v.b)) {
		v.bad = v.bad || at != 0
		return 0
	}
	return v.b[at]
}

func (v *verifier) string(at uint64) {
	if at = v.follow(at); at == 0 || v.bad {
		return
	}
	n := v.word(at)
	v.strings += int(n)
	v.bad = v.bad || at+4+n > uint64(len(v.b)) || v.strings > 16*len(v.b)
}

// tables calls f for each table of a vector.
func (v *verifier) tables(at uint64, f func(table uint64)) {
	if at = v.follow(at); at == 0 || v.bad {
		return
	}
	n := v.word(at)
	if at+4+4*n > uint64(len(v.b)) {
		v.bad = true
	}
	for i := uint64(0); i < n && !v.bad; i++ {
		// each field takes more than a byte, so there cannot be more fields than bytes
		if v.fields++; v.fields > len(v.b) {
			v.bad = true
			return
		}
		f(v.follow(at + 4 + 4*i))
	}
}

func (v *verifier) metadata(at uint64) {
	v.tables(at, func(pair uint64) {
		v.string(v.field(pair, 0))
		v.string(v.field(pair, 1))
	})
}

func (v *verifier) message() {
	m := v.word(0)
	v.word(m)
	if v.bad || v.byte(v.field(m, 1)) != 1 { // the message's header must be a schema
		v.bad = true
		return
	}
	// the message must have no body
	if at := v.field(m, 3); at != 0 && (v.word(at) != 0 || v.word(at+4) != 0) {
		v.bad = true
		return
	}
	schema := v.follow(v.field(m, 2))
	if schema == 0 || v.bad {
		v.bad = true
		return
	}
	if at := v.field(schema, 0); at != 0 {
		v.half(at)
	}
	v.tables(v.field(schema, 1), func(f uint64) { v.column(f, 1) })
	v.metadata(v.field(schema, 2))
}

// column verifies a Field of the schema.
func (v *verifier) column(f uint64, depth int) {
	kind := v.byte(v.field(f, 2))
	if depth > maxDepth || kind == 0 || kind == fbUnion || kind > fbLast {
		v.bad = true
		return
	}
	v.string(v.field(f, 0))
	v.byte(v.field(f, 1))
	if of := v.follow(v.field(f, 3)); of == 0 {
		v.bad = true
	} else if kind == fbTimestamp {
		v.string(v.field(of, 1))
	}
	if d := v.follow(v.field(f, 4)); d != 0 {
		v.follow(v.field(d, 1))
	}
	v.metadata(v.field(f, 6))
	v.tables(v.field(f, 5), func(child uint64) { v.column(child, depth+1) })
}
