package judge

import (
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// Call is one call of a client: what it asked, when, and what it was told.
type Call struct {
	Client     string
	Key        wire.Key
	Op         wire.Op // Read, Write or CAS
	Eventual   bool
	Notified   bool         // an eventual read that nobody asked for: a NOTIFY
	Move       bool         // a write that puts the value that the key has under another KEY_ID
	Places     bool         // a deletion by which the controller places the key
	Del        bool         // of a write: it leaves no value
	Value      string       // that was read, or written
	Expected   wire.Version // of a CAS
	Begin, End time.Duration
	Session    uint16 // of a write, and its number: those that it was sent with at last
	Number     uint32

	Outcome outcome
	Why     error        // of an unknown outcome, and of nothing
	Version wire.Version // that was read, or given to the write; of a failed CAS, that was found
	ID      wire.Key     // of a peek
	Under   int          // the number of the KEY_ID that was asked for, among those of the name
	Found   bool         // of a read or a failed CAS: there was a value
	Saw     string       // of a failed CAS
}

// outcome is what came of a call.
type outcome uint8

const (
	Done    outcome = iota
	Failed          // a CAS, because of the version
	Unknown         // a write that may have been executed, or may yet be
	Nothing         // it says nothing: a read without an answer, a write that is surely not executed
)

// What is the kind of call and what came of it, for coverage.
func (o *Call) What() string {
	s := map[wire.Op]string{wire.Read: "read", wire.Write: "write", wire.CAS: "cas"}[o.Op]
	if o.Eventual {
		s = "eventual read"
	}
	return s + " " + [...]string{"done", "failed", "of unknown outcome", "without an answer"}[o.Outcome]
}

// Request is what was asked, for people.
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

// Result is the result of the call, for people.
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

// History is all calls of a run that say something, in the order of their ends.
type History struct{ Ops []Call }

// Add adds a call that has come to its end.
func (h *History) Add(o Call) { h.Ops = append(h.Ops, o) }

// ComposedShift is where a version that is composed of the number of a KEY_ID and a version has the
// number. Epochs of a run have 10 bits, and a name no more than 64 KEY_IDs.
const ComposedShift = 58

// Incarnation says which of its name's KEY_IDs one is: 0 is the first.
type Incarnation struct {
	Name   wire.Key
	Number int
}
