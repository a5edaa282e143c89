package calls

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Session is a session id and the number of its next request. No other writer may use the id.
// Numbers start at 1. If the id was used before, the number must be greater than every number that
// was used with it. Otherwise the switches drop the session's writes as old.
type Session struct {
	ID          uint16
	NextRequest uint32
}

// session is a session that the machine uses for writes.
type session struct {
	id      uint16
	next    uint32
	user    *call // the write that is under way in this session, if any
	retired bool
}

// sessionPool gives each write its own session while the write is under way.
type sessionPool struct {
	byID map[uint16]*session
	// sessions without a write, beginning with the one that has been free longest
	free []*session
	// writes that wait for a session, in order; a write that has ended stays in the list until its
	// turn
	waiting []*call
	awaited bool // whether the caller provides new sessions when there is none
}

func newSessionPool() sessionPool { return sessionPool{byID: make(map[uint16]*session)} }

// AddSession gives the machine a session to write with.
func (m *Machine) AddSession(now time.Duration, s Session) error {
	if s.ID == 0 || s.NextRequest == 0 {
		return fmt.Errorf("netcraq client: session %d, next request %d: both start at 1", s.ID, s.NextRequest)
	}
	if m.pool.byID[s.ID] != nil {
		return fmt.Errorf("netcraq client: session %d is in use already", s.ID)
	}
	added := &session{id: s.ID, next: s.NextRequest}
	m.pool.byID[s.ID] = added
	m.release(now, added)
	return nil
}

// DropSession removes a session. The caller uses it when the session may not be used any longer,
// for example because its lease has ended. A write that is under way with it ends with
// ErrSessionLost.
func (m *Machine) DropSession(now time.Duration, id uint16) {
	s := m.pool.byID[id]
	if s == nil {
		return
	}
	m.pool.retire(s)
	if s.user != nil {
		m.fail(now, s.user, &OpError{Err: ErrSessionLost, Detail: fmt.Sprintf("session %d", id)})
	}
}

// AwaitSessions sets whether the caller will add sessions when there are none. If so, writes wait
// for a session. Otherwise, which is the initial state, they fail, including writes that already
// wait.
func (m *Machine) AwaitSessions(now time.Duration, await bool) {
	m.pool.awaited = await
	m.serve(now)
}

// Sessions returns how many sessions the machine has.
func (m *Machine) Sessions() int { return len(m.pool.byID) }

// mayHave reports whether a waiting write can get a session, now or later.
func (p *sessionPool) mayHave() bool { return len(p.byID) > 0 || p.awaited }

func (p *sessionPool) retire(s *session) {
	s.retired = true
	delete(p.byID, s.id)
	for i, f := range p.free {
		if f == s {
			p.free = append(p.free[:i:i], p.free[i+1:]...)
			break
		}
	}
}

// findSession sends a write with a session, or makes it wait for a session.
func (m *Machine) findSession(now time.Duration, c *call) {
	switch {
	case len(m.pool.free) > 0:
		m.pool.assign(c)
		m.sendNumbered(now, c)
	case len(m.pool.byID) == 0 && m.cfg.AtLeastOnce:
		c.number = m.nextNumber()
		m.sendNumbered(now, c)
	case m.pool.mayHave() && c.refusedSession != 0:
		// This CAS was sent before, so it goes to the front of the queue.
		m.pool.waiting = slices.Insert(m.pool.waiting, 0, c)
		m.waitForSession(c)
	case m.pool.mayHave():
		m.pool.waiting = append(m.pool.waiting, c)
		m.waitForSession(c)
	case c.refusedSession != 0:
		m.fail(now, c, &OpError{Err: ErrBadSession, Detail: badSession(c.refusedSession)})
	default:
		m.fail(now, c, &OpError{Err: ErrNoSession})
	}
}

func (m *Machine) waitForSession(c *call) {
	if c.req.Deadline != 0 {
		m.wakeAt(c, c.req.Deadline)
	}
}

// changeSession sends a CAS with another session, because the switches do not accept its present
// session. If they accepted an earlier copy of the CAS, the key's version has changed, so the CAS
// fails. A WRITE cannot be sent again, because it might be executed twice.
func (m *Machine) changeSession(now time.Duration, c *call) {
	m.stats.Refusals++
	delete(m.pending, pendingKey{c.packet.Session, c.number})
	m.timers.remove(c)
	c.refusedSession, c.session.user = c.session.id, nil
	c.session, c.packet.Session, c.number = nil, 0, 0
	c.state, c.silent, c.refusals, c.noChain = queued, 0, 0, 0
	m.findSession(now, c)
}

// assign gives a write the session that has been free longest, and that session's next number. The
// number is then used up, whatever the write's outcome. The package comment says why.
func (p *sessionPool) assign(c *call) {
	s := p.free[0]
	p.free = p.free[1:]
	c.session, s.user = s, c
	c.number = s.next
	// The next number would be 0, which the switches treat as older than all others. So this
	// session has no numbers left.
	if s.next == math.MaxUint32 {
		p.retire(s)
	}
	s.next++
}

// release frees a session and gives it to the write that has waited longest.
func (m *Machine) release(now time.Duration, s *session) {
	s.user = nil
	if !s.retired {
		m.pool.free = append(m.pool.free, s)
	}
	m.serve(now)
}

// serve gives free sessions to waiting writes. If there is no session and none will come, the
// waiting writes fail.
func (m *Machine) serve(now time.Duration) {
	for len(m.pool.waiting) > 0 && (len(m.pool.free) > 0 || !m.pool.mayHave()) {
		c := m.pool.waiting[0]
		m.pool.waiting = m.pool.waiting[1:]
		if c.state == queued {
			m.findSession(now, c)
		}
	}
}
