package bmthrift

import (
	"errors"
	"fmt"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/target"
)

// explained is a protocol error with a text for the log. The protocol error itself has only a code.
type explained struct {
	error // the exception that is sent
	why   string
}

func (e *explained) Error() string { return e.why }
func (e *explained) Unwrap() error { return e.error }

// refusal ends a call with a code. The text is for the log.
func refusal[C ~int32](code C, format string, args ...any) error {
	return &explained{&idl.Exception[C]{Code: code}, fmt.Sprintf(format, args...)}
}

// tableCodes are the codes for engines' errors, for calls that define no codes of their own.
var tableCodes = []struct {
	err  error
	code idl.TableCode
}{
	{target.ErrFull, idl.TableCodeTableFull},
	{target.ErrExists, idl.TableCodeDuplicateEntry},
	{target.ErrImmutable, idl.TableCodeImmutableTableEntries},
}

// tableFailure makes the exception for err. notFound and invalid are the codes for errors that an
// engine reports as such.
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

// arrayFailure picks the code of a failure at a counter, meter or register.
func arrayFailure[C any](err error, name, index, other C) C {
	switch {
	case errors.Is(err, target.ErrNotFound):
		return name
	case errors.Is(err, target.ErrOutOfRange):
		return index
	}
	return other
}
