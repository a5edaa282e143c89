package chain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
)

// These are the kinds of failure of an operation. Errors wrap one of them and say what the operator
// can do.
var (
	ErrInvalid     = errors.New("invalid")            // the request makes no sense, and repeating it will not help
	ErrRefused     = errors.New("refused")            // the present state does not permit the request
	ErrUnavailable = errors.New("unavailable")        // a switch that is needed is not connected; try again
	ErrSilent      = errors.New("it does not answer") // a connected switch has not answered in time
)

// OpID identifies an operation, which is a change of the chain or of its keys. The shell chooses
// the OpID.
type OpID uint64

// Options are the parameters of New.
type Options struct {
	Name     string
	Switches []string // all switches of the network, in order
	// Members and Lease come from the topology file. They apply when the chain is first made;
	// after that, the chain's record applies.
	Members []string
	Lease   time.Duration
	// FailureTimeout is how long a member may be out of reach before the chain continues without
	// it. If it is 0, the chain waits until an operator decides. FailureTimeout should be shorter
	// than the lease, because the chain waits for the lease to run out in any case.
	FailureTimeout time.Duration
	// ShortLease is the length of leases while everything is prompt (pace.go). ShortTimeout is the
	// upper bound of FailureTimeout during that time. If they are 0, Lease and FailureTimeout
	// always apply.
	ShortLease, ShortTimeout time.Duration
	// ShortAfter is how long everything must have been prompt before leases become short.
	ShortAfter time.Duration
	// Made is the time at which this machine is made, by its own clock. PriorLeaseBound is how
	// long after that an earlier controller may still give leases, by that controller's clock.
	Made            Time
	PriorLeaseBound time.Duration
	// Record is an earlier controller's record, nil if there is none.
	Record *Record
	// Doubt is how long after its start the machine waits for all members of Record before it acts
	// on Record. Record may be out of date. A later epoch at any member shows that. Doubt is 0 if
	// Record is known to be the last record.
	Doubt time.Duration
	// Rejoin decides when lost members are brought in again. With the zero Policy, they never are.
	Rejoin rejoin.Policy
	// Length is how many members the chain should have, if another program chooses them. If 0, the
	// chain should have all members that the operator has named.
	Length int
	// EpochFloor is an exclusive lower bound of the chain's first epoch. Slots that the chain now
	// owns may hold versions with epochs up to EpochFloor.
	EpochFloor uint16
}

// Report describes a newly connected switch's part in the chain.
type Report struct {
	Assignment *Assignment // the switch's chain_config entry, nil if it has none
	Fresh      bool        // the program has just been loaded, so every register is empty
	Keys       int         // number of key_index entries for this chain's keys
}

// view is what the machine knows about one switch.
type view struct {
	up     bool // the switch is connected and SwitchUp was called
	downAt Time // when the connection was last lost; valid while up is false
	quick  bool // leases were short when the connection was lost
	met    bool // the switch has been connected to this controller
	empty  bool // the switch's registers are empty, and it has had no role since they were emptied
	// mistrusted says that the switch has contradicted its known state (mistrust), and that compare
	// has not checked it since.
	mistrusted bool
	acks       *Assignment
	keys       int // number of key_index entries that the switch reported
	// everAcked says that the switch has acknowledged the present configuration, or that the
	// record says so.
	everAcked bool
	lost      bool   // the switch's registers are empty while the chain holds keys
	installs  uint64 // the sequence number of the Install that is under way; 0: none
	asked     uint16 // epoch of the last Install in this connection, which may have taken effect despite an error
	retryAt   Time   // when to repeat a failed Install
	failed    bool   // the last Install failed, and an event has reported it
	partAt    Time   // when the switch was first asked to install the configuration that it still lacks; 0: not asked
	workedAt  Time   // when the switch last answered a call, as far as known (Working)
	tested    bool   // the last LEASE only tested whether the switch answers (asks)
	unleased  bool   // the switch may have a part in the chain without needing a lease
	stopped   bool   // the switch was given up while it was connected, in a chain without leases
	leaving   bool   // the switch is leaving the network, and the chain must continue without it
	refused   string // why the last attempt to bring the switch in failed; an event reports each reason once
	lease     leaseView
}

