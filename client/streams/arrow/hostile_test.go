package streamsarrow

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sys/unix"
)

// records returns valid records. They have all types, slices, and a column without values.
func records(t testing.TB) (out [][]byte) {
	t.Helper()
	of := sliced(t)
	schema := of[0].Schema()
	for i, column := range of[0].Columns() {
		of = append(of, oneColumn(schema.Field(i), column))
	}
	for _, b := range of {
		out = append(out, recordOf(t, b))
	}
	return out
}

func recordOf(t testing.TB, b arrow.RecordBatch) []byte {
	t.Helper()
	schema, err := writeSchema(b.Schema())
	if err != nil {
		t.Fatal(err)
	}
	e, err := encode(b, schema, nowhere)
	if err != nil {
		t.Fatal(err)
	}
	return e.record()
}

// guarded is memory followed by an unreadable page, so that reading beyond its end causes a fault.
type guarded struct{ all []byte }

func newGuarded(t testing.TB, size int) *guarded {
	t.Helper()
	page := unix.Getpagesize()
	size = (size + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err == nil {
		err = unix.Mprotect(all[size:], unix.PROT_NONE)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(all) })
	return &guarded{all[:size]}
}

// put copies data to the end of the memory. The length of data must be aligned like that of a
// record.
func (g *guarded) put(data []byte) []byte {
	at := len(g.all) - len(data)
	copy(g.all[at:], data)
	return g.all[at:len(g.all):len(g.all)]
}

// values counts the values of an array and its children.
func values(a arrow.ArrayData, t arrow.DataType) (n int) {
	n = a.Len()
	for _, child := range childrenOf(a, t) {
		n += values(child, child.DataType())
	}
	return n
}

// look reads all values of a batch, unless it has too many.
func look(b arrow.RecordBatch) {
	for _, c := range b.Columns() {
		if values(c.Data(), c.DataType()) > 10_000 {
			continue
		}
		for i := range c.Len() {
			_ = c.ValueStr(i)
		}
		_, _ = c.MarshalJSON()
	}
}

// tried decodes bytes that may be a record, and reads the batch. wrong is not nil if the code read
// beyond the record. Unless trusted is set, wrong also reports a panic.
func tried(data []byte, known *schemas, trusted bool) (err error, wrong any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			if _, fault := p.(interface{ Addr() uintptr }); fault || !trusted {
				wrong = p
			}
		}
	}()
	b, err := decode(data, nil, noFile, known, trusted)
	if err != nil {
		if trusted || errors.Is(err, ErrGarbage) {
			return err, nil
		}
		return err, "it is refused for something else"
	}
	defer b.Release()
	look(b)
	return nil, nil
}

