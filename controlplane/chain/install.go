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

// change is a configuration that is not complete yet. Machine.persisting holds it first, and
// Machine.change after that. The changes of one operation follow each other, with rising epochs.
type change struct {
	config Config // zero while a recovery erases the joiner
	op     OpID   // the operation that requested the change; 0 if the machine requested it
	// The configuration `then` begins when the chain has drained, and gets its epoch at that time.
	// Until it begins, config freezes the head. The field is nil if no configuration follows.
	then    *Config
	seq     uint64 // sequence number of the change's Persist or Erase
	retryAt Time   // when to repeat a failed Persist; 0 if a Persist is under way or done
	tried   bool   // a Persist has failed, and an event has reported it
	// joiner is the switch that is being recovered, or "", and stage is the stage of that recovery.
	// If there is a joiner, the field `then` is nil.
	joiner string
	stage  stage
	// wanted lists the intended members while this configuration is being made. after lists the
	// intended members once `then` has begun. If nil, they do not change (Machine.wanted).
	wanted, after []string
	// own is a change by the machine itself that an operator's change has overtaken. The machine
	// continues with own if the operator's change cannot be recorded.
	own *change
	// The joiner must have been emptied by this time.
	by Time
}

// begin starts a configuration. The configuration is made durable before any switch gets it. op is
// the operation that requested it, or nil if the machine itself did. begin replaces a configuration
// that was not complete yet.
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

// fills reports whether a configuration differs from the present one only in one point: the switch
// that was being filled has become a member. Both configurations have the same epoch, because
// nothing changes for other switches.
func (m *Machine) fills(c Config) bool {
	return m.cfg.Filling && !c.Filling && c.Epoch == m.cfg.Epoch
}

// overtaken ends the operation of change c, because another configuration takes precedence. That is
// the configuration of change `by`, or the machine's own if `by` is nil.
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

// save makes the present state durable. Only saveFor waits until that is done; the chain does not.
func (m *Machine) save(now Time) {
	m.seq++
	m.unsaved = false
	// While Filling is set, the record says that the configuration is not installed. Otherwise a
	// controller that does not know Filling would look for this configuration in the switches in
	// vain.
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

// leavers lists the switches that must be fenced before configuration c. These are members that are
// not in c, and earlier members that have not been fenced yet.
func (m *Machine) leavers(c Config) []string {
	var out []string
	for _, s := range m.o.Switches {
		if (m.cfg.IsMember(s) || m.fence[s]) && !c.IsMember(s) {
			out = append(out, s)
		}
	}
	return out
}

// Persisted reports the result of a Persist.
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
	case p == nil || p.seq != seq: // this answer belongs to a change that has ended
		if err != nil {
			m.event("state.not-saved", "", "%v: a controller that is restarted now will ask the switches", err)
		}
	case err != nil && p.op != 0 && m.change == nil: // m.change is set only in a reordering, which must continue
		m.persisting = p.own
		m.do(Done{p.op, fmt.Errorf("%w: the change could not be recorded, so nothing was changed: %w", ErrUnavailable, err)})
		if p.own != nil {
			p.own.retryAt = now + retry
		} else {
			// The record may contain the failed change or not, so it is written again.
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
		// From here on the joiner is being filled: it has lost its values, but it is not empty.
		if p.joiner != "" {
			m.view[p.joiner].lost = false
			m.rejoinCost = m.rejoinCost || p.joiner == m.rejoiner
		}
		m.redriving, m.redriveAt, m.redriveBad = false, 0, false
		m.frozenFor(now, p)
		for s, v := range m.view {
			v.installs, v.failed, v.partAt = 0, false, 0
			v.everAcked = same && v.everAcked && m.has(s)
		}
		m.event("chain.installing", "", "%v", m.cfg)
	}
	m.step(now)
}

// countEpochs reports the number of used epochs when half of all epochs are used, and at each
// further eighth.
func (m *Machine) countEpochs(was, is uint16) {
	const eighth = (MaxEpoch + 1) / 8
	if is >= 4*eighth && is/eighth != was/eighth {
		m.event("chain.epochs", "", "%d of its %d epochs are used: is there a switch that comes and goes? When %d are "+
			"left, %s", is, MaxEpoch, reserved, usedUp)
	}
}

