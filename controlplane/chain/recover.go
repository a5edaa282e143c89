package chain

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Recovery: a switch is filled behind the tail while the chain works on, and gets its place before
// it (docs/protocol.md, "Recovery"). Each stage that changes the chain is a configuration of its
// own, so a controller that finds one of them on record knows that it is to be left: it makes the
// chain without the joiner. The stages are in a change, which waits in Machine.change for its
// configuration as any other does.
//
//	erasing ──▶ shadowing ──▶ filling ────▶ joining    a chain of two members or more
//	                    └───▶ comparing ──▶ joining    a chain of one: the joiner becomes its tail

// stage is how far a recovery has come.
type stage int

const (
	erasing   stage = iota // the joiner's registers are being emptied
	shadowing              // it is a shadow, and is being filled
	filling                // writes pass it, and what the tail had before that is copied
	comparing              // the chain is frozen, and it is compared with the tail
	joining                // it becomes a member
)

// eraseMost is how long it may take to empty a switch, which is to load a program. Nothing of the
// chain waits for that, but no other switch is brought in.
const eraseMost = time.Minute

// Recover brings a switch in behind the tail. Done comes when it is a member, or with the reason
// why it failed.
func (m *Machine) Recover(now Time, op OpID, sw string) {
	fail := func(kind error, format string, args ...any) {
		m.do(Done{op, fmt.Errorf("%w: "+format, append([]any{kind}, args...)...)})
	}
	v := m.view[sw]
	switch {
	case v == nil:
		fail(ErrInvalid, "there is no switch %q: the switches are %s", sw, strings.Join(m.o.Switches, ", "))
	case v.leaving:
		fail(ErrInvalid, "%s leaves the network", sw)
	case m.Phase(now) != Ready && m.interrupts():
		fail(ErrUnavailable, "%s is being brought in: wait for the end of that, or end it by a change of the members "+
			"to those without it", strings.Join(m.joiners(), ", "))
	case m.Phase(now) != Ready:
		fail(ErrUnavailable, "the chain is being set up or changed (%s): try again when it is ready", m.Status(0).Reason)
	case m.cfg.IsMember(sw):
		fail(ErrInvalid, "%s is a member already", sw)
	case m.sparing():
		fail(ErrRefused, "the chain has used %d of its %d epochs: %s", m.cfg.Epoch, MaxEpoch, usedUp)
	case m.cfg.Freeze != Thawed:
		fail(ErrRefused, "the chain is frozen: thaw it first")
	case !v.up:
		fail(ErrUnavailable, "%s is not connected, or does not run the program", sw)
	case !m.holdsKeys(): // there is nothing to fill it with
		m.begin(now, m.next(m.cfg.Epoch, append(m.cfg.Learners(), sw)), &change{op: op})
		m.step(now)
	default:
		c := &change{op: op, joiner: sw}
		m.change, m.freezeFor = c, m.joinerLease()
		if !v.empty {
			m.event("chain.recovering", sw, "what it holds is of no use: it begins empty")
			m.seq++
			c.seq, c.by = m.seq, now+eraseMost
			m.do(Erase{Switch: sw, Seq: c.seq})
			return
		}
		m.shadow(now, c)
		m.step(now)
	}
}

// erasing says whether a switch is being emptied to be brought in: of the chain nothing is changed
// yet.
func (m *Machine) erasing() bool { return m.phase() == Recovering && m.change.stage == erasing }

// EraseFailed answers Erase.
func (m *Machine) EraseFailed(now Time, seq uint64, err error) {
	if c := m.change; m.erasing() && c.seq == seq {
		m.giveUp(now, err)
		m.step(now)
	}
}

// shadow begins the configuration in which the joiner is filled.
func (m *Machine) shadow(now Time, c *change) {
	n := m.next(m.cfg.Epoch, m.cfg.Members)
	n.Shadow = c.joiner
	m.event("chain.recovering", c.joiner, "it is filled behind %s", n.Members[len(n.Members)-1])
	m.begin(now, n, &change{op: c.op, joiner: c.joiner, stage: shadowing})
}

