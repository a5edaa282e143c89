package guarded

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// These are the pauses between two attempts at a slot that does not answer or that another gateway
// has guarded. They begin at shortest and double each time. Each is shortened by up to half, at
// random.
const (
	shortest       = 200 * time.Microsecond
	longest        = 10 * time.Millisecond
	longestGuarded = 2 * time.Millisecond
)

// These bound how long a write waits for news that a placement is being ended before it asks etcd.
const (
	endedShortest = 20 * time.Millisecond
	endedLongest  = time.Second
)

// After breakAfter of waiting for a guard, a write asks etcd whether the guard's session still
// exists. It then asks again at growing intervals, up to breakAtMost.
const (
	breakAfter  = 100 * time.Millisecond
	breakAtMost = time.Second
)

// evictAfter is how long a slot may fail to answer before the gateway asks the evictor to take its
// key out of the switches.
const evictAfter = time.Second

// pause is how long the next wait lasts.
type pause time.Duration

func newPause() pause { return pause(shortest) }

// next doubles the pause, and returns a random time between half of it and all of it.
func (p *pause) next(r Runtime, most time.Duration) time.Duration {
	d := time.Duration(*p)
	*p = pause(min(2*d, most))
	return d/2 + time.Duration(r.Jitter()*float64(d)/2)
}

// guard describes a slot that a write of this gateway has made unreadable, by putting a guard into
// it.
type guard struct {
	key     placedKey
	lease   int64 // session lease and number that identify the guard
	number  uint64
	version wire.Version // version of the slot while it holds the guard
	before  []byte       // the cell that was in the slot before the guard
	after   []byte       // the cell that publication puts into the slot

	// unknown means that a CAS that puts the guard into the slot may have been executed, or may
	// still be executed. That CAS expects the version in the field `was`.
	unknown bool
	was     wire.Version
}

// takeAll guards the given keys. Even if it returns an error, the returned guards are in place.
func (s *Server) takeAll(ctx context.Context, lease int64, keys []placedKey) (held []*guard, err error) {
	if len(keys) > 1 {
		if held, err = s.takeFree(ctx, lease, keys); err != nil {
			return held, err
		}
	}
	for _, k := range keys[len(held):] {
		g, err := s.take(ctx, lease, k)
		if err != nil {
			return held, err
		}
		held = append(held, g)
	}
	return held, nil
}

// takeFree guards the first of the given keys, in parallel. A write may wait for a key only while
// it has no guards of later keys. So if takeFree cannot guard a key at once, it first releases the
// guards of later keys.
func (s *Server) takeFree(ctx context.Context, lease int64, keys []placedKey) ([]*guard, error) {
	var tried []*guard
	for _, k := range keys {
		if !s.queues.enterFree(k, lease) {
			break
		}
		tried = append(tried, s.newGuard(lease, k))
	}
	got, denied := make([]bool, len(tried)), make([]error, len(tried))
	s.beside(len(tried), func(i int) { got[i], denied[i] = s.attempt(ctx, tried[i]) })
	first := slices.Index(got, false)
	if first < 0 {
		return tried, nil
	}
	back := tried[first+1:]
	s.finishGuards(ctx, back, s.release)
	held, g := tried[:first], tried[first]
	for _, err := range denied {
		if err != nil {
			s.finishGuard(ctx, g, s.release)
			return held, err
		}
	}
	if err := s.hold(ctx, g); err != nil {
		return held, err
	}
	return append(held, g), nil
}

// beside calls do(0) to do(n-1) in parallel and waits until all of them have returned. It cannot
// cancel them.
func (s *Server) beside(n int, do func(int)) {
	var others []chan struct{}
	for i := 1; i < n; i++ {
		done := make(chan struct{})
		others = append(others, done)
		s.Runtime.Go(func() {
			defer close(done)
			do(i)
		})
	}
	if n > 0 {
		do(0)
	}
	for _, done := range others {
		if !s.Runtime.Wait(context.Background(), done, 0) {
			<-done // the service is closing, so do ends at once
		}
	}
}

func (s *Server) newGuard(lease int64, k placedKey) *guard {
	return &guard{key: k, lease: lease, number: s.number.Add(1) & slotcodec.MaxNumber}
}

// take guards a key. If there is no error, this write holds the key's guard, and its caller must
// call release, publish or orphan.
func (s *Server) take(ctx context.Context, lease int64, k placedKey) (*guard, error) {
	left, ok := s.queues.enter(ctx, s.Runtime, k, lease)
	if !ok {
		return nil, over(ctx)
	}
	if left != nil {
		// The previous write did not publish its result, so `before` is etcd's present state.
		return &guard{key: k, lease: lease, number: left.number, version: left.version, before: left.after}, nil
	}
	g := s.newGuard(lease, k)
	if s.left.knows(k) {
		if got, err := s.attempt(ctx, g); got {
			return g, nil
		} else if err != nil {
			s.finishGuard(ctx, g, s.release)
			return nil, err
		}
	}
	return g, s.hold(ctx, g)
}