// sparing reports whether only reserved epochs are left.
func (m *Machine) sparing() bool { return m.cfg.Epoch > MaxEpoch-reserved }

// has reports whether a switch has acknowledged its part of the present configuration.
func (m *Machine) has(sw string) bool {
	v := m.view[sw]
	return v.acks != nil && *v.acks == m.cfg.Assignment(sw)
}

// install asks a switch to install its part of the configuration, unless such a request is under
// way or was refused a moment ago.
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

// Installed reports the result of an Install.
func (m *Machine) Installed(now Time, sw string, seq uint64, err error) {
	v := m.view[sw]
	// The answer comes from a switch that has left, is for another configuration, or belongs to an
	// earlier connection.
	if v == nil || v.installs != seq {
		return
	}
	v.installs = 0
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
		v.lease.renew(now) // grant a lease of the new epoch at once
		v.lease.sinceAck = 0
	}
	v.everAcked = true
	v.unleased = a.Role.Member() && !a.LeaseRequired
	m.step(now)
}

// step does everything that can be done now. Every input calls step at its end, unless it waits for
// an answer.
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
	// the pending record will contain the state that is to be recorded here
	if m.recordAt > 0 && now >= m.recordAt && m.persisting == nil {
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
	m.enter(now)
	m.check()
}

// advance brings the configuration one step further. It first fences switches, and then installs
// members from the tail to the head.
func (m *Machine) advance(now Time) {
	if m.cfg.Shadow != "" && m.change == nil { // without this, operations would wait for a joiner that may never come
		m.event("chain.recovery-abandoned", m.cfg.Shadow, "an earlier controller did not finish bringing it in: it begins again, empty, when it is asked to")
		m.begin(now, m.next(m.cfg.Epoch, m.cfg.Members), nil)
		return
	}
	for _, s := range m.o.Switches {
		if v := m.view[s]; v.failed && m.has(s) {
			m.install(now, s) // the switch has its chain_config entry, but refused another part
		}
	}
	for _, s := range m.o.Switches {
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
		for _, s := range m.o.Switches {
			if m.fence[s] {
				names = append(names, s)
			}
		}
		m.wait("for " + strings.Join(names, ", ") + " to be fenced")
		return
	}
	m.fenceMax = 0
	m.enter(now)
	for _, s := range m.o.Switches {
		if !m.cfg.IsMember(s) && s != m.cfg.Shadow && !m.has(s) {
			m.install(now, s) // the chain does not wait for these switches
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
	case !m.redriven: // an earlier controller may have stopped before it re-propagated dirty keys
		m.startRedrive()
	}
}

// order returns groups of switches. The groups get the configuration one after the other. The
// switches of one group get it at the same time. The order avoids sending a write to a member that
// would drop it, because the client would then have to wait and send it again. Nothing else depends
// on the order.
//
//   - Normally: tail first, head last, one after the other.
//   - If a switch is being brought in, that switch comes first, because no write has to pass it
//     yet; then all others but the head at once; then the head. So writes stop for two steps,
//     however long the chain is.
//   - If the chain freezes, the head comes first. It refuses later writes, and most writes that are
//     under way get through before the others have the configuration.
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
	if first { // clients may write only after the record says that there is data to lose
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

// startRedrive re-propagates the keys that an earlier configuration left dirty. A frozen chain
// would drop the writes, so startRedrive waits until the chain is thawed.
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

// StuckFor is how long a key must stay dirty with one version before sweep re-propagates it.
// sweepEvery is the time between two sweeps.
const (
	StuckFor   = 300 * time.Millisecond
	sweepEvery = 500 * time.Millisecond
)

// sweep looks for keys that stay dirty while the configuration does not change, because an
// acknowledgement was lost, or because a write was lost and its client is gone. It pauses while a
// switch is being brought in, because that already reads all slots of all members. The last of
// these reads delays writes, so it must not be slowed down.
func (m *Machine) sweep() {
	switch {
	case m.redriveBad:
		m.startRedrive()
	case m.canRedrive() && m.cfg.Shadow == "":
		m.redriving = true
		m.do(Redrive{Epoch: m.cfg.Epoch, From: slices.Clone(m.cfg.Members), Via: m.cfg.Members[0], Stuck: true})
	}
}

// Redriven reports the result of a Redrive.
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
