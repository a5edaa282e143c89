// Package nodeerr translates errors of the node API into a worker's faults.
package nodeerr

import (
	"fmt"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
)

// Fault classifies an error. The outcome of a failed commit is unknown, unless the error says
// otherwise.
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