// Machine is one chain. Its fields together determine its phase (phase.go); check asserts that.
type Machine struct {
	o    Options
	view map[string]*view // its keys are exactly the switches of o.Switches

	// cfg is the configuration that the switches have or are getting. It is durable, and this
	// controller has never given a switch a part of a later configuration. While decided is false,
	// cfg has no members and means nothing.
	cfg     Config
	decided bool
	// installed says that all members have had cfg since it was made durable. Then fence is empty.
	installed bool
	pace      pace
	// fence lists the switches that must be fenced before a member gets anything of cfg. None of
	// cfg's members is in it. fenceMax is the longest lease that they can hold.
	fence    map[string]bool
	fenceMax time.Duration
	// persisting is the next configuration, later than cfg, while it waits for Persisted. No switch
	// has received any of it. It is nil if there is none.
	persisting *change
	// change is the unfinished change that cfg belongs to: cfg is being installed, or is one stage
	// of an operation. It is nil if cfg is not part of an unfinished change.
	change *change
	// since maps each of cfg's members to the epoch in which it became one; see Record.Since.
	since map[string]uint16
	// entered is the phase that the last input led to; only enter uses it.
	entered Phase

	// wanted lists the intended members (rejoin.go). It includes all of cfg's members.
	wanted []string
	back   *rejoin.Tracker
	// rejoining is the sequence number of the running Rejoin of rejoiner, 0 if there is none.
	// rejoinCost says that this Rejoin has used epochs.
	rejoining  uint64
	rejoiner   string
	rejoinCost bool
	short      bool            // members are missing, so an event must report when the chain is complete again
	saving     map[uint64]OpID // maps the number of a Persist to the operation that ends with it
	unsaved    bool            // the record lacks intended members, or a change that could not be recorded

	found     bool            // cfg was found in the switches
	stale     bool            // the record was out of date, so the switches decide
	unjudged  map[string]bool // switches that connected while the record was in doubt, and whether each is fresh
	wasFrozen bool            // the configuration before cfg was frozen
	blank     bool            // no switch holds data of the chain: it is new, or everything was lost
	// unrecorded is the sequence number of the Persist that records that the chain is no longer
	// blank; recordAt is when to try again. While either is not 0, no key may be placed, because
	// the next controller would assume that there is nothing to lose.
	unrecorded uint64
	recordAt   Time
	// longer is the longest lease that a switch can hold from before leases were shortened, and
	// longerUntil is when the last such lease has run out.
	longer      time.Duration
	longerUntil Time
	exhausted   bool   // an event has reported that no epoch is left
	keys        int    // number of keys that the directory places in this chain
	knowsKeys   bool   // keys is the number of all keys for which the switches have entries
	waiting     string // last reported reason for waiting

	redriven bool // keys that an earlier controller may have left dirty have been re-propagated
	// redriving says that a Redrive of cfg, which all members have, is under way.
	redriving  bool
	redriveAt  Time   // when to look for keys that stay dirty
	redriveBad bool   // the last Redrive failed, and an event has reported it
	copying    uint64 // the sequence number of the Copy that is under way; 0: none
	// freezeFor is how long the only member may be frozen for a joiner. frozenAt is when it was
	// frozen. freezeUntil is the deadline for the next stage, or 0 if the member is not frozen for
	// a joiner.
	freezeFor             time.Duration
	frozenAt, freezeUntil Time

	// ops holds the operations on keys. All of them wait unless canKeys returns true.
	ops map[OpID]*keyOp

	// seq is the last sequence number of an action. An answer whose number differs from its
	// action's is out of date.
	seq     uint64
	stepped Time     // when step last ran
	actions []Action // actions that Actions has not returned yet
}

