package sim

import (
	"context"
	"fmt"
	"sync"

	"github.com/netcraq/netcraq/controlplane/sim/mutants"
)

// Many runs n seeds, beginning with the seed from, jobs of them at a time. The simulators lack the
// rule of mutant m, if m is not nil. each gets the results in the order of the seeds, one at a
// time. If it returns false, no more seeds are run.
func Many(ctx context.Context, m *mutants.Mutant, from, n uint64, jobs int, each func(*Result) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type one struct {
		r   *Result
		err error
	}
	results := make([]chan one, max(jobs, 1))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for j := range results {
		s, err := NewMutant(m)
		if err != nil {
			return err
		}
		results[j] = make(chan one, 16)
		wg.Go(func() {
			for i := uint64(j); i < n; i += uint64(len(results)) {
				r, err := s.Run(from+i, nil)
				select {
				case results[j] <- one{r, err}:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	for i := range n {
		select {
		case x := <-results[i%uint64(len(results))]:
			if x.err != nil {
				return fmt.Errorf("seed %d: %w", from+i, x.err)
			}
			if !each(x.r) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Replay returns the command that runs a seed again and prints its timeline. The command limits the
// timeline to the key of the first violation.
func (r *Result) Replay(mutant string) string {
	s := fmt.Sprintf("go run ./controlplane/cmd/netcraq-sim --seed %d", r.Seed)
	if mutant != "" {
		s += " --mutant " + mutant
	}
	for _, v := range r.Violations {
		if v.Key != 0 {
			return s + fmt.Sprintf(" --key %v", v.Key)
		}
	}
	return s
}
