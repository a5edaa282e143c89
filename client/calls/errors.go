package calls

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// These errors say why a call failed. A failed call's error is an *OpError that wraps one of these.
var (
	// ErrNotFound means that the key has no slot in the network, was never written, or is deleted.
	ErrNotFound = errors.New("key not found")
	// ErrCASFailed means that the key's version is not the expected one. The OpError has the
	// committed version and value.
	ErrCASFailed = errors.New("the key has another version")
	// ErrTimeout means that the call's deadline passed. The error also wraps
	// context.DeadlineExceeded.
	ErrTimeout = errors.New("timed out")
	// ErrCanceled means that the caller gave up. The error also wraps context.Canceled.
	ErrCanceled = errors.New("canceled")
	// ErrValueTooLarge means that the value does not fit the profile's value field. Nothing was
	// sent.
	ErrValueTooLarge = errors.New("value too large")
	// ErrInvalid means that the request is not valid. Nothing was sent.
	ErrInvalid = errors.New("invalid request")
	// ErrNoChain means that every address answered that it has no chain with the chain number in
	// the key.
	ErrNoChain = errors.New("no such chain")
	// ErrDenied means that the client's host lacks the right for this operation in the key's realm.
	// Trying again does not help; the operator can grant it.
	ErrDenied = errors.New("access denied")
	// ErrBadSession means that the switches do not accept the session. Either the session is not
	// leased to the client's host, or its lease has ended, or its id is beyond the switches'
	// session table (SESSIONS). The machine stops using the session, and has no other session for
	// the write.
	ErrBadSession = errors.New("session not taken")
	// ErrNoSession means that a write was requested while the machine has no session, and
	// Config.AtLeastOnce is not set. Nothing was sent.
	ErrNoSession = errors.New("no session to write with")
	// ErrSessionLost means that the write's session was withdrawn (Machine.DropSession) while the
	// write was under way.
	ErrSessionLost = errors.New("session lost")
	// ErrFull means that the switch has no free dirty cell for the key. Only a P4 program compiled
	// with PAPER_WRITE_BOUND answers so.
	ErrFull = errors.New("dirty cells full")
	// ErrProtocol means that an answer has a status that is not defined for it.
	ErrProtocol = errors.New("answer not understood")
	// ErrClosed means that the client was closed.
	ErrClosed = errors.New("client closed")
)

// OpError describes a failed operation: why it failed, and whether it may have had an effect.
type OpError struct {
	Op       wire.Op  // Read, Write or CAS
	Delete   bool     // whether the write or CAS deletes the value
	Key      wire.Key //
	Err      error    // one of the errors above
	Detail   string   // more about Err, for the error message
	Attempts int      // number of packets that left this machine
	Elapsed  time.Duration
	LastTo   netip.AddrPort // the last address to which a packet was sent, if any

	// OutcomeUnknown reports that the write may have been executed, or may still be executed. It is
	// false for reads, for writes of which nothing was sent, and for a failed CAS with a session.
	// After any other refusal of a write it is true, because the refusal is about one copy of the
	// packet. Another copy may reach a switch that accepts the write (docs/protocol.md, "What a
	// client knows about a write").
	OutcomeUnknown bool

	// Version, Value and Found are the committed state of the key. They are set if Err is
	// ErrCASFailed, and for reads also if Err is ErrNotFound. Version 0 means that the key was
	// never written. If Found is false, the key has no value, because it was deleted or never
	// written.
	Version wire.Version
	Value   []byte
	Found   bool
}

// Error returns one sentence that describes the failure.
func (e *OpError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %v: %v", opName(e.Op, e.Delete), e.Key, e.Err)
	if e.Detail != "" {
		s.WriteString(": " + e.Detail)
	}
	switch {
	case e.Err == ErrCASFailed && e.Found:
		fmt.Fprintf(&s, ": version %v, value %s", e.Version, wire.FormatValue(e.Value, 64))
	case e.Err == ErrCASFailed:
		fmt.Fprintf(&s, ": version %v, no value", e.Version)
	case e.Attempts > 0 && e.Err != ErrNotFound:
		fmt.Fprintf(&s, " (%d sent in %v, the last to %v)", e.Attempts, e.Elapsed.Round(10*time.Microsecond), e.LastTo)
	}
	switch {
	case e.OutcomeUnknown && e.Attempts == 1 && e.refused():
		s.WriteString("; whether another copy of its packet was executed is not known")
	case e.OutcomeUnknown:
		s.WriteString("; whether the write was executed is not known")
	}
	return s.String()
}

// refused reports whether a switch has answered that it does not execute the write.
func (e *OpError) refused() bool {
	switch e.Err {
	case ErrNotFound, ErrCASFailed, ErrDenied, ErrBadSession, ErrFull, ErrNoChain:
		return true
	}
	return false
}

// Unwrap lets errors.Is find Err. For ErrTimeout and ErrCanceled, errors.Is also finds the error of
// package context.
func (e *OpError) Unwrap() []error {
	switch e.Err {
	case ErrTimeout:
		return []error{e.Err, context.DeadlineExceeded}
	case ErrCanceled:
		return []error{e.Err, context.Canceled}
	}
	return []error{e.Err}
}

// opName returns the name of an operation for error messages.
func opName(op wire.Op, del bool) string {
	switch {
	case op == wire.Read:
		return "get"
	case op == wire.Write && del:
		return "delete"
	case op == wire.Write:
		return "put"
	case op == wire.CAS && del:
		return "compare and delete"
	case op == wire.CAS:
		return "compare and swap"
	}
	return op.String()
}