// New makes the machine of a chain.
func New(o Options) *Machine {
	m := &Machine{o: o, view: map[string]*view{}, unjudged: map[string]bool{}, fence: map[string]bool{},
		ops: map[OpID]*keyOp{}, saving: map[uint64]OpID{}, since: map[string]uint16{},
		back: rejoin.New(o.Rejoin), pace: pace{o.Made + o.ShortAfter, o.ShortAfter}}
	for _, s := range o.Switches {
		m.view[s] = m.newView()
	}
	if r := o.Record; r != nil {
		m.decided, m.cfg, m.installed, m.blank = true, r.Config, r.Installed && len(r.Fence) == 0, r.Blank
		m.fenceMax, m.wanted = r.FenceLease, r.intended()
		for _, s := range r.Config.Members {
			m.since[s] = cmp.Or(r.Since[s], r.Config.Epoch)
		}
		m.short = len(m.missing()) > 0
		m.longer, m.longerUntil = r.FenceLease, m.prior(r.FenceLease)
		for _, s := range r.Fence {
			m.fence[s] = true
		}
		for s, v := range m.view {
			v.lease.until = m.prior(max(r.Config.Lease, r.FenceLease))
			v.unleased = r.Config.Lease == 0 && r.Config.IsMember(s)
			v.everAcked = r.Installed && r.Config.IsMember(s)
		}
		if !slices.Equal(r.Config.Members, o.Members) || r.Config.Lease != o.Lease {
			m.event("chain.differs", "", "the topology file says %v, lease %v; "+
				"running is %v, which was set later and stays until it is changed by PUT /v1/chains/%s",
				o.Members, o.Lease, r.Config, o.Name)
		}
	}
	return m
}

// newView returns the view of an unknown switch. Until this controller gives leases of its own, the
// switch may hold a lease of an earlier controller.
func (m *Machine) newView() *view { return &view{lease: leaseView{until: m.prior(maxLease)}} }

// Actions returns the new actions since the last call, in order.
func (m *Machine) Actions() []Action {
	a := m.actions
	m.actions = nil
	return a
}

func (m *Machine) do(a Action) { m.actions = append(m.actions, a) }

func (m *Machine) event(kind, sw, format string, args ...any) {
	m.do(Event{Type: kind, Switch: sw, Message: fmt.Sprintf(format, args...)})
}

// SetKeys sets how many keys the directory places in the chain.
func (m *Machine) SetKeys(n int) { m.keys = n }

// KnowsKeys reports that the directory has been compared with the switches' entries, so its number
// of keys is the chain's. Before that, a switch may have entries of keys that were removed.
func (m *Machine) KnowsKeys() { m.knowsKeys = true }

// holdsData reports whether there is data that a switch can have lost.
func (m *Machine) holdsData() bool { return !m.blank && m.holdsKeys() }

func (m *Machine) holdsKeys() bool {
	return m.keys > 0 || !m.knowsKeys && slices.ContainsFunc(m.o.Switches, func(s string) bool {
		return m.view[s].keys > 0
	})
}

// SwitchUp reports that a switch is connected, this controller is its primary, the program runs,
// and everything that does not depend on the chain is installed.
func (m *Machine) SwitchUp(now Time, sw string, r Report) {
	v := m.view[sw]
	if v == nil { // the switch has left the network meanwhile
		return
	}
	v.up, v.acks, v.keys, v.installs, v.asked, v.failed, v.met = true, r.Assignment, r.Keys, 0, 0, false, true
	v.partAt, v.stopped = 0, false
	// if the switch was already connected, a chain has emptied it, so its steady time continues
	m.back.There(now, m.candidate(sw))
	v.refused = ""
	v.empty = r.Fresh || v.empty && (r.Assignment == nil || r.Assignment.Role == None)
	v.unleased = r.Assignment != nil && r.Assignment.Role.Member() && !r.Assignment.LeaseRequired
	v.lease.connected(now)
	if r.Fresh {
		v.lease.until = 0
	}
	if r.Fresh || r.Assignment == nil || !r.Assignment.Role.Member() {
		v.lease.floor = 0 // its registers are empty, so it has no content left to lose
	}
	if !m.decided {
		m.decide(now)
		return
	}
	if a := r.Assignment; a != nil && a.Epoch > m.cfg.Epoch {
		m.distrust(now, sw, a.Epoch)
		return
	}
	m.unjudged[sw] = r.Fresh
	m.step(now)
}

// doubting reports whether the record is still in doubt.
func (m *Machine) doubting(now Time) bool {
	return now < m.o.Doubt && m.decided && !m.stale && m.o.Record != nil && m.unmet() != ""
}

