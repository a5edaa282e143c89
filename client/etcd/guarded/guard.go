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

// Pauses between two attempts at a slot that another gateway has guarded, or that does not answer.
// They begin at shortest and double each time, less up to half by chance.
const (
	shortest       = 200 * time.Microsecond
	longest        = 10 * time.Millisecond
	longestGuarded = 2 * time.Millisecond
)

// How long a write waits for news that a placement is being ended before it asks etcd.
const (
	endedShortest = 20 * time.Millisecond
	endedLongest  = time.Second
)

// When to ask etcd whether the session of a guard still exists: after waiting this long for the
// guard, and then less and less often.
const (
	breakAfter  = 100 * time.Millisecond
	breakAtMost = time.Second
)

// evictAfter is how long a slot may be silent before the evictor is asked to take its key out of
// the network.
const evictAfter = time.Second

// pause is the next time to wait.
type pause time.Duration

func newPause() pause { return pause(shortest) }

// next doubles the pause, and returns a random time between half of it and all of it.
func (p *pause) next(r Runtime, most time.Duration) time.Duration {
	d := time.Duration(*p)
	*p = pause(min(2*d, most))
	return d/2 + time.Duration(r.Jitter()*float64(d)/2)
}

// guard is a slot that a write of this gateway has made unreadable.
type guard struct {
	key     placedKey
	lease   int64 // session lease and number that identify the guard
	number  uint64
	version wire.Version // version of the slot that holds the guard
	before  []byte       // the cell that the slot had
	after   []byte       // the cell to publish

	// unknown: a CAS to the guard that expects the version was may have been executed, or may still
	// be.
	unknown bool
	was     wire.Version
}

// takeAll guards keys. The returned guards are in place, even if there is an error.
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

// takeFree guards the first of several keys, in parallel. While it waits for a key, only earlier
// keys may be guarded. So if a key cannot be guarded at once, guards of later keys are released
// first.
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

// beside runs n functions in parallel and waits for all of them. It cannot cancel them.
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
			<-done // everything is being closed, so it ends at once
		}
	}
}

func (s *Server) newGuard(lease int64, k placedKey) *guard {
	return &guard{key: k, lease: lease, number: s.number.Add(1) & slotcodec.MaxNumber}
}

// take guards a key. If there is no error, this write has the key, and its caller must call
// release, publish or orphan.
func (s *Server) take(ctx context.Context, lease int64, k placedKey) (*guard, error) {
	left, ok := s.queues.enter(ctx, s.Runtime, k, lease)
	if !ok {
		return nil, over(ctx)
	}
	if left != nil {
		// etcd has the state that the previous write would have published.
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

// hold waits until this gateway's other writes hand the guard of a key to this one. After an error,
// the key goes to the next write.
func (s *Server) hold(ctx context.Context, g *guard) error {
	err := s.contend(ctx, g)
	switch {
	case err == nil:
	case g.unknown: // this write keeps the key until the result is known
		s.finishGuard(ctx, g, s.release)
	default:
		s.queues.leave(g.key.Name)
	}
	return err
}

// mine is the cell of a guard of this gateway.
func (s *Server) mine(g *guard) ([]byte, error) {
	// the chain need not be known yet
	return s.Codec.Codec().Encode(slotcodec.Cell{Kind: slotcodec.Guard, Lease: g.lease, Number: g.number},
		slotcodec.GuardSize)
}

// attempt tries once to guard a key, without waiting for other gateways, and reports whether it is
// guarded. An error means that the switches do not let this gateway guard it.
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
	case isChanged(err) && remembered: // the slot has changed: try again, after a read
		return s.attempt(ctx, g)
	case isGone(err), isChanged(err):
	case isDenied(err):
		return false, s.denied(g, err)
	default:
		g.unknown, g.was = true, now.version
	}
	return false, nil
}

// contend tries until the slot has the guard. If it fails, g.unknown is set if a CAS is under way.
func (s *Server) contend(ctx context.Context, g *guard) error {
	mine, err := s.mine(g)
	if err != nil {
		return err
	}
	var waited, silent time.Duration
	ask := breakAfter // when to ask whether the other gateway's session exists
	limit := aliveFirst
	asked := false    // the evictor was asked to evict the key
	var nobodys error // not nil: the slot has a cell that no gateway has written
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
			g.unknown = false // no CAS can be executed on a slot that is gone
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
			// It is not known whose guard may have been there, nor which value it protects. So the
			// slot stays unchanged until the key has been removed from the network.
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

// denied ends a write whose slot the switches do not let this gateway change. If the first copy of
// a CAS was executed, and the right was withdrawn before the second copy, a guard of this session
// remains. Other gateways can break it when the session is gone.
func (s *Server) denied(g *guard, why error) error {
	s.Sessions.GiveUp(g.lease)
	return status.Errorf(codes.PermissionDenied, "etcd-monitor: the switches do not let this host change the slot of %q, which is in the network, so it cannot be written from here: grant its principal the realm of etcd's keys, or write through a gateway; nothing was written: %v", g.key.Name, why)
}

// finishGuards applies an operation to each guard, and waits for it as long as the network answers.
func (s *Server) finishGuards(ctx context.Context, guards []*guard, how func(context.Context, *guard) bool) {
	s.beside(len(guards), func(i int) { s.finishGuard(ctx, guards[i], how) })
}

// finishGuard retries an operation on a guard until it is known to be done, in the background if
// not at once, and then lets the next write have the key.
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

// publishAll publishes the result of a write. If the next write of a key waits here, the slot stays
// guarded for the next write, which will publish its own result.
func (s *Server) publishAll(ctx context.Context, guards []*guard) {
	var now []*guard
	for _, g := range guards {
		if !s.queues.hand(g) {
			now = append(now, g)
		}
	}
	s.finishGuards(ctx, now, s.publish)
}

// publish replaces a guard by etcd's present state. It reports whether the guard is known to be
// replaced, by this gateway or another one.
func (s *Server) publish(ctx context.Context, g *guard) bool { return s.replace(ctx, g, g.after) }

// release restores the cell from before the guard, because nothing was written.
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

// resolve finds out the result of a CAS to the guard. It reports whether that is known; if so and
// the guard exists, g has its version.
func (s *Server) resolve(ctx context.Context, g *guard) bool {
	now, err := s.lookHard(ctx, g.key)
	switch {
	case isGone(err):
	case err != nil:
		return false
	case now.guardedBy(g.lease, g.number):
		g.version = now.version
	case now.version == g.was:
		// It may still be executed, until the slot has another version.
		_, err := s.cas(ctx, g.key, now.version, now.plain)
		if err != nil && !isGone(err) {
			return false
		}
	}
	g.unknown = false
	return true
}

// orphan abandons guards of writes whose result at etcd is not known. No one may replace such a
// guard until its session is gone. This gateway does not hold up the keys' next writes.
func (s *Server) orphan(ctx context.Context, guards []*guard) {
	for _, g := range guards {
		s.queues.leave(g.key.Name)
		s.breakStaleGuard(ctx, g.key, slot{version: g.version})
	}
}
