package streamsarrow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

var volatileStream = nodeapi.StreamConfig{Objects: 4, Volatile: true}

// sharedBytes returns how many bytes of the mapped files of a kind are in memory. own counts pages
// that are this process's private copies, and ofFile counts pages of the files.
func sharedBytes(t *testing.T, kind string) (own, ofFile int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	ours := false
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if !strings.HasSuffix(f[0], ":") {
			ours = strings.Contains(line, kind)
			continue
		}
		if n, _ := strconv.Atoi(f[1]); ours && f[0] == "Anonymous:" {
			own += n << 10
		} else if ours && f[0] == "Rss:" {
			ofFile += n << 10
		}
	}
	return own, ofFile
}

// In TestChain, a batch is built in files and passes through steps. They project it, slice it, and
// add a column. No step may copy existing data, and all steps must use the same memory.
func TestChain(t *testing.T) {
	const steps, rows = 4, 20_000
	w := newWorld(t)
	c := w.client()
	for i := range steps + 1 {
		w.stream(c, fmt.Sprintf("step-%d", i), volatileStream)
	}
	files := w.files()
	a := files.Allocator(0)
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64},
		{Name: "w", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32,
			ValueType: arrow.BinaryTypes.String}},
		{Name: "s", Type: arrow.BinaryTypes.String},
	}, nil)
	b := array.NewRecordBuilder(a, schema)
	b.Reserve(rows)
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		if err := b.Field(1).(*array.BinaryDictionaryBuilder).AppendString("w" + strconv.Itoa(i%7)); err != nil {
			t.Fatal(err)
		}
		b.Field(2).(*array.StringBuilder).Append(strconv.Itoa(i))
	}
	first := b.NewRecordBatch()
	b.Release()
	put(t, &Writer{Client: c, Stream: "step-0", Files: files}, first)
	if files.Copied() != 0 || files.Shared() < 8*rows || a.Elsewhere() != 0 {
		t.Errorf("of what was born in files %d bytes were copied, %d were shared, %d were not in files",
			files.Copied(), files.Shared(), a.Elsewhere())
	}
	if !inside(t, first, ofFile) {
		t.Error("what was born in files is not there any more")
	}
	want := array.NewRecordBatch(first.Schema(), first.Columns(), rows)
	first.Release()
	for i := range steps { // Each step has its own client.
		own := NewFiles(FilesConfig{Socket: w.socket})
		r := w.read(fmt.Sprintf("step-%d", i), own)
		got := next(t, r).Batch
		if same(t, got, want); !inside(t, got, ofFile) {
			t.Error("it is not in files")
		}
		columns, fields := got.Columns(), got.Schema().Fields()
		back := []arrow.Array{columns[2], columns[1], columns[0]}
		of := []arrow.Field{fields[2], fields[1], fields[0]}
		var added int64
		if i == 1 {
			values := array.NewInt8Builder(memory.DefaultAllocator)
			values.AppendValues(make([]int8, got.NumRows()), nil)
			back, of, added = append(back[:2:2], values.NewArray()), append(of[:2:2], arrow.Field{Name: "new",
				Type: arrow.PrimitiveTypes.Int8}), got.NumRows()-1000
		}
		whole := array.NewRecordBatch(arrow.NewSchema(of, nil), back, got.NumRows())
		sliced := whole.NewSlice(1000, got.NumRows())
		copied, _ := own.Copied(), whole.NumRows()
		put(t, &Writer{Client: c, Stream: fmt.Sprintf("step-%d", i+1), Files: own}, sliced)
		if got := own.Copied() - copied; got != added {
			t.Errorf("step %d has copied %d bytes, not %d", i, got, added)
		}
		if own.Shared() < 8*sliced.NumRows() {
			t.Errorf("step %d has shared %d bytes", i, own.Shared())
		}
		if pages, of := sharedBytes(t, ofFile); pages != 0 || of < 4*rows {
			t.Errorf("step %d has %d bytes of its own of files, and of theirs %d", i, pages, of)
		}
		want.Release()
		want = copyOf(t, sliced)
		sliced.Release()
		whole.Release()
		r.Close()
		own.Close()
	}
	r := w.read(fmt.Sprintf("step-%d", steps), files)
	item := next(t, r)
	same(t, item.Batch, want)
	kept := item.Batch.Column(0)
	kept.Retain()
	for i := range steps + 1 {
		if err := c.DeleteStream(soon(t), fmt.Sprintf("step-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	// The column must stay valid after its reader and its stream are gone.
	if !array.Equal(kept, want.Column(0)) {
		t.Error("what was kept has changed")
	}
	kept.Release()
	a.Close()
	noneMapped(t, ofFile)
}

// copyOf returns a copy of a batch in the program's own memory.
func copyOf(t *testing.T, b arrow.RecordBatch) arrow.RecordBatch {
	t.Helper()
	got, err := decode(recordOf(t, b), nil, noFile, &schemas{}, false)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func noFile(fileName) (*Mapped, error) { return nil, garbage("there is no file") }

// In TestPassedOnWithoutACopy, a program passes on a batch of 8 MiB. The program's own memory must
// not grow by that size, the counters of copies must not change, and the program must have no
// private page of the batch.
func TestPassedOnWithoutACopy(t *testing.T) {
	const size, times = 8 << 20, 20
	w := newWorld(t)
	c := w.client()
	w.stream(c, "from", volatileStream)
	w.stream(c, "to", volatileStream)
	files := w.files()
	d, err := files.Make(soon(t), size)
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.Memory {
		d.Memory[i] = byte(i >> 8)
	}
	m, err := d.Seal(soon(t), "")
	if err != nil {
		t.Fatal(err)
	}
	whole := m.Buffer()
	data := array.NewData(arrow.PrimitiveTypes.Uint8, size, []*memory.Buffer{nil, whole}, nil, 0, 0)
	column := array.NewUint8Data(data)
	m.Release()
	whole.Release()
	data.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "b", Type: arrow.PrimitiveTypes.Uint8}}, nil)
	batch := array.NewRecordBatch(schema, []arrow.Array{column}, size)
	from := &Writer{Client: c, Stream: "from", Files: files}
	own := w.files()
	to := &Writer{Client: c, Stream: "to", Files: own}
	r, last := w.read("from", own), w.read("to", own)
	heap := func() int64 {
		var total int64
		text, err := os.ReadFile("/proc/self/smaps")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); f[0] == "Anonymous:" {
				n, _ := strconv.ParseInt(f[1], 10, 64)
				total += n << 10
			}
		}
		return total
	}
	step := func() {
		put(t, from, batch)
		put(t, to, next(t, r).Batch)
		sum := 0
		for _, b := range next(t, last).Batch.Column(0).(*array.Uint8).Uint8Values() {
			sum += int(b)
		}
		if want := size / 256 * (255 * 256 / 2); sum != want {
			t.Fatalf("its sum is %d, not %d", sum, want)
		}
	}
	step()
	before := heap()
	for range times {
		step()
	}
	if grown := heap() - before; grown > size {
		t.Errorf("the program's own memory has grown by %d bytes", grown)
	}
	if files.Copied() != 0 || own.Copied() != 0 || own.Shared() != (times+1)*size {
		t.Errorf("%d and %d bytes were copied, and %d shared", files.Copied(), own.Copied(), own.Shared())
	}
	if pages, of := sharedBytes(t, ofFile); pages != 0 || of < size {
		t.Errorf("of files there are %d bytes of its own, and %d of the file's", pages, of)
	}
	column.Release()
	batch.Release()
	r.Close()
	last.Close()
	noneMapped(t, ofFile)
}

