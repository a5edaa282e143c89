package ir

import (
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// Writer turns expressions of a program into values, and values into instructions of the function
// that is being written.
type Writer struct {
	*code.Function               // the function that is being written
	phv                 *Layout  // where fields are in the PHV
	scratch, scratchEnd int      // memory in the PHV for steps of wide arithmetic
	Params              *Params  // the parameters of the action that is being translated
	Constants           [][]byte // used instead of Params if the parameters are known
	steps               steps

	Facts  Facts         // what is known about the packet's fields at the next statement
	OnRead func(off int) // if not nil, it is called for each field that a value uses

	// BeforeCompare, if not nil, is called before each comparison of a branch that has no register
	// in use. It may clobber registers.
	BeforeCompare func(a, b *Value)
}

// NewWriter makes a writer for a program whose fields are at lay and whose scratch memory is
// [scratch, scratchEnd) of the PHV. It begins with a function without a name, for users that need
// values but no instructions.
func NewWriter(lay *Layout, scratch, scratchEnd int) Writer {
	return Writer{Function: code.New(""), phv: lay, scratch: scratch, scratchEnd: scratchEnd}
}
