package chain

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Action is something that the machine asks the shell to do. The shell starts actions in the order
// that Actions returns, and runs them concurrently unless an action says otherwise.
type Action interface{ String() string }

// Persist asks the shell to make the record durable, and to call Persisted with the same Seq. The
// shell must not start any later action before that call.
type Persist struct {
	Record Record
	Seq    uint64
}

// Install asks the shell to install a switch's part of the configuration (its chain_config entry,
// multicast groups, service address and route), and to call Installed with the same Seq. If the
// switch already has its part, nothing needs to be written. Install must fail if the switch has
// reconnected since the request, because the switch may have come back empty, which SwitchUp must
// report first.
type Install struct {
	Switch     string
	Config     Config
	Assignment Assignment
	Seq        uint64
}

// Reconnect asks the shell to close the connection to a switch, to open a new one, and to call
// SwitchUp once it has read the switch's content again. Before that call, requests of the former
// connection must have stopped taking effect. Meanwhile the machine treats the switch as down.
type Reconnect struct {
	Switch string
	Why    string
}

// Lease asks the shell to send one LEASE packet. The shell does not acknowledge it; if the switch
// replies, the shell passes the reply to LeaseReply.
type Lease struct {
	Switch   string
	Number   uint16 // The switch's reply contains the same number.
	Epoch    uint16
	Clock    uint64        // the last clock that the switch reported, in microseconds; 0: none
	Duration time.Duration // The lease lasts for Duration after Clock; 0 only asks for a reply.
	// Every is the time between two LEASEs to this switch. Any message from the switch within that
	// time counts as an answer (Alive), and any answered call within that time as progress
	// (Working).
	Every time.Duration
}

// Redrive asks the shell to re-propagate from Via the newest version of each key that is dirty at
// any switch of From, and to call Redriven. The shell sends only versions that it read from a
// switch with epoch Epoch, and sends them with that epoch. With Drain, the action ends only when
// every member is clean and all members hold the same version of every key. Every write makes its
// key dirty for a moment. With Stuck, the shell therefore reads twice, StuckFor apart, and sends
// only keys that are dirty with the same version both times.
type Redrive struct {
	Epoch uint16
	From  []string
	Via   string
	Drain bool
	Stuck bool
}

// Erase asks the shell to empty a switch's registers, which it can do only by loading the switch's
// program again. SwitchUp with Report.Fresh, or EraseFailed, reports the result. The shell must
// refuse if the switch is a member of another chain.
type Erase struct {
	Switch string
	Seq    uint64
}

// Rejoin asks the shell to call Recover for a switch, as an operator would, and to call Rejoined
// with the same Seq.
type Rejoin struct {
	Switch string
	Seq    uint64
}

// Copy asks the shell to write Donor's content of a chain into To, and to call Copied. It writes
// the key index entries first, then the newest version of every slot and the record of every
// session, each only if To has an older one. With Compare, the copy ends only when To has committed
// the newest version of each of Donor's slots and has Donor's session records. With Passed, writes
// pass To on their way to Donor. Then the copy ends only when To has accepted the content of
// Donor's first read, or something newer.
type Copy struct {
	Epoch     uint16
	Donor, To string
	Compare   bool
	Passed    bool
	Seq       uint64
}

// CancelCopy cancels the Copy with the same Seq.
type CancelCopy struct{ Seq uint64 }

// InsertKeys and DeleteKeys ask the shell to write or delete the key_index entries of an
// operation's keys, or of the keys' aliases, at one switch, and to call KeysDone. Existing entries
// are corrected. Entries of keys that are being added are hidden, so clients do not find the keys.
// Entries of keys that are being removed are closed, so the head accepts only the controller's
// writes to them.
type InsertKeys struct {
	Op      OpID
	Attempt int
	Switch  string
	Alias   bool
}

// OpenKeys asks the shell to make the hidden key_index entries of an operation's keys visible to
// clients at one switch, and to call KeysDone.
type OpenKeys struct {
	Op      OpID
	Attempt int
	Switch  string
}
type DeleteKeys struct {
	Op      OpID
	Attempt int
	Switch  string
	Alias   bool
}

// DrainKeys asks the shell to re-propagate the dirty slots of an operation's keys, by their
// aliases, until all members are clean and equal. The shell then keeps the slots' content, and
// calls KeysDone.
type DrainKeys struct {
	Op      OpID
	Attempt int
	Epoch   uint16
	Members []string // ordered from head to tail
}

