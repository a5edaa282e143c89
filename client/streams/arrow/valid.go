package streamsarrow

import (
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// valid returns an error if a reader in Go or Python would refuse an array's values. In nested
// arrays it checks all values, including those that a slice leaves out.
func valid(a arrow.Array) error {
	if err := array.ValidateFull(a); err != nil {
		return fmt.Errorf("readers refuse it: %w", err)
	}
	return validValues(a)
}

// validValues makes those checks of Arrow's C++ library that arrow-go does not make.
func validValues(a arrow.Array) error {
	const ms = int64(24 * time.Hour / time.Millisecond)
	switch a := a.(type) {
	case array.ExtensionArray:
		return validValues(a.Storage())
	case *array.Date64:
		return each(a, func(i int) bool { return int64(a.Value(i))%ms == 0 }, "a date is no whole day")
	case *array.Time32:
		day := int64(24 * time.Hour / a.DataType().(*arrow.Time32Type).Unit.Multiplier())
		return each(a, func(i int) bool { v := int64(a.Value(i)); return v >= 0 && v < day }, "a time is none of a day")
	case *array.Time64:
		day := int64(24 * time.Hour / a.DataType().(*arrow.Time64Type).Unit.Multiplier())
		return each(a, func(i int) bool { v := int64(a.Value(i)); return v >= 0 && v < day }, "a time is none of a day")
	case *array.Decimal32:
		return digits(a, a.Value)
	case *array.Decimal64:
		return digits(a, a.Value)
	case *array.Decimal128:
		return digits(a, a.Value)
	case *array.Decimal256:
		return digits(a, a.Value)
	}
	children := a.Data().Children()
	if d, ok := a.(*array.Dictionary); ok {
		children = []arrow.ArrayData{d.Dictionary().Data()}
	}
	for _, c := range children {
		child := array.MakeFromData(c)
		err := validValues(child)
		child.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// digits checks that no number has more digits than its type allows.
func digits[T interface{ FitsInPrecision(int32) bool }](a arrow.Array, value func(int) T) error {
	most := a.DataType().(arrow.DecimalType).GetPrecision()
	return each(a, func(i int) bool { return value(i).FitsInPrecision(most) }, "a number has more digits than its type")
}

// each returns the error bad if a value that is not null does not satisfy good.
func each(a arrow.Array, good func(i int) bool, bad string) error {
	for i := range a.Len() {
		if a.IsValid(i) && !good(i) {
			return fmt.Errorf("value %d: %s (%s), and readers refuse it", i, bad, a.DataType())
		}
	}
	return nil
}
