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

// Clock measures durations. Readings of two clocks are never compared.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine after d. stop prevents the call, unless it has already
	// begun.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// Monotonic is the process's clock. It may be slewed.
type Monotonic struct{}

// Now implements [Clock].
func (Monotonic) Now() time.Time { return time.Now() }

// AfterFunc implements [Clock].
func (Monotonic) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// Unslewed is the machine's clock that is not slewed. Its timers may be slewed, so their callbacks
// check Now.
type Unslewed struct{ Monotonic }

// Now implements [Clock]. Its results can be compared only with each other.
func (Unslewed) Now() time.Time { return time.Unix(0, 0).Add(clock.Raw()) }

// Options are the options of a Service.
type Options struct {
	// Clock must not be slewed, because other Services measure the same time with their clocks
	// (margin). nil: Monotonic, which is enough for tests.
	Clock Clock
	Node  string // the name of this node
	// Sweep is the average time between two sweeps of a namespace. 0: DefaultSweep; negative: no
	// sweeps.
	Sweep time.Duration
}

// Service is a node's part in the coordination. Any number of Services, on any nodes, work on one
// store, and none depends on another one to finish an operation. It is safe for concurrent use.
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
	tidies int           // number of tasks that clean up
	tidy   chan struct{} // closed after Close when no cleanup task is left
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

// Close ends the Service. It cleans up until ctx ends, for example the leases of closed Owners; the
// rest is left to expiry and to other Services.
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

// behind runs a task that only Close waits for. Once the Service is closed, only cleanup tasks may
// start more tasks.
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

// loop runs a function until the Service ends, or until the function's own context does.
func (s *Service) loop(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Go(f)
	}
}

// tryFor bounds how long the Service tries to clean up after a failure.
const tryFor = 10 * time.Minute

// Pauses between attempts at a store that fails: the first, and the longest.
const firstPause, longestPause = 10 * time.Millisecond, time.Second

// pauses waits between attempts, longer each time.
type pauses struct {
	s    *Service
	next time.Duration
}

// wait returns false if ctx ended first.
func (p *pauses) wait(ctx context.Context) bool {
	p.next = min(max(2*p.next, firstPause), longestPause)
	return p.s.sleep(ctx, p.next)
}

// sleep returns false if ctx ended first.
func (s *Service) sleep(ctx context.Context, d time.Duration) bool { return s.sleepUntil(ctx, d, nil) }

// sleepUntil is like sleep, but wake also ends it.
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

// The names that coordination keeps in a namespace.
const (
	leasePrefix    = cell.ReservedPrefix + "lease/"
	lockPrefix     = cell.ReservedPrefix + "lock/"
	electionPrefix = cell.ReservedPrefix + "election/"
	permitPrefix   = cell.ReservedPrefix + "permit/"
	servicePrefix  = cell.ReservedPrefix + "service/"
	nudgePrefix    = cell.ReservedPrefix + "nudge/"
)

// named builds a key from a name that a program has chosen. tail is the number of bytes that may
// follow it.
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

// nothingDone reports whether an error means that a write was not executed, and never will be.
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

// ended is the error of a call whose context ended while it only waited.
func ended(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nodeapi.Errorf(nodeapi.CodeTimeout, "wait for longer", "%s: the time was over; nothing was done", what)
	}
	return nodeapi.Errorf(nodeapi.CodeCanceled, "", "%s: canceled; nothing was done", what)
}

// fits refuses a value that is too long for a cell of the namespace.
func (s *Service) fits(ns, what string, kind cell.Kind, value []byte) error {
	room := s.store.MaxValue(ns) - kind.Overhead()
	if n := cell.PackedLen(value); n > room {
		return nodeapi.Errorf(nodeapi.CodeTooLarge, "shorten it, or ask for a namespace whose chains have wider values",
			"%s takes %d bytes; a value here has %d, of which %d are left for it", what, n, room+kind.Overhead(), max(room, 0))
	}
	return nil
}

func draw(b []byte) {
	_, _ = rand.Read(b) // it never fails
}
