package chain

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Recovery fills a switch after the tail while the chain works, and then places it before the tail
// (docs/protocol.md, "Recovery"). Each stage that changes the chain is a configuration of its own.
// A controller that finds such a configuration on record abandons the recovery and configures the
// chain without the joiner. The stage is stored in a change, which waits in Machine.change for its
// configuration like any other.
//
//	erasing ──▶ shadowing ──▶ filling ────▶ joining    a chain of two members or more
//	                    └───▶ comparing ──▶ joining    a chain of one: the joiner becomes its tail

// stage is how far a recovery has come.
type stage int

const (
	erasing   stage = iota // the joiner's registers are being emptied
	shadowing              // the joiner is a shadow, and is being filled
	// writes pass the joiner, and the tail's earlier content is copied into it
	filling
	comparing // the chain is frozen, and the joiner is compared with the tail
	joining   // the joiner becomes a member
)

// eraseMost is how long emptying a switch (loading its program again) may take. The chain continues
// meanwhile, but no other switch is brought in.
const eraseMost = time.Minute

// Recover brings a switch in after the tail. Done reports either that it is a member or why that
// failed.
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
	case !m.holdsKeys(): // the chain has no content to copy into the switch
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

// erasing reports whether a switch is being emptied before it is brought in. The chain has not
// changed yet.
func (m *Machine) erasing() bool { return m.phase() == Recovering && m.change.stage == erasing }

// EraseFailed reports that an Erase has failed.
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

// joinerUp handles the return of a switch that was emptied. If the connection to it was lost
// meanwhile, it is not known whether the switch was emptied, and the machine requests Erase again.
func (m *Machine) joinerUp(now Time, sw string) {
	switch c := m.change; {
	case !m.erasing() || c.joiner != sw:
	case m.view[sw].empty:
		m.shadow(now, c)
	default:
		m.giveUp(now, errors.New("it is connected anew, and not known to have been emptied"))
	}
}

// joinerDown handles the loss of the connection to a joiner. The controller must stay connected to
// a joiner that is being filled, because the joiner may come back empty.
func (m *Machine) joinerDown(now Time, sw string) {
	for _, c := range []*change{m.persisting, m.change} {
		if c != nil && c.joiner == sw && c.stage != erasing && !m.cfg.IsMember(sw) {
			m.giveUp(now, fmt.Errorf("the connection to %s was lost", sw))
			return
		}
	}
}

// giveUp ends a recovery. It restores the chain as it was before, by another configuration if
// necessary.
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

// recoveryInstalled is called when all switches have a configuration of a recovery. It returns
// whether there is more to do.
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

// endCopy cancels the running copy.
func (m *Machine) endCopy() {
	if m.copying != 0 {
		m.do(CancelCopy{m.copying})
		m.copying = 0
	}
}

// Copied reports the result of a Copy.
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
		// A joiner before the only member would be the head, which orders writes. A joiner after it
		// would be the tail, which answers. Both must have all of the chain's data.
		n := m.next(m.cfg.Epoch, m.cfg.Members)
		n.Shadow, n.Freeze = c.joiner, FreezeAll
		m.begin(now, n, &change{op: c.op, joiner: c.joiner, stage: comparing})
	default:
		n := m.next(m.cfg.Epoch, m.cfg.Learners())
		m.begin(now, n, &change{op: c.op, joiner: c.joiner, stage: joining})
	}
	m.step(now)
}
