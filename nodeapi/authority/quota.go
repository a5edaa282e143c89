package authority

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/netcraq/netcraq/api/node"
)

// Quota is what one namespace may take of a node, and of the chains. 0 of any: none at all.
type Quota struct {
	// Connections and Watches (keys and prefixes that are followed) are at one time, at this node.
	Connections int `yaml:"connections"`
	Watches     int `yaml:"watches"`
	// RequestsPerSecond is at this node, on average; Burst are as many as may come at once.
	RequestsPerSecond float64 `yaml:"requestsPerSecond"`
	Burst             int     `yaml:"burst"`
	// Keys are those of the namespace in all chains.
	Keys int `yaml:"keys"`
}

// DefaultQuota is a namespace's of which nothing else is said.
var DefaultQuota = Quota{Connections: 2048, Watches: 50_000, RequestsPerSecond: 50_000, Burst: 20_000, Keys: 10_000}

func (q Quota) check() error {
	if q.Connections < 0 || q.Watches < 0 || q.Keys < 0 || q.Burst < 0 || !(q.RequestsPerSecond >= 0) {
		return fmt.Errorf("a quota has no numbers below 0: %+v", q)
	}
	if q.RequestsPerSecond > 0 && q.Burst == 0 {
		return fmt.Errorf("with a burst of 0, no request is taken: %+v", q)
	}
	return nil
}

// Quotas counts what each namespace takes of this node. It is safe for concurrent use.
type Quotas struct {
	clock interface{ Now() time.Time }

	mu    sync.Mutex
	of    func(subject string) Quota
	used  map[string]*usage
	swept time.Time
}

type usage struct {
	connections, watches int
	requests             *rate.Limiter
}

// NewQuotas makes one. of says what each subject may take (see [Authorizer]); it may change, see
// Changed. A nil clock is the wall's.
func NewQuotas(of func(subject string) Quota, clock interface{ Now() time.Time }) *Quotas {
	if clock == nil {
		clock = wallClock{}
	}
	return &Quotas{of: of, clock: clock, used: map[string]*usage{}, swept: clock.Now()}
}

// Changed says that quotas are others now. Who has more than they allow keeps it, and gets no more.
func (q *Quotas) Changed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	for subject, u := range q.used {
		n := q.of(subject)
		u.requests.SetLimitAt(now, rate.Limit(n.RequestsPerSecond))
		u.requests.SetBurstAt(now, n.Burst)
	}
}

// use is a subject's account. q.mu is held.
func (q *Quotas) use(subject string) (*usage, Quota) {
	may := q.of(subject)
	u := q.used[subject]
	if u == nil {
		u = &usage{requests: rate.NewLimiter(rate.Limit(may.RequestsPerSecond), may.Burst)}
		q.used[subject] = u
	}
	return u, may
}

// sweepEvery is how often accounts are closed of which nothing has to be remembered.
const sweepEvery = time.Minute

// sweep closes accounts with nothing in use and all of the burst there: whoever connects anew gets
// no more by it. q.mu is held.
func (q *Quotas) sweep() {
	now := q.clock.Now()
	if now.Sub(q.swept) < sweepEvery {
		return
	}
	q.swept = now
	for subject, u := range q.used {
		if u.connections == 0 && u.watches == 0 && u.requests.TokensAt(now) >= float64(u.requests.Burst()) {
			delete(q.used, subject)
		}
	}
}

// Connect counts a connection, until Disconnect.
func (q *Quotas) Connect(subject string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sweep()
	u, may := q.use(subject)
	if u.connections >= may.Connections {
		return exceeded(subject, "close connections that are not used, or use one for several tasks",
			"%d connections to this node, of at most %d", u.connections, may.Connections)
	}
	u.connections++
	return nil
}

// Disconnect is called once for each Connect that returned nil.
func (q *Quotas) Disconnect(subject string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if u := q.used[subject]; u != nil {
		u.connections = max(u.connections-1, 0)
	}
}

// Watch counts n keys and prefixes that are followed, until Unwatch.
func (q *Quotas) Watch(subject string, n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	u, may := q.use(subject)
	if n < 0 || n > may.Watches-u.watches {
		return exceeded(subject, "cancel watches that are not used, or watch a prefix in the place of many keys",
			"%d watches at this node, of at most %d, and asks for %d more", u.watches, may.Watches, n)
	}
	u.watches += n
	return nil
}

// Unwatch is called once for each Watch that returned nil, with its n.
func (q *Quotas) Unwatch(subject string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if u := q.used[subject]; u != nil {
		u.watches = max(u.watches-n, 0)
	}
}

// Request counts a request.
func (q *Quotas) Request(subject string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	u, may := q.use(subject)
	if !u.requests.AllowN(q.clock.Now(), 1) {
		return exceeded(subject, "send it again later",
			"sent more than %g requests a second to this node, and %d at once", may.RequestsPerSecond, may.Burst)
	}
	return nil
}

// Keys is how many keys a namespace may have.
func (q *Quotas) Keys(namespace string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.of(namespace).Keys
}

func exceeded(subject, do, format string, args ...any) error {
	return &node.Error{Code: node.CodeQuotaExceeded, Do: do,
		Message: fmt.Sprintf("namespace %s has ", subject) + fmt.Sprintf(format, args...)}
}