// hold waits until this write has the guard of a key. After an error, the next write of this
// gateway may try.
func (s *Server) hold(ctx context.Context, g *guard) error {
	err := s.contend(ctx, g)
	switch {
	case err == nil:
	case g.unknown: // This write keeps the key until the result of its CAS is known.
		s.finishGuard(ctx, g, s.release)
	default:
		s.queues.leave(g.key.Name)
	}
	return err
}

// mine returns the encoded cell for a guard of this gateway.
func (s *Server) mine(g *guard) ([]byte, error) {
	// GuardSize is enough for a guard, and the chain need not be known yet.
	return s.Codec.Codec().Encode(slotcodec.Cell{Kind: slotcodec.Guard, Lease: g.lease, Number: g.number},
		slotcodec.GuardSize)
}

// attempt tries once to guard a key, without waiting for other gateways. It reports whether the key
// is guarded. An error means that the switches do not let this gateway guard the key.
func (s *Server) attempt(ctx context.Context, g *guard) (bool, error) {
	mine, err := s.mine(g)
	if err != nil {
		return false, nil // contend reports the error
	}
	now, remembered := s.left.take(g.key)
	if !remembered {
		now, err = s.look(ctx, g.key)
		if err != nil || now.key != 0 || now.forged != nil || now.cell.Kind == slotcodec.Guard {
			return false, nil
		}
	}
	if g.before = now.plain; g.before == nil {
		g.before = []byte{byte(slotcodec.Clear)}
	}
	version, err := s.cas(ctx, g.key, now.version, mine)
	switch {
	case err == nil:
		g.version = version
		return true, nil
	case isChanged(err) && remembered:
		// The slot has changed since it was remembered. Try again after reading the slot.
		return s.attempt(ctx, g)
	case isGone(err), isChanged(err):
	case isDenied(err):
		return false, s.denied(g, err)
	default:
		g.unknown, g.was = true, now.version
	}
	return false, nil
}

// contend tries until the slot has the guard. If it fails while a CAS may still be executed,
// g.unknown is set.
func (s *Server) contend(ctx context.Context, g *guard) error {
	mine, err := s.mine(g)
	if err != nil {
		return err
	}
	var waited, silent time.Duration
	ask := breakAfter // next time to ask whether the other gateway's session exists
	limit := aliveFirst
	asked := false    // whether the evictor was asked to evict the key
	var nobodys error // not nil if the slot has a cell that no gateway has written
	defer func() {
		if waited > 0 {
			s.Observer.GuardWait(waited)
		}
	}()
	for p := newPause(); ; {
		if ctx.Err() != nil {
			if nobodys != nil {
				return s.unavailable(context.WithoutCancel(ctx), "its slot has what no gateway has written, and the controller has not yet taken the key out of the network", nobodys)
			}
			if silent > 0 {
				return s.unavailable(context.WithoutCancel(ctx), "the network does not answer", context.Cause(ctx))
			}
			return over(ctx)
		}
		changed := s.Directory.Changed()
		now, err := s.lookHard(ctx, g.key)
		if isGone(err) {
			g.unknown = false // the slot is gone, so no CAS can be executed on it
			return err
		}
		if isDenied(err) && !g.unknown {
			return s.denied(g, err)
		}
		if err != nil {
			d := p.next(s.Runtime, longest)
			s.Runtime.Wait(ctx, nil, d)
			if silent += d; silent >= evictAfter && !asked {
				asked = true
				s.Evictor.Evict(g.key, placement.SlotUnreachable, "a write cannot guard it: the network does not answer")
			}
			if !s.stillPlaced(g.key) {
				g.unknown = false // the key's slot is gone
				return errAgain
			}
			continue
		}
		silent = 0
		switch {
		case now.guardedBy(g.lease, g.number):
			g.version, g.unknown = now.version, false
			return nil
		case g.unknown && now.version != g.was:
			g.unknown = false
		}
		if nobodys = now.forged; nobodys != nil {
			// The forged cell may have replaced the guard of any gateway, and it is unknown which
			// value that guard protected. So the slot must not change until the key has been
			// removed from the switches.
			s.fault(g.key, now.version, nobodys)
			s.Runtime.Wait(ctx, changed, p.next(s.Runtime, longest))
			if !s.stillPlaced(g.key) {
				return errAgain
			}
			continue
		}
		if now.cell.Kind == slotcodec.Guard {
			if waited < ask {
				d := p.next(s.Runtime, longestGuarded)
				s.Runtime.Wait(ctx, nil, d)
				waited += d
				continue
			}
			ask = waited + min(2*(ask-breakAfter)+breakAfter, breakAtMost)
			if alive, err := s.alive(ctx, now.cell.Lease, &limit); err != nil || alive {
				continue
			}
		}
		g.before = now.plain
		if now.cell.Kind == slotcodec.Guard || now.plain == nil {
			g.before = []byte{byte(slotcodec.Clear)}
		}
		version, err := s.cas(ctx, g.key, now.version, mine)
		switch {
		case err == nil:
			g.version, g.unknown = version, false
			return nil
		case isGone(err):
			return err
		case isDenied(err) && !g.unknown:
			return s.denied(g, err)
		case !isChanged(err):
			g.unknown, g.was = true, now.version
		}
	}
}

