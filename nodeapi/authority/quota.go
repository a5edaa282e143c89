package authority

import (
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Quota limits how much of a node and of the chains one namespace may use. The value 0 in a field
// allows nothing.
type Quota struct {
	// Connections is the maximum number of connections to this node at a time. Watches is the
	// maximum number of watched keys and prefixes on this node at a time.
	Connections int `yaml:"connections"`
	Watches     int `yaml:"watches"`
	// RequestsPerSecond is the maximum average rate of requests to this node. Burst is the maximum
	// number of requests at once.
	RequestsPerSecond float64 `yaml:"requestsPerSecond"`
	Burst             int     `yaml:"burst"`
	// ListsPerSecond is the maximum average rate of list pages on this node. Five times as many
	// pages may be requested at once.
	ListsPerSecond float64 `yaml:"listsPerSecond"`
	// Keys is the maximum number of keys of the namespace in all chains together.
	Keys int `yaml:"keys"`
}

// DefaultQuota is the quota of a namespace for which nothing else is configured.
var DefaultQuota = Quota{Connections: 2048, Watches: 50_000, RequestsPerSecond: 50_000, Burst: 20_000,
	ListsPerSecond: 20, Keys: 10_000}

// listBurst returns the maximum number of list pages that may be requested at once.
func (q Quota) listBurst() int { return int(min(math.Ceil(5*q.ListsPerSecond), math.MaxInt32)) }

func (q Quota) check() error {
	if q.Connections < 0 || q.Watches < 0 || q.Keys < 0 || q.Burst < 0 || !(q.RequestsPerSecond >= 0) ||
		!(q.ListsPerSecond >= 0) {
		return fmt.Errorf("a quota has no numbers below 0: %+v", q)
	}
	if q.RequestsPerSecond > 0 && q.Burst == 0 {
		return fmt.Errorf("with a burst of 0, no request is taken: %+v", q)
	}
	return nil
}

// Quotas counts the resources of this node that each namespace uses. It is safe for concurrent use.
type Quotas struct {
	clock interface{ Now() time.Time }
	of    func(subject string) Quota

	mu    sync.Mutex
	used  map[string]*usage
	swept time.Time
}

type usage struct {
	connections, watches int
	requests, lists      *rate.Limiter
}

// NewQuotas creates a Quotas. The function `of` returns the limits of a subject (see [Authorizer]).
// If the limits change later, the caller must call Changed. A nil clock means the wall clock.
func NewQuotas(of func(subject string) Quota, clock interface{ Now() time.Time }) *Quotas {
	if clock == nil {
		clock = wallClock{}
	}
	return &Quotas{of: of, clock: clock, used: map[string]*usage{}, swept: clock.Now()}
}

// Changed must be called when quotas have changed. A subject that exceeds its new quota keeps what
// it has, but gets nothing more.
func (q *Quotas) Changed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	for subject, u := range q.used {
		n := q.of(subject)
		u.requests.SetLimitAt(now, rate.Limit(n.RequestsPerSecond))
		u.requests.SetBurstAt(now, n.Burst)
		u.lists.SetLimitAt(now, rate.Limit(n.ListsPerSecond))
		u.lists.SetBurstAt(now, n.listBurst())
	}
}

// sweepEvery is the interval at which idle accounts are closed.
const sweepEvery = time.Minute

// sweep closes accounts that use nothing and have their full burst available. So a caller gains
// nothing by connecting again. The caller holds q.mu.
func (q *Quotas) sweep() {
	now := q.clock.Now()
	if now.Sub(q.swept) < sweepEvery {
		return
	}
	q.swept = now
	for subject, u := range q.used {
		if u.connections == 0 && u.requests.TokensAt(now) >= float64(u.requests.Burst()) &&
			u.lists.TokensAt(now) >= float64(u.lists.Burst()) {
			delete(q.used, subject)
		}
	}
}

// Account is the account of one connection. All connections of a subject share the limits.
type Account struct {
	q       *Quotas
	subject string
	u       *usage
}

// Connect counts a new connection of a subject. The connection counts until its Account is closed.
func (q *Quotas) Connect(subject string) (*Account, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sweep()
	may := q.of(subject)
	u := q.used[subject]
	if u == nil {
		u = &usage{requests: rate.NewLimiter(rate.Limit(may.RequestsPerSecond), may.Burst),
			lists: rate.NewLimiter(rate.Limit(may.ListsPerSecond), may.listBurst())}
		q.used[subject] = u
	}
	if u.connections >= may.Connections {
		return nil, exceeded(subject, "close connections that are not used, or use one for several tasks",
			"%d connections to this node, of at most %d", u.connections, may.Connections)
	}
	u.connections++
	return &Account{q, subject, u}, nil
}

// Close must be called once, after the connection has ended and its watches have been released.
func (a *Account) Close() {
	a.q.mu.Lock()
	defer a.q.mu.Unlock()
	a.u.connections--
}

// Connections returns the number of connections of the subject.
func (a *Account) Connections() int {
	a.q.mu.Lock()
	defer a.q.mu.Unlock()
	return a.u.connections
}

// Watch counts n more watched keys and prefixes. They count until Unwatch.
func (a *Account) Watch(n int) error {
	if n == 0 {
		return nil
	}
	a.q.mu.Lock()
	defer a.q.mu.Unlock()
	if may := a.q.of(a.subject); n < 0 || n > may.Watches-a.u.watches {
		return exceeded(a.subject, "cancel watches that are not used, or watch a prefix in the place of many keys",
			"%d watches at this node, of at most %d, and asks for %d more", a.u.watches, may.Watches, n)
	}
	a.u.watches += n
	return nil
}

// Unwatch must be called once, with the same n, for each Watch that returned nil.
func (a *Account) Unwatch(n int) {
	if n == 0 {
		return
	}
	a.q.mu.Lock()
	defer a.q.mu.Unlock()
	a.u.watches -= n
}

// Request counts a message that causes as much work as n requests. If this is more than the burst,
// the message uses up the whole burst.
func (a *Account) Request(n int) error {
	if a.u.requests.AllowN(a.q.clock.Now(), max(min(n, a.u.requests.Burst()), 1)) {
		return nil
	}
	return exceeded(a.subject, "send it again later", "sent more than %g requests a second to this node, and %d at once",
		float64(a.u.requests.Limit()), a.u.requests.Burst())
}

// List counts a page of a list. Pages have their own limit, because the controller or etcd must
// search for the names.
func (a *Account) List() error {
	if a.u.lists.AllowN(a.q.clock.Now(), 1) {
		return nil
	}
	return exceeded(a.subject, "ask for more keys at once, or send it again later",
		"listed more than %g pages of keys a second at this node, and %d at once",
		float64(a.u.lists.Limit()), a.u.lists.Burst())
}

// Keys returns the maximum number of keys of a namespace.
func (q *Quotas) Keys(namespace string) int {
	return q.of(namespace).Keys
}

func exceeded(subject, do, format string, args ...any) error {
	return &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded, Do: do, Message: subject + " has " + fmt.Sprintf(format, args...)}
}
