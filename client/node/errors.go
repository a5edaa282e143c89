package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Error says why a call failed: its kind (Code), what happened, and what to do about it.
type Error = nodeapi.Error

// Code is the kind of a failure.
type Code = nodeapi.Code

const (
	CodeInvalidArgument  = nodeapi.CodeInvalidArgument
	CodeTooLarge         = nodeapi.CodeTooLarge
	CodePermissionDenied = nodeapi.CodePermissionDenied
	CodeQuotaExceeded    = nodeapi.CodeQuotaExceeded
	CodeNoRoom           = nodeapi.CodeNoRoom
	CodeLeaseGone        = nodeapi.CodeLeaseGone
	CodeNotHeld          = nodeapi.CodeNotHeld
	CodeWrongOffset      = nodeapi.CodeWrongOffset
	CodeTimeout          = nodeapi.CodeTimeout
	CodeOutcomeUnknown   = nodeapi.CodeOutcomeUnknown
	CodeUnavailable      = nodeapi.CodeUnavailable
	CodeCanceled         = nodeapi.CodeCanceled
	CodeDraining         = nodeapi.CodeDraining
	CodeInternal         = nodeapi.CodeInternal
	// CodeClosed means that this program has closed the client. The call was not executed.
	CodeClosed Code = "closed"
)

// CodeOf returns the kind of a failure. It returns "" if err is nil or does not come from a call.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// caused is a call's error together with its cause, for example a context's error.
type caused struct {
	of    *Error
	cause error
}

func (e *caused) Error() string   { return e.of.Error() }
func (e *caused) Unwrap() []error { return []error{e.of, e.cause} }

func because(cause error, code Code, do, format string, args ...any) error {
	e := &Error{Code: code, Message: fmt.Sprintf(format, args...), Do: do}
	if cause == nil {
		return e
	}
	return &caused{e, cause}
}

// asError returns e as an error, or nil if e is nil.
func asError(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}

var errClosed error = &Error{Code: CodeClosed, Message: "the client is closed"}

// gaveUp returns the error of a call whose caller's context ended or that timed out.
func gaveUp(cause error, fn string, mayBeDone, connected bool, why string) error {
	code, verb := CodeTimeout, "was not answered in time"
	if errors.Is(cause, context.Canceled) {
		code, verb = CodeCanceled, "was canceled"
	}
	switch {
	case mayBeDone:
		return because(cause, CodeOutcomeUnknown, "read what it would have changed before it is done again",
			"%s %s; whether it was done is not known%s", fn, verb, why)
	case !connected && code == CodeTimeout:
		return because(cause, CodeUnavailable, "see that the node's server runs", "%s was not sent%s", fn, why)
	}
	return because(cause, code, "", "%s %s%s", fn, verb, why)
}