// denied ends a write whose slot the switches do not let this gateway change. A guard of this
// session may remain, if one copy of the CAS was executed before the right was withdrawn. Other
// gateways can break that guard when the session is gone.
func (s *Server) denied(g *guard, why error) error {
	s.Sessions.GiveUp(g.lease)
	return status.Errorf(codes.PermissionDenied, "etcd-monitor: the switches do not let this host change the slot of %q, which is in the network, so it cannot be written from here: grant its principal the realm of etcd's keys, or write through a gateway; nothing was written: %v", g.key.Name, why)
}

// finishGuards calls finishGuard for each guard in parallel, and waits for all of them.
func (s *Server) finishGuards(ctx context.Context, guards []*guard, how func(context.Context, *guard) bool) {
	s.beside(len(guards), func(i int) { s.finishGuard(ctx, guards[i], how) })
}

// finishGuard applies the operation `how` to a guard, and then lets the next write have the key. If
// the operation does not succeed at once, finishGuard repeats it in the background until it is
// known to be done.
func (s *Server) finishGuard(ctx context.Context, g *guard, how func(context.Context, *guard) bool) {
	ctx, cancel := s.Runtime.Last(ctx)
	if how(ctx, g) {
		cancel()
		s.queues.leave(g.key.Name)
		return
	}
	s.Runtime.Go(func() {
		defer cancel()
		for p := newPause(); ctx.Err() == nil; {
			s.Runtime.Wait(ctx, nil, p.next(s.Runtime, 10*longest))
			if how(ctx, g) || !s.stillPlaced(g.key) {
				break
			}
		}
		s.queues.leave(g.key.Name)
	})
}

// publishAll publishes the result of a write. If another write of this gateway waits for a key, the
// key's guard is handed to that write, which will publish its own result.
func (s *Server) publishAll(ctx context.Context, guards []*guard) {
	var now []*guard
	for _, g := range guards {
		if !s.queues.hand(g) {
			now = append(now, g)
		}
	}
	s.finishGuards(ctx, now, s.publish)
}

// publish replaces a guard with etcd's present state. It reports whether the guard is known to be
// replaced, by this gateway or another one.
func (s *Server) publish(ctx context.Context, g *guard) bool { return s.replace(ctx, g, g.after) }

// release puts back the cell that was in the slot before the guard, because nothing was written.
func (s *Server) release(ctx context.Context, g *guard) bool {
	if g.unknown && !s.resolve(ctx, g) {
		return false
	}
	if g.version == 0 {
		return true
	}
	return s.replace(ctx, g, g.before)
}

func (s *Server) replace(ctx context.Context, g *guard, b []byte) bool {
	version, err := s.cas(ctx, g.key, g.version, b)
	if err == nil {
		s.left.put(g.key, version, b)
	}
	return err == nil || isChanged(err) || isGone(err)
}

// resolve finds out whether a CAS that puts a guard into a slot was executed. It reports whether
// the answer is known. If the guard is in the slot, resolve sets g.version.
func (s *Server) resolve(ctx context.Context, g *guard) bool {
	now, err := s.lookHard(ctx, g.key)
	switch {
	case isGone(err):
	case err != nil:
		return false
	case now.guardedBy(g.lease, g.number):
		g.version = now.version
	case now.version == g.was:
		// The CAS may still be executed until the slot's version changes, so this CAS changes the
		// version.
		_, err := s.cas(ctx, g.key, now.version, now.plain)
		if err != nil && !isGone(err) {
			return false
		}
	}
	g.unknown = false
	return true
}

// orphan abandons guards of writes whose result at etcd is not known. No gateway may replace such a
// guard until the guard's session is gone. This gateway lets its next writes of these keys proceed.
func (s *Server) orphan(ctx context.Context, guards []*guard) {
	for _, g := range guards {
		s.queues.leave(g.key.Name)
		s.breakStaleGuard(ctx, g.key, slot{version: g.version})
	}
}
