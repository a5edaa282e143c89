package judge

import (
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// Call is one call of a client: request, times and answer.
type Call struct {
	Client     string
	Key        wire.Key
	Op         wire.Op // Read, Write or CAS
	Eventual   bool
	Notified   bool         // an eventual read that no client sent: the server got a NOTIFY
	Move       bool         // a write that puts the key's value under another KEY_ID
	Places     bool         // a deletion by which the controller places the key
	Del        bool         // the write is a deletion
	Value      string       // the value that was read or written
	Expected   wire.Version // the version that a CAS expects
	Begin, End time.Duration
	Session    uint16 // of a write: session and request number of its last transmission
	Number     uint32

	Outcome outcome
	Why     error // reason for the outcome Unknown or Nothing
	// the version that was read, or that the write was given; of a failed CAS: the version found
	Version wire.Version
	ID      wire.Key // KEY_ID of a peek
	Under   int      // which of the name's KEY_IDs the request named, by number
	Found   bool     // of a read or a failed CAS: there was a value
	Saw     string   // of a failed CAS: the value found
}

// outcome is how a call ended.
type outcome uint8

const (
	Done    outcome = iota
	Failed          // a CAS that found another version
	Unknown         // a write that may have been executed, or may yet be
	Nothing         // no information: a read without an answer, or a write that was surely not executed
)

// What is the kind of call and its outcome, for coverage.
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

// History is the calls of a run that carry information, in the order of their ends.
type History struct{ Ops []Call }

// Add adds a call that has ended.
func (h *History) Add(o Call) { h.Ops = append(h.Ops, o) }

// ComposedShift is the position of the KEY_ID's number in a version that is composed of that number
// and a version. Epochs of a run have 10 bits, and a name has at most 64 KEY_IDs.
const ComposedShift = 58

// Incarnation names a KEY_ID by its name and its number among that name's KEY_IDs: 0 is the first.
type Incarnation struct {
	Name   wire.Key
	Number int
}
