package ir

import (
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// Writer converts expressions of a program to values, and values to instructions of the function
// that is being written.
type Writer struct {
	*code.Function               // the function that is being written
	phv                 *Layout  // says where fields are in the PHV
	scratch, scratchEnd int      // memory in the PHV for steps of wide arithmetic
	Params              *Params  // the parameters of the action that is being translated
	Constants           [][]byte // used instead of Params if the parameters are known
	steps               steps

	Facts  Facts         // facts about the packet's fields at the next statement
	OnRead func(off int) // if not nil, it is called for each field that a value uses

	// BeforeCompare, if not nil, is called before each comparison of a branch during which no
	// register is in use. It may clobber registers.
	BeforeCompare func(a, b *Value)
}

// NewWriter creates a Writer for a program with the layout lay, and with scratch memory at
// [scratch, scratchEnd) of the PHV. It starts with a function without a name, for callers that need
// values but no instructions.
func NewWriter(lay *Layout, scratch, scratchEnd int) Writer {
	return Writer{Function: code.New(""), phv: lay, scratch: scratch, scratchEnd: scratchEnd}
}
