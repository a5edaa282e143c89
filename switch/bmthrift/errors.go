package bmthrift

import (
	"errors"
	"fmt"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/target"
)

// explained is an exception of the Thrift protocol together with a text for the log. The protocol
// can send only the exception's code.
type explained struct {
	error // the exception that the client receives
	why   string
}

func (e *explained) Error() string { return e.why }
func (e *explained) Unwrap() error { return e.error }

// refusal returns an error that ends a call. The client receives the code, and the log receives the
// text.
func refusal[C ~int32](code C, format string, args ...any) error {
	return &explained{&idl.Exception[C]{Code: code}, fmt.Sprintf(format, args...)}
}

// tableCodes maps errors of an engine to BMv2's codes for tables. It applies to calls that define
// no codes of their own for these errors.
var tableCodes = []struct {
	err  error
	code idl.TableCode
}{
	{target.ErrFull, idl.TableCodeTableFull},
	{target.ErrExists, idl.TableCodeDuplicateEntry},
	{target.ErrImmutable, idl.TableCodeImmutableTableEntries},
}

// tableFailure converts an engine's error to an exception. It uses the code notFound for
// target.ErrNotFound, and invalid for target.ErrInvalid.
func tableFailure(err error, notFound, invalid idl.TableCode) error {
	if err == nil {
		return nil
	}
	var own *idl.Exception[idl.TableCode]
	if errors.As(err, &own) {
		return err
	}
	code := idl.TableCodeError
	switch {
	case errors.Is(err, target.ErrNotFound):
		code = notFound
	case errors.Is(err, target.ErrInvalid):
		code = invalid
	}
	for _, c := range tableCodes {
		if errors.Is(err, c.err) {
			code = c.code
		}
	}
	return refusal(code, "%v", err)
}

// arrayFailure picks the code for a failed access to a counter, meter or register: name if the
// array does not exist, index if the index is out of range, and other for any other error.
func arrayFailure[C any](err error, name, index, other C) C {
	switch {
	case errors.Is(err, target.ErrNotFound):
		return name
	case errors.Is(err, target.ErrOutOfRange):
		return index
	}
	return other
}