// unmet returns a member of the record that has not connected to this controller yet.
func (m *Machine) unmet() string {
	for _, s := range m.o.Record.Config.Members {
		if v := m.view[s]; v != nil && !v.met {
			return s
		}
	}
	return ""
}

// judge calls compare for the switches that connected while the record was in doubt.
func (m *Machine) judge(now Time) {
	for _, s := range m.o.Switches {
		if fresh, ok := m.unjudged[s]; ok {
			delete(m.unjudged, s)
			if m.view[s].up {
				m.compare(now, s, fresh)
				m.joinerUp(now, s)
			}
		}
	}
}

// distrust handles a switch that has a later epoch than any epoch on record. The record is then out
// of date. Some members that it names have been given up since, and hold old values. The switches
// decide instead.
func (m *Machine) distrust(now Time, sw string, epoch uint16) {
	m.event("chain.epoch", sw, "it has epoch %d, later than the %d on record: the record is an earlier one, and what "+
		"the switches have counts", epoch, m.cfg.Epoch)
	for _, c := range []*change{m.persisting, m.change} {
		if c != nil && c.op != 0 {
			m.overtaken(c, nil)
			for _, other := range []*change{m.persisting, m.change} {
				if other != nil && other.op == c.op {
					other.op = 0
				}
			}
		}
	}
	m.pauseKeys()
	m.endCopy()
	m.persisting, m.change, m.decided, m.installed, m.stale = nil, nil, false, false, true
	m.redriving, m.redriven, m.redriveAt, m.redriveBad, m.freezeUntil = false, false, 0, false, 0
	clear(m.unjudged)
	clear(m.fence)
	for _, s := range m.o.Switches {
		m.view[s].installs, m.view[s].failed, m.view[s].lost, m.view[s].everAcked = 0, false, false, false
		m.view[s].partAt = 0
		if !m.view[s].met { // leases may have become longer since the controller started
			m.view[s].lease.until = max(m.view[s].lease.until, m.prior(maxLease))
		}
	}
	m.enter(now)
	m.decide(now)
}

// SwitchDown reports that the connection to a switch is lost. The switch may still be running and
// answering.
func (m *Machine) SwitchDown(now Time, sw string) {
	v := m.view[sw]
	if v == nil {
		return
	}
	if v.up {
		v.downAt, v.quick = now, m.prompt(now)
	}
	m.back.Away(m.candidate(sw))
	v.up, v.installs = false, 0
	m.joinerDown(now, sw)
	m.step(now)
}

// compare checks a switch's state against the configuration. fresh says that its registers are
// empty.
func (m *Machine) compare(now Time, sw string, fresh bool) {
	v := m.view[sw]
	a := v.acks
	fresh = fresh || v.mistrusted // a mistrusted switch counts as empty, whatever its tables say
	v.mistrusted = false
	if a != nil && *a == m.cfg.Assignment(sw) && !fresh {
		v.everAcked = true
		m.install(now, sw) // an Install writes only missing entries
		return
	}
	if !m.cfg.IsMember(sw) {
		return
	}
	v.lease.forget() // the switch's earlier content is gone
	switch {
	case m.holdsData() && (fresh || a == nil || !a.Role.Member() || v.everAcked):
		m.lose(now, sw)
	case v.everAcked:
		m.event("chain.reinstall", sw, "it has lost its configuration; the chain holds no data, so it is set up again")
		m.begin(now, m.next(m.cfg.Epoch, m.cfg.Members), nil)
	}
}

// lose continues without a member whose registers are empty.
func (m *Machine) lose(now Time, sw string) {
	m.view[sw].lost = true
	var left []string
	for _, s := range m.cfg.Members {
		if !m.view[s].lost {
			left = append(left, s)
		}
	}
	if len(left) == 0 {
		m.event("chain.lost", "", "every member was restarted or emptied: the values of all keys are lost, and they read NOT_FOUND until they are written again")
		members, others := m.empty(m.o.Members)
		m.leaveOut(others)
		if len(members) == 0 {
			members = m.cfg.Members // the topology file names no lost member
		}
		for _, v := range m.view {
			v.lost = false
		}
		m.blank = true
		m.begin(now, m.next(m.cfg.Epoch, members), nil)
		return
	}
	back := "it can be brought back (recover)"
	if m.o.Rejoin.On() {
		back = "it is taken in again when it has been steady for a while"
	}
	m.event("chain.lost-member", sw, "it has lost its values (it was restarted, or its configuration was deleted): the chain goes on without it; %s", back)
	m.begin(now, m.next(m.cfg.Epoch, left), nil)
}

