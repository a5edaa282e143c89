package streamsarrow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
)

// These are the sizes in a record's header and tables (docs/streams-arrow.md). A record's data
// begin 24 bytes after a multiple of 64, so the part after the 40-byte header begins at a multiple
// of 64.
const (
	magic       = "NCARROW1"
	layoutKnown = 1
	headerBytes = 40
	fileBytes   = 24
	nodeBytes   = 32
	bufferBytes = 24
	// absent is written instead of a file's number if the buffer does not exist.
	absent  = math.MaxUint32
	align   = 64
	inFront = 24 // bytes of padding before a record in a file of the cache
	// maximum ratio between the size of a batch's buffers and the size of its record and files
	maxTimes = 64
)

var le = binary.LittleEndian

// ErrGarbage means that a record is not a batch, or describes an impossible batch.
var ErrGarbage = errors.New("this is no batch")

func garbage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrGarbage, fmt.Sprintf(format, args...))
}

func rounded(n int) int { return (n + align - 1) / align * align }

// form describes which buffers the arrays of a type have.
type form int

const (
	formNull    form = iota // no buffers
	formBits                // validity bitmap, and values of a fixed width
	formOffsets             // validity bitmap, and offsets
	formData                // validity bitmap, offsets, and the data to which the offsets point
	formNone                // only a validity bitmap
)

func (f form) buffers() int { return [...]int{0, 2, 2, 3, 1}[f] }

// shape describes the arrays of a type.
type shape struct {
	form     form
	width    int64            // bits of a value, or bytes of an offset, depending on the form
	children []arrow.DataType // types of the children; the dictionary counts as a child
}

// storage returns the storage type of an extension type. It returns other types unchanged.
func storage(t arrow.DataType) arrow.DataType {
	for {
		e, ok := t.(arrow.ExtensionType)
		if !ok {
			return t
		}
		t = e.StorageType()
	}
}

func shapeOf(t arrow.DataType) (shape, error) {
	switch t := storage(t).(type) {
	case *arrow.NullType:
		return shape{form: formNull}, nil
	case *arrow.DictionaryType:
		index, ok := t.IndexType.(arrow.FixedWidthDataType)
		if !ok {
			return shape{}, fmt.Errorf("a dictionary's indices are of type %s", t.IndexType)
		}
		return shape{formBits, int64(index.BitWidth()), []arrow.DataType{t.ValueType}}, nil
	case *arrow.StringType, *arrow.BinaryType:
		return shape{form: formData, width: 4}, nil
	case *arrow.LargeStringType, *arrow.LargeBinaryType:
		return shape{form: formData, width: 8}, nil
	case *arrow.ListType:
		return shape{formOffsets, 4, []arrow.DataType{t.Elem()}}, nil
	case *arrow.MapType:
		return shape{formOffsets, 4, []arrow.DataType{t.Elem()}}, nil
	case *arrow.LargeListType:
		return shape{formOffsets, 8, []arrow.DataType{t.Elem()}}, nil
	case *arrow.FixedSizeListType:
		return shape{formNone, 0, []arrow.DataType{t.Elem()}}, nil
	case *arrow.StructType:
		s := shape{form: formNone}
		for _, f := range t.Fields() {
			s.children = append(s.children, f.Type)
		}
		return s, nil
	case *arrow.FixedSizeBinaryType:
		if t.ByteWidth < 0 {
			return shape{}, fmt.Errorf("%s", t)
		}
		return shape{form: formBits, width: 8 * int64(t.ByteWidth)}, nil
	case arrow.DecimalType: // arrow-go panics if a scale is not in its table
		most := map[int]int32{32: 9, 64: 18, 128: 38, 256: 76}[t.BitWidth()]
		if p, s := t.GetPrecision(), t.GetScale(); p < 1 || p > most || s < -most || s > most {
			return shape{}, fmt.Errorf("%s: it has 1 to %d digits, and as many behind the point at most", t, most)
		}
	}
	switch storage(t).ID() {
	case arrow.BOOL, arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.UINT8, arrow.UINT16, arrow.UINT32,
		arrow.UINT64, arrow.FLOAT16, arrow.FLOAT32, arrow.FLOAT64, arrow.DATE32, arrow.DATE64, arrow.TIME32,
		arrow.TIME64, arrow.TIMESTAMP, arrow.DURATION, arrow.INTERVAL_MONTHS, arrow.INTERVAL_DAY_TIME,
		arrow.INTERVAL_MONTH_DAY_NANO, arrow.DECIMAL32, arrow.DECIMAL64, arrow.DECIMAL128, arrow.DECIMAL256:
		return shape{form: formBits, width: int64(storage(t).(arrow.FixedWidthDataType).BitWidth())}, nil
	}
	return shape{}, fmt.Errorf("columns of type %s are not sent: cast them", t)
}

// sizes returns the minimum length in bytes of each buffer of an array that ends with value n. The
// last one is the buffer to which the offsets point; `last` is the last offset. ok is false if a
// length is impossibly large.
func (s *shape) sizes(n uint64, last uint64) (of [3]uint64, ok bool) {
	of[0] = (n + 7) / 8
	switch s.form {
	case formBits:
		hi, lo := bits.Mul64(n, uint64(s.width))
		if hi != 0 || lo > math.MaxInt64 {
			return of, false
		}
		of[1] = (lo + 7) / 8
	case formOffsets, formData:
		of[1], of[2] = (n+1)*uint64(s.width), last
	}
	return of, n < 1<<50
}

// offsetAt returns the n-th offset.
func (s *shape) offsetAt(offsets []byte, n uint64) uint64 {
	if s.width == 4 {
		return uint64(int64(int32(le.Uint32(offsets[4*n:]))))
	}
	return le.Uint64(offsets[8*n:])
}
