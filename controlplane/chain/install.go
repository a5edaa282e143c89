package chain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// retry is how long the machine waits before it repeats a request that a switch refused.
const retry = 500 * time.Millisecond

// change is a configuration on its way, first in Machine.persisting and then in Machine.change.
// The changes of one operation follow each other, with rising epochs.
type change struct {
	config Config // zero in a recovery that is still erasing
	op     OpID   // operation that requested it; 0: the machine itself
	// then is the configuration to begin when the chain has drained; until then config freezes the
	// head. nil: none. It gets its epoch when it begins.
	then    *Config
	seq     uint64 // of its Persist, or of its Erase
	retryAt Time   // when to persist it again; 0: a Persist is under way, or done
	tried   bool   // a Persist has failed, and an event has reported it
	// joiner is the switch that is being recovered, "" if there is none; stage is the recovery's
	// stage. If there is a joiner, then is nil.
	joiner string
	stage  stage
	// wanted are the intended members while this configuration is being made, and after are those
	// once `then` has begun; nil: no change (Machine.wanted).
	wanted, after []string
	// own is the change that the machine was about to make itself when an operator's change came
	// first. The machine continues with it if the operator's change cannot be recorded. nil: none.
	own *change
	// by is the deadline for emptying the joiner.
	by Time
}

// begin starts a configuration: it is made durable before any switch gets it. op is the operation
// that requested it (nil: the machine itself). A configuration that was on its way is replaced.
func (m *Machine) begin(now Time, c Config, op *change) {
	if !m.fills(c) && (m.cfg.Epoch == MaxEpoch || c.Epoch <= m.cfg.Epoch) {
		if !m.exhausted {
			m.event("chain.epochs", "", "all %d epochs are used up, and nothing of the chain can be changed: begin "+
				"anew with emptied switches (docs/operations.md, \"Epochs\")", MaxEpoch)
		}
		m.exhausted = true
		if op != nil {
			m.do(Done{op.op, fmt.Errorf("%w: the chain has used up its epochs (docs/operations.md, \"Epochs\")", ErrRefused)})
		}
		return
	}
	if m.persisting != nil && m.persisting.op != 0 && (op == nil || op.op != m.persisting.op) {
		m.overtaken(m.persisting, op)
		if m.change != nil && m.change.op == m.persisting.op {
			m.change = nil
		}
	}
	if m.change != nil && m.change.op != 0 && (op == nil || op.op != m.change.op) {
		m.overtaken(m.change, op)
		m.change = nil
	}
	m.endCopy()
	if op == nil {
		op = &change{}
	}
	if was := m.persisting; was != nil && op.op != 0 {
		if op.own = was; was.op != 0 {
			op.own = was.own
		}
	}
	op.config = c
	m.persisting = op
	m.enter(now)
	m.pauseKeys()
	m.persist(now)
}

// fills reports whether a configuration differs from the present one only in that the switch that
// was being filled is a member. Both have the same epoch, since nothing changes for other
// switches.
func (m *Machine) fills(c Config) bool {
	return m.cfg.Filling && !c.Filling && c.Epoch == m.cfg.Epoch
}

// overtaken ends an operation because another configuration takes precedence: that of by or, if by
// is nil, the machine's own.
func (m *Machine) overtaken(c, by *change) {
	why := "a switch was lost meanwhile, and the chain changes for that"
	if by != nil && by.op != 0 {
		why = "an operator has changed the chain meanwhile"
	}
	if c.joiner != "" {
		m.event("chain.not-recovered", c.joiner, "%s", why)
	}
	m.do(Done{c.op, fmt.Errorf("%w: %s", ErrUnavailable, why)})
}

func (m *Machine) persist(now Time) {
	m.persisting.retryAt = 0
	r := m.record(now, m.persisting.config)
	r.Wanted, r.Since = m.intended(m.persisting), m.sinceIn(r.Config)
	m.seq++
	m.unsaved = false
	m.persisting.seq = m.seq
	m.do(Persist{r, m.seq})
}

