package adminrights

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/netcraq/netcraq/api/admin"
)

const (
	// shareOf is the part of the leader's time for lists for one node: one in so many.
	shareOf = 10
	// shareAhead is how far a node's lists may be ahead of that.
	shareAhead = 2 * time.Second
	// shareMost is what one list counts for at most: a leader that is busy with something else
	// takes longer for it, which is not the node's doing.
	shareMost = 200 * time.Millisecond
	// shareWait is how long one list waits for another of the same node.
	shareWait = 2 * time.Second
	// shareRequests are a node's requests in a second, whatever they are. Those beyond it wait.
	shareRequests = 1000
	// shareChanges are the keys and leases of sessions that a node makes and gives back in a
	// second, over a while, and shareChangesAtOnce how many it may at once. Those beyond wait.
	shareChanges       = 100
	shareChangesAtOnce = 200
	// shareWatches are how many times a second a node says what it watches: it renews that every
	// few seconds. Each time may change tables of switches.
	shareWatches = 4
)

// Share bounds the leader's time for one node's requests, over all of the node's connections.
type Share struct {
	requests, changes *rate.Limiter
	lists, watches    *listShare
}

// NewShare makes the share of a node that has asked nothing yet.
func NewShare() *Share {
	return &Share{requests: rate.NewLimiter(shareRequests, shareRequests),
		changes: rate.NewLimiter(shareChanges, shareChangesAtOnce), lists: newListShare(rate.Inf, shareOf),
		watches: newListShare(shareWatches, 0)}
}

// wait holds a request up until the node may make it. Renewals (PUT) do not wait for changes; an
// agent leaves them streams of its connection (leaderlink.Link).
func (s *Share) wait(r *http.Request) error {
	if err := s.requests.Wait(r.Context()); err != nil || r.Method != http.MethodPost && r.Method != http.MethodDelete {
		return err
	}
	return s.changes.Wait(r.Context())
}

// listShare makes a node's lists of one kind run one at a time, with a maximum rate and a maximum
// share of the time.
type listShare struct {
	of   time.Duration // each list costs this multiple of its duration
	turn chan struct{} // has room for the one whose turn it is
	rate *rate.Limiter // of lists, however short they are
	free time.Time     // when all that was done is paid for; only whoever has the turn uses it
}

func newListShare(most rate.Limit, of time.Duration) *listShare {
	return &listShare{of: of, turn: make(chan struct{}, 1), rate: rate.NewLimiter(most, 2*shareWatches)}
}

// limit passes requests on as the share allows it, and refuses the others.
func (s *listShare) limit(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		waiting, cancel := context.WithTimeout(r.Context(), shareWait)
		defer cancel()
		select {
		case s.turn <- struct{}{}:
		case <-waiting.Done():
			refuseList(w, shareWait)
			return
		}
		defer func() { <-s.turn }()
		if ahead := time.Now().Add(shareAhead); s.free.After(ahead) {
			refuseList(w, s.free.Sub(ahead))
			return
		}
		if err := s.rate.Wait(waiting); err != nil {
			refuseList(w, shareWait)
			return
		}
		began := time.Now()
		defer func() {
			if s.free.Before(began) {
				s.free = began
			}
			s.free = s.free.Add(s.of * min(time.Since(began), shareMost))
		}()
		next(w, r)
	}
}

func refuseList(w http.ResponseWriter, wait time.Duration) {
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	w.Header().Set("Retry-After", seconds)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(admin.MarshalError(admin.Errorf(admin.CodeUnavailable,
		"this node has asked for more lists than its share of the leader's time allows: try again in %s s", seconds)))
}
