package streamsarrow

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// encoder encodes one batch.
type encoder struct {
	batch  arrow.RecordBatch
	schema []byte
	// finds the file that contains the given bytes, and their offset in it
	find func(b []byte) (m *Mapped, at int, ok bool)

	nodes   []byte
	buffers []place
	files   []*Mapped
	number  map[*Mapped]uint32
	fresh   [][]byte // buffers that are not in files
	space   int      // total size of the fresh buffers, each rounded up to the alignment
	copied  int      // total size of the fresh buffers
	shared  int      // total size of the buffers in files
}

// place is the position of a buffer. If fresh is set, `at` is the buffer's offset among the fresh
// buffers. Otherwise it is the offset in a file.
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
		err := e.array(column.DataType(), column.Data(), 0, column.Len(), false)
		if err == nil {
			err = valid(column)
		}
		if err != nil {
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

// array adds n values of an array, beginning with the value `first`. It leaves out the other values
// in the array's buffers, so a slice takes no more space than its own values. A bitmap can only be
// cut at a byte boundary, so up to 7 earlier values remain. If entries is set, the array has the
// entries of a map. Entries are never null, and Arrow's C++ library does not support an offset in
// them.
func (e *encoder) array(t arrow.DataType, a arrow.ArrayData, first, n int, entries bool) error {
	s, err := shapeOf(t)
	if err != nil {
		return err
	}
	buffers, children := a.Buffers(), childrenOf(a, t)
	count := s.form.buffers()
	if s.form != formNull && len(buffers) != count || len(children) != len(s.children) {
		return fmt.Errorf("an array of %s of %d buffers and %d children", t, len(buffers), len(children))
	}
	c := cut{begin: a.Offset() + first}
	if !entries {
		c.pad = c.begin % 8
	}
	if c.begin, c.end = c.begin-c.pad, c.begin+n; n == 0 || s.form == formNull {
		c = cut{end: n}
	}
	if err := e.follow(&s, a, &c); err != nil {
		return fmt.Errorf("an array of %s %w", t, err)
	}
	if _, ok := s.sizes(uint64(c.end), uint64(c.to)); !ok {
		return fmt.Errorf("an array of %s of %d values", t, n)
	}
	nulls := a.NullN()
	switch {
	case s.form == formNull:
		nulls = n
	case n == 0 || entries || bytesOf(buffers[0]) == nil:
		nulls = 0
	case n != a.Len():
		nulls = -1 // the number of nulls is not known
	}
	e.nodes = le.AppendUint64(e.nodes, uint64(n))
	e.nodes = le.AppendUint64(e.nodes, uint64(nulls))
	e.nodes = le.AppendUint64(e.nodes, uint64(c.pad))
	e.nodes = le.AppendUint32(e.nodes, uint32(count))
	e.nodes = le.AppendUint32(e.nodes, uint32(len(children)))
	for i := range count {
		b := bytesOf(buffers[i])
		if i == 0 && nulls == 0 {
			// drop the bitmap, which arrow-go's builders make even without nulls
			b = nil
		}
		from, to := c.bytes(&s, i)
		if i == 1 && c.rebased != nil {
			b, from, to = c.rebased, 0, len(c.rebased)
		}
		if err := e.buffer(b, from, to, i > 0, n == 0); err != nil {
			return fmt.Errorf("an array of %s: %w", t, err)
		}
	}
	for i, child := range children {
		if d, ok := child.(*array.Data); ok && d == nil {
			// arrow-go has no dictionary for an empty array, so add an empty one
			b := array.NewBuilder(memory.DefaultAllocator, s.children[i])
			none := b.NewArray()
			b.Release()
			defer none.Release()
			child = none.Data()
		}
		_, isMap := storage(t).(*arrow.MapType)
		first, n := c.child(storage(t), child)
		if first+n > child.Len() {
			return fmt.Errorf("an array of %s with a child of %d values, not %d", t, child.Len(), first+n)
		}
		if err := e.array(s.children[i], child, first, n, isMap); err != nil {
			return err
		}
	}
	return nil
}

// cut describes which values of an array are sent. These are the values from begin to end. The
// first pad of them are sent only because bitmaps are cut at byte boundaries. The offsets of the
// values point to the range from `from` to `to`.
type cut struct {
	begin, end, pad int
	from, to        int
	// rebased has the offsets minus from. It is nil if the offsets are sent unchanged; then their
	// target is sent from its beginning.
	rebased []byte
}

// bytes returns which bytes of a buffer are sent.
func (c *cut) bytes(s *shape, buffer int) (from, to int) {
	w := int(s.width)
	switch {
	case buffer == 0:
		return c.begin / 8, (c.end + 7) / 8
	case s.form == formBits:
		return c.begin / 8 * w, (c.end*w + 7) / 8
	case buffer == 1:
		return c.begin * w, (c.end + 1) * w
	}
	return c.start(), c.to
}

// start returns where the part of the offsets' target that is sent begins.
func (c *cut) start() int {
	if c.rebased == nil {
		return 0
	}
	return c.from
}

// child returns which values of a child are sent with an array.
func (c *cut) child(t arrow.DataType, child arrow.ArrayData) (first, n int) {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return 0, child.Len()
	case *arrow.StructType:
		return c.begin, c.end - c.begin
	case *arrow.FixedSizeListType:
		return c.begin * int(t.Len()), (c.end - c.begin) * int(t.Len())
	}
	return c.start(), c.to - c.start()
}