// empty splits switches into switches that hold nothing of the chain (out) and all others. A switch
// that was given up and has not been emptied since holds old values. These must not be read even if
// all other values are lost.
func (m *Machine) empty(switches []string) (out, others []string) {
	for _, s := range switches {
		if v := m.view[s]; v.lost || v.up && (v.empty || v.acks == nil) {
			out = append(out, s)
		} else {
			others = append(others, s)
		}
	}
	return out, others
}

func (m *Machine) leaveOut(switches []string) {
	for _, s := range switches {
		m.event("chain.left-out", s, "it may hold values of before: it can be brought in, empty (recover)")
	}
}

// next returns the configuration with the next epoch, which is above epoch and all earlier epochs.
// It differs from the present configuration only in its members.
func (m *Machine) next(epoch uint16, members []string) Config {
	c := m.cfg
	c.Epoch = max(epoch, m.cfg.Epoch)
	if m.persisting != nil {
		c.Epoch = max(c.Epoch, m.persisting.config.Epoch)
	}
	c.Epoch++ // wraps at MaxEpoch, which begin refuses
	c.Members = slices.Clone(members)
	if c.Shadow != "" { // a configuration that replaces a recovery thaws the chain
		c.Shadow, c.Filling, c.Freeze = "", false, Thawed
	}
	return c
}

// decide finds out which configuration is running if no record says so, or if the record is out of
// date. It needs to hear from all members that the file names. Suppose that all members of a
// configuration report that they have it, and that no switch has a later epoch. Then that
// configuration is running, because any later configuration would have at least one of its members.
func (m *Machine) decide(now Time) {
	var epoch uint16
	members := 0
	for _, s := range m.o.Switches {
		if v := m.view[s]; v.up && v.acks != nil {
			epoch = max(epoch, v.acks.Epoch)
			if v.acks.Holds() {
				members++
			}
		}
	}
	running, complete := m.running(epoch)
	if max(epoch, m.o.EpochFloor) == MaxEpoch && !complete {
		m.wait(fmt.Sprintf("for an operator: all %d epochs are used up, and no configuration can be made: begin anew "+
			"with emptied switches (docs/operations.md, \"Epochs\")", MaxEpoch))
		return
	}
	if m.stale && complete {
		m.adopt(now, running)
		return
	}
	why := "without a record of the chain all its switches must say what they have"
	if m.stale {
		why = "the record of the chain is an earlier one, and its switches must say what they have"
	}
	named := m.named(epoch)
	var silent []string
	for _, s := range m.o.Switches {
		if v := m.view[s]; !v.up && (slices.Contains(m.o.Members, s) || named[s]) && !(m.stale && v.leaving) {
			silent = append(silent, s)
		}
	}
	if len(silent) > 0 {
		m.wait("for " + strings.Join(silent, ", ") + " to connect: " + why)
		return
	}
	if complete {
		m.adopt(now, running)
		return
	}
	first := Config{Epoch: max(epoch, m.o.EpochFloor) + 1, Members: slices.Clone(m.o.Members), Lease: m.wantedLease()}
	wanted := m.o.Members
	// Every switch that may have a part is fenced before another chain is installed.
	before := slices.Clone(first.Members)
	for _, s := range m.o.Switches {
		if v := m.view[s]; !slices.Contains(before, s) && (v.up && v.acks != nil && v.acks.Holds() ||
			m.stale && !v.up) {
			before = append(before, s)
		}
	}
	var err error
	switch {
	case !m.holdsKeys():
		m.blank = true
	case members == 0:
		var others []string
		if first.Members, others = m.empty(m.o.Members); len(first.Members) == 0 {
			err = errors.New("no switch has a part in the chain, and its switches may hold values of before: restart " +
				"those that are to begin without values, " +
				"or name those that have the chain's values as its members in the topology file")
			break
		}
		m.event("chain.lost", "", "no switch has a part in the chain: the values of all keys are lost, and they read "+
			"NOT_FOUND until they are written again")
		m.leaveOut(others)
		m.blank = true
	default:
		if first.Members, err = m.survivors(epoch, named); err == nil {
			// it is not known which members an operator has left out
			m.found, m.blank, wanted = true, false, first.Members
			m.event("chain.takeover", "", "the switches were left in the middle of a change (epoch %d): going on with "+
				"%v", epoch, first.Members)
		}
	}
	if err != nil {
		m.wait("for an operator: " + err.Error())
		return
	}
	m.decided, m.cfg, m.wanted = true, Config{Epoch: epoch, Members: before, Lease: first.Lease}, nil
	clear(m.since) // the survivors count as members since the epoch that they report
	m.begin(now, first, &change{wanted: wanted})
}

