package sim

import (
	"context"
	"fmt"

	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/mutants"
)

// NewMutant makes a simulator of a mutant. If m is nil, it removes no rule.
func NewMutant(m *mutants.Mutant) (*Simulator, error) {
	if m == nil {
		m = &mutants.Mutant{}
	}
	p, err := compiled.Load(m.Change())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.ID, err)
	}
	s := New(p)
	if m.Remove != nil {
		m.Remove(&s.removed)
	}
	return s, nil
}

// Found is the result of searching seeds for a violation by a mutant.
type Found struct {
	m     *mutants.Mutant
	Seeds uint64 // number of seeds that were run; if a violation was found, the last seed showed it
	By    *Result
}

func (f *Found) String() string {
	if f.By == nil && f.m.Scenario != "" {
		return fmt.Sprintf("not noticed in %d seeds; the scenario %s shows it", f.Seeds, f.m.Scenario)
	}
	if f.By == nil && f.m.Implied != "" {
		return fmt.Sprintf("not noticed in %d seeds, as it should be: %s", f.Seeds, f.m.Implied)
	}
	if f.By == nil {
		return fmt.Sprintf("not noticed in %d seeds", f.Seeds)
	}
	return fmt.Sprintf("noticed after %d seeds, by %d: %v", f.Seeds, f.By.Seed, f.m.Noticed(f.By.Violations))
}

// AsExpected reports whether the hunt had the expected outcome. A violation must have been found,
// unless a scenario already shows one (Scenario). If the mutant must not show a violation
// (Implied), none may have been found.
func (f *Found) AsExpected() bool {
	if f.m.Implied != "" {
		return f.By == nil
	}
	return f.By != nil || f.m.Scenario != ""
}

// Hunt runs at most n seeds of a mutant, until one shows a violation.
func Hunt(ctx context.Context, m *mutants.Mutant, from, n uint64, jobs int) (*Found, error) {
	f := &Found{m: m}
	err := Many(ctx, m, from, n, jobs, func(r *Result) bool {
		f.Seeds++
		if m.Noticed(r.Violations) != nil {
			f.By = r
			return false
		}
		return true
	})
	return f, err
}