// follow checks where an array's offsets point to. It leaves out the part of the target before the
// first offset, and computes the offsets again. If the target is in files, and so is not copied,
// follow changes nothing.
func (e *encoder) follow(s *shape, a arrow.ArrayData, c *cut) error {
	if s.form != formData && s.form != formOffsets || c.end == 0 {
		return nil
	}
	offsets := bytesOf(a.Buffers()[1])
	if len(offsets) < (c.end+1)*int(s.width) {
		return errors.New("without its offsets")
	}
	from, to := s.offsetAt(offsets, uint64(c.begin+c.pad)), s.offsetAt(offsets, uint64(c.end))
	if from > to || to > math.MaxInt64 {
		return errors.New("with an offset that is negative, or less than the one before")
	}
	c.from, c.to = int(from), int(to)
	if from == 0 {
		return nil
	}
	there := false
	if s.form == formOffsets {
		there = e.inFiles(appendBuffers([][]byte{offsets}, a.Children()[0]))
	} else if data := bytesOf(a.Buffers()[2]); c.to <= len(data) {
		there = c.from == c.to || e.inFiles([][]byte{data[:c.to]})
	}
	if there {
		return nil
	}
	w := int(s.width)
	c.rebased = make([]byte, 0, (c.end-c.begin+1)*w)
	for i := c.begin; i <= c.end; i++ {
		at := s.offsetAt(offsets, uint64(max(i, c.begin+c.pad))) - from
		if w == 4 {
			c.rebased = le.AppendUint32(c.rebased, uint32(at))
		} else {
			c.rebased = le.AppendUint64(c.rebased, at)
		}
	}
	return nil
}

// inFiles reports whether all the given buffers are in files.
func (e *encoder) inFiles(all [][]byte) bool {
	return !slices.ContainsFunc(all, func(b []byte) bool {
		_, _, ok := e.find(b)
		return !ok
	})
}

// buffer adds the part of a buffer that is sent. If needed is set, the buffer must exist. If empty
// is set, a buffer that is missing or too short is replaced by zeros.
func (e *encoder) buffer(b []byte, from, to int, needed, empty bool) error {
	if b == nil && !needed {
		e.buffers = append(e.buffers, place{file: absent})
		return nil
	}
	if len(b) < to {
		if !empty {
			return fmt.Errorf("a buffer of %d bytes, not %d", len(b), to)
		}
		b = make([]byte, to)
	}
	b = b[from:to]
	size := len(b)
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

// copyFresh copies the buffers that are not in files. Each copy begins at the next aligned
// position.
func (e *encoder) copyFresh(to []byte) {
	at := 0
	for _, b := range e.fresh {
		e.copied += copy(to[at:], b)
		at += rounded(len(b))
	}
}

// head encodes the record without the fresh buffers. The fresh buffers follow the head, or are the
// whole content of the file `in`.
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
	return out[:headerBytes+begin] // the bytes after the schema are zeros, as padding
}

// record encodes the record including the fresh buffers.
func (e *encoder) record() []byte {
	head := e.head(nil)
	out := head[:len(head)+e.space]
	e.copyFresh(out[len(head):])
	return out
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
