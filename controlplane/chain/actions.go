package chain

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Action is something for the shell to do, in the order in which Actions gives them. Each is done
// concurrently with the others unless it says otherwise.
type Action interface{ String() string }

// Persist asks for the record to be made durable, and for Persisted with the same Seq. The actions
// after it must wait for that.
type Persist struct {
	Record Record
	Seq    uint64
}

// Install asks for a switch's part of the configuration (its chain_config entry, multicast groups,
// service address and route), and for Installed with the same Seq. If the switch has all of it
// already, nothing needs to be written. It must fail if the switch has been connected again since:
// it may have come back empty, which SwitchUp reports first.
type Install struct {
	Switch     string
	Config     Config
	Assignment Assignment
	Seq        uint64
}

// Reconnect asks for the connection to a switch to be ended, and for SwitchUp when its content has
// been read again in the next one. By then, requests of the former connection must no longer take
// effect. Meanwhile the machine treats the switch as down.
type Reconnect struct {
	Switch string
	Why    string
}

// Lease asks for one LEASE packet. It is not acknowledged; its reply, if one comes, goes to
// LeaseReply.
type Lease struct {
	Switch   string
	Number   uint16 // which the reply repeats
	Epoch    uint16
	Clock    uint64        // microseconds: the switch's clock as it was last heard; 0: never
	Duration time.Duration // from then on; 0: none, the switch only answers
	// Every is the time between two LEASEs to it: any message from it within that time counts as an
	// answer (Alive), and any answered call within that time as a step (Working).
	Every time.Duration
}

// Redrive asks for the newest version of each key that is dirty at any of From to be re-propagated
// from Via, and for Redriven. Only versions that are read from a switch that has Epoch are sent,
// with that epoch. With Drain it is not done until every member is clean and all hold the same
// version of every key. With Stuck only keys are sent that are dirty with the same version at two
// looks, StuckFor apart, because every write makes its key dirty for a moment.
type Redrive struct {
	Epoch uint16
	From  []string
	Via   string
	Drain bool
	Stuck bool
}

// Erase asks for a switch's registers to be emptied, which only loading its program does, and for
// the SwitchUp that follows (Report.Fresh), or for EraseFailed. It must be refused if the switch is
// a member of another chain.
type Erase struct {
	Switch string
	Seq    uint64
}

// Rejoin asks for a switch to be brought in again, as an operator would ask for it, by Recover; and
// for Rejoined with the same Seq.
type Rejoin struct {
	Switch string
	Seq    uint64
}

// Copy asks for Donor's content of a chain to be written into To, and for Copied: first its key
// index entries, then every slot's newest version and every session's record, each only if To has
// an older one. With Compare it is not done until To has committed the newest version of every slot
// of Donor's, and has Donor's session records. With Passed, writes pass To on their way to Donor,
// and it is not done until To has accepted Donor's content of the first look, or something newer.
type Copy struct {
	Epoch     uint16
	Donor, To string
	Compare   bool
	Passed    bool
	Seq       uint64
}

// CancelCopy: the Copy with that Seq is void.
type CancelCopy struct{ Seq uint64 }

// InsertKeys and DeleteKeys ask for the key_index entries of an operation's keys, or of their
// aliases, at one switch, and for KeysDone. Existing entries are corrected. Entries of keys that
// are being added are hidden: clients find no key. Entries of keys that are being removed are
// closed: the head accepts only the controller's writes of them.
type InsertKeys struct {
	Op      OpID
	Attempt int
	Switch  string
	Alias   bool
}

// OpenKeys asks for the hidden key_index entries of an operation's keys to be opened to clients at
// one switch, and for KeysDone.
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

// DrainKeys asks for dirty slots of an operation's keys to be re-propagated, by their aliases,
// until all members are clean and equal; for their content to be kept; and for KeysDone.
type DrainKeys struct {
	Op      OpID
	Attempt int
	Epoch   uint16
	Members []string // head first
}

// WriteKeys asks for the first write of each of an operation's keys to be sent to the head until it
// is answered and every member is clean, DeleteValues for the same with a tombstone; both ask for
// KeysDone.
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

// CancelKeys: the operation's running action is void; it will be started again.
type CancelKeys struct{ Op OpID }

// Done reports the end of an operation.
type Done struct {
	Op  OpID
	Err error
}

// Event is for people and for programs that follow along.
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
