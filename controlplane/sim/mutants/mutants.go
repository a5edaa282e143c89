package mutants

import (
	"fmt"
	"strings"

	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/rules"
)

// Mutant is the program, or the controller, with one rule removed. The ids are those of the model
// (controlplane/model).
type Mutant struct {
	ID   string
	Rule string
	// program edits the JSON that p4c made of the P4 program.
	program func(*edit)
	// Remove takes away a rule of the controller, of its shell and store, or of clients.
	Remove func(*rules.Removed)
	// own: the model has no mutant for it.
	own bool
	// shows is the kind of violation that counts, where what it breaks is that the chain comes to
	// rest; "": clients are told what cannot be, or packets become more and more.
	shows string
	// Scenario is the file in testdata that shows it, where chance seldom brings about what it
	// takes.
	Scenario string
	// tells is what somebody is told in the scenario, where that is not a violation by itself.
	tells string
	// Implied is why nothing may show it in the simulator, though the model shows it in a
	// controller that is built otherwise: what else keeps it from happening.
	Implied string
}

// Change is how the rule is taken out of the JSON of the program; nil: it is not one of the
// program.
func (m *Mutant) Change() func([]byte) ([]byte, error) {
	if m.program == nil {
		return nil
	}
	return func(text []byte) ([]byte, error) { return editProgram(text, m.program) }
}

// Noticed is the first of some violations that counts.
func (m *Mutant) Noticed(violations []judge.Violation) *judge.Violation {
	for i, v := range violations {
		if v.Kind == m.shows || m.shows == "" && v.Kind != judge.NotSettled && v.Kind != judge.NotWritable {
			return &violations[i]
		}
	}
	return nil
}

// All are the rules that can be removed.
var All []*Mutant

// Find finds one by its id; "" is none.
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
