package refusal

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

// refusal is the panic value of Panic, by which Recover recognizes the panic.
type refusal struct{ err error }

// Panic stops the compilation because of a construct that the interpreter cannot run. path is the
// construct's place in the JSON.
func Panic(path, format string, args ...any) {
	panic(refusal{fmt.Errorf("%s: %s: %w", path, fmt.Sprintf(format, args...),
		target.ErrUnsupported)})
}

// Recover converts a panic of Panic to an error. It must be deferred.
func Recover(err *error) {
	if r := recover(); r != nil {
		ref, ok := r.(refusal)
		if !ok {
			panic(r)
		}
		*err = fmt.Errorf("this program cannot be run: %w", ref.err)
	}
}