// record returns the record of a configuration that not all members have yet.
func (m *Machine) record(now Time, c Config) Record {
	r := Record{Config: c, Fence: m.leavers(c), Blank: m.blank, FenceLease: m.longest(now)}
	if len(r.Fence) > 0 || c.Lease < m.cfg.Lease {
		r.FenceLease = max(m.cfg.Lease, m.fenceMax, r.FenceLease)
	}
	return r
}

// save makes the present state durable. The chain does not wait for it, but saveFor does.
func (m *Machine) save(now Time) {
	m.seq++
	m.unsaved = false
	// (A controller that does not know Filling would not find, in the switches, the configuration
	// that it considers installed.)
	r := m.record(now, m.cfg)
	r.Installed, r.Wanted, r.Since = m.installed && !m.cfg.Filling, slices.Clone(m.wanted), maps.Clone(m.since)
	m.do(Persist{r, m.seq})
}

// sinceIn maps each member of a later configuration to the epoch in which it became one. A blank
// chain has no members from before.
func (m *Machine) sinceIn(c Config) map[string]uint16 {
	since := map[string]uint16{}
	for _, s := range c.Members {
		if since[s] = c.Epoch; m.cfg.IsMember(s) && !m.blank {
			since[s] = m.since[s]
		}
	}
	return since
}

// leavers lists the switches to fence before c: members that are not in it, and earlier members
// that have not been fenced yet.
func (m *Machine) leavers(c Config) []string {
	var out []string
	for _, s := range m.inOrder(slices.AppendSeq(slices.Clone(m.cfg.Members), maps.Keys(m.fence))) {
		if !c.IsMember(s) {
			out = append(out, s)
		}
	}
	return out
}

// Persisted answers Persist.
func (m *Machine) Persisted(now Time, seq uint64, err error) {
	p := m.persisting
	if seq == m.unrecorded {
		if m.unrecorded = 0; err != nil {
			m.recordAt = now + retry
		}
	}
	m.saved(seq, err)
	m.unsaved = m.unsaved || err != nil
	switch {
	case p == nil || p.seq != seq: // the record of a change that is done
		if err != nil {
			m.event("state.not-saved", "", "%v: a controller that is restarted now will ask the switches", err)
		}
	case err != nil && p.op != 0 && m.change == nil: // (change is set in a reordering, which must continue)
		m.persisting = p.own
		m.do(Done{p.op, fmt.Errorf("%w: the change could not be recorded, so nothing was changed: %w", ErrUnavailable, err)})
		if p.own != nil {
			p.own.retryAt = now + retry
		} else { // either it was recorded anyway, or the next record includes it
			m.save(now)
		}
	case err != nil:
		if !p.tried {
			m.event("state.not-saved", "", "%v: the chain waits until it can be", err)
		}
		p.tried = true
		p.retryAt = now + retry
	default:
		m.persisting, m.recordAt = nil, 0
		for _, s := range m.leavers(p.config) {
			m.fence[s] = true
		}
		for s := range m.fence {
			if p.config.IsMember(s) {
				delete(m.fence, s)
			}
		}
		if len(m.fence) > 0 {
			m.fenceMax = max(m.cfg.Lease, m.fenceMax)
		}
		if p.config.Lease < m.cfg.Lease {
			m.shorten(now)
		}
		for _, s := range m.cfg.Members {
			if !p.config.IsMember(s) {
				m.back.Again(now, m.candidate(s))
			}
		}
		for _, s := range p.config.Members {
			if !m.cfg.IsMember(s) { // a new member has the chain's data: it was filled, or there are no keys
				m.view[s].lost = false
			}
		}
		m.wanted, m.since = m.intended(p), m.sinceIn(p.config)
		m.wasFrozen = m.cfg.Freeze == FreezeAll
		m.countEpochs(m.cfg.Epoch, p.config.Epoch)
		same := m.fills(p.config)
		m.cfg, m.installed, m.change = p.config, false, p
		if p.joiner != "" { // from here on it is being filled: it has lost its values, but it is not empty
			m.view[p.joiner].lost = false
			m.rejoinCost = m.rejoinCost || p.joiner == m.rejoiner
		}
		m.redriving, m.redriveAt, m.redriveBad = false, 0, false
		m.frozenFor(now, p)
		for s, v := range m.view {
			v.installs, v.failed, v.partAt = 0, false, 0
			v.everAcked = same && v.everAcked && m.has(s)
		}
		m.attendAll()
		m.event("chain.installing", "", "%v", m.cfg)
	}
	m.step(now)
}

