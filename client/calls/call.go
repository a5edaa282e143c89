package calls

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// call is one request until it is answered.
type call struct {
	id      CallID
	req     Request // the request, without its value, which is in bytes
	packet  wire.Packet
	bytes   []byte // the packet; every transmission sends the same bytes
	session *session
	number  uint32
	addrs   []netip.AddrPort

	state    callState
	at       int // index in addrs of the address that the last transmission went to
	attempts int
	unsent   int  // transmissions that did not leave this machine (Unsent)
	silent   int  // transmissions without an answer in time
	refusals int  // RETRY, NOT_SERVING and NO_CHAIN answers so far
	noChain  int  // NO_CHAIN answers in a row
	retrial  bool // this call tries the first address again, which other calls have given up

	started   time.Duration
	firstSent time.Duration
	last      wire.Status // status of the last refusal, if refusals > 0

	foreign        netip.AddrPort // last sender of an answer that is not allowed to answer, if any
	refusedSession uint16         // the last session that the switches rejected; 0: none

	wake  time.Duration
	timer int // index in the heap; -1: none
}

type callState uint8

const (
	queued  callState = iota // a write is waiting for a session
	waiting                  // waiting for an answer; at wake, it stops waiting
	pausing                  // pausing after a refusal; at wake, it sends again
	done
)

// sendNumbered sends the call's packet under the session and the number that it was assigned.
func (m *Machine) sendNumbered(now time.Duration, c *call) {
	if c.session != nil {
		c.packet.Session = c.session.id
	}
	c.packet.Request = c.number
	// Session and request are filled into the packet that prepare has laid out.
	binary.BigEndian.PutUint16(c.bytes[4:], c.packet.Session)
	binary.BigEndian.PutUint32(c.bytes[8:], c.packet.Request)
	m.pending[pendingKey{c.packet.Session, c.number}] = c
	if c.req.To == nil {
		c.at = m.preferred
		if m.preferred != 0 && now >= m.returnAt {
			c.at, c.retrial = 0, true
			m.returnAt = now + m.cfg.ReturnAfter
		}
	}
	if c.attempts == 0 {
		c.firstSent = now
	} else {
		m.stats.Resent++
	}
	m.transmit(now, c)
}

// transmit sends the call's packet to its present address.
func (m *Machine) transmit(now time.Duration, c *call) {
	c.attempts++
	c.state = waiting
	m.stats.Sent++
	m.sends = append(m.sends, Send{c.addrs[c.at], c.bytes, c.id})
	wait := m.cfg.MaxRetransmit
	if rounds := c.silent / len(c.addrs); rounds < 16 {
		wait = min(wait, m.patience(c)<<rounds)
	}
	m.wakeAt(c, now+wait)
}

// wakeAt sets the call's timer: at t, or at its deadline if that is sooner.
func (m *Machine) wakeAt(c *call, t time.Duration) {
	if d := c.req.Deadline; d != 0 && d < t {
		t = d
	}
	c.wake = t
	m.timers.set(c)
}

// wake is called when the call's timer is due.
func (m *Machine) wake(now time.Duration, c *call) {
	switch {
	case c.req.Deadline != 0 && now >= c.req.Deadline:
		m.fail(now, c, &OpError{Err: ErrTimeout, Detail: c.waitedFor()})
	case c.state == waiting:
		m.miss(now, c)
		c.silent++
		c.noChain = 0
		c.at = (c.at + 1) % len(c.addrs)
		m.stats.Retransmits++
		m.transmit(now, c)
	default: // the call is pausing; a queued call wakes at its deadline only
		m.stats.Resent++
		m.transmit(now, c)
	}
}

