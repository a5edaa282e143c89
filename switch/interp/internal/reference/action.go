package reference

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
)

// Action is a compiled action.
type Action struct {
	Source     *bmv2json.Action
	Statements []expression.Statement // one for each primitive
	Parameters []packet.Parameter
	Stops      bool // an exit within the action may end the pipeline

	jumps bool
}

// Run executes the action with the parameters in st.Parameters.
func (a *Action) Run(st *packet.State) {
	if !a.jumps {
		for _, do := range a.Statements {
			do(st)
		}
		return
	}
	// p4c only writes forward jumps. The format also allows backward jumps, so the number of
	// executed statements is bounded.
	for pc, n := 0, 0; pc < len(a.Statements) && n < maxStates; n++ {
		st.JumpTarget = -1
		a.Statements[pc](st)
		pc++
		if st.JumpTarget >= 0 {
			pc = st.JumpTarget
		}
	}
}

// maxStates is the largest number of parser states that one packet may pass. A looping parser
// either consumes some of the packet each time or, by the P4 specification, may be stopped with the
// error ParserTimeout. BMv2 would loop for ever.
const maxStates = 1 << 14
