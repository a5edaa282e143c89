package sim

import (
	"context"
	"fmt"
	"strings"
)

// Mutant is the program, or the controller, with one rule removed. The ids are those of the model (controlplane/model).
type Mutant struct {
	ID   string
	Rule string
	// program edits the JSON that p4c made of the P4 program.
	program func(*edit)
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
	if m == nil || m.program == nil {
		p, err := LoadProgram(nil)
		if err != nil {
			return nil, err
		}
		s := New(p)
		return s, nil
	}
	p, err := LoadProgram(func(text []byte) ([]byte, error) { return editProgram(text, m.program) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.ID, err)
	}
	return New(p), nil
}

// Found is what a hunt came to.
type Found struct {
	m     *Mutant
	Seeds uint64 // that were run, the last of which found it, if any did
	By    *Result
}

func (f *Found) String() string {
	if f.By == nil {
		return fmt.Sprintf("not noticed in %d seeds", f.Seeds)
	}
	return fmt.Sprintf("noticed by the %dth seed: %v", f.Seeds, f.By.Violations[0])
}

// AsExpected says whether it was noticed.
func (f *Found) AsExpected() bool { return f.By != nil }

// Hunt runs seeds of a mutant until one shows a violation, at most n.
func Hunt(ctx context.Context, m *Mutant, from, n uint64, jobs int) (*Found, error) {
	f := &Found{m: m}
	err := Many(ctx, m, from, n, jobs, func(r *Result) bool {
		f.Seeds++
		if len(r.Violations) > 0 {
			f.By = r
			return false
		}
		return true
	})
	return f, err
}

type edit struct{}

func editProgram(text []byte, change func(*edit)) ([]byte, error) { return text, nil }