// waitedFor returns what a call that has timed out was waiting for.
func (c *call) waitedFor() string {
	switch {
	case c.attempts > 0 && c.attempts == c.unsent:
		return "no packet could be sent"
	case c.state == queued && c.refusedSession != 0:
		return fmt.Sprintf("the switches did not take session %d, and there was no other", c.refusedSession)
	case c.state == queued:
		return "no session was free in time; nothing was sent"
	case c.refusals > 0:
		return fmt.Sprintf("the last answer was %v", c.last)
	case c.foreign.IsValid():
		return fmt.Sprintf("no answer but from %v, which was not asked: if that is the chain's service address, the client has to be told so", c.foreign)
	}
	return "no answer"
}

// isAnsweredBy reports whether a reply with the call's session and number is to the call.
func (c *call) isAnsweredBy(p *wire.Packet) bool {
	reply, ok := c.packet.Op.Reply()
	return ok && p.Op == reply && p.Key == c.packet.Key
}

// answer processes a reply that belongs to the call.
func (m *Machine) answer(now time.Duration, c *call, from netip.AddrPort, p *wire.Packet) {
	status := p.Status
	if p.Op == wire.ReadReply && status == wire.OK && p.Tombstone {
		status = wire.NotFound
	}
	switch status {
	case wire.Retry, wire.NotServing, wire.NoChain:
		m.refused(now, c, status, from)
		return
	}
	if c.state == waiting {
		m.hit(c)
	}
	if c.refusals == 0 {
		// bounded, so that an unusually long time is soon forgotten
		m.trip.took(min(now-c.firstSent, m.cfg.Retransmit))
	}
	r := Result{Version: p.Version, From: from, Epoch: p.Epoch}
	isWrite := p.Op != wire.ReadReply
	switch {
	case status == wire.OK:
		if !isWrite {
			r.Value = slices.Clone(p.Value)
		}
	case status == wire.Superseded && isWrite:
		r.Superseded = true
	case status == wire.NotFound:
		e := &OpError{Err: ErrNotFound, OutcomeUnknown: isWrite}
		if !isWrite {
			e.Version = p.Version
		}
		r.Err = e
	case status == wire.CASFailed && p.Op == wire.CASReply:
		e := &OpError{Err: ErrCASFailed, Version: p.Version, Found: !p.Tombstone, Value: slices.Clone(p.Value)}
		// With a session, the head would have recognized a CAS that it had executed. Without one,
		// or if the CAS was sent under another session before, this may be the answer to a second
		// copy of an executed CAS.
		e.OutcomeUnknown = c.session == nil || c.refusedSession != 0
		r.Err = e
	case status == wire.Full && isWrite:
		r.Err = &OpError{Err: ErrFull, OutcomeUnknown: true}
	case status == wire.Denied:
		r.Err = &OpError{Err: ErrDenied, Detail: "ask the operator for access to " + deniedAccess[p.Op] + " the key's realm", OutcomeUnknown: isWrite}
	case status == wire.BadSession && isWrite:
		if c.session != nil {
			m.pool.retire(c.session)
			// A copy may have been executed while the session was still accepted. The key then has
			// another version, so a CAS is not executed a second time.
			if p.Op == wire.CASReply && m.pool.mayHave() {
				m.changeSession(now, c)
				return
			}
		}
		r.Err = &OpError{Err: ErrBadSession, Detail: badSession(c.packet.Session), OutcomeUnknown: true}
	default:
		r.Err = &OpError{Err: ErrProtocol, Detail: fmt.Sprintf("status %v in a %v", p.Status, p.Op), OutcomeUnknown: isWrite}
	}
	if r.Err != nil {
		r.Version = 0
	}
	m.finish(now, c, r)
}

// deniedAccess is the right that an operation needs in the key's realm, derived from the op of its
// answer.
var deniedAccess = map[wire.Op]string{wire.ReadReply: "read in", wire.WriteReply: "write in", wire.CASReply: "read and write in"}

// badSession explains BAD_SESSION.
func badSession(id uint16) string {
	return fmt.Sprintf("session %d is not leased to this host, not any more, or is beyond the switches' session table", id)
}

