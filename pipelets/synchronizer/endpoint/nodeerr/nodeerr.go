// Package nodeerr converts errors of the node API to exactlyonce.Fault.
package nodeerr

import (
	"fmt"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
)

// Fault converts an error of the node API to a Fault. After a failed commit the kind is Unknown,
// unless the error says otherwise.
func Fault(err error, what string) error {
	if err == nil {
		return nil
	}
	switch node.CodeOf(err) {
	case node.CodePermissionDenied, node.CodeInvalidArgument, node.CodeQuotaExceeded, node.CodeNoRoom,
		node.CodeTooLarge:
		return exactlyonce.Errorf(exactlyonce.Refused, "%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
