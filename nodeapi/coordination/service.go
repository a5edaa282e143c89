// Package coordination implements leases, and the features that depend on them: keys that expire,
// locks, leaders, semaphores and services. It needs only a store.Store and a clock for durations.
// docs/coordination.md describes its guarantees and their reasons.
package coordination

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Clock measures durations. Readings of two different clocks are never compared.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in a separate goroutine after d. The returned function stop prevents the
	// call, unless it has already begun.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// Monotonic is the monotonic clock of the process. It may be slewed.
type Monotonic struct{}

// Now implements [Clock].
func (Monotonic) Now() time.Time { return time.Now() }

// AfterFunc implements [Clock].
func (Monotonic) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// Unslewed is the machine's clock that is not slewed. Its timers may be slewed, so their callbacks
// must check Now.
type Unslewed struct{ Monotonic }

// Now implements [Clock]. Its results can only be compared with each other.
func (Unslewed) Now() time.Time { return time.Unix(0, 0).Add(clock.Raw()) }

// Options are the options of a Service.
type Options struct {
	// Clock must not be slewed, because the clocks of other Services measure the same time (see
	// margin). If it is nil, the clock is Monotonic, which is enough for tests.
	Clock Clock
	Node  string // the name of this node
	// Sweep is the average time between two sweeps of a namespace. The value 0 means DefaultSweep,
	// and a negative value means no sweeps.
	Sweep time.Duration
}

// Service implements the coordination features on one node. Any number of Services, on any nodes,
// work on the same store. No Service depends on another Service to finish an operation. It is safe
// for concurrent use.
type Service struct {
	store store.Store
	clock Clock
	node  string

	sweepEvery time.Duration

	ctx  context.Context // canceled when the Service ends
	stop context.CancelFunc
	work sync.WaitGroup // background work that outlives the calls

	mu     sync.Mutex
	closed bool
	tidies int           // number of running tasks that clean up
	tidy   chan struct{} // made by Close; closed when no task that cleans up is running
	leases map[leaseKey]*lease
	swept  map[string]bool
	views  map[store.Key]*view
	keeps  map[store.Key]*keeping
	lines  map[store.Key]*line

	remembered remembered
}