// wantedLease returns the lease length for a chain whose configuration was found in the switches.
func (m *Machine) wantedLease() time.Duration {
	if m.stale {
		return m.cfg.Lease
	}
	return m.o.Lease
}

// named returns the members that switches with the latest epoch name. The entry of each such switch
// names the head, the tail, and the switch's successor.
func (m *Machine) named(epoch uint16) map[string]bool {
	out := map[string]bool{}
	for _, s := range m.o.Switches {
		if v := m.view[s]; v.up && v.acks != nil && v.acks.Epoch == epoch {
			out[v.acks.Head], out[v.acks.Tail], out[v.acks.Next] = true, true, true
			out[s] = out[s] || v.acks.Role.Member()
		}
	}
	return out
}

// running follows the chain that the switches have at an epoch from its head to its tail.
func (m *Machine) running(epoch uint16) (Config, bool) {
	parts := map[string]*Assignment{}
	head := ""
	for _, s := range m.o.Switches {
		if v := m.view[s]; v.up && v.acks != nil && v.acks.Epoch == epoch && v.acks.Role.Member() {
			parts[s] = v.acks
			if v.acks.Role == Head || v.acks.Role == HeadTail {
				head = s
			}
		}
	}
	if head == "" {
		return Config{}, false
	}
	c := Config{Epoch: epoch, Lease: m.wantedLease()}
	frozen := 0
	for s := head; s != ""; s = parts[s].Next {
		if parts[s] == nil || len(c.Members) > len(parts) {
			return Config{}, false
		}
		if parts[s].Filling() { // an earlier controller did not finish a recovery
			c.Shadow, c.Filling = s, true
			continue
		}
		c.Members = append(c.Members, s)
		if parts[s].Frozen {
			frozen++
		}
	}
	switch {
	case frozen == len(c.Members):
		c.Freeze = FreezeAll
	case frozen > 0:
		c.Freeze = FreezeHead
	}
	if !parts[head].LeaseRequired {
		c.Lease = 0
	} else if c.Lease == 0 {
		c.Lease = maxLease // the members need a lease; adopt sets the right length
	}
	for s, a := range parts { // check every switch, and each field of its part
		if *a != c.Assignment(s) {
			return Config{}, false
		}
	}
	for _, s := range m.o.Switches {
		if v := m.view[s]; v.up && v.acks != nil && v.acks.Epoch == epoch && v.acks.Role == Shadow {
			c.Shadow = s // an earlier controller did not finish a recovery
		}
	}
	return c, true
}

// adopt takes over a running configuration. It also applies those requests of the topology file
// that can be applied to a running chain.
func (m *Machine) adopt(now Time, c Config) {
	lease := m.wantedLease()
	m.decided, m.found, m.cfg, m.installed, m.blank = true, true, c, true, false
	m.wanted = slices.Clone(c.Members) // members that an operator has left out are unknown
	m.event("chain.adopted", "", "the switches run %v", c)
	clear(m.since)
	for _, s := range c.Members {
		m.view[s].everAcked, m.since[s] = true, c.Epoch
	}
	if !slices.Equal(c.Members, m.o.Members) {
		m.event("chain.differs", "", "the topology file says %v; the running %v stays until it is changed by PUT /v1/chains/%s",
			m.o.Members, c.Members, m.o.Name)
	}
	if c.Lease != lease || c.Freeze == FreezeHead || c.Shadow != "" {
		n := m.next(c.Epoch, c.Members)
		n.Lease = lease
		if n.Freeze == FreezeHead { // an earlier controller did not finish a reordering
			n.Freeze = Thawed
		}
		m.begin(now, n, nil)
		return
	}
	m.save(now)
	for _, s := range m.o.Switches {
		m.install(now, s) // an Install writes only missing entries
	}
	m.startRedrive()
	m.step(now)
}

