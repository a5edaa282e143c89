package lab

import (
	"errors"
	"slices"
	"strings"
	"time"

	api "github.com/netcraq/netcraq/api/admin"
)

// BringIn brings a switch in, and says how long that took and for how long the chain was frozen. It
// is asked for again where another member was lost meanwhile, as an operator would.
func (r *Controller) BringIn(name string) (took, frozen time.Duration) {
	r.T.Helper()
	for try := 1; ; try++ {
		start := time.Now()
		ch, err := r.API.Recover(r.T.Context(), "main", name)
		if err == nil {
			if got := ch.Members[len(ch.Members)-1].Switch; got != name {
				r.T.Fatalf("the tail is %s", got)
			}
			return time.Since(start), r.frozen()
		}
		if try == 10 || !errors.Is(err, &api.Error{Code: api.CodeUnavailable}) {
			r.T.Fatalf("recovering %s: %v\n%s", name, err, r.History())
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// Heal brings in what is no member although nobody took it away: a machine that has no processor
// left for a switch, or for the controller, for longer than a lease loses members. It says how many
// there were.
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
				return err == nil && slices.ContainsFunc(all, func(x api.Switch) bool {
					return x.Name == s.Name && x.Ready
				})
			}, s.Name+" to be set up")
			r.BringIn(s.Name)
			lost++
		}
	}
	return lost
}

// frozen is how long the last recovery had the chain frozen.
func (r *Controller) frozen() time.Duration {
	from, to := r.FrozenSpan()
	return to.Sub(from)
}

func (r *Controller) FrozenSpan() (from, to time.Time) {
	frozen := false
	r.API.Events(r.T.Context(), 0, false, func(e api.Event) error {
		switch {
		case e.Type == "chain.installing" && strings.HasSuffix(e.Message, ", frozen"):
			from, frozen = e.Time, true
		case e.Type == "chain.installed" && frozen && !strings.HasSuffix(e.Message, ", frozen"):
			to, frozen = e.Time, false
		}
		return nil
	})
	return from, to
}
