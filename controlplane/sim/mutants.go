package sim

import (
	"context"
	"fmt"
	"strings"
)

// Mutant is the program, or the controller, with one rule removed. The ids are those of the model
// (controlplane/model).
type Mutant struct {
	ID   string
	Rule string
	// program edits the JSON that p4c made of the P4 program.
	program func(*edit)
	// remove takes away a rule of the controller, of its shell and store, or of clients.
	remove func(*removed)
	// own: the model has no mutant for it.
	own bool
	// shows is the kind of violation that counts, where what it breaks is that the chain comes to
	// rest; "": clients are told what cannot be, or packets become more and more.
	shows string
	// scenario is the file in testdata that shows it, where chance seldom brings about what it
	// takes.
	scenario string
	// tells is what somebody is told in the scenario, where that is no violation by itself.
	tells string
	// implied is why nothing may show it in the simulator, though the model shows it in a
	// controller that is built otherwise: what else keeps it from happening.
	implied string
}

// noticed is the first violation that counts.
func (m *Mutant) noticed(r *Result) *Violation {
	for i, v := range r.Violations {
		if v.Kind == m.shows || m.shows == "" && v.Kind != NotSettled && v.Kind != NotWritable {
			return &r.Violations[i]
		}
	}
	return nil
}

// Mutants are the rules that can be removed.
var Mutants []*Mutant

// FindMutant finds one by its id; "" is none.
func FindMutant(id string) (*Mutant, error) {
	if id == "" {
		return nil, nil
	}
	var ids []string
	for _, m := range Mutants {
		if m.ID == id {
			return m, nil
		}
		ids = append(ids, m.ID)
	}
	return nil, fmt.Errorf("there is no mutant %q; there is: %s", id, strings.Join(ids, ", "))
}

// NewMutant makes a simulator with a rule removed, or with all of them (nil).
func NewMutant(m *Mutant) (*Simulator, error) {
	if m == nil {
		m = &Mutant{}
	}
	var change func([]byte) ([]byte, error)
	if m.program != nil {
		change = func(text []byte) ([]byte, error) { return editProgram(text, m.program) }
	}
	p, err := LoadProgram(change)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.ID, err)
	}
	s := New(p)
	if m.remove != nil {
		m.remove(&s.removed)
	}
	return s, nil
}

// Found is what a hunt came to.
type Found struct {
	m     *Mutant
	Seeds uint64 // that were run, the last of which found it, if any did
	By    *Result
}

func (f *Found) String() string {
	if f.By == nil && f.m.scenario != "" {
		return fmt.Sprintf("not noticed in %d seeds; the scenario %s shows it", f.Seeds, f.m.scenario)
	}
	if f.By == nil && f.m.implied != "" {
		return fmt.Sprintf("not noticed in %d seeds, as it should be: %s", f.Seeds, f.m.implied)
	}
	if f.By == nil {
		return fmt.Sprintf("not noticed in %d seeds", f.Seeds)
	}
	return fmt.Sprintf("noticed after %d seeds, by %d: %v", f.Seeds, f.By.Seed, f.m.noticed(f.By))
}

// AsExpected says whether it was noticed, or need not be because a scenario shows it, or was not
// where nothing may.
func (f *Found) AsExpected() bool {
	if f.m.implied != "" {
		return f.By == nil
	}
	return f.By != nil || f.m.scenario != ""
}

// Hunt runs seeds of a mutant until one shows a violation, at most n.
func Hunt(ctx context.Context, m *Mutant, from, n uint64, jobs int) (*Found, error) {
	f := &Found{m: m}
	err := Many(ctx, m, from, n, jobs, func(r *Result) bool {
		f.Seeds++
		if m.noticed(r) != nil {
			f.By = r
			return false
		}
		return true
	})
	return f, err
}
