package keys

import (
	"context"
	"errors"
	"fmt"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/fromadmin"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// failure converts an error of a call to an error with a code. If a write may have been executed,
// the code is CodeOutcomeUnknown, whatever the error is. The exception is an error for a missing
// right, because then a switch has answered that it does not execute the write. In this case, only
// another switch could have executed a copy of the write, while the right was being revoked.
func (s *Store) failure(key store.Key, err error) error {
	if err == nil {
		return nil
	}
	out := &nodeapi.Error{Code: nodeapi.CodeInternal, Message: fmt.Sprintf("the key %q of the namespace %s: %v", key.Name,
		key.Namespace, cause(err))}
	if refused := new(nodeapi.Error); errors.As(err, &refused) { // the error comes from store.MayCreate
		return refused
	}
	var e *fromadmin.NameError
	unknown := errors.As(err, &e) && e.OutcomeUnknown
	var said *admin.Error
	switch {
	case errors.Is(err, client.ErrDenied):
		out.Code = nodeapi.CodePermissionDenied
		out.Do = "the node's principal needs access to the realm of the keys " + nodeapi.NamespacePrefix(key.Namespace) +
			": an operator grants it in the topology"
	case unknown:
		out.Code = nodeapi.CodeOutcomeUnknown
		out.Do = "read the key, or write again with a compare and swap on the version that is known"
	case errors.Is(err, client.ErrValueTooLarge):
		out.Code = nodeapi.CodeTooLarge
	case errors.As(err, &said) && said.Code == admin.CodeQuotaExceeded:
		out.Code = nodeapi.CodeQuotaExceeded
		out.Do = "delete keys that are not needed: they go after a while; or have the namespace's quota raised"
	case errors.As(err, &said) && said.Code == admin.CodeResourceExhausted:
		out.Code = nodeapi.CodeNoRoom
		out.Do = "delete keys that are not needed, or have the operator give the chains more slots"
	case errors.As(err, &said) && (said.Code == admin.CodePermissionDenied || said.Code == admin.CodeUnauthenticated):
		out.Code = nodeapi.CodePermissionDenied
		out.Do = "the node's server needs the right to ask the controller"
	case errors.As(err, &said) && said.Code == admin.CodeInvalidArgument:
		out.Code = nodeapi.CodeInvalidArgument
	case errors.Is(err, context.Canceled): // client.ErrCanceled is also a context error
		out.Code = nodeapi.CodeCanceled
	case errors.Is(err, client.ErrCanceled):
		out.Code = nodeapi.CodeCanceled
	case errors.Is(err, client.ErrTimeout) || errors.Is(err, context.DeadlineExceeded):
		out.Code = nodeapi.CodeTimeout
	case errors.Is(err, fromadmin.ErrNoController):
		out.Code = nodeapi.CodeUnavailable
		out.Do = "try again: keys that this node knows go on meanwhile"
	case errors.Is(err, client.ErrClosed):
		out.Code = nodeapi.CodeUnavailable
	case errors.As(err, &said) && said.Code == admin.CodeUnavailable,
		errors.Is(err, client.ErrNoSession), errors.Is(err, client.ErrSessionLost),
		errors.Is(err, client.ErrBadSession),
		errors.Is(err, client.ErrNoChain), errors.Is(err, client.ErrNotFound), errors.Is(err, client.ErrFull):
		out.Code = nodeapi.CodeUnavailable
		out.Do = "try again"
	}
	return out
}

// cause returns the error that a NameError contains.
func cause(err error) error {
	var e *fromadmin.NameError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