// New makes a Service. Close ends it.
func New(st store.Store, o Options) *Service {
	if o.Clock == nil {
		o.Clock = Monotonic{}
	}
	if o.Sweep == 0 {
		o.Sweep = DefaultSweep
	}
	s := &Service{store: st, clock: o.Clock, node: o.Node, sweepEvery: o.Sweep,
		leases: map[leaseKey]*lease{}, swept: map[string]bool{},
		views: map[store.Key]*view{}, keeps: map[store.Key]*keeping{}, lines: map[store.Key]*line{},
		remembered: remembered{map[store.Key]holding{}, map[store.Key]wire.Version{}}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends the Service. It cleans up until ctx ends. For example, it ends the leases of closed
// Owners. What is left expires, or other Services remove it.
func (s *Service) Close(ctx context.Context) {
	s.mu.Lock()
	if !s.closed {
		s.closed, s.tidy = true, make(chan struct{})
		if s.tidies == 0 {
			close(s.tidy)
		}
		for _, l := range s.leases {
			l.disarm()
		}
	}
	s.mu.Unlock()
	select {
	case <-s.tidy:
	case <-ctx.Done():
	}
	s.stop()
	s.work.Wait()
}

// behind runs a cleanup task in the background. Close waits for such tasks. After Close, only
// cleanup tasks may start further tasks.
func (s *Service) behind(f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && s.tidies == 0 {
		return
	}
	s.tidies++
	s.work.Go(func() {
		f(s.ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tidies--; s.tidies == 0 && s.closed {
			close(s.tidy)
		}
	})
}

// loop runs a function until the Service ends, or until the function returns because its own
// context has ended.
func (s *Service) loop(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Go(f)
	}
}

// tryFor is the maximum time for which the Service tries to clean up after a failure.
const tryFor = 10 * time.Minute

// firstPause and longestPause are the first and the longest pause between attempts to use a store
// that fails.
const firstPause, longestPause = 10 * time.Millisecond, time.Second

// pauses waits between attempts. Each pause is longer than the one before.
type pauses struct {
	s    *Service
	next time.Duration
}

// wait waits for the next pause. It returns false if ctx ended first.
func (p *pauses) wait(ctx context.Context) bool {
	p.next = min(max(2*p.next, firstPause), longestPause)
	return p.s.sleep(ctx, p.next)
}

// sleep waits for a duration. It returns false if ctx ended first.
func (s *Service) sleep(ctx context.Context, d time.Duration) bool { return s.sleepUntil(ctx, d, nil) }

// sleepUntil is like sleep, but also returns when wake is closed or receives a value.
func (s *Service) sleepUntil(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	over := make(chan struct{})
	stop := s.clock.AfterFunc(d, func() { close(over) })
	defer stop()
	select {
	case <-over:
		return ctx.Err() == nil
	case <-wake:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// These are prefixes of the names of keys that coordination uses in a namespace.
const (
	leasePrefix    = cell.ReservedPrefix + "lease/"
	lockPrefix     = cell.ReservedPrefix + "lock/"
	electionPrefix = cell.ReservedPrefix + "election/"
	permitPrefix   = cell.ReservedPrefix + "permit/"
	servicePrefix  = cell.ReservedPrefix + "service/"
	nudgePrefix    = cell.ReservedPrefix + "nudge/"
)

// named returns the key for a name that a program has chosen. The argument `tail` is the number of
// bytes that may follow the name.
func named(ns, prefix, what, name string, tail int) (store.Key, error) {
	room := nodeapi.MaxKeyName - len(prefix) - tail
	switch {
	case name == "" || !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return store.Key{}, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "name it by text", "a %s needs a name", what)
	case len(name) > room:
		return store.Key{}, nodeapi.Errorf(nodeapi.CodeTooLarge, "choose a shorter one",
			"the name of a %s has at most %d bytes, not %d", what, room, len(name))
	}
	return store.Key{Namespace: ns, Name: prefix + name}, nil
}

// nothingDone reports whether an error means that a write was not executed and will never be
// executed.
func nothingDone(err error) bool {
	var e *nodeapi.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case nodeapi.CodeOutcomeUnknown, nodeapi.CodeCanceled, nodeapi.CodeInternal:
		return false
	}
	return true
}

// passing reports whether an error is transient.
func passing(err error) bool {
	var e *nodeapi.Error
	if !errors.As(err, &e) {
		return true
	}
	switch e.Code {
	case nodeapi.CodeUnavailable, nodeapi.CodeTimeout, nodeapi.CodeOutcomeUnknown, nodeapi.CodeCanceled,
		nodeapi.CodeInternal:
		return true
	}
	return false
}

// ended returns the error for a call whose context ended while the call waited without having
// changed anything.
func ended(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nodeapi.Errorf(nodeapi.CodeTimeout, "wait for longer", "%s: the time was over; nothing was done", what)
	}
	return nodeapi.Errorf(nodeapi.CodeCanceled, "", "%s: canceled; nothing was done", what)
}

// fits returns an error if a value is too long for a cell of the namespace.
func (s *Service) fits(ns, what string, kind cell.Kind, value []byte) error {
	room := s.store.MaxValue(ns) - kind.Overhead()
	if n := cell.PackedLen(value); n > room {
		return nodeapi.Errorf(nodeapi.CodeTooLarge, "shorten it, or ask for a namespace whose chains have wider values",
			"%s takes %d bytes; a value here has %d, of which %d are left for it", what, n, room+kind.Overhead(), max(room, 0))
	}
	return nil
}

func draw(b []byte) {
	_, _ = rand.Read(b) // Read never fails
}
