package calls

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// call is a request that has not been answered yet.
type call struct {
	id      CallID
	req     Request // the request without its value; the value is in bytes
	packet  wire.Packet
	bytes   []byte // the packet; every transmission sends the same bytes
	session *session
	number  uint32
	addrs   []netip.AddrPort

	state    callState
	at       int // index in addrs of the address that the last transmission went to
	attempts int
	unsent   int // transmissions that the operating system refused to send (see Unsent)
	silent   int // transmissions that were not answered in time
	refusals int // RETRY, NOT_SERVING and NO_CHAIN answers so far
	noChain  int // consecutive NO_CHAIN answers
	// This call tries whether the first address, which the machine has stopped using, answers
	// again.
	retrial bool

	started   time.Duration
	firstSent time.Duration
	last      wire.Status // status of the last refusal, if refusals > 0

	// last sender of an answer that was ignored because the sender may not answer, if any
	foreign netip.AddrPort
	// the last session of this call that the switches rejected; 0 if none
	refusedSession uint16

	wake  time.Duration
	timer int // index in the timer heap; -1 if no timer is set
}

type callState uint8

const (
	queued  callState = iota // The call is a write that waits for a session.
	waiting                  // The call waits for an answer, until the time in its field `wake`.
	// The call pauses after a refusal. At the time in its field `wake`, its packet is sent again.
	pausing
	done
)

// sendNumbered sends the call's packet under the session and the number that it was assigned.
func (m *Machine) sendNumbered(now time.Duration, c *call) {
	if c.session != nil {
		c.packet.Session = c.session.id
	}
	c.packet.Request = c.number
	// Session and number are filled into the packet that prepare has encoded.
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

// transmit sends the call's packet to the address with the index c.at.
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

// wakeAt sets the call's timer to t, or to the call's deadline if that is sooner.
func (m *Machine) wakeAt(c *call, t time.Duration) {
	if d := c.req.Deadline; d != 0 && d < t {
		t = d
	}
	c.wake = t
	m.timers.set(c)
}

// wake handles a call whose timer is due.
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
	default: // The call is pausing. A queued call wakes only at its deadline.
		m.stats.Resent++
		m.transmit(now, c)
	}
}

// waitedFor describes what a call that has timed out was waiting for.
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

// isAnsweredBy reports whether the reply p, which has the call's session and number, answers the
// call.
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
		// The bound lets the estimate forget an unusually long time soon.
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
		// With a session, the head would have recognized a CAS that it had executed. Without a
		// session, or if the CAS was sent under another session before, this answer may be for a
		// second copy of a CAS that was already executed.
		e.OutcomeUnknown = c.session == nil || c.refusedSession != 0
		r.Err = e
	case status == wire.Full && isWrite:
		r.Err = &OpError{Err: ErrFull, OutcomeUnknown: true}
	case status == wire.Denied:
		r.Err = &OpError{Err: ErrDenied, Detail: "ask the operator for access to " + deniedAccess[p.Op] + " the key's realm", OutcomeUnknown: isWrite}
	case status == wire.BadSession && isWrite:
		if c.session != nil {
			m.pool.retire(c.session)
			// A copy may have been executed while the switches still accepted the session. In that
			// case the key's version has changed, so the CAS is not executed a second time.
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

// deniedAccess maps the op of an answer to the right that the operation needs in the key's realm.
var deniedAccess = map[wire.Op]string{wire.ReadReply: "read in", wire.WriteReply: "write in", wire.CASReply: "read and write in"}

// badSession returns the explanation of a BAD_SESSION answer for error messages.
func badSession(id uint16) string {
	return fmt.Sprintf("session %d is not leased to this host, not any more, or is beyond the switches' session table", id)
}

// refused handles an answer after which the machine tries again.
func (m *Machine) refused(now time.Duration, c *call, status wire.Status, from netip.AddrPort) {
	m.stats.Refusals++
	if c.state != waiting {
		// The packet will be sent again anyway. The refusal of a second copy must not cause another
		// transmission.
		return
	}
	if status == wire.NoChain && from != c.addrs[c.at] {
		// This refusal is from an address that was asked earlier. Its refusal was already counted
		// or skipped.
		return
	}
	c.refusals++
	c.last = status
	if status == wire.NoChain {
		// All addresses were asked. The call fails now, because this refusal says more than a
		// timeout would.
		if c.noChain++; c.noChain >= len(c.addrs) {
			m.fail(now, c, &OpError{Err: ErrNoChain, Detail: fmt.Sprintf("chain %d of the key", c.packet.Key.Chain())})
			return
		}
	} else {
		c.noChain = 0
	}
	refusalsBeforePause := 0
	if status != wire.Retry {
		if status == wire.NotServing { // NO_CHAIN is caused by the key and not by the address
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

// missesBeforeMove is the number of consecutive misses after which the machine prefers another
// address. A single miss may be a lost packet.
const missesBeforeMove = 2

// miss notes that the address with the index c.at did not serve the call.
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

// hit notes that the address with the index c.at served the call.
func (m *Machine) hit(c *call) {
	switch {
	case c.req.To != nil:
	case c.retrial: // The first address serves requests again.
		m.preferred, m.misses = 0, 0
	case c.at == m.preferred:
		m.misses = 0
	}
}

// fail ends a call with the error e.
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
	// If the call still waits for a session, its number is 0, which no entry of the map has.
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
