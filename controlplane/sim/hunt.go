package sim

import (
	"context"
	"fmt"
)

// NewMutant makes a simulator with a rule removed, or with all of them (nil).
func NewMutant(m *Mutant) (*Simulator, error) {
	if m == nil {
		m = &Mutant{}
	}
	p, err := LoadProgram(m.change())
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
	return fmt.Sprintf("noticed after %d seeds, by %d: %v", f.Seeds, f.By.Seed, f.m.noticed(f.By.Violations))
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
		if m.noticed(r.Violations) != nil {
			f.By = r
			return false
		}
		return true
	})
	return f, err
}
