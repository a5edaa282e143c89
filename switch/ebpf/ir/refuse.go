package ir

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

// refusal is the panic value with which the translator stops. Verify and Commit convert it to an
// error.
type refusal struct{ err error }

// Refuse stops the translation because of a construct that this engine cannot run.
func Refuse(path, format string, args ...any) {
	panic(refusal{fmt.Errorf("%s: %s: %w", path, fmt.Sprintf(format, args...),
		target.ErrUnsupported)})
}

// Catch converts a panic of Refuse to an error.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case refusal:
		*err = r.err
	default:
		panic(r)
	}
}
