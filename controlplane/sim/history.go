package sim

import (
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// operationOf is one call of a client: what it asked, when, and what it was told.
type operationOf struct {
	client    string
	key       wire.Key
	op        wire.Op // Read, Write or CAS
	eventual  bool
	notified  bool         // an eventual read that nobody asked for: a NOTIFY
	move      bool         // a write that puts the value that the key has under another KEY_ID
	places    bool         // a deletion by which the controller places the key
	del       bool         // of a write: it leaves no value
	value     string       // that was read, or written
	expected  wire.Version // of a CAS
	call, end time.Duration
	session   uint16 // of a write, and its number: those that it was sent with at last
	number    uint32

	outcome outcome
	why     error        // of an unknown outcome, and of nothing
	version wire.Version // that was read, or given to the write; of a failed CAS, that was found
	id      wire.Key     // of a peek
	under   int          // the number of the KEY_ID that was asked for, among those of the name
	found   bool         // of a read or a failed CAS: there was a value
	saw     string       // of a failed CAS
}

type outcome uint8

const (
	done    outcome = iota
	failed          // a CAS, because of the version
	unknown         // a write that may have been executed, or may yet be
	nothing         // it says nothing: a read without an answer, a write that is surely not executed
)

// what is the kind of call and what came of it, for coverage.
func (o *operationOf) what() string {
	s := map[wire.Op]string{wire.Read: "read", wire.Write: "write", wire.CAS: "cas"}[o.op]
	if o.eventual {
		s = "eventual read"
	}
	return s + " " + [...]string{"done", "failed", "of unknown outcome", "without an answer"}[o.outcome]
}

// request is what was asked, for people.
func (o *operationOf) request() string {
	s := map[wire.Op]string{wire.Read: "read", wire.Write: "write", wire.CAS: "cas"}[o.op]
	if o.eventual {
		s = "eventual read"
	}
	s += fmt.Sprintf(" %v", o.key)
	if o.op == wire.CAS {
		s += fmt.Sprintf(" if %v", o.expected)
	}
	switch {
	case o.op == wire.Read:
	case o.move:
		s = fmt.Sprintf("move %v: %q", o.key, o.value)
	case o.del:
		s += ": delete"
	default:
		s += fmt.Sprintf(": %q", o.value)
	}
	return s
}

// result is what came of it, for people.
func (o *operationOf) result() string {
	state := func(found bool, value string) string {
		if !found {
			return fmt.Sprintf("not found, version %v", o.version)
		}
		return fmt.Sprintf("%q, version %v", value, o.version)
	}
	switch o.outcome {
	case failed:
		return "failed: " + state(o.found, o.saw)
	case unknown:
		return fmt.Sprintf("outcome unknown (%v)", o.why)
	case nothing:
		return fmt.Sprintf("%v", o.why)
	}
	if o.op == wire.Read {
		return state(o.found, o.value)
	}
	return fmt.Sprintf("done, version %v", o.version)
}

// history is all calls of a run that say something, in the order of their ends.
type history struct{ ops []operationOf }

func (h *history) add(o operationOf) { h.ops = append(h.ops, o) }

// composedShift is where a version that is composed of the number of a KEY_ID and a version has the
// number. Epochs of a run have 10 bits, and a name no more than 64 KEY_IDs.
const composedShift = 58

// incarnation says which of its name's KEY_IDs one is: 0 is the first.
type incarnation struct {
	name   wire.Key
	number int
}