// TestHostileRecords checks that every record, valid or not, is either decoded or refused, and that
// only its own bytes are read.
func TestHostileRecords(t *testing.T) {
	good := records(t)
	all := good[0]
	memory := newGuarded(t, len(all))
	known := &schemas{}
	try := func(what string, at int, bad []byte) error {
		t.Helper()
		var err error
		for _, trusted := range []bool{false, true} {
			of, wrong := tried(memory.put(bad), known, trusted)
			if wrong != nil {
				t.Fatalf("%s, byte %d, trusted: %v: %v", what, at, trusted, wrong)
			}
			if !trusted {
				err = of
			}
		}
		return err
	}
	for i, record := range good {
		if err := try("a good one", i, record); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	for n := 0; n < len(all); n += 41 {
		if err := try("cut off", n, all[:n]); err == nil {
			t.Errorf("what has %d bytes, of %d, is a batch", n, len(all))
		}
	}
	for i, record := range good[5:] {
		// Put extreme values into every field of every table.
		refused := 0
		tables := headerBytes + int(le.Uint32(record[12:]))*nodeBytes + int(le.Uint32(record[16:]))*bufferBytes
		for at := 8; at < tables; at += 4 {
			for _, value := range []uint32{0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF} {
				bad := append([]byte(nil), record...)
				le.PutUint32(bad[at:], value)
				if try("a table", at, bad) != nil {
					refused++
				}
			}
		}
		if refused < tables/4 {
			t.Errorf("of %d fields, with 5 values each, %d were refused", tables/4, refused)
		}
		// Put an extreme value into every offset and index in buffers.
		refused = 0
		begin := len(record) - int(le.Uint32(record[28:]))
		for at := begin; at+4 <= len(record); at += 4 {
			bad := append([]byte(nil), record...)
			le.PutUint32(bad[at:], 0x7FFFFFF0)
			if try("a value", at, bad) != nil {
				refused++
			}
		}
		if name := columnName(i, t); refused == 0 && needsLook[name] {
			t.Errorf("of %s nothing was refused", name)
		}
	}
}

// needsLook names the columns of `all` that have offsets or indices.
var needsLook = map[string]bool{"strings": true, "large": true, "binary": true, "large binary": true, "dictionary": true,
	"lists": true, "large lists": true, "maps": true, "structs": true}

func columnName(i int, t testing.TB) string { return all(t).ColumnName(i) }

// TestHostileSchemas checks that reading any schema ends, and stays within its memory limit.
func TestHostileSchemas(t *testing.T) {
	good, err := writeSchema(all(t).Schema())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readSchema(good); err != nil {
		t.Fatal(err)
	}
	refused := 0
	try := func(bad []byte) {
		if _, err := readSchema(bad); err != nil {
			if refused++; !errors.Is(err, ErrGarbage) {
				t.Fatal(err)
			}
		}
	}
	for n := 0; n < len(good); n += 7 {
		try(good[:n:n])
	}
	random := rand.New(rand.NewPCG(1, 2))
	for at := 0; at+4 <= len(good); at += 4 {
		was := le.Uint32(good[at:])
		// Some of these offsets point backwards, because the sum overflows 32 bits.
		for _, value := range []uint32{0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, -uint32(at),
			-uint32(random.IntN(at + 1)), -uint32(random.IntN(at+1)) &^ 3,
			uint32(random.IntN(len(good))), was + 1<<16} {
			bad := append([]byte(nil), good...)
			le.PutUint32(bad[at:], value)
			try(bad)
		}
	}
	if refused < len(good)/4 {
		t.Errorf("%d were refused", refused)
	}
}

// In TestHostileBody, the message of a schema announces a body, for example of 2^40 bytes. It must
// be refused before arrow-go allocates memory for the body. This must also hold if the table's list
// of fields ends within the entry for the body's length, because arrow-go's FlatBuffers still reads
// this entry.
func TestHostileBody(t *testing.T) {
	good, err := writeSchema(all(t).Schema())
	if err != nil {
		t.Fatal(err)
	}
	old := verifier{b: good[8:]}
	schema := old.follow(old.field(old.word(0), 2))
	const begin = 40
	// message returns a message whose table is in front of the old message's bytes.
	message := func(fields uint16, body uint64) []byte {
		b := make([]byte, 8+begin, 8+begin+len(old.b))
		le.PutUint32(b, 1<<32-1)
		le.PutUint32(b[4:], uint32(begin+len(old.b)))
		m := b[8:]
		le.PutUint32(m, 16) // the offset of the message's table
		for i, v := range []uint16{fields, 24, 4, 6, 8, 16} {
			le.PutUint16(m[4+2*i:], v)
		}
		le.PutUint32(m[16:], 12) // the offset of the list of the table's fields
		le.PutUint16(m[20:], 4)  // metadata version of the message
		m[22] = 1                // the kind of the header, which is a schema
		le.PutUint32(m[24:], uint32(begin+schema-24))
		le.PutUint64(m[32:], body)
		return append(b, old.b...)
	}
	for _, fields := range []uint16{11, 12} {
		if _, err := readSchema(message(fields, 0)); err != nil {
			t.Errorf("without a body: %v", err)
		}
		if _, err := readSchema(message(fields, 1<<20)); !errors.Is(err, ErrGarbage) ||
			!strings.Contains(err.Error(), "its schema is none") {
			t.Errorf("with a body, in a list of %d bytes: %v", fields, err)
		}
	}
}

// TestHostileDecimals checks that decimals with impossible scales are refused. arrow-go panics when
// it formats a value whose scale is not in its table.
func TestHostileDecimals(t *testing.T) {
	for _, c := range []struct {
		of   arrow.DataType
		good bool
	}{
		{&arrow.Decimal32Type{Precision: 9, Scale: -9}, true},
		{&arrow.Decimal128Type{Precision: 38, Scale: 38}, true},
		{&arrow.Decimal256Type{Precision: 1, Scale: -76}, true},
		{&arrow.Decimal32Type{Precision: 9, Scale: 1 << 30}, false},
		{&arrow.Decimal64Type{Precision: 19, Scale: 0}, false},
		{&arrow.Decimal128Type{Precision: 0, Scale: 2}, false},
		{&arrow.Decimal128Type{Precision: 10, Scale: 39}, false},
		{&arrow.Decimal256Type{Precision: 10, Scale: -77}, false},
	} {
		schema, err := writeSchema(arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.ListOf(c.of)}}, nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readSchema(schema); (err == nil) != c.good {
			t.Errorf("%s: %v", c.of, err)
		}
	}
}

