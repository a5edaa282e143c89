package refusal

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

// refusal is what Panic panics with, so that Recover tells it from other panics.
type refusal struct{ err error }

// Panic gives up on a construct that the interpreter cannot run. path is its place in the JSON.
func Panic(path, format string, args ...any) {
	panic(refusal{fmt.Errorf("%s: %s: %w", path, fmt.Sprintf(format, args...),
		target.ErrUnsupported)})
}

// Recover, deferred by a function, turns the refusal that the function panics with into its error.
func Recover(err *error) {
	if r := recover(); r != nil {
		ref, ok := r.(refusal)
		if !ok {
			panic(r)
		}
		*err = fmt.Errorf("this program cannot be run: %w", ref.err)
	}
}
