package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/netcraq/netcraq/api/nodeapi"
)

func Invalid(format string, args ...any) *nodeapi.Error {
	return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "", format, args...)
}

func ErrDraining() *nodeapi.Error {
	return nodeapi.Errorf(nodeapi.CodeDraining, "connect again", "the server is shutting down")
}

// Unreadable describes an error in JSON for a client, without details of this implementation.
func Unreadable(err error) string {
	var e *json.SemanticError
	switch {
	case !errors.As(err, &e):
		return err.Error()
	case errors.Is(e.Err, json.ErrUnknownName):
		return fmt.Sprintf("unknown name %q", e.JSONPointer.LastToken())
	case e.Err != nil:
		return fmt.Sprintf("%s: %v", e.JSONPointer, e.Err)
	}
	return fmt.Sprintf("%s has the wrong type: %v", e.JSONPointer, e.JSONKind)
}

// ToAnswer converts any error to an error for a client. The argument writes says whether the
// request may write. In this case a timeout or an unexpected error means that the write may have
// been executed.
func ToAnswer(err error, writes bool) *nodeapi.Error {
	var e *nodeapi.Error
	if errors.As(err, &e) {
		return e
	}
	unknown := "it may or may not have been executed"
	switch {
	case errors.Is(err, context.DeadlineExceeded) && writes:
		return &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown, Message: "the request's time has run out; " + unknown,
			Do: "read the key, or send it again with the same \"once\""}
	case errors.Is(err, context.Canceled) && writes:
		return &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown, Message: "the request was canceled; " + unknown,
			Do: "read the key"}
	case errors.Is(err, context.DeadlineExceeded):
		return &nodeapi.Error{Code: nodeapi.CodeTimeout, Message: "the request's time has run out"}
	case errors.Is(err, context.Canceled):
		return &nodeapi.Error{Code: nodeapi.CodeCanceled, Message: "the request was canceled"}
	case writes:
		return &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown, Message: err.Error() + "; " + unknown}
	}
	return &nodeapi.Error{Code: nodeapi.CodeInternal, Message: err.Error()}
}
