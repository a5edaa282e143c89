package streamsarrow

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// encoder writes one batch down.
type encoder struct {
	batch  arrow.RecordBatch
	schema []byte
	find   func(b []byte) (m *Mapped, at int, ok bool) // in which file bytes are

	nodes   []byte
	buffers []place
	files   []*Mapped
	number  map[*Mapped]uint32
	fresh   [][]byte // what is in no file
	space   int      // that it takes, each rounded
	copied  int      // its bytes
	shared  int      // bytes that are in files
}

// place is where a buffer is: in a file, or the n-th of those that are fresh.
type place struct {
	file      uint32
	fresh     bool
	at, bytes int
}

func encode(batch arrow.RecordBatch, schema []byte, find func([]byte) (*Mapped, int, bool)) (*encoder, error) {
	if batch.NumCols() == 0 {
		return nil, errors.New("a batch without columns")
	}
	e := &encoder{batch: batch, schema: schema, find: find, number: map[*Mapped]uint32{}}
	for i, column := range batch.Columns() {
		if err := e.array(column.DataType(), column.Data()); err != nil {
			return nil, fmt.Errorf("column %q: %w", batch.ColumnName(i), err)
		}
	}
	total, there := 0, e.space
	for _, p := range e.buffers {
		total += p.bytes
	}
	for _, f := range e.files {
		there += len(f.memory)
	}
	if total > maxTimes*there {
		return nil, fmt.Errorf("its columns have the same bytes more than %d times over: copy them", maxTimes)
	}
	return e, nil
}

func bytesOf(b *memory.Buffer) []byte {
	if b == nil {
		return nil
	}
	return b.Bytes()
}

func childrenOf(a arrow.ArrayData, t arrow.DataType) []arrow.ArrayData {
	if _, ok := storage(t).(*arrow.DictionaryType); ok {
		return []arrow.ArrayData{a.Dictionary()}
	}
	return a.Children()
}

func (e *encoder) array(t arrow.DataType, a arrow.ArrayData) error {
	s, err := shapeOf(t)
	if err != nil {
		return err
	}
	buffers, children := a.Buffers(), childrenOf(a, t)
	n := uint64(a.Offset() + a.Len())
	var last uint64
	count := s.form.buffers()
	if s.form != formNull && len(buffers) != count || len(children) != len(s.children) {
		return fmt.Errorf("an array of %s of %d buffers and %d children", t, len(buffers), len(children))
	}
	if s.form == formData && n > 0 {
		offsets := bytesOf(buffers[1])
		if uint64(len(offsets)) < (n+1)*uint64(s.width) {
			return fmt.Errorf("an array of %s without its offsets", t)
		}
		if last = s.offsetAt(offsets, n); last > math.MaxInt64 {
			return fmt.Errorf("an array of %s with an offset that is negative", t)
		}
	}
	of, ok := s.sizes(n, last)
	if !ok {
		return fmt.Errorf("an array of %s of %d values", t, a.Len())
	}
	nulls := a.NullN()
	if s.form != formNull && bytesOf(buffers[0]) == nil {
		nulls = 0
	}
	e.nodes = le.AppendUint64(e.nodes, uint64(a.Len()))
	e.nodes = le.AppendUint64(e.nodes, uint64(nulls))
	e.nodes = le.AppendUint64(e.nodes, uint64(a.Offset()))
	e.nodes = le.AppendUint32(e.nodes, uint32(count))
	e.nodes = le.AppendUint32(e.nodes, uint32(len(children)))
	for i := range count {
		b := bytesOf(buffers[i])
		if i == 0 && nulls == 0 { // arrow-go's builders make one anyway
			b = nil
		}
		if err := e.buffer(b, int(of[i]), i > 0, n == 0); err != nil {
			return fmt.Errorf("an array of %s: %w", t, err)
		}
	}
	for i, child := range children {
		if d, ok := child.(*array.Data); ok && d == nil { // an empty array needs no dictionary
			b := array.NewBuilder(memory.DefaultAllocator, s.children[i])
			none := b.NewArray()
			b.Release()
			defer none.Release()
			child = none.Data()
		}
		if err := e.array(s.children[i], child); err != nil {
			return err
		}
	}
	return nil
}

// buffer notes one. needed: it is there; empty: where it is not, or too short, it is zeros.
func (e *encoder) buffer(b []byte, size int, needed, empty bool) error {
	if b == nil && !needed {
		e.buffers = append(e.buffers, place{file: absent})
		return nil
	}
	if len(b) < size {
		if !empty {
			return fmt.Errorf("a buffer of %d bytes, not %d", len(b), size)
		}
		b = make([]byte, size)
	}
	b = b[:size]
	if size > 0 {
		if m, at, ok := e.find(b); ok {
			if e.number[m] == 0 {
				e.files = append(e.files, m)
				e.number[m] = uint32(len(e.files))
			}
			e.buffers = append(e.buffers, place{file: e.number[m], at: at, bytes: size})
			e.shared += size
			return nil
		}
	}
	e.buffers = append(e.buffers, place{fresh: true, at: e.space, bytes: size})
	e.fresh = append(e.fresh, b)
	e.space += rounded(size)
	return nil
}

// copyFresh copies the buffers that are in no file, each to the next place that is aligned.
func (e *encoder) copyFresh(to []byte) {
	at := 0
	for _, b := range e.fresh {
		e.copied += copy(to[at:], b)
		at += rounded(len(b))
	}
}

// head is the record without what is fresh: that follows, or is all that a file has.
func (e *encoder) head(in *Mapped) []byte {
	files, inline := e.files, e.space
	var number uint32
	if in != nil {
		files, inline = append(files[:len(files):len(files)], in), 0
		number = uint32(len(files))
	}
	tables := len(files)*fileBytes + len(e.nodes) + len(e.buffers)*bufferBytes
	begin := rounded(tables + len(e.schema))
	out := make([]byte, 0, headerBytes+begin+inline)
	out = append(out, magic...)
	for _, n := range []int{layoutKnown, len(e.nodes) / nodeBytes, len(e.buffers), len(files), len(e.schema), inline} {
		out = le.AppendUint32(out, uint32(n))
	}
	out = le.AppendUint64(out, uint64(e.batch.NumRows()))
	for _, f := range files {
		out = append(out, f.id[:]...)
		out = le.AppendUint64(out, uint64(len(f.memory)))
	}
	out = append(out, e.nodes...)
	for _, p := range e.buffers {
		file, at := p.file, p.at
		if p.fresh {
			if file = number; in == nil {
				at += begin
			}
		}
		out = le.AppendUint32(out, file)
		out = le.AppendUint32(out, 0)
		out = le.AppendUint64(out, uint64(at))
		out = le.AppendUint64(out, uint64(p.bytes))
	}
	out = append(out, e.schema...)
	return out[:headerBytes+begin] // zeros
}

// record is the record with what is fresh.
func (e *encoder) record() []byte {
	head := e.head(nil)
	out := head[:len(head)+e.space]
	e.copyFresh(out[len(head):])
	return out
}

// address is where bytes are.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
