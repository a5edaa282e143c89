package ebpf

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

// refusal is how the translator gives up; Verify and Commit turn it into an error.
type refusal struct{ err error }

// refuse gives up on a construct that this engine cannot run.
func refuse(path, format string, args ...any) {
	panic(refusal{fmt.Errorf("%s: %s: %w", path, fmt.Sprintf(format, args...), target.ErrUnsupported)})
}

// catch turns a refusal into an error.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case refusal:
		*err = r.err
	default:
		panic(r)
	}
}
