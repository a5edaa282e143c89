package coordination

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// DefaultSweep is the average time between two sweeps of a namespace. A Service sweeps the
// namespaces in which it has seen leases.
const DefaultSweep = 10 * time.Minute

// sweepPause is the pause between two keys of a sweep. It prevents that a sweep slows down other
// calls.
const sweepPause = time.Millisecond

// Sweep reads all keys of a namespace once. It finds keys whose lease expired while no running
// server knew of the lease, and leases that no server follows. Such leases then end within their
// time to live plus an eighth of it.
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

// sweeps starts to sweep a namespace at random intervals, when this Service first sees a lease
// there. The caller holds s.mu.
func (s *Service) sweeps(ns string) {
	if s.swept[ns] || s.sweepEvery < 0 || s.closed {
		return
	}
	s.swept[ns] = true
	s.work.Go(func() {
		// The delay is random, so that the nodes do not all sweep at the same time.
		for s.sleep(s.ctx, s.sweepEvery/2+rand.N(s.sweepEvery)) {
			_ = s.Sweep(s.ctx, ns) // keys that this sweep did not check are checked by the next sweep
		}
	})
}

// sweepKey deletes a key if it is bound to a lease that has ended.
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
