package bmthrift

import (
	"errors"
	"fmt"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/target"
)

// explained is an error of the protocol, a code, with the text that it has no room for.
type explained struct {
	error // the exception, as it is sent
	why   string
}

func (e *explained) Error() string { return e.why }
func (e *explained) Unwrap() error { return e.error }

// refusal ends a call with a code. The text is for the log.
func refusal[C ~int32](code C, format string, args ...any) error {
	return &explained{&idl.Exception[C]{Code: code}, fmt.Sprintf(format, args...)}
}

// tableCodes are the codes of what engines report, where a call has none of its own.
var tableCodes = []struct {
	err  error
	code idl.TableCode
}{
	{target.ErrFull, idl.TableCodeTableFull},
	{target.ErrExists, idl.TableCodeDuplicateEntry},
	{target.ErrImmutable, idl.TableCodeImmutableTableEntries},
}

// tableFailure makes the exception for err. notFound and invalid are the codes of what an engine
// calls so.
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