// countEpochs reports how many epochs are used, at one half and at each further eighth.
func (m *Machine) countEpochs(was, is uint16) {
	const eighth = (MaxEpoch + 1) / 8
	if is >= 4*eighth && is/eighth != was/eighth {
		m.event("chain.epochs", "", "%d of its %d epochs are used: is there a switch that comes and goes? When %d are "+
			"left, %s", is, MaxEpoch, reserved, usedUp)
	}
}

// sparing reports whether only reserved epochs are left.
func (m *Machine) sparing() bool { return m.cfg.Epoch > MaxEpoch-reserved }

// has reports whether a switch has acknowledged its part of the configuration.
func (m *Machine) has(sw string) bool {
	v := m.view[sw]
	return v.acks != nil && *v.acks == m.cfg.Assignment(sw)
}

// install requests a switch's part, unless a request is under way or was refused a moment ago.
func (m *Machine) install(now Time, sw string) {
	v := m.view[sw]
	if !v.up || v.installs != 0 || now < v.retryAt && v.failed || v.lost && m.cfg.IsMember(sw) {
		return
	}
	m.assert(len(m.fence) == 0 || !m.cfg.IsMember(sw) || m.has(sw), "%s gets it before all are fenced", sw)
	m.seq++
	v.installs, v.asked = m.seq, m.cfg.Epoch
	if v.partAt == 0 {
		v.partAt = now
	}
	if m.cfg.Assignment(sw).Role != None {
		v.empty = false
	}
	if a := m.cfg.Assignment(sw); a.Role.Member() && !a.LeaseRequired {
		v.unleased = true
	}
	m.do(Install{Switch: sw, Config: m.cfg, Assignment: m.cfg.Assignment(sw), Seq: m.seq})
}

// Installed answers Install.
func (m *Machine) Installed(now Time, sw string, seq uint64, err error) {
	v := m.view[sw]
	// from a switch that has left, for another configuration, or from an earlier connection
	if v == nil || v.installs != seq {
		return
	}
	v.installs = 0
	m.attend(sw)
	if err != nil {
		if !v.failed {
			m.event("switch.refused", sw, "%v; trying again", err)
		}
		v.failed, v.retryAt = true, now+retry
		m.step(now)
		return
	}
	v.failed, v.partAt, v.stopped = false, 0, false
	a := m.cfg.Assignment(sw)
	if v.acks == nil || *v.acks != a {
		v.acks = &a
		v.lease.renew(now) // the lease of the new epoch at once
		v.lease.sinceAck = 0
	}
	v.everAcked = true
	v.unleased = a.Role.Member() && !a.LeaseRequired
	m.step(now)
}

// step does everything that can be done now. Every input ends with it, or waits for an answer.
func (m *Machine) step(now Time) {
	m.stepped = now
	m.enter(now)
	if m.doubting(now) {
		m.wait("for " + m.unmet() + " to connect: the record of the chain may be an earlier one")
		return
	}
	m.o.Doubt = 0 // afterwards, a switch that joins counts as new, even if the record names it
	if m.decided {
		m.judge(now)
	}
	if m.persisting != nil && m.persisting.retryAt > 0 && now >= m.persisting.retryAt {
		m.persist(now)
	}
	if m.recordAt > 0 && now >= m.recordAt && m.persisting == nil { // (otherwise that record includes this)
		m.recordAt = 0
		m.save(now)
		m.unrecorded = m.seq
	}
	m.failover(now)
	if p := m.phase(); p != Discovering && p != Persisting {
		m.advance(now)
		m.stepKeys(now)
		if m.redriveAt > 0 && now >= m.redriveAt {
			m.redriveAt = 0
			m.sweep()
		}
		if m.redriveAt == 0 && !m.redriving && m.installed {
			m.redriveAt = now + sweepEvery
		}
	}
	m.rejoin(now)
	m.sendLeases(now)
	m.attendedTo()
	m.enter(now)
	m.check()
}

