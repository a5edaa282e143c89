package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/client/node"
)

// nodeSemaphore is a semaphore. Programs compete for its permits. The protected resource identifies
// a permit by the lowest bits of the permit's token, and refuses old tokens of each permit. So the
// number of holders that the resource accepts never exceeds the number of permits.
type nodeSemaphore struct {
	*nodeContest
	count int

	mu      sync.Mutex
	permits map[uint64]*nodeLock
}

// permitMask selects the bits of a token that identify the permit.
const permitMask = 1<<8 - 1

func newSemaphore(t *testing.T, name string, count int) *nodeSemaphore {
	s := &nodeSemaphore{count: count, permits: map[uint64]*nodeLock{}}
	s.nodeContest = &nodeContest{t: t, what: "a permit of " + name, lock: s.permit,
		take: func(ctx context.Context, p *node.Client, opts ...node.Option) (*node.Held, error) {
			return p.Acquire(ctx, name, count, opts...)
		}}
	return s
}

func (s *nodeSemaphore) permit(token uint64) *nodeLock {
	s.mu.Lock()
	defer s.mu.Unlock()
	which := token & permitMask
	if s.permits[which] == nil {
		s.permits[which] = &nodeLock{name: fmt.Sprintf("%s, the one of number %d,", s.what, which)}
	}
	return s.permits[which]
}

// holds returns the records of all holders of all permits.
func (s *nodeSemaphore) holds() (all []*nodeHold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.permits {
		l.mu.Lock()
		all = append(all, l.holds...)
		l.mu.Unlock()
	}
	return all
}

// check returns errors for everything in the semaphore's record that is impossible.
func (s *nodeSemaphore) check() (errs []error) {
	s.mu.Lock()
	for _, which := range slices.Sorted(maps.Keys(s.permits)) {
		if which >= uint64(s.count) {
			errs = append(errs, fmt.Errorf("the number of a permit is %d; there are %d", which, s.count))
		}
		errs = append(errs, s.permits[which].check()...)
	}
	s.mu.Unlock()
	// This check does not use tokens. After its lease was last renewed, a holder certainly held its
	// permit for a while.
	all := s.holds()
	for _, h := range all {
		others := 0
		for _, x := range all {
			if x != h && !x.lapses.IsZero() && x.taken.Before(h.begun) && h.taken.Before(x.lapses) {
				others++
			}
		}
		if others >= s.count {
			errs = append(errs, fmt.Errorf("the token %d was given while %d others held theirs; there are %d", h.token, others,
				s.count))
		}
	}
	return errs
}

// TestNodeSemaphore checks that the method check reports too many holders.
func TestNodeSemaphore(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	over := make(chan struct{})
	close(over)
	hold := func(token uint64, begun, taken, lapses int) *nodeHold {
		h := &nodeHold{token: token, begun: at(begun), taken: at(taken), lost: over}
		if lapses > 0 {
			h.lapses = at(lapses)
		}
		return h
	}
	for _, c := range []struct {
		what  string
		holds []*nodeHold
		may   bool
	}{
		{"one after another", []*nodeHold{hold(0x100, 0, 10, 50), hold(0x200, 5, 55, 0), hold(0x300, 60, 70, 0)}, true},
		{"two at once", []*nodeHold{hold(0x200, 0, 10, 500), hold(0x101, 20, 30, 500), hold(0x300, 400, 501, 0)}, true},
		{"a third", []*nodeHold{hold(0x100, 0, 10, 500), hold(0x101, 0, 10, 500), hold(0x102, 20, 30, 0)}, false},
		{"a third by another's number", []*nodeHold{hold(0x100, 0, 10, 500), hold(0x101, 0, 10, 500), hold(0x201, 20, 30, 0)},
			false},
		{"a number beyond", []*nodeHold{hold(0x102, 0, 10, 0)}, false},
		{"twice by one token", []*nodeHold{hold(0x101, 0, 10, 0), hold(0x101, 0, 10, 0)}, false},
		{"backwards", []*nodeHold{hold(0x301, 0, 10, 0), hold(0x201, 20, 30, 0)}, false},
	} {
		s := newSemaphore(t, "s", 2)
		var errs []error
		for _, h := range c.holds {
			if _, err := s.permit(h.token).enter(h); err != nil {
				errs = append(errs, err)
			}
		}
		if errs = append(errs, s.check()...); (len(errs) == 0) != c.may {
			t.Errorf("%s: %v", c.what, errs)
		}
	}
}
