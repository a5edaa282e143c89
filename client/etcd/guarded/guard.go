package guarded

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/placement"
	"github.com/netcraq/netcraq/api/slotcodec"
	"github.com/netcraq/netcraq/wire"
)

// How long is waited between looks at a slot that somebody else has guarded, or that does not
// answer: from shortest on twice as long each time, less up to half of it by chance.
const (
	shortest       = 200 * time.Microsecond
	longest        = 10 * time.Millisecond
	longestGuarded = 2 * time.Millisecond
)

// How long a write waits for news of a placement that is being ended before it asks etcd.
const (
	endedShortest = 20 * time.Millisecond
	endedLongest  = time.Second
)

// When etcd is asked whether the session that holds a guard is there: after the guard was waited
// for this long, and then less and less often.
const (
	breakAfter  = 100 * time.Millisecond
	breakAtMost = time.Second
)

// evictAfter is how long a slot may be silent before somebody is asked to take its key out of the
// network.
const evictAfter = time.Second

// pause is how long to wait next.
type pause time.Duration

func newPause() pause { return pause(shortest) }

// next is a time between half of what it was the last time doubled, and that.
func (p *pause) next(r Runtime, most time.Duration) time.Duration {
	d := time.Duration(*p)
	*p = pause(min(2*d, most))
	return d/2 + time.Duration(r.Jitter()*float64(d)/2)
}

// guard is a slot that a write of this gateway has made unreadable.
type guard struct {
	key     placedKey
	lease   int64 // of the session, and the number, that the guard says
	number  uint64
	version wire.Version // of the slot with the guard
	before  []byte       // the cell that the slot had
	after   []byte       // that which is to be published

	// unknown: of a CAS to the guard, on version was, it is not known whether it was or will be
	// executed.
	unknown bool
	was     wire.Version
}

// take guards a key. Without an error the key is this write's, and one of release, publish and
// orphan must follow.
func (s *Server) take(ctx context.Context, lease int64, k placedKey) (*guard, error) {
	if !s.queues.enter(ctx, s.Runtime, k.Name) {
		return nil, over(ctx)
	}
	g := &guard{key: k, lease: lease, number: s.number.Add(1) & slotcodec.MaxNumber}
	err := s.contend(ctx, g)
	switch {
	case err == nil:
		return g, nil
	case g.unknown: // the key is this write's until that is known
		s.finishGuard(ctx, g, s.release)
	default:
		s.queues.leave(k.Name)
	}
	return nil, err
}

// contend tries until the slot has the guard. Where it fails, g says whether a CAS is on its way.
func (s *Server) contend(ctx context.Context, g *guard) error {
	// the chain need not be known yet
	mine, err := s.Codec.Codec().Encode(slotcodec.Cell{Kind: slotcodec.Guard, Lease: g.lease, Number: g.number},
		slotcodec.GuardSize)
	if err != nil {
		return err
	}
	var waited, silent time.Duration
	ask := breakAfter // when to ask whether the other's session is there
	asked := false    // somebody was asked to evict the key
	var nobodys error // the slot has what no gateway has written
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
			g.unknown = false // nothing can be executed on a slot that is gone
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
				g.unknown = false // its slot is gone
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
			// Whose guard may have been there is not known, nor what it is to keep unread. So it
			// stays as it is until the key is out of the network.
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
			if alive, err := s.alive(ctx, now.cell.Lease); err != nil || alive {
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

// denied is the end of a write whose slot the switches do not let this gateway change. A right may
// have been taken away between two copies of one CAS, of which the first was executed: then there
// is a guard of this session, which others can break when the session is gone.
func (s *Server) denied(g *guard, why error) error {
	s.Sessions.GiveUp(g.lease)
	return status.Errorf(codes.PermissionDenied, "etcd-monitor: the switches do not let this host change the slot of %q, which is in the network, so it cannot be written from here: grant its principal the realm of etcd's keys, or write through a gateway; nothing was written: %v", g.key.Name, why)
}

// finishGuards does something to each guard, and waits for it as long as the network answers.
func (s *Server) finishGuards(ctx context.Context, guards []*guard, how func(context.Context, *guard) bool) {
	for _, g := range guards {
		s.finishGuard(ctx, g, how)
	}
}

// finishGuard does something to a guard until it is known that it is done, in the background if not
// at once, and lets the next write have the key then.
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

// publish replaces a guard by what etcd has now. It says whether the guard is known to be replaced,
// by whomever.
func (s *Server) publish(ctx context.Context, g *guard) bool { return s.replace(ctx, g, g.after) }

// release puts back what was there before the guard: nothing was written.
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
	_, err := s.cas(ctx, g.key, g.version, b)
	return err == nil || isChanged(err) || isGone(err)
}

// resolve finds out what became of a CAS to the guard. It says whether that is known; if so and the
// guard is there, g has its version.
func (s *Server) resolve(ctx context.Context, g *guard) bool {
	now, err := s.lookHard(ctx, g.key)
	switch {
	case isGone(err):
	case err != nil:
		return false
	case now.guardedBy(g.lease, g.number):
		g.version = now.version
	case now.version == g.was:
		// It may be executed yet. When the slot has another version, it cannot be.
		_, err := s.cas(ctx, g.key, now.version, now.plain)
		if err != nil && !isGone(err) {
			return false
		}
	}
	g.unknown = false
	return true
}

// orphan leaves guards of which it is not known what etcd has: nobody may replace them until their
// session is gone. The keys' next writes are not kept waiting by this gateway.
func (s *Server) orphan(ctx context.Context, guards []*guard) {
	for _, g := range guards {
		s.queues.leave(g.key.Name)
		s.breakStaleGuard(ctx, g.key, slot{version: g.version})
	}
}
