package refusal

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

// refusal is the panic value of Panic, so that Recover recognizes it.
type refusal struct{ err error }

// Panic gives up on a construct that the interpreter cannot run. path is its place in the JSON.
func Panic(path, format string, args ...any) {
	panic(refusal{fmt.Errorf("%s: %s: %w", path, fmt.Sprintf(format, args...),
		target.ErrUnsupported)})
}

// Recover must be deferred. It turns a refusal, by which the function panics, into an error.
func Recover(err *error) {
	if r := recover(); r != nil {
		ref, ok := r.(refusal)
		if !ok {
			panic(r)
		}
		*err = fmt.Errorf("this program cannot be run: %w", ref.err)
	}
}
