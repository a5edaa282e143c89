package p4rtserver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// sweepEvery is how often the server looks for idle entries. It is the largest delay of a
// notification. BMv2 checks once a second.
const sweepEvery = 200 * time.Millisecond

var errNoTimeouts = fmt.Errorf("idle timeouts on this engine: %w",
	target.ErrUnsupported)

// agerOf returns the part of a pipeline that supports idle timeouts, or nil if the pipeline does
// not support them.
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

// checkIdle refuses an idle timeout, or a read of it, if the table or default entry cannot have one
// (section 9.1.8).
func (c *config) checkIdle(t *translate.Table, te *p4v1.TableEntry) error {
	switch {
	case te.IdleTimeoutNs == 0 && te.TimeSinceLastHit == nil:
		return nil
	case te.IsDefaultAction:
		return translate.Invalidf("the default entry of table %s has no idle timeout: leave idle_timeout_ns "+
			"and time_since_last_hit unset", t.Name)
	case !t.Times() && te.TimeSinceLastHit != nil:
		return translate.Invalidf("table %s does not support idle timeouts: leave time_since_last_hit unset",
			t.Name)
	case !t.Times(): // The message is the same as BMv2's, because tests compare it.
		return translate.Invalidf(
			"idle_timeout_ns must be set to 0 for tables which do not support idle timeout")
	case te.IdleTimeoutNs < 0:
		return translate.Invalidf("an idle timeout is not negative")
	case agerOf(c.pipe) == nil:
		return translate.Errorf(codes.Unimplemented,
			"idle timeouts (idle_timeout_ns) are not implemented by this engine; asked for in table %s",
			t.Name)
	}
	return nil
}

// setIdle sets the idle timeout of an entry from an update. checkIdle must have accepted the
// update.
func (c *config) setIdle(t *translate.Table, te *p4v1.TableEntry, e *target.TableEntry) error {
	a := agerOf(c.pipe)
	if a == nil || !t.Times() {
		return nil
	}
	err := a.SetIdleTimeout(t.Name, e, time.Duration(te.IdleTimeoutNs), c.server.dev.Now())
	switch {
	case te.IdleTimeoutNs > 0 && err == nil:
		c.server.sweepSoon()
	case te.IdleTimeoutNs == 0 && errors.Is(err, target.ErrUnsupported):
		return nil // The P4Info says that the table has timeouts, but the program has none.
	}
	return err
}

// startIdle starts counting the time since the last hit of an entry without a timeout.
func (c *config) startIdle(t *translate.Table, e *target.TableEntry) error {
	return c.setIdle(t, &p4v1.TableEntry{}, e)
}

// readIdle adds an entry's idle timeout to out and, on request, the time since a packet last hit
// the entry.
func (c *config) readIdle(t *translate.Table, q *p4v1.TableEntry, e *target.TableEntry,
	out *p4v1.TableEntry) error {
	a := agerOf(c.pipe)
	if a == nil || !t.Times() {
		return nil
	}
	timeout, since, err := a.IdleTimeout(t.Name, e, c.server.dev.Now())
	if err != nil {
		return err
	}
	out.IdleTimeoutNs = int64(timeout)
	if q.TimeSinceLastHit != nil {
		out.TimeSinceLastHit = &p4v1.TableEntry_IdleTimeout{ElapsedNs: int64(since)}
	}
	return nil
}

// sweepSoon schedules the next check for idle entries.
func (s *Server) sweepSoon() {
	if !s.sweeping.Swap(true) {
		time.AfterFunc(sweepEvery, s.sweep)
	}
}

// sweep reports the entries that have become idle, and updates groups according to the ports that
// are up. It schedules itself again while there are timeouts or ports to watch. It checks a program
// that is saved but not running only once packets use the program.
func (s *Server) sweep() {
	s.sweeping.Store(false)
	s.state.Lock()
	defer s.state.Unlock()
	if s.followPorts() {
		s.sweepSoon()
	}
	pipe := s.dev.Pipeline()
	a := agerOf(pipe)
	if a == nil {
		return
	}
	idle, more := a.Idle(s.dev.Now())
	if more || s.saved != nil || s.loaded != nil {
		s.sweepSoon()
	}
	if s.live != nil {
		s.toPrimaries(s.live.idleNotices(idle)...)
	}
	// BMv2's listeners receive one notification of an idle entry. P4Runtime's controllers receive a
	// notification after each timeout.
	idle = slices.DeleteFunc(idle, func(e target.IdleEntry) bool { return e.Again })
	if len(idle) > 0 && s.onIdle != nil {
		s.onIdle(pipe, idle)
	}
}

// idleNotices returns the notifications of idle entries. Each is at most about chunkBytes long,
// because a client ends its stream if a message is longer than the client accepts.
func (c *config) idleNotices(idle []target.IdleEntry) (out []*p4v1.StreamMessageResponse) {
	var n *p4v1.IdleTimeoutNotification
	room := 0
	for i := range idle {
		te := c.idleEntry(&idle[i])
		if te == nil {
			continue
		}
		size := proto.Size(te)
		if n == nil || size > room {
			n = &p4v1.IdleTimeoutNotification{Timestamp: time.Now().UnixNano()}
			out = append(out, &p4v1.StreamMessageResponse{
				Update: &p4v1.StreamMessageResponse_IdleTimeoutNotification{
					IdleTimeoutNotification: n}})
			room = chunkBytes
		}
		n.TableEntry = append(n.TableEntry, te)
		room -= size
	}
	return out
}

// idleEntry converts an entry to the form of a notification (section 16.5): its key, its timeout
// and its metadata. It returns nil if the table is hidden from the control plane or wants no
// notifications.
func (c *config) idleEntry(e *target.IdleEntry) *p4v1.TableEntry {
	for _, t := range c.TableOrder {
		if t.Name != e.Table || t.Info.IdleTimeoutBehavior != p4cfg.Table_NOTIFY_CONTROL {
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
