package ebpf

import (
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// writer turns expressions of a program into values, and values into instructions of the function that is
// being written.
type writer struct {
	*code.Function                 // the function that is being written
	phv                 *layout    // where fields are in the PHV
	scratch, scratchEnd int        // memory in the PHV for steps of wide arithmetic
	params              *paramPlan // of the action that is being translated
	konsts              [][]byte   // instead, its parameters where they are known
	steps               steps
}

// newWriter makes a writer for a program whose fields are at lay and whose scratch memory is [scratch, scratchEnd) of the PHV.
func newWriter(lay *layout, scratch, scratchEnd int) writer {
	return writer{phv: lay, scratch: scratch, scratchEnd: scratchEnd}
}
