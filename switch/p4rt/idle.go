package p4rt

import (
	"fmt"
	"time"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/switch/target"
)

// sweepEvery is how often entries with idle timeouts are looked at, so how much later than its
// timeout an entry may be told of. BMv2 looks once a second.
const sweepEvery = 200 * time.Millisecond

var errNoTimeouts = fmt.Errorf("idle timeouts on this engine: %w",
	target.ErrUnsupported)

// agerOf is the part of a pipeline that knows of idle timeouts; nil for none.
func agerOf(p target.Pipeline) target.Ager {
	for {
		if a, ok := p.(target.Ager); ok {
			return a
		}
		u, ok := p.(interface{ Unwrap() target.Pipeline })
		if !ok {
			return nil
		}
		p = u.Unwrap()
	}
}

// times reports whether the program gives the table idle timeouts.
func (t *table) times() bool { return t.info.IdleTimeoutBehavior != p4cfg.Table_NO_TIMEOUT }

// checkIdle refuses idle timeouts that there cannot be (section 9.1.8).
func (c *config) checkIdle(t *table, te *p4v1.TableEntry) error {
	switch {
	case te.IdleTimeoutNs == 0:
		return nil
	case te.IsDefaultAction:
		return invalid("the default entry has no idle timeout")
	case !t.times(): // in BMv2's words, which tests compare
		return invalid(
			"idle_timeout_ns must be set to 0 for tables which do not support idle timeout")
	case te.IdleTimeoutNs < 0:
		return invalid("an idle timeout is not negative")
	case agerOf(c.pipe) == nil:
		return fail(codes.Unimplemented,
			"idle timeouts (idle_timeout_ns) are not implemented by this engine; asked for in table %s",
			t.name)
	}
	return nil
}

// setIdle sets the idle timeout that comes with an entry, after checkIdle.
func (c *config) setIdle(t *table, te *p4v1.TableEntry, e *target.TableEntry) error {
	a := agerOf(c.pipe)
	if a == nil || !t.times() {
		return nil
	}
	err := a.SetIdleTimeout(t.name, e, time.Duration(te.IdleTimeoutNs), c.server.dev.Now())
	if err == nil && te.IdleTimeoutNs > 0 {
		c.server.sweepSoon()
	}
	return err
}

// readIdle adds an entry's timeout, and on request the time since its last packet.
func (c *config) readIdle(t *table, q *p4v1.TableEntry, e *target.TableEntry,
	out *p4v1.TableEntry) error {
	a := agerOf(c.pipe)
	if a == nil || !t.times() {
		return nil
	}
	timeout, since, err := a.IdleTimeout(t.name, e, c.server.dev.Now())
	if err != nil {
		return err
	}
	out.IdleTimeoutNs = int64(timeout)
	if q.TimeSinceLastHit != nil {
		out.TimeSinceLastHit = &p4v1.TableEntry_IdleTimeout{ElapsedNs: int64(since)}
	}
	return nil
}

// sweepSoon sees to it that timeouts are looked at in a while.
func (s *Server) sweepSoon() {
	if !s.sweeping.Swap(true) {
		time.AfterFunc(sweepEvery, s.sweep)
	}
}

// sweep tells of the entries that have become idle, and comes again while there are timeouts. A
// program that only has been saved is looked at once packets pass it.
func (s *Server) sweep() {
	s.sweeping.Store(false)
	s.state.Lock()
	defer s.state.Unlock()
	pipe := s.dev.Pipeline()
	a := agerOf(pipe)
	if a == nil {
		return
	}
	idle, more := a.Idle(s.dev.Now())
	if more || s.saved != nil || s.loaded != nil {
		s.sweepSoon()
	}
	if len(idle) == 0 {
		return
	}
	if s.onIdle != nil {
		s.onIdle(pipe, idle)
	}
	if s.live == nil {
		return
	}
	n := &p4v1.IdleTimeoutNotification{Timestamp: time.Now().UnixNano()}
	for i := range idle {
		if te := s.live.idleEntry(&idle[i]); te != nil {
			n.TableEntry = append(n.TableEntry, te)
		}
	}
	if len(n.TableEntry) > 0 {
		s.toPrimaries(&p4v1.StreamMessageResponse{
			Update: &p4v1.StreamMessageResponse_IdleTimeoutNotification{
				IdleTimeoutNotification: n}})
	}
}

// idleEntry is what a notification says of an entry (section 16.5): what identifies it, its timeout
// and its metadata. It is nil where the control plane does not see the table or wants no notices.
func (c *config) idleEntry(e *target.IdleEntry) *p4v1.TableEntry {
	for _, t := range c.tableOrder {
		if t.name != e.Table || t.info.IdleTimeoutBehavior != p4cfg.Table_NOTIFY_CONTROL {
			continue
		}
		out, err := c.entryOf(t, &e.Entry)
		if err != nil {
			return nil
		}
		out.Action, out.IdleTimeoutNs = nil, int64(e.Timeout)
		return out
	}
	return nil
}
