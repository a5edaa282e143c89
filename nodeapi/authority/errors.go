package authority

import (
	"fmt"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// denied makes the error for a request that a rule refuses. The argument do tells the user what to
// do about it.
func denied(rule, do, format string, args ...any) *nodeapi.Error {
	return &nodeapi.Error{Code: nodeapi.CodePermissionDenied, Do: do,
		Message: fmt.Sprintf(format, args...) + " (rule " + rule + ")"}
}

// These are the rules that refusals name. docs/node-api.md explains them.
const (
	ruleUnknown      = "unknown-caller"
	rulePodGone      = "pod-gone"
	ruleOwnNamespace = "own-namespace"
	ruleRoles        = "roles"
	ruleHost         = "host-process"
	ruleTCP          = "tcp"
	rulePolicy       = "policy"
)