// TestAllocator checks that Allocator behaves as an Arrow allocator must.
func TestAllocator(t *testing.T) {
	w := newWorld(t)
	files := w.files()
	a := files.Allocator(1 << 12)
	zero := func(b []byte) {
		t.Helper()
		for _, x := range b {
			if x != 0 {
				t.Fatal("it is not zero")
			}
		}
	}
	fill := func(b []byte, with byte) {
		for i := range b {
			b[i] = with
		}
	}
	is := func(b []byte, with byte) {
		t.Helper()
		for _, x := range b {
			if x != with {
				t.Fatalf("it is %d, not %d", x, with)
			}
		}
	}
	first, second := a.Allocate(100), a.Allocate(100)
	if len(first) != 100 || address(first)%64 != 0 || address(second)%64 != 0 {
		t.Error("it is not aligned, or not as long as it should be")
	}
	fill(first, 1)
	fill(second, 2)
	// the second allocation follows the first one, which therefore cannot grow in place
	moved := a.Reallocate(200, first)
	is(moved[:100], 1)
	zero(moved[100:])
	is(second, 2)
	grown := a.Reallocate(1000, moved) // no allocation follows this one, so it grows in place
	if address(grown) != address(moved) {
		t.Error("it was moved")
	}
	zero(grown[100:])
	again := a.Allocate(100) // this takes the place of the first allocation
	if address(again) != address(first) {
		t.Error("what was freed is not used again")
	}
	zero(again)
	shrunk := a.Reallocate(10, grown)
	is(shrunk, 1)
	large := a.Allocate(1 << 20)
	zero(large)
	if len(mapped(t, ofFile)) != 2 || a.Elsewhere() != 0 {
		t.Error("what is larger than a file has none of its own")
	}
	// a namespace may not have so much memory
	if huge := a.Allocate(1 << 30); len(huge) != 1<<30 || a.Elsewhere() != 1<<30 {
		t.Error("what the node does not give is not the program's own")
	} else {
		a.Free(huge)
	}
	for _, b := range [][]byte{second, again, shrunk, large} {
		a.Free(b)
	}
	a.Close()
	noneMapped(t, ofFile)
}