// advance brings the configuration one step further: first fencing, then members from the tail to
// the head.
func (m *Machine) advance(now Time) {
	if m.cfg.Shadow != "" && m.change == nil { // otherwise operations would wait for a joiner that may never come
		m.event("chain.recovery-abandoned", m.cfg.Shadow, "an earlier controller did not finish bringing it in: it begins again, empty, when it is asked to")
		m.begin(now, m.next(m.cfg.Epoch, m.cfg.Members), nil)
		return
	}
	near := m.near()
	for _, s := range near {
		if v := m.view[s]; v.failed && m.has(s) {
			m.install(now, s) // it has its assignment, but refused another part
		}
	}
	for _, s := range near {
		if !m.fence[s] {
			continue
		}
		v := m.view[s]
		if !m.has(s) {
			m.install(now, s)
		}
		switch {
		case m.has(s):
			delete(m.fence, s)
		case v.unleased && (!v.up || v.stopped):
			m.event("chain.fenced", s, "it is out of reach and not bound to a lease: taken to have stopped (the fail-stop assumption)")
			delete(m.fence, s)
		case !v.unleased && now >= v.lease.until:
			if !v.up {
				m.event("chain.fenced", s, "it is out of reach, and its lease has run out")
			}
			delete(m.fence, s)
		}
	}
	if len(m.fence) > 0 {
		var names []string
		for _, s := range near {
			if m.fence[s] {
				names = append(names, s)
			}
		}
		m.wait("for " + strings.Join(names, ", ") + " to be fenced")
		return
	}
	m.fenceMax = 0
	m.enter(now)
	for _, s := range near {
		if !m.cfg.IsMember(s) && s != m.cfg.Shadow && !m.has(s) {
			m.install(now, s) // the chain waits for none of these
		}
	}
	for _, together := range m.order() {
		missing := ""
		for _, s := range together {
			if m.has(s) {
				continue
			}
			if missing == "" || !m.view[s].up {
				missing = s
			}
			m.install(now, s)
		}
		if missing == "" {
			continue
		}
		if !m.view[missing].up {
			m.wait("for " + missing + " to connect")
		} else {
			m.wait("")
		}
		return
	}
	m.wait("")
	switch {
	case !m.installed:
		m.finish(now)
	case m.cfg.Freeze == FreezeHead && m.change == nil:
		// An earlier controller was reordering the chain and did not finish. The record does not
		// say which order it wanted.
		m.event("chain.thawed", "", "an earlier controller did not finish changing its order: it stays as it is")
		n := m.next(m.cfg.Epoch, m.cfg.Members)
		n.Freeze = Thawed
		m.begin(now, n, nil)
	case !m.redriven: // an earlier controller may have stopped before it
		m.startRedrive()
	}
}

// order returns groups of switches that get the configuration one group after the other; the
// switches of one group get it at the same time. The order avoids sending a write to a member that
// would drop it, because the client would then have to wait and send it again. Nothing else
// depends on the order.
//
//   - Normally: tail first, head last, one after the other.
//   - If a switch is being brought in, that switch comes first, because no write has to pass it
//     yet; then all others but the head at once; then the head. So writes stop for two steps,
//     however long the chain is.
//   - If the chain freezes, the head comes first. It refuses later writes, and most writes that
//     are under way get through before the others have the configuration.
//   - If the chain thaws, the head comes last, after the others at once: until then there are no
//     writes. A switch that is still being filled comes after the head.
func (m *Machine) order() (groups [][]string) {
	all := m.cfg.Learners()
	switch {
	case m.cfg.Freeze == FreezeAll && !m.wasFrozen:
		return [][]string{all[:1], all[1:]}
	case m.wasFrozen && m.cfg.Shadow != "":
		return [][]string{m.cfg.Members, {m.cfg.Shadow}}
	case m.wasFrozen:
		return [][]string{all[1:], all[:1]}
	case m.cfg.Shadow != "":
		return [][]string{{m.cfg.Shadow}, m.cfg.Members[1:], m.cfg.Members[:1]}
	}
	for _, s := range slices.Backward(all) {
		groups = append(groups, []string{s})
	}
	return groups
}

