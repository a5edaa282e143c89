package refusal

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

// refusal is how the compiler gives up; New turns it into an error.
type refusal struct{ err error }

// Panic gives up on a construct that this engine cannot run.
func Panic(path, format string, args ...any) {
	panic(refusal{fmt.Errorf("%s: %s: %w", path, fmt.Sprintf(format, args...),
		target.ErrUnsupported)})
}

// Recover turns a refusal that a function panics with into its error: deferred there.
func Recover(err *error) {
	if r := recover(); r != nil {
		ref, ok := r.(refusal)
		if !ok {
			panic(r)
		}
		*err = fmt.Errorf("this program cannot be run: %w", ref.err)
	}
}