// refused processes an answer that asks for another try.
func (m *Machine) refused(now time.Duration, c *call, status wire.Status, from netip.AddrPort) {
	m.stats.Refusals++
	if c.state != waiting {
		// it will be sent again anyway; the refusal of a second copy must not cause another
		// transmission
		return
	}
	if status == wire.NoChain && from != c.addrs[c.at] {
		// this refusal is from an address that was asked earlier, which has already been counted or
		// skipped
		return
	}
	c.refusals++
	c.last = status
	if status == wire.NoChain {
		// All addresses were asked, and none sent a different late answer: a refusal with a reason
		// is better than a timeout.
		if c.noChain++; c.noChain >= len(c.addrs) {
			m.fail(now, c, &OpError{Err: ErrNoChain, Detail: fmt.Sprintf("chain %d of the key", c.packet.Key.Chain())})
			return
		}
	} else {
		c.noChain = 0
	}
	refusalsBeforePause := 0
	if status != wire.Retry {
		if status == wire.NotServing { // NO_CHAIN is the key's fault rather than the address's
			m.miss(now, c)
		}
		c.at = (c.at + 1) % len(c.addrs)
		refusalsBeforePause = len(c.addrs) - 1
	}
	if c.refusals <= refusalsBeforePause {
		m.stats.Resent++
		m.transmit(now, c)
		return
	}
	pause := m.cfg.MaxRetryPause
	if n := c.refusals - refusalsBeforePause - 1; n < 16 {
		pause = min(pause, m.cfg.RetryPause<<n)
	}
	c.state = pausing
	m.wakeAt(c, now+pause/2+time.Duration(m.rand.Int64N(int64(pause/2)+1)))
}

// missesBeforeMove is the number of misses in a row after which another address is preferred. A
// single miss may be a lost packet.
const missesBeforeMove = 2

// miss notes that the call's present address did not serve it.
func (m *Machine) miss(now time.Duration, c *call) {
	if c.req.To != nil || c.retrial || c.at != m.preferred {
		c.retrial = false
		return
	}
	if m.misses++; m.misses >= missesBeforeMove && len(m.cfg.Addresses) > 1 {
		m.misses = 0
		m.preferred = (m.preferred + 1) % len(m.cfg.Addresses)
		m.returnAt = now + m.cfg.ReturnAfter
	}
}

// hit notes that the call's present address served it.
func (m *Machine) hit(c *call) {
	switch {
	case c.req.To != nil:
	case c.retrial: // the first address serves again
		m.preferred, m.misses = 0, 0
	case c.at == m.preferred:
		m.misses = 0
	}
}

// fail ends a call; e is the reason.
func (m *Machine) fail(now time.Duration, c *call, e *OpError) {
	e.OutcomeUnknown = c.req.Op != wire.Read && c.attempts > c.unsent
	m.finish(now, c, Result{Err: e})
}

// finish ends a call with its result, and gives its session to the next write.
func (m *Machine) finish(now time.Duration, c *call, r Result) {
	if e, ok := r.Err.(*OpError); ok {
		e.Op, e.Delete, e.Key, e.Attempts = c.req.Op, c.req.Delete, c.req.Key, c.attempts-c.unsent
		if c.attempts > 0 {
			e.Elapsed, e.LastTo = now-c.firstSent, c.addrs[c.at]
		} else {
			e.Elapsed = now - c.started
		}
	}
	r.Attempts = c.attempts
	r.Session, r.Request = c.packet.Session, c.number
	if c.attempts > 0 {
		r.RTT = now - c.firstSent
	}
	// number of a call that waits for a session; no sent call has it, because numbers begin at 1
	delete(m.pending, pendingKey{c.packet.Session, c.number})
	c.state = done
	m.timers.remove(c)
	delete(m.calls, c.id)
	m.stats.Completed++
	m.completions = append(m.completions, Completion{c.id, c.req.Tag, r})
	if c.session != nil {
		m.release(now, c.session)
	}
}
