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

// Why a call failed. A failed call's error is an *OpError that wraps one of these.
var (
	// ErrNotFound: the key has no slot in the network, was never written, or is deleted.
	ErrNotFound = errors.New("key not found")
	// ErrCASFailed: the key's version is not the expected one. The OpError has the committed
	// version and value.
	ErrCASFailed = errors.New("the key has another version")
	// ErrTimeout: the call's deadline passed. It is also a context.DeadlineExceeded.
	ErrTimeout = errors.New("timed out")
	// ErrCanceled: the caller gave up. It is also a context.Canceled.
	ErrCanceled = errors.New("canceled")
	// ErrValueTooLarge: the value does not fit the profile's value field. Nothing was sent.
	ErrValueTooLarge = errors.New("value too large")
	// ErrInvalid: the request makes no sense. Nothing was sent.
	ErrInvalid = errors.New("invalid request")
	// ErrNoChain: every address that was asked answered that it has no chain with the key's chain
	// number.
	ErrNoChain = errors.New("no such chain")
	// ErrDenied: the client's host lacks the right for this operation in the key's realm. Trying
	// again does not help; the operator can grant it.
	ErrDenied = errors.New("access denied")
	// ErrBadSession: the switches do not accept the session. It is not leased to the client's host,
	// or no longer leased, or its id is beyond the switches' session table (SESSIONS). The machine
	// does not use it again, and has no other session for the write.
	ErrBadSession = errors.New("session not taken")
	// ErrNoSession: a write was requested while the machine has no session, and Config.AtLeastOnce
	// is not set. Nothing was sent.
	ErrNoSession = errors.New("no session to write with")
	// ErrSessionLost: the write's session was withdrawn while it was under way
	// (Machine.DropSession).
	ErrSessionLost = errors.New("session lost")
	// ErrFull: the dirty cells of the key are full; only from a program compiled with
	// PAPER_WRITE_BOUND.
	ErrFull = errors.New("dirty cells full")
	// ErrProtocol: an answer with a status that has no meaning there.
	ErrProtocol = errors.New("answer not understood")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client closed")
)

// OpError describes a failed operation: the reason, and whether it may have had an effect.
type OpError struct {
	Op       wire.Op  // Read, Write or CAS
	Delete   bool     // a Write or CAS of a tombstone
	Key      wire.Key //
	Err      error    // one of the errors above
	Detail   string   // more about Err, for error messages
	Attempts int      // packets that left this machine
	Elapsed  time.Duration
	LastTo   netip.AddrPort // the last address to which a packet was sent, if any

	// OutcomeUnknown: the write may have been executed, or may still be. It is false for reads, for
	// writes of which nothing was sent, and for a failed CAS with a session. Any other refusal of a
	// write is about one copy of its packet, and networks duplicate packets: another copy may
	// arrive, or have arrived, at a switch that has the key, the right or the session
	// (docs/protocol.md, "What a client knows about a write").
	OutcomeUnknown bool

	// With ErrCASFailed, and with ErrNotFound for reads: the committed state. Version 0: never
	// written. Found false: no value (deleted, or never written).
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

// Unwrap lets errors.Is find Err, and the context package's errors where they fit.
func (e *OpError) Unwrap() []error {
	switch e.Err {
	case ErrTimeout:
		return []error{e.Err, context.DeadlineExceeded}
	case ErrCanceled:
		return []error{e.Err, context.Canceled}
	}
	return []error{e.Err}
}

// opName is the operation's name in messages.
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
