// Package nodeerr says what errors of the node API mean for a worker.
package nodeerr

import (
	"fmt"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
)

// Fault says what an error means. Of a commit it is unknown what has become of it, if not otherwise
// said.
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