// joinerUp: a switch that was emptied is there again. If the connection to it was lost meanwhile it
// is not known whether it was, and it is asked for another time.
func (m *Machine) joinerUp(now Time, sw string) {
	switch c := m.change; {
	case !m.erasing() || c.joiner != sw:
	case m.view[sw].empty:
		m.shadow(now, c)
	default:
		m.giveUp(now, errors.New("it is connected anew, and not known to have been emptied"))
	}
}

// joinerDown: while it is being filled a joiner must not be lost from sight, because it may come
// back empty.
func (m *Machine) joinerDown(now Time, sw string) {
	for _, c := range []*change{m.persisting, m.change} {
		if c != nil && c.joiner == sw && c.stage != erasing && !m.cfg.IsMember(sw) {
			m.giveUp(now, fmt.Errorf("the connection to %s was lost", sw))
			return
		}
	}
}

// giveUp ends a recovery: the chain is as it was before, if need be by another configuration.
func (m *Machine) giveUp(now Time, why error) {
	c := m.change
	if m.persisting != nil {
		c = m.persisting
	}
	m.event("chain.not-recovered", c.joiner, "%v", why)
	m.do(Done{c.op, fmt.Errorf("%w: %s was not brought in: %w", ErrUnavailable, c.joiner, why)})
	untouched := m.persisting == nil && m.cfg.Shadow == ""
	c.op, m.change = 0, nil
	if untouched {
		return
	}
	m.begin(now, m.next(m.cfg.Epoch, m.cfg.Members), nil)
}

// recoveryInstalled: all have a configuration of a recovery. It says whether there is more to do.
func (m *Machine) recoveryInstalled(c *change) bool {
	if c.stage == joining {
		if tail := m.cfg.Members[len(m.cfg.Members)-1]; tail == c.joiner {
			m.event("chain.recovered", c.joiner, "it is the tail")
		} else {
			m.event("chain.recovered", c.joiner, "it is a member, before the tail %s", tail)
		}
		return false
	}
	m.seq++
	m.copying = m.seq
	m.do(Copy{Epoch: m.cfg.Epoch, Donor: m.cfg.Members[len(m.cfg.Members)-1], To: c.joiner,
		Compare: c.stage == comparing, Passed: c.stage == filling, Seq: m.seq})
	return true
}

// endCopy: the copied content is no longer needed.
func (m *Machine) endCopy() {
	if m.copying != 0 {
		m.do(CancelCopy{m.copying})
		m.copying = 0
	}
}

// Copied answers Copy.
func (m *Machine) Copied(now Time, seq uint64, err error) {
	c := m.change
	if m.copying != seq || m.phase() != Recovering {
		return
	}
	m.copying = 0
	switch {
	case err != nil:
		m.giveUp(now, err)
	case c.stage == shadowing && len(m.cfg.Members) > 1:
		n := m.next(m.cfg.Epoch, m.cfg.Members)
		n.Shadow, n.Filling = c.joiner, true
		m.begin(now, n, &change{op: c.op, joiner: c.joiner, stage: filling})
	case c.stage == filling:
		n := m.cfg
		n.Members, n.Shadow, n.Filling = m.cfg.way(), "", false
		m.begin(now, n, &change{op: c.op, joiner: c.joiner, stage: joining})
	case c.stage == shadowing:
		// Before the only member it would be the head, which decides, and behind it the tail, which
		// answers: both must have everything.
		n := m.next(m.cfg.Epoch, m.cfg.Members)
		n.Shadow, n.Freeze = c.joiner, FreezeAll
		m.begin(now, n, &change{op: c.op, joiner: c.joiner, stage: comparing})
	default:
		n := m.next(m.cfg.Epoch, m.cfg.Learners())
		m.begin(now, n, &change{op: c.op, joiner: c.joiner, stage: joining})
	}
	m.step(now)
}