// WriteKeys asks the shell to send the first write of each of an operation's keys to the head
// until it is answered and every member is clean. DeleteValues asks for the same with a tombstone.
// The shell calls KeysDone at the end of either.
type WriteKeys struct {
	Op      OpID
	Attempt int
	Head    string
}
type DeleteValues struct {
	Op      OpID
	Attempt int
	Head    string
}

// CancelKeys cancels the operation's running action. The machine will start the action again.
type CancelKeys struct{ Op OpID }

// Done reports the end of an operation.
type Done struct {
	Op  OpID
	Err error
}

// Event describes something that happened, for people and for programs that follow the chain.
type Event struct {
	Type    string
	Switch  string
	Message string
}

func (a Persist) String() string {
	s := "persist " + a.Record.Config.String()
	if a.Record.Installed {
		s += "; installed"
	}
	if a.Record.Blank {
		s += "; without data"
	}
	if len(a.Record.Fence) > 0 {
		s += "; to fence: " + strings.Join(a.Record.Fence, ", ")
	}
	if a.Record.FenceLease > a.Record.Config.Lease {
		s += fmt.Sprintf("; leases of %v may be live", a.Record.FenceLease)
	}
	if back := slices.DeleteFunc(slices.Clone(a.Record.Wanted), a.Record.Config.IsMember); len(back) > 0 {
		s += "; to come back: " + strings.Join(back, ", ")
	}
	return s
}
func (a Install) String() string   { return fmt.Sprintf("install %s: %v", a.Switch, a.Assignment) }
func (a Reconnect) String() string { return fmt.Sprintf("reconnect %s: %s", a.Switch, a.Why) }
func (a Lease) String() string {
	return fmt.Sprintf("lease %s: epoch %d, %v from its clock %d us", a.Switch, a.Epoch, a.Duration, a.Clock)
}
func (a Redrive) String() string {
	s := fmt.Sprintf("redrive what is dirty at %s via %s, epoch %d", strings.Join(a.From, ", "), a.Via, a.Epoch)
	if a.Stuck {
		s = fmt.Sprintf("redrive what stays dirty at %s via %s, epoch %d", strings.Join(a.From, ", "), a.Via, a.Epoch)
	}
	if a.Drain {
		s += ", until all members are equal"
	}
	return s
}
func (a Rejoin) String() string { return "rejoin " + a.Switch }
func (a Erase) String() string  { return "erase " + a.Switch }
func (a Copy) String() string {
	s := fmt.Sprintf("copy %s to %s, epoch %d", a.Donor, a.To, a.Epoch)
	if a.Compare {
		s += ", until they are equal"
	}
	if a.Passed {
		s += ", until it has what that had"
	}
	return s
}
func (a CancelCopy) String() string { return "cancel the copy" }
func (a InsertKeys) String() string {
	return fmt.Sprintf("op %d.%d: insert %s at %s", a.Op, a.Attempt, entriesOf(a.Alias), a.Switch)
}
func (a DeleteKeys) String() string {
	return fmt.Sprintf("op %d.%d: delete %s at %s", a.Op, a.Attempt, entriesOf(a.Alias), a.Switch)
}
func (a OpenKeys) String() string {
	return fmt.Sprintf("op %d.%d: open entries at %s", a.Op, a.Attempt, a.Switch)
}
func (a DrainKeys) String() string {
	return fmt.Sprintf("op %d.%d: drain slots of %s, epoch %d", a.Op, a.Attempt, strings.Join(a.Members, ", "), a.Epoch)
}

func entriesOf(alias bool) string {
	if alias {
		return "aliases"
	}
	return "entries"
}
func (a WriteKeys) String() string {
	return fmt.Sprintf("op %d.%d: write values at %s", a.Op, a.Attempt, a.Head)
}
func (a DeleteValues) String() string {
	return fmt.Sprintf("op %d.%d: delete values at %s, wait until all are clean", a.Op, a.Attempt, a.Head)
}
func (a CancelKeys) String() string { return fmt.Sprintf("op %d: cancel", a.Op) }
func (a Done) String() string {
	if a.Err != nil {
		return fmt.Sprintf("op %d: failed: %v", a.Op, a.Err)
	}
	return fmt.Sprintf("op %d: done", a.Op)
}
func (a Event) String() string {
	if a.Switch != "" {
		return fmt.Sprintf("event %s %s: %s", a.Type, a.Switch, a.Message)
	}
	return fmt.Sprintf("event %s: %s", a.Type, a.Message)
}
