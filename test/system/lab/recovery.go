package lab

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/netcraq/netcraq/api/admin"
)

// BringIn brings a switch into the chain main. It returns the duration of the recovery, and how
// long the chain was changing, during which writes wait (ChangedSpan).
func (r *Controller) BringIn(name string) (took, changed time.Duration) {
	r.T.Helper()
	start := r.BringInto("main", name)
	from, to := r.ChangedSpan()
	return time.Since(start), to.Sub(from)
}

// BringInto brings a switch into a chain, and returns the time of the start. Like an operator, it
// retries if the chain has lost another member meanwhile, or has given up the switch.
func (r *Controller) BringInto(chain, name string) (start time.Time) {
	r.T.Helper()
	for try := 1; ; try++ {
		start = time.Now()
		ch, err := r.API.Recover(r.T.Context(), chain, name)
		if err == nil {
			if !slices.ContainsFunc(ch.Members, func(m admin.Member) bool { return m.Switch == name }) {
				r.T.Fatalf("%s is no member: %+v", name, ch)
			}
			return start
		}
		busy := errors.Is(err, &admin.Error{Code: admin.CodeUnavailable}) ||
			errors.Is(err, &admin.Error{Code: admin.CodeDeadlineExceeded})
		if try == 10 || !busy {
			r.T.Fatalf("recovering %s: %v\n%s", name, err, r.History())
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// Heal brings in switches that chains have lost without a fault. It returns the number of these
// switches. A machine loses members when a switch, or the controller, gets no CPU time for longer
// than a lease.
func (r *Controller) Heal() (lost int) {
	r.T.Helper()
	switches, err := r.API.Switches(r.T.Context())
	if err != nil {
		r.T.Fatal(err)
	}
	for _, s := range switches {
		if len(s.Chains) == 0 {
			r.WaitUntil(func() bool {
				all, err := r.API.Switches(r.T.Context())
				return err == nil && slices.ContainsFunc(all, func(x admin.Switch) bool {
					return x.Name == s.Name && x.Ready
				})
			}, s.Name+" to be set up")
			r.BringIn(s.Name)
			lost++
		}
	}
	return lost
}

// ChangedSpan returns when the chain changed during the last recovery, so that writes pass through
// the new switch. The time begins with the controller's decision and ends when the last member has
// the change. In a chain of one, it begins with the decision to freeze the member and ends when the
// member is unfrozen.
func (r *Controller) ChangedSpan() (from, to time.Time) {
	changing := false
	r.API.Events(r.T.Context(), 0, false, func(e admin.Event) error {
		switch {
		case e.Type == "chain.installing" &&
			(strings.HasSuffix(e.Message, ", frozen") || strings.Contains(e.Message, "(filling ")):
			from, changing = e.Time, true
		case e.Type == "chain.installed" && changing && !strings.HasSuffix(e.Message, ", frozen"):
			to, changing = e.Time, false
		}
		return nil
	})
	return from, to
}