// finish is called when all members have the configuration.
func (m *Machine) finish(now Time) {
	first := m.blank
	m.installed, m.blank = true, false
	m.save(now)
	if first { // no client writes before the record says that there is data to lose
		m.unrecorded = m.seq
	}
	m.event("chain.installed", "", "%v", m.cfg)
	if m.short && len(m.missing()) == 0 {
		m.event("chain.full", "", "all %d members are there again", len(m.cfg.Members))
	}
	m.short = len(m.missing()) > 0
	c := m.change
	if c != nil && c.then != nil {
		m.redriving = true
		m.do(Redrive{Epoch: m.cfg.Epoch, From: slices.Clone(m.cfg.Members), Via: m.cfg.Members[1], Drain: true})
		return
	}
	if c != nil && c.joiner != "" && m.recoveryInstalled(c) {
		m.startRedrive()
		return
	}
	m.change = nil
	if c != nil && c.op != 0 {
		m.do(Done{c.op, nil})
	}
	m.startRedrive()
}

// startRedrive re-propagates what an earlier configuration left dirty. A frozen chain would drop
// the writes, so this waits until the chain is thawed.
func (m *Machine) startRedrive() {
	m.redriven = true
	if m.canRedrive() {
		m.redriving = true
		m.do(Redrive{Epoch: m.cfg.Epoch, From: slices.Clone(m.cfg.Members), Via: m.cfg.Members[0]})
	}
}

func (m *Machine) canRedrive() bool {
	return !m.redriving && m.installed && m.cfg.Freeze == Thawed && m.holdsKeys()
}

// StuckFor is how long a key must have been dirty with one version before it is re-propagated
// while the configuration does not change. sweepEvery is how often this is checked.
const (
	StuckFor   = 300 * time.Millisecond
	sweepEvery = 500 * time.Millisecond
)

// sweep looks for keys that stay dirty while the configuration does not change, because an
// acknowledgement was lost, or because a write was lost and its client is gone. It pauses while a
// switch is being brought in: that already reads all slots of all members, and at its end writes
// wait for such a read.
func (m *Machine) sweep() {
	switch {
	case m.redriveBad:
		m.startRedrive()
	case m.canRedrive() && m.cfg.Shadow == "":
		m.redriving = true
		m.do(Redrive{Epoch: m.cfg.Epoch, From: slices.Clone(m.cfg.Members), Via: m.cfg.Members[0], Stuck: true})
	}
}

// Redriven answers Redrive.
func (m *Machine) Redriven(now Time, epoch uint16, err error) {
	if epoch != m.cfg.Epoch || !m.redriving {
		return
	}
	m.redriving = false
	c := m.change
	draining := m.phase() == Draining
	switch {
	case err != nil && draining:
		// The members still have their old order, so the chain only has to be thawed.
		m.event("chain.not-drained", "", "%v: the chain stays as it was", err)
		m.do(Done{c.op, fmt.Errorf("%w: the chain did not drain, and stays as it was: %w", ErrUnavailable, err)})
		m.change = nil
		n := m.next(m.cfg.Epoch, m.cfg.Members)
		n.Freeze = Thawed
		m.begin(now, n, nil)
	case err != nil:
		if !m.redriveBad {
			m.event("chain.not-redriven", "", "%v; trying again", err)
		}
		m.redriveBad, m.redriveAt = true, now+retry
	case draining:
		n := *c.then
		n.Epoch = m.cfg.Epoch + 1
		m.begin(now, n, &change{op: c.op, wanted: c.after})
	default:
		m.redriveBad, m.redriveAt = false, now+sweepEvery
	}
	m.step(now)
}