// TestAllocatorOfTwoBatches checks that memory that a builder still writes to stays writable when
// another batch in the same file is sent.
func TestAllocatorOfTwoBatches(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	w.stream(c, "s", volatileStream)
	files := w.files()
	a := files.Allocator(0)
	one, two := array.NewInt64Builder(a), array.NewInt64Builder(a)
	for i := range int64(1000) {
		one.Append(i)
		two.Append(-i)
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	batch := func(b *array.Int64Builder) arrow.RecordBatch {
		column := b.NewArray()
		defer column.Release()
		return array.NewRecordBatch(schema, []arrow.Array{column}, 1000)
	}
	writer := &Writer{Client: c, Stream: "s", Files: files}
	first := batch(one)
	put(t, writer, first)
	if copied := files.Copied(); copied < 8000 {
		t.Errorf("%d bytes were copied: a file was sealed that is written to", copied)
	}
	two.AppendNull()
	two.Resize(1000)
	second := batch(two)
	put(t, writer, second)
	r := w.read("s", w.files())
	same(t, next(t, r).Batch, first)
	same(t, next(t, r).Batch, second)
	first.Release()
	second.Release()
	one.Release()
	two.Release()
	a.Close()
}

// TestFilesAreGivenBack checks that files are deleted when no record needs them and no program
// holds them. Released files are unmapped, and the server keeps no requests for them.
func TestFilesAreGivenBack(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	w.stream(c, "s", nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4, Volatile: true})
	files := w.files()
	writer := &Writer{Client: c, Stream: "s", Files: files, Inline: -1}
	var names []string
	for i := range int64(20) {
		b := numbers("n", i, i, i)
		schema, err := writeSchema(b.Schema())
		if err != nil {
			t.Fatal(err)
		}
		_, used, err := files.write(soon(t), b, schema, 0)
		if err != nil || len(used) != 1 {
			t.Fatal(used, err)
		}
		names = append(names, used[0].Name())
		letGo(used)
		if offset := put(t, writer, b); offset != uint64(i) {
			t.Fatalf("offset %d, not %d", offset, i)
		}
	}
	noneMapped(t, ofFile)
	for _, name := range names { // No record refers to these files.
		poll.Until(t, patience, "it to be given back", func() bool {
			m, err := files.Open(soon(t), name)
			if err == nil {
				m.Release()
			}
			return node.CodeOf(err) == nodeapi.CodeInvalidArgument
		})
	}
	r := w.read("s", w.files())
	var got []int64
	for len(got) == 0 || got[len(got)-1] < 19 {
		got = append(got, next(t, r).Batch.Column(0).(*array.Int64).Value(0))
	}
	for i, n := range got {
		// The ring has already overwritten the earliest records.
		if got[0] == 0 || n != got[0]+int64(i) {
			t.Fatalf("there are %d", got)
		}
	}
	// A file is mapped only once, however many callers open it.
	d, err := files.Make(soon(t), 100)
	if err != nil {
		t.Fatal(err)
	}
	one, err := d.Seal(soon(t), "")
	if err != nil {
		t.Fatal(err)
	}
	two, err := files.Open(soon(t), one.Name())
	if err != nil || two != one {
		t.Fatal(two, err)
	}
	one.Release()
	before := len(mapped(t, ofFile))
	two.Release()
	if got := len(mapped(t, ofFile)); got != before-1 {
		t.Errorf("%d files are mapped, of %d", got, before)
	}
}

