package streamsarrow

import (
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// counted is a reference count that keeps memory alive, for example the Hold of a record or a
// mapped file. It is nil for the program's own memory.
type counted interface {
	Retain()
	Release()
}

// keeper is the allocator of an Arrow buffer that holds a reference. When the buffer is released,
// the reference is released.
type keeper struct{ counted }

func (keeper) Allocate(int) []byte           { panic("what is mapped does not grow") }
func (keeper) Reallocate(int, []byte) []byte { panic("what is mapped does not grow") }

// Free is called when the buffer's last reference is released.
func (k keeper) Free([]byte) { k.Release() }

// memoryOf is a memory area that contains buffers.
type memoryOf struct {
	bytes []byte
	by    counted
}

func (m memoryOf) buffer(at, n uint64) *memory.Buffer {
	b := m.bytes[at : at+n : at+n]
	if m.by == nil {
		return memory.NewBufferBytes(b)
	}
	m.by.Retain()
	return memory.NewBufferWithAllocator(b, keeper{m.by})
}

// fileName is the name of a file in the form that records contain.
type fileName [16]byte

// decode makes a batch from a record. The batch's buffers are in the record's memory, which `by`
// keeps alive, and in files. The function open opens a file and returns a reference to it. decode
// checks the record, because it may be invalid. But if trusted is set, it does not check the
// offsets and indices in buffers.
func decode(data []byte, by counted, open func(fileName) (*Mapped, error), known *schemas, trusted bool) (
	batch arrow.RecordBatch, err error) {
	d := decoder{trusted: trusted}
	defer func() {
		if p := recover(); p != nil { // arrow-go panics for some impossible arrays
			batch, err = nil, garbage("%v", p)
		}
		for _, of := range d.made {
			of.Release()
		}
	}()
	if len(data) < headerBytes || string(data[:len(magic)]) != magic || le.Uint32(data[8:]) != layoutKnown {
		return nil, garbage("nor one of a layout that is not known")
	}
	// the counts of nodes, buffers and files, the size of the schema, and the size of the data
	// after it
	var counts [5]uint64
	for i := range counts {
		counts[i] = uint64(le.Uint32(data[12+4*i:]))
	}
	rows := le.Uint64(data[32:])
	files := counts[2] * fileBytes
	nodes := files + counts[0]*nodeBytes
	buffers := nodes + counts[1]*bufferBytes
	tables := buffers + counts[3]
	here := data[headerBytes:]
	if (tables+align-1)/align*align+counts[4] != uint64(len(here)) {
		return nil, garbage("it is not as long as it says")
	}
	if counts[2] > maxFiles {
		return nil, garbage("it refers to %d files", counts[2])
	}
	d.nodes, d.buffers = here[files:nodes], here[nodes:buffers]
	schema, err := known.read(here[buffers:tables])
	if err != nil {
		return nil, err
	}
	if schema.NumFields() == 0 {
		return nil, garbage("it has no columns")
	}
	d.memory = append(d.memory, memoryOf{here, by})
	d.left = maxTimes * uint64(len(data))
	for of := here[:files]; len(of) > 0; of = of[fileBytes:] {
		m, err := open(fileName(of[:16]))
		if err != nil {
			return nil, err
		}
		d.made = append(d.made, m)
		if size := le.Uint64(of[16:]); size != uint64(len(m.memory)) {
			return nil, garbage("a file of %d bytes, not %d", len(m.memory), size)
		}
		d.memory = append(d.memory, memoryOf{m.memory, m})
		d.left += maxTimes * uint64(len(m.memory))
	}
	columns := make([]arrow.Array, schema.NumFields())
	for i := range columns {
		a, err := d.array(schema.Field(i).Type, rows)
		if err != nil {
			return nil, err
		}
		column := array.MakeFromData(a)
		d.made = append(d.made, column)
		if trusted {
			err = array.Validate(column)
		} else {
			err = array.ValidateFull(column)
		}
		if err != nil {
			return nil, garbage("%v", err)
		}
		columns[i] = column
	}
	return array.NewRecordBatch(schema, columns, int64(rows)), nil
}

// decoder makes arrays from a record's nodes and buffers.
type decoder struct {
	nodes, buffers []byte // the remaining nodes and buffers
	memory         []memoryOf
	trusted        bool
	left           uint64 // how many more bytes of buffers are allowed
	// references that are released when the batch has its own, or when decoding fails
	made []counted
}

// anyRows is passed instead of a number of rows for arrays within other arrays, because these may
// have any length.
const anyRows = math.MaxUint64

// array makes the next array of the record, which has type t.
func (d *decoder) array(t arrow.DataType, rows uint64) (*array.Data, error) {
	s, err := shapeOf(t)
	if err != nil {
		return nil, garbage("%v", err)
	}
	if len(d.nodes) < nodeBytes {
		return nil, garbage("it has too few arrays")
	}
	node := d.nodes[:nodeBytes]
	d.nodes = d.nodes[nodeBytes:]
	length, nulls, offset := le.Uint64(node), int64(le.Uint64(node[8:])), le.Uint64(node[16:])
	count, children := le.Uint32(node[24:]), le.Uint32(node[28:])
	if count != uint32(s.form.buffers()) || children != uint32(len(s.children)) {
		return nil, garbage("an array of %s of %d buffers and %d children", t, count, children)
	}
	if length>>48 != 0 || offset>>48 != 0 || nulls < -1 || nulls > int64(length) || rows != anyRows && length != rows {
		return nil, garbage("an array of %d values from %d on, %d of them null", length, offset, nulls)
	}
	n := offset + length
	var of [3]*memory.Buffer
	for i := range count {
		if of[i], err = d.buffer(i > 0, t); err != nil {
			return nil, err
		}
	}
	if err := fits(&s, n, of[:count]); err != nil {
		return nil, garbage("an array of %s: %v", t, err)
	}
	bitmap := of[0]
	switch {
	case s.form == formNull:
		nulls, of[0] = int64(length), nil
		count = 1 // arrow-go expects one buffer, in the place of the validity bitmap
	case bitmap == nil:
		nulls = 0
	// Count the nulls now, because arrow-go would count them lazily, in several goroutines at the
	// same time.
	case !d.trusted || nulls < 0:
		nulls = int64(length) - int64(bitutil.CountSetBits(bitmap.Bytes(), int(offset), int(length)))
	}
	var made *array.Data
	parts := make([]arrow.ArrayData, len(s.children))
	for i, child := range s.children {
		a, err := d.array(child, anyRows)
		if err != nil {
			return nil, err
		}
		parts[i] = a
	}
	if err := childrenFit(storage(t), n, parts); err != nil {
		return nil, err
	}
	if _, ok := storage(t).(*arrow.DictionaryType); ok {
		dictionary := parts[0].(*array.Data)
		made = array.NewDataWithDictionary(t, int(length), of[:count:count], int(nulls), int(offset), dictionary)
	} else {
		made = array.NewData(t, int(length), of[:count:count], parts, int(nulls), int(offset))
	}
	d.made = append(d.made, made)
	return made, nil
}

// buffer returns the next buffer.
func (d *decoder) buffer(needed bool, t arrow.DataType) (*memory.Buffer, error) {
	if len(d.buffers) < bufferBytes {
		return nil, garbage("it has too few buffers")
	}
	b := d.buffers[:bufferBytes]
	d.buffers = d.buffers[bufferBytes:]
	file, at, size := le.Uint32(b), le.Uint64(b[8:]), le.Uint64(b[16:])
	if file == absent {
		if needed {
			return nil, garbage("an array of %s without its buffers", t)
		}
		return nil, nil
	}
	if int(file) >= len(d.memory) {
		return nil, garbage("a buffer of file %d, of %d", file, len(d.memory)-1)
	}
	of := d.memory[file]
	if all := uint64(len(of.bytes)); size > all || at > all-size {
		return nil, garbage("a buffer of %d bytes from %d on, in %d bytes", size, at, all)
	}
	if size > d.left {
		return nil, garbage("its buffers have the same bytes more than %d times over", maxTimes)
	}
	d.left -= size
	made := of.buffer(at, size)
	d.made = append(d.made, made)
	return made, nil
}

// fits returns an error if the buffers of an array that ends with value n are too short.
func fits(s *shape, n uint64, of []*memory.Buffer) error {
	var last uint64
	need, ok := s.sizes(n, 0)
	if ok && s.form == formData && n > 0 {
		offsets := of[1].Bytes()
		if uint64(len(offsets)) < need[1] {
			return errors.New("it has too few offsets")
		}
		if last = s.offsetAt(offsets, n); last > math.MaxInt64 {
			return errors.New("an offset that is negative")
		}
		need[2] = last
	}
	if !ok {
		return fmt.Errorf("of %d values", n)
	}
	for i, b := range of {
		// An array without values needs no offsets.
		if b != nil && uint64(b.Len()) < need[i] && n > 0 {
			return fmt.Errorf("a buffer of %d bytes, not %d", b.Len(), need[i])
		}
	}
	return nil
}

// childrenFit returns an error if the children of an array that ends with value n have too few
// values. It does not check the children of lists, because arrow-go does.
func childrenFit(t arrow.DataType, n uint64, children []arrow.ArrayData) error {
	each := uint64(1)
	switch t := t.(type) {
	case *arrow.StructType:
	case *arrow.FixedSizeListType:
		each = uint64(t.Len())
	default:
		return nil
	}
	for _, c := range children {
		if uint64(c.Len())/each < n {
			return garbage("an array of %s of %d values has a child of %d", t, n, c.Len())
		}
	}
	return nil
}
