package judge

import (
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// Call is one call of a client, with its request, times and answer.
type Call struct {
	Client     string
	Key        wire.Key
	Op         wire.Op // the kind of call: Read, Write or CAS
	Eventual   bool
	Notified   bool         // the call is an EVENTUAL read that no client sent, because the server got a NOTIFY
	Move       bool         // the call is a write that puts the key's value under another KEY_ID
	Places     bool         // the call is a deletion by which the controller places the key
	Del        bool         // whether the write is a deletion
	Value      string       // the value that was read or written
	Expected   wire.Version // the version that a CAS expects
	Begin, End time.Duration
	Session    uint16 // the session of a write; Session and Number are those of the write's last transmission
	Number     uint32

	Outcome outcome
	Why     error // why the outcome is Unknown or Nothing
	// Version is the version that was read, or that the write was given. For a failed CAS, it is
	// the version that the CAS found.
	Version wire.Version
	ID      wire.Key // KEY_ID that a peek reads
	Under   int      // number of the KEY_ID that the request named, among those of its name
	Found   bool     // whether a read, or a failed CAS, found a value
	Saw     string   // the value that a failed CAS found
}

// outcome is how a call ended.
type outcome uint8

const (
	Done    outcome = iota
	Failed          // the call is a CAS that found another version
	Unknown         // the call is a write that may have been executed, or may still be executed
	// The call gives no information: it is a read without an answer, or a write that was surely not
	// executed.
	Nothing
)

// What returns the kind of call and its outcome, for coverage.
func (o *Call) What() string {
	s := map[wire.Op]string{wire.Read: "read", wire.Write: "write", wire.CAS: "cas"}[o.Op]
	if o.Eventual {
		s = "eventual read"
	}
	return s + " " + [...]string{"done", "failed", "of unknown outcome", "without an answer"}[o.Outcome]
}

// Request describes the request, for people.
func (o *Call) Request() string {
	s := map[wire.Op]string{wire.Read: "read", wire.Write: "write", wire.CAS: "cas"}[o.Op]
	if o.Eventual {
		s = "eventual read"
	}
	s += fmt.Sprintf(" %v", o.Key)
	if o.Op == wire.CAS {
		s += fmt.Sprintf(" if %v", o.Expected)
	}
	switch {
	case o.Op == wire.Read:
	case o.Move:
		s = fmt.Sprintf("move %v: %q", o.Key, o.Value)
	case o.Del:
		s += ": delete"
	default:
		s += fmt.Sprintf(": %q", o.Value)
	}
	return s
}

// Result describes the answer, for people.
func (o *Call) Result() string {
	state := func(found bool, value string) string {
		if !found {
			return fmt.Sprintf("not found, version %v", o.Version)
		}
		return fmt.Sprintf("%q, version %v", value, o.Version)
	}
	switch o.Outcome {
	case Failed:
		return "failed: " + state(o.Found, o.Saw)
	case Unknown:
		return fmt.Sprintf("outcome unknown (%v)", o.Why)
	case Nothing:
		return fmt.Sprintf("%v", o.Why)
	}
	if o.Op == wire.Read {
		return state(o.Found, o.Value)
	}
	return fmt.Sprintf("done, version %v", o.Version)
}

// History holds the calls of a run that carry information, in the order of their ends.
type History struct{ Ops []Call }

// Add adds a call that has ended.
func (h *History) Add(o Call) { h.Ops = append(h.Ops, o) }

// ComposedShift is the position of a KEY_ID's number in a composed version, which consists of that
// number and a version. Epochs of a run have 10 bits, and a name has at most 64 KEY_IDs.
const ComposedShift = 58

// Incarnation is a KEY_ID of a name. It holds the name, and the KEY_ID's number among those of the
// name. The first number is 0.
type Incarnation struct {
	Name   wire.Key
	Number int
}
