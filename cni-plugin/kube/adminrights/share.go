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
	// shareOf limits the leader's time for one node's lists. They get one part in shareOf.
	shareOf = 10
	// shareAhead is by how much a node's lists may exceed their share of the time for a short
	// while.
	shareAhead = 2 * time.Second
	// shareMost is the maximum time that one list counts for. A list takes longer if the leader is
	// busy with other work, which the node does not cause.
	shareMost = 200 * time.Millisecond
	// shareWait is how long a list waits for another list of the same node.
	shareWait = 2 * time.Second
	// shareRequests is the maximum rate of a node's requests of all kinds, per second. A request
	// above this rate waits.
	shareRequests = 1000
	// shareChanges is the maximum average rate, per second, of a node's changes of keys and session
	// leases. shareChangesAtOnce is the maximum burst. Changes above the limit wait.
	shareChanges       = 100
	shareChangesAtOnce = 200
	// shareWatches is the maximum rate, per second, at which a node registers its watches. A node
	// renews them every few seconds. Each registration may change tables of switches.
	shareWatches = 4
)

// Share bounds how much of the leader's time one node's requests take, over all of the node's
// connections.
type Share struct {
	requests, changes *rate.Limiter
	lists, watches    *listShare
}

// NewShare makes the Share of a node that has made no requests yet.
func NewShare() *Share {
	return &Share{requests: rate.NewLimiter(shareRequests, shareRequests),
		changes: rate.NewLimiter(shareChanges, shareChangesAtOnce), lists: newListShare(rate.Inf, shareOf),
		watches: newListShare(shareWatches, 0)}
}

// wait delays a request until the node may make it. Renewals of sessions (PUT) do not wait for
// changes. The agent reserves streams of its connection for renewals (leaderlink.Link).
func (s *Share) wait(r *http.Request) error {
	if err := s.requests.Wait(r.Context()); err != nil || r.Method != http.MethodPost && r.Method != http.MethodDelete {
		return err
	}
	return s.changes.Wait(r.Context())
}

// listShare makes a node's lists of one kind run one at a time, with a maximum rate and a maximum
// share of the time.
type listShare struct {
	of   time.Duration // a list costs this many times its duration
	turn chan struct{} // has room for the one list that runs
	rate *rate.Limiter // limits the rate of lists, however short they are
	free time.Time     // when the cost of all past lists is paid; only the running list uses this field
}

func newListShare(most rate.Limit, of time.Duration) *listShare {
	return &listShare{of: of, turn: make(chan struct{}, 1), rate: rate.NewLimiter(most, 2*shareWatches)}
}

// limit forwards list requests within the share, and refuses all others.
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
