package coordination

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// DefaultSweep is the average time between two sweeps of a namespace by a Service with leases
// there.
const DefaultSweep = 10 * time.Minute

// sweepPause is the time between two keys of a sweep; it keeps a sweep from slowing down other
// calls.
const sweepPause = time.Millisecond

// Sweep reads all keys of a namespace once. It finds keys whose lease has lapsed while no running
// server knew about it, and leases that no server follows. These leases then end within their time
// to live plus an eighth of it.
func (s *Service) Sweep(ctx context.Context, ns string) error {
	keys, err := s.store.List(ctx, ns, "")
	if err != nil {
		return err
	}
	for _, key := range keys {
		if !s.sleep(ctx, sweepPause) {
			return ctx.Err()
		}
		item, err := s.store.Get(ctx, key, true)
		if err != nil {
			return err
		}
		c, err := cell.Decode(item.Value)
		switch {
		case !item.Found || err != nil:
		case c.Kind == cell.Lease:
			if k, err := parseLease(ns, key.Name[min(len(leasePrefix), len(key.Name)):]); err == nil {
				s.note(k, key)
			}
		case c.Hangs():
			s.note(leaseKey{ns, c.Lease}, key)
		}
	}
	return nil
}

// sweeps sweeps a namespace at random intervals, beginning when this Service first sees a lease
// there.
// s.mu is held.
func (s *Service) sweeps(ns string) {
	if s.swept[ns] || s.sweepEvery < 0 || s.closed {
		return
	}
	s.swept[ns] = true
	s.work.Go(func() {
		// A random delay, so that not all nodes sweep at the same time.
		for s.sleep(s.ctx, s.sweepEvery/2+rand.N(s.sweepEvery)) {
			_ = s.Sweep(s.ctx, ns) // the next sweep covers what this one left out
		}
	})
}

// sweepKey deletes a key if it is bound to a lease that is gone.
func (s *Service) sweepKey(ctx context.Context, key store.Key, id cell.LeaseID) {
	for end, pause := s.clock.Now().Add(tryFor), (pauses{s: s}); ; {
		item, err := s.store.Get(ctx, key, false)
		if err == nil {
			if c, bad := cell.Decode(item.Value); !item.Found || bad != nil || !c.Hangs() || c.Lease != id {
				return
			}
			_, _, err = s.store.CompareAndDelete(ctx, key, item.Version)
		}
		if err == nil || !passing(err) || s.clock.Now().After(end) || !pause.wait(ctx) {
			return
		}
	}
}