// TestHostileSchemaThatIsSmall checks that a schema of a few KiB is refused if it would expand to
// 2^60 columns. So are types that are nested too deeply.
func TestHostileSchemaThatIsSmall(t *testing.T) {
	// Both children of each struct are the same struct of the next level.
	deep := arrow.DataType(arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int8}))
	for range 60 {
		deep = arrow.StructOf(arrow.Field{Name: "a", Type: deep}, arrow.Field{Name: "b", Type: arrow.PrimitiveTypes.Int8})
	}
	good, err := writeSchema(arrow.NewSchema([]arrow.Field{{Name: "a", Type: deep}}, nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readSchema(good); err != nil {
		t.Fatal(err)
	}
	hostile := append([]byte(nil), good...)
	v := verifier{b: hostile[8:]}
	changed := 0
	// find the vectors that have two tables
	for at := uint64(0); at+12 <= uint64(len(v.b)); at += 4 {
		first, second := at+4+v.word(at+4), at+8+v.word(at+8)
		size := uint64(len(v.b))
		if v.word(at) != 2 || first >= size || second >= size || first == second {
			continue
		}
		deeper := first
		le.PutUint32(v.b[at+8:], uint32(deeper-at-8))
		changed++
	}
	if changed < 30 {
		t.Fatalf("%d vectors were found", changed)
	}
	if _, err := readSchema(hostile); !errors.Is(err, ErrGarbage) {
		t.Errorf("2^%d columns: %v", changed, err)
	}
	deeper := arrow.DataType(arrow.PrimitiveTypes.Int8)
	for range maxDepth + 1 {
		deeper = arrow.ListOf(deeper)
	}
	if good, err = writeSchema(arrow.NewSchema([]arrow.Field{{Name: "a", Type: deeper}}, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := readSchema(good); !errors.Is(err, ErrGarbage) {
		t.Errorf("%d lists in lists: %v", maxDepth+1, err)
	}
}

// manyTimes returns a record whose columns all refer to the same buffer.
func manyTimes(t testing.TB, columns, values int) []byte {
	t.Helper()
	text := array.NewStringBuilder(memory.DefaultAllocator)
	defer text.Release()
	for n := range values {
		text.Append([]string{"a", "bc"}[n%2])
	}
	f := arrow.Field{Name: "a", Type: arrow.BinaryTypes.String}
	schema, err := writeSchema(arrow.NewSchema(slices.Repeat([]arrow.Field{f}, columns), nil))
	if err != nil {
		t.Fatal(err)
	}
	e, err := encode(oneColumn(f, text.NewArray()), schema, nowhere)
	if err != nil {
		t.Fatal(err)
	}
	e.nodes, e.buffers = bytes.Repeat(e.nodes, columns), slices.Repeat(e.buffers, columns)
	return e.record()
}

// TestRecordOfTheSameManyTimes checks that the time to check a record is proportional to its size,
// not to the number of references to the same buffer.
func TestRecordOfTheSameManyTimes(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		record := manyTimes(t, 60, 10_000)
		b, err := decode(record, nil, noFile, &schemas{}, trusted)
		if err != nil {
			t.Fatalf("60 columns of the same bytes: %v", err)
		}
		b.Release()
		record = manyTimes(t, 600, 10_000)
		if _, err := decode(record, nil, noFile, &schemas{}, trusted); !errors.Is(err, ErrGarbage) {
			t.Errorf("600 columns of the same bytes: %v", err)
		}
	}
	// The writer refuses a batch that readers would refuse.
	column := numbers("a", make([]int64, 1000)...)
	f, c := column.Schema().Field(0), column.Column(0)
	file := &Mapped{memory: make([]byte, 8000)}
	inFile := func([]byte) (*Mapped, int, bool) { return file, 0, true }
	for _, n := range []int{64, 65} {
		schema := arrow.NewSchema(slices.Repeat([]arrow.Field{f}, n), nil)
		_, err := encode(array.NewRecordBatch(schema, slices.Repeat([]arrow.Array{c}, n), 1000), nil, inFile)
		if (err != nil) != (n > maxTimes) {
			t.Errorf("%d columns in the same file: %v", n, err)
		}
	}
}

// TestSchemasAreForgotten checks that the memory for known schemas is bounded, whatever their
// sizes.
func TestSchemasAreForgotten(t *testing.T) {
	known := &schemas{}
	for i := range 20 {
		var fields []arrow.Field
		for n := range 2000 {
			fields = append(fields, arrow.Field{Name: fmt.Sprint(i, n), Type: arrow.PrimitiveTypes.Int8})
		}
		schema, err := writeSchema(arrow.NewSchema(fields, nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := known.read(schema); err != nil {
			t.Fatal(err)
		}
		total := 0
		for message := range known.of {
			total += len(message)
		}
		if total == 0 || total > maxSchemaBytes || total != known.bytes {
			t.Fatalf("%d bytes of %d schemas are remembered, and counted as %d", total, len(known.of), known.bytes)
		}
	}
}

// FuzzRecord checks that no input causes a panic, or a read beyond the input's bytes.
func FuzzRecord(f *testing.F) {
	for _, record := range records(f) {
		f.Add(record, false)
		f.Add(record, true)
	}
	const most = 1 << 16
	memory := newGuarded(f, most)
	f.Fuzz(func(t *testing.T, data []byte, trusted bool) {
		if len(data) > most {
			return
		}
		if _, wrong := tried(memory.put(data), &schemas{}, trusted); wrong != nil {
			t.Fatal(wrong)
		}
	})
}
