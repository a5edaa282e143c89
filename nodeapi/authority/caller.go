package authority

import (
	"context"
	"fmt"
	"slices"
)

// Kind says how much the server knows about a caller.
type Kind int

const (
	// Unknown means that nothing reliable is known about the caller. It has no rights.
	Unknown Kind = iota
	// Process is a process of this machine that is not in a pod.
	Process
	// Pod is a process in a Kubernetes pod.
	Pod
	// TCP is a caller that connected over TCP. Nothing is known about its process.
	TCP
)

// Caller identifies the program at the other end of a connection. It is immutable.
type Caller struct {
	Kind Kind
	// PID, UID, GID and Groups are those of a process of this machine when it connected. The
	// process may be in a pod.
	PID      int32
	UID, GID uint32
	Groups   []uint32 // supplementary groups of the process
	// PodUID is the UID of the pod, as the kubelet writes it in the name of the pod's control
	// group.
	PodUID string
	// Address is the address of a TCP caller.
	Address string
	// Why says why nothing is known about a caller of kind Unknown.
	Why string
}

// Is reports whether c and d describe the same caller.
func (c Caller) Is(d Caller) bool {
	return c.Kind == d.Kind && c.PID == d.PID && c.UID == d.UID && c.GID == d.GID && c.PodUID == d.PodUID &&
		c.Address == d.Address && c.Why == d.Why && slices.Equal(c.Groups, d.Groups)
}

// Principal returns the key under which the server stores request identities. It differs between
// callers, so a caller cannot get the answers of another caller by using the same client name.
func (c Caller) Principal() string {
	switch c.Kind {
	case Pod:
		return "pod:" + c.PodUID
	case Process:
		return fmt.Sprintf("uid:%d", c.UID)
	case TCP:
		return "tcp"
	}
	return "unknown"
}

// String returns a description of the caller for error messages and logs.
func (c Caller) String() string {
	switch c.Kind {
	case Pod:
		return fmt.Sprintf("pod %s (pid %d)", c.PodUID, c.PID)
	case Process:
		return fmt.Sprintf("uid %d, gid %d (pid %d)", c.UID, c.GID, c.PID)
	case TCP:
		return "somebody at " + c.Address + " by TCP"
	}
	return "a caller of whom nothing is known: " + c.Why
}

// Namer is an Authorizer that has better names for callers than String returns.
type Namer interface {
	Name(c Caller) string
}

// Verb is an operation on the keys of a namespace.
type Verb int

// These are the verbs. The right to write does not include the right to read.
const (
	Read   Verb = iota
	Watch       // follow changes of keys, services and locks
	Write       // write and delete existing keys
	Create      // create keys that do not exist
	numVerbs
)

var verbs = [numVerbs]string{"read", "watch", "write", "create"}

func (v Verb) String() string {
	if v < 0 || v >= numVerbs {
		return fmt.Sprintf("verb %d", int(v))
	}
	return verbs[v]
}

// Authorizer decides what each caller is allowed to do. It is safe for concurrent use.
type Authorizer interface {
	// Namespace returns the caller's own namespace, which applies to requests that name no
	// namespace. It returns "" if the caller has none. Namespace may wait, until ctx ends, for
	// information about a pod that has just started.
	Namespace(ctx context.Context, c Caller) (string, error)
	// Authorize returns nil if the caller has the right, and otherwise a *node.Error. The code is
	// CodePermissionDenied, with the name of the rule that refuses the request, or
	// CodeInvalidArgument if no namespace can have the name. It is CodeUnavailable if the API
	// server cannot be reached, and CodeQuotaExceeded if the caller causes too many requests to the
	// API server.
	Authorize(ctx context.Context, c Caller, v Verb, namespace string) error
	// Subject returns the name of the account to which the caller's connections, watches and
	// requests are charged.
	Subject(c Caller) string
}