// survivors returns the members of a partly installed configuration that hold everything that must
// not be lost. Members with the new configuration do. So does a member that is known to belong to
// the new configuration but still has an earlier configuration. No write can have passed such a
// member, and it was in all configurations between the two. Any other member with an earlier
// configuration may have been given up, and may hold an old state. The order of the survivors must
// follow from what the members know, from the record and from the file.
func (m *Machine) survivors(epoch uint16, named map[string]bool) ([]string, error) {
	order := m.o.Members
	if m.stale {
		order = m.cfg.Members
	}
	var out []string
	for _, s := range m.o.Switches {
		v := m.view[s]
		if !v.up || v.acks == nil || !v.acks.Holds() || !named[s] {
			continue
		}
		if !slices.Contains(order, s) {
			return nil, fmt.Errorf("%s has a part in the chain (%v) that the topology file does not give it, and there is no record of why: "+
				"add it to the chain's members in the file where it belongs", s, *v.acks)
		}
	}
	for _, s := range order {
		if v := m.view[s]; v != nil && v.up && v.acks != nil && v.acks.Holds() && named[s] {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the members of epoch %d have lost their values, and those of before may hold values "+
			"of then: restart all switches of the chain to begin without values", epoch)
	}
	for i, s := range out {
		if next := m.view[s].acks.Next; next != "" {
			if j := slices.Index(out, next); j >= 0 && j < i {
				return nil, fmt.Errorf("%s sends writes on to %s, but the topology file has them in the other order, and there is no record of why: "+
					"put the file's members into the order that the switches have", s, next)
			}
		}
	}
	return out, nil
}

// wait reports, once for each reason, why the machine is waiting.
func (m *Machine) wait(what string) {
	if what != m.waiting && what != "" {
		m.event("chain.waiting", "", "waiting %s", what)
	}
	m.waiting = what
}

// Tick does everything that is due by time. Call it once at the start, and at the time that Next
// returns. Additional calls do no harm.
func (m *Machine) Tick(now Time) {
	if !m.decided {
		m.decide(now)
		return
	}
	m.step(now)
}

// Next returns the time of the next Tick, and false if there is nothing to wait for. The time may
// be in the past, because an input may have come after it and before the Tick that was due.
func (m *Machine) Next(now Time) (Time, bool) {
	next, ok := Time(0), false
	// The last step already tried everything that was due. If something was not possible then, a
	// later input will make it possible.
	at := func(t Time) {
		if t > m.stepped && (!ok || t < next) {
			next, ok = t, true
		}
	}
	if !m.decided {
		return 0, false
	}
	if m.doubting(now) {
		at(m.o.Doubt)
	}
	for _, s := range m.o.Switches {
		v := m.view[s]
		if m.leases(s) || m.asks(s) {
			at(v.lease.next)
		}
		if by, ok := m.partBy(s); ok && m.joins(s) {
			at(by)
		}
		if m.probes(s) {
			at(v.lease.probeAt)
		}
		if v.failed {
			at(v.retryAt)
		}
		if m.fence[s] {
			at(v.lease.until)
		}
		if at0, ok := m.givenUpAt(s); ok {
			at(at0)
		}
	}
	for _, s := range m.missing() {
		if due, ok := m.back.Due(now, m.candidate(s)); ok && m.rejoining == 0 {
			at(due)
		}
	}
	if m.erasing() {
		at(m.change.by)
	}
	at(m.freezeUntil)
	at(m.redriveAt)
	at(m.recordAt)
	if m.persisting != nil {
		at(m.persisting.retryAt)
	}
	for _, o := range m.ops {
		at(o.retryAt)
	}
	return next, ok
}