// TestHostileReferences checks that references to a file that does not exist, is not sealed,
// belongs to another namespace, or is too short are refused.
func TestHostileReferences(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	w.stream(c, "s", volatileStream)
	files := w.files()
	var values [1000]int64
	batch := numbers("n", values[:]...)
	schema, err := writeSchema(batch.Schema())
	if err != nil {
		t.Fatal(err)
	}
	record, used, err := files.write(soon(t), batch, schema, 0)
	if err != nil || len(used) != 1 {
		t.Fatal(used, err)
	}
	defer letGo(used)
	read := func(record []byte) error {
		open := func(name fileName) (*Mapped, error) { return files.open(soon(t), name) }
		got, err := decode(record, nil, open, &schemas{}, false)
		if err == nil {
			got.Release()
		}
		return err
	}
	if err := read(record); err != nil {
		t.Fatal(err)
	}
	draft, err := files.Make(soon(t), 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer draft.Discard()
	if _, err := files.Open(soon(t), draft.Name()); node.CodeOf(err) != nodeapi.CodeInvalidArgument {
		t.Errorf("a file that is not sealed: %v", err)
	}
	for _, name := range []string{strings.Repeat("0", 32), "../" + used[0].Name(), draft.Name()} {
		d := nodeapi.AppendData{StreamData: nodeapi.StreamData{Stream: "s"},
			Records: []nodeapi.RecordData{{ValueBase64: record, Files: []string{used[0].Name(), name}}}}
		if _, err := c.Append(soon(t), d); node.CodeOf(err) != nodeapi.CodeInvalidArgument {
			t.Errorf("a record of file %q: %v", name, err)
		}
	}
	nodes, buffers := int(le.Uint32(record[12:])), int(le.Uint32(record[16:]))
	at := headerBytes + fileBytes + nodes*nodeBytes
	for i := range buffers {
		place := record[at+i*bufferBytes:]
		if le.Uint32(place) == absent {
			continue
		}
		for _, bad := range [][2]uint64{{64, 8000}, {1 << 62, 8000}, {0, 8064}, {0, 1 << 63}, {1<<64 - 8, 16}} {
			hostile := append([]byte(nil), record...)
			le.PutUint64(hostile[at+i*bufferBytes+8:], bad[0])
			le.PutUint64(hostile[at+i*bufferBytes+16:], bad[1])
			if err := read(hostile); !errors.Is(err, ErrGarbage) {
				t.Errorf("a buffer at %d of %d bytes: %v", bad[0], bad[1], err)
			}
		}
	}
	hostile := append([]byte(nil), record...)
	le.PutUint64(hostile[headerBytes+16:], 1<<40)
	if err := read(hostile); !errors.Is(err, ErrGarbage) {
		t.Errorf("a file of another length: %v", err)
	}
}

// TestCache checks that if several callers want the same batch, one of them decodes it, and all get
// the same memory. If that caller fails, the next one decodes it.
func TestCache(t *testing.T) {
	w := newWorld(t)
	want := all(t)
	var decodings atomic.Int64
	decode := func(context.Context) (arrow.RecordBatch, error) {
		decodings.Add(1)
		return all(t), nil
	}
	use := func(key string) {
		own := NewFiles(FilesConfig{Socket: w.socket})
		defer own.Close()
		got, err := own.Decoded(soon(t), key, false, decode)
		if err != nil {
			t.Error(err)
			return
		}
		defer got.Release()
		if same(t, got, want); !inside(t, got, ofFile) {
			t.Error("it is not in a file")
		}
		for _, c := range got.Columns() {
			for _, b := range c.Data().Buffers() {
				if len(bytesOf(b)) > 0 && address(b.Bytes())%64 != 0 {
					t.Errorf("a buffer of %s is not aligned", c.DataType())
				}
			}
		}
	}
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() { use("test:1") })
	}
	users.Wait()
	if n := decodings.Load(); n != 1 {
		t.Errorf("it was decoded %d times", n)
	}
	files := w.files()
	no := errors.New("no")
	_, err := files.Decoded(soon(t), "test:2", false, func(context.Context) (arrow.RecordBatch, error) { return nil, no })
	if !errors.Is(err, no) {
		t.Error(err)
	}
	if use("test:2"); decodings.Load() != 2 {
		t.Errorf("it was decoded %d times", decodings.Load())
	}
	noneMapped(t, ofFile)
}

// TestServerIsGone checks that mapped files stay valid when the server is gone. When a server is
// back, its files can be opened.
func TestServerIsGone(t *testing.T) {
	w := newWorld(t)
	files := w.files()
	make := func() *Mapped {
		d, err := files.Make(soon(t), 1000)
		if err != nil {
			t.Fatal(err)
		}
		d.Memory[999] = 7
		m, err := d.Seal(soon(t), "")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := make()
	w.stop()
	poll.Until(t, patience, "the end to be noticed", func() bool { return m.conn.ended() })
	if _, _, ok := files.find(m.memory); ok || m.Bytes()[999] != 7 {
		t.Error("what is not held any more can be referred to, or is gone")
	}
	if _, err := files.Open(soon(t), m.Name()); node.CodeOf(err) != nodeapi.CodeUnavailable {
		t.Errorf("where there is no server: %v", err)
	}
	_ = os.Remove(w.socket)
	w.start(w.socket[:len(w.socket)-2])
	again := make()
	if _, _, ok := files.find(again.memory); !ok {
		t.Error("what is held cannot be referred to")
	}
	m.Release()
	again.Release()
	noneMapped(t, ofFile)
}
