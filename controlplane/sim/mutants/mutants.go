package mutants

import (
	"fmt"
	"strings"

	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/rules"
)

// Mutant is the program, or the controller, with one rule removed. Its id is that of the rule in
// the model (controlplane/model).
type Mutant struct {
	ID   string
	Rule string
	// program edits the JSON that p4c made of the P4 program.
	program func(*edit)
	// Remove disables a rule of the controller, of its shell and store, or of clients.
	Remove func(*rules.Removed)
	// own says that the model has no such mutant.
	own bool
	// shows is the kind of violation that counts as noticing the mutant. It is set for rules whose
	// removal keeps the chain from settling. If it is "", any other kind counts, such as a wrong
	// answer to a client or packets that multiply.
	shows string
	// Scenario is the file in testdata that shows the violation, if random faults seldom cause it.
	Scenario string
	// tells is the line of the scenario's timeline that shows the mutant. It is set if that line is
	// not a violation that the simulator names in "shows".
	tells string
	// Implied is the reason why the simulator must find no violation, although the model, whose
	// controller works differently, finds one.
	Implied string
}

// Change returns the edit that removes the rule from the program's JSON. It returns nil if the rule
// is not in the program.
func (m *Mutant) Change() func([]byte) ([]byte, error) {
	if m.program == nil {
		return nil
	}
	return func(text []byte) ([]byte, error) { return editProgram(text, m.program) }
}

// Noticed returns the first violation that counts as noticing this mutant.
func (m *Mutant) Noticed(violations []judge.Violation) *judge.Violation {
	for i, v := range violations {
		if v.Kind == m.shows || m.shows == "" && v.Kind != judge.NotSettled && v.Kind != judge.NotWritable {
			return &violations[i]
		}
	}
	return nil
}

// All lists a mutant for each rule that can be removed.
var All []*Mutant

// Find returns the mutant with the given id. The id "" stands for no mutant.
func Find(id string) (*Mutant, error) {
	if id == "" {
		return nil, nil
	}
	var ids []string
	for _, m := range All {
		if m.ID == id {
			return m, nil
		}
		ids = append(ids, m.ID)
	}
	return nil, fmt.Errorf("there is no mutant %q; there is: %s", id, strings.Join(ids, ", "))
}
