package streamsarrow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// many returns a batch with a column of each kind of type.
func many(t *testing.T, rows int) arrow.RecordBatch {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "l", Type: arrow.BinaryTypes.LargeString},
		{Name: "list", Type: arrow.ListOf(arrow.BinaryTypes.String)},
		{Name: "fixed", Type: arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Int16)},
		{Name: "map", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32)},
		{Name: "struct", Type: arrow.StructOf(arrow.Field{Name: "x", Type: arrow.BinaryTypes.String, Nullable: true},
			arrow.Field{Name: "y", Type: arrow.ListOf(arrow.FixedWidthTypes.Boolean)})},
	}, nil)
	var text strings.Builder
	text.WriteByte('[')
	for i := range rows {
		if i > 0 {
			text.WriteByte(',')
		}
		null := map[bool]string{true: "null", false: fmt.Sprintf(`"%d-text"`, i)}[i%5 == 0]
		fmt.Fprintf(&text, `{"n":%d,"b":%v,"s":%s,"l":"large-%d","list":["a%d",%s],"fixed":[%d,2,3],`+
			`"map":[{"key":"k%d","value":%d}],"struct":{"x":%s,"y":[true,%v]}}`,
			i, i%3 == 0, null, i, i, `"b"`, i%1000, i, i, null, i%2 == 0)
	}
	text.WriteByte(']')
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Release)
	return b
}

// TestSlices checks that a slice in a record takes only the space of its own values, wherever it
// begins. A reader must get the same values.
func TestSlices(t *testing.T) {
	const rows, each = 5000, 10
	whole := many(t, rows)
	schema, err := writeSchema(whole.Schema())
	if err != nil {
		t.Fatal(err)
	}
	record := func(b arrow.RecordBatch) []byte {
		e, err := encode(b, schema, nowhere)
		if err != nil {
			t.Fatal(err)
		}
		return e.record()
	}
	first := len(record(many(t, each)))
	for _, at := range []int64{0, 1, 7, 8, 9, 2493, rows - each} {
		slice := whole.NewSlice(at, at+each)
		data := record(slice)
		if len(data) > first+first/2 {
			t.Errorf("%d rows at %d take %d bytes; such a batch takes %d", each, at, len(data), first)
		}
		for _, trusted := range []bool{false, true} {
			got, err := decode(data, nil, nil, new(schemas), trusted)
			if err != nil {
				t.Fatalf("at %d: %v", at, err)
			}
			same(t, got, slice)
			same(t, got.NewSlice(3, 9), slice.NewSlice(3, 9))
			again := record(got.NewSlice(3, 9))
			if got, err := decode(again, nil, nil, new(schemas), trusted); err != nil {
				t.Fatalf("a slice of a slice at %d: %v", at, err)
			} else {
				same(t, got, slice.NewSlice(3, 9))
			}
		}
	}
}

// TestSlicesOfFiles checks that a slice of data in a file is not copied.
func TestSlicesOfFiles(t *testing.T) {
	w := newWorld(t)
	c, files := w.client(), w.files()
	w.stream(c, "in", nodeapi.StreamConfig{Objects: 16, Volatile: true})
	w.stream(c, "out", nodeapi.StreamConfig{Objects: 16, Volatile: true})
	whole := many(t, 2000)
	put(t, &Writer{Client: c, Stream: "in", Files: files, Inline: -1}, whole)
	got := next(t, w.read("in", files)).Batch
	copied := files.Copied()
	r := w.read("out", files)
	for _, at := range []int64{0, 5, 1024, 1990} {
		put(t, &Writer{Client: c, Stream: "out", Files: files, Inline: -1}, got.NewSlice(at, at+10))
		same(t, next(t, r).Batch, whole.NewSlice(at, at+10))
	}
	if n := files.Copied() - copied; n > 0 {
		t.Errorf("%d bytes were copied", n)
	}
}

// TestInvalidValues checks that the writer refuses values that readers would refuse, and that its
// error names the column.
func TestInvalidValues(t *testing.T) {
	build := func(b array.Builder) arrow.Array { defer b.Release(); return b.NewArray() }
	mem := memory.DefaultAllocator
	date := array.NewDate64Builder(mem)
	date.Append(1)
	time32 := array.NewTime32Builder(mem, &arrow.Time32Type{Unit: arrow.Second})
	time32.Append(86_400)
	time64 := array.NewTime64Builder(mem, &arrow.Time64Type{Unit: arrow.Nanosecond})
	time64.AppendNull()
	time64.Append(-1)
	decimal := array.NewDecimal128Builder(mem, &arrow.Decimal128Type{Precision: 2, Scale: 1})
	decimal.Append(decimal128.FromI64(100))
	text := array.NewStringBuilder(mem)
	text.Append("\xff")
	list := array.NewListBuilder(mem, arrow.FixedWidthTypes.Date64)
	list.Append(true)
	list.ValueBuilder().(*array.Date64Builder).Append(86_400_001)
	for name, b := range map[string]array.Builder{"a date": date, "a time": time32, "a time of nanoseconds": time64,
		"a decimal number": decimal, "text": text, "a list of dates": list} {
		column := build(b)
		schema := arrow.NewSchema([]arrow.Field{{Name: name, Type: column.DataType(), Nullable: true}}, nil)
		batch := array.NewRecordBatch(schema, []arrow.Array{column}, int64(column.Len()))
		if _, err := encode(batch, nil, nowhere); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
