package ir

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

// refusal is the panic by which the translator gives up; Verify and Commit turn it into an error.
type refusal struct{ err error }

// Refuse gives up on a construct that this engine cannot run.
func Refuse(path, format string, args ...any) {
	panic(refusal{fmt.Errorf("%s: %s: %w", path, fmt.Sprintf(format, args...),
		target.ErrUnsupported)})
}

// Catch turns a refusal into an error.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case refusal:
		*err = r.err
	default:
		panic(r)
	}
}
