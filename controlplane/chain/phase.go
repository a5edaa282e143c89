package chain

import (
	"fmt"
	"slices"
)

// Phase is how far a chain has come with its configuration. The table in doc.go lists the
// transitions.
type Phase uint8

// These are the phases, in the order in which a new chain, and then a changed one, goes through
// them.
const (
	// Discovering is the phase in which the running configuration is not known, or its record is in
	// doubt. The machine only reads the switches.
	Discovering Phase = iota
	// Persisting is the phase in which the next configuration is made durable. No switch has
	// received any of it, and the switches continue with the present configuration.
	Persisting
	// Fencing is the phase in which the configuration is durable, but a switch that was a member
	// before may still serve. No member gets the configuration yet.
	Fencing
	// Installing is the phase in which the members get the configuration, in an order that loses no
	// write (order).
	Installing
	// Draining is the phase in which all members have the configuration, and its head is frozen.
	// Dirty keys are being re-propagated. After that the order of the members changes.
	Draining
	// Recovering is the phase in which all members have the configuration, and a switch is being
	// emptied, filled, or compared with the tail.
	Recovering
	// Ready is the phase in which all members have the configuration, and no change is under way.
	// This says nothing about members that have lost their connection since, but Status does.
	Ready
)

func (p Phase) String() string {
	return [...]string{"discovering", "persisting", "fencing", "installing", "draining", "recovering", "ready"}[p]
}

// installed reports whether all members have had the configuration, and no other configuration is
// on its way.
func (p Phase) installed() bool { return p >= Draining }

// follows is the table of transitions in doc.go. A phase may follow itself, when one configuration
// replaces another.
var follows = map[Phase][]Phase{
	Discovering: {Persisting, Fencing, Installing, Ready},
	Persisting:  {Discovering, Fencing, Installing, Ready},
	Fencing:     {Discovering, Persisting, Installing},
	Installing:  {Discovering, Persisting, Draining, Recovering, Ready},
	Draining:    {Discovering, Persisting},
	Recovering:  {Discovering, Persisting, Ready},
	Ready:       {Discovering, Persisting, Recovering},
}

// Phase returns the present phase.
func (m *Machine) Phase(now Time) Phase {
	if m.doubting(now) {
		return Discovering
	}
	return m.phase()
}

// phase derives the phase from the fields, ignoring a doubtful record. No field stores it, because
// a stored phase could disagree with the other fields. All code that needs the phase calls this
// function.
func (m *Machine) phase() Phase {
	switch c := m.change; {
	case !m.decided:
		return Discovering
	case m.persisting != nil:
		return Persisting
	case !m.installed && len(m.fence) > 0:
		return Fencing
	case !m.installed:
		return Installing
	case c == nil:
		return Ready
	case c.joiner != "":
		return Recovering
	default:
		return Draining
	}
}

// enter checks that the phase may follow the last one. A failure here, as in check, is a bug in
// this package, and there is no safe way to continue. Stopping the controller does no harm, because
// leases run out, and the next controller starts from the record.
func (m *Machine) enter(now Time) {
	if p := m.Phase(now); p != m.entered {
		m.assert(slices.Contains(follows[m.entered], p), "it was %v", m.entered)
		m.entered = p
	}
}

// check asserts properties that must hold between any two inputs.
func (m *Machine) check() {
	p := m.phase()
	for s := range m.fence {
		m.assert(!m.cfg.IsMember(s), "%s is a member, and to be fenced", s)
	}
	for s, v := range m.view {
		m.assert(v.up || v.installs == 0, "something is being installed at %s, which is not connected", s)
	}
	for id, o := range m.ops {
		m.assert(o.waiting || m.canKeys(), "operation %d on keys goes on", id)
	}
	m.assert(len(m.fence) == 0 || !p.installed(), "somebody is to be fenced")
	m.assert(!m.redriving || m.installed, "it is re-driving, and not all members have it")
	switch c := m.change; p {
	case Discovering:
		m.assert(m.persisting == nil && c == nil && !m.installed, "a change is under way")
	case Persisting:
		m.assert(m.persisting.config.Epoch > m.cfg.Epoch || m.fills(m.persisting.config), "epoch %d is to come",
			m.persisting.config.Epoch)
	case Fencing, Installing:
		m.assert(c == nil || c.config.Epoch == m.cfg.Epoch, "another one was asked for")
	case Draining:
		m.assert(c.then != nil && m.cfg.Freeze == FreezeHead && m.redriving, "nothing drains")
	case Recovering:
		m.assert(c.then == nil && c.stage != joining, "it has joined")
		// (During erasing, an earlier controller's shadow may still be in the configuration.)
		filled := m.cfg.Shadow == c.joiner && m.copying != 0
		m.assert(c.stage == erasing || filled, "%s is not being filled", c.joiner)
	}
}

func (m *Machine) assert(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf("chain %s, %v, %v: ", m.o.Name, m.phase(), m.cfg) + fmt.Sprintf(format, args...))
	}
}
