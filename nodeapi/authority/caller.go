package authority

import (
	"context"
	"fmt"
	"slices"
)

// Kind says how much the server knows about a caller.
type Kind int

const (
	// Unknown: nothing reliable is known about the caller. It may do nothing.
	Unknown Kind = iota
	// Process is a process of this machine that is in no pod.
	Process
	// Pod is a process in a pod of Kubernetes.
	Pod
	// TCP is a caller that connected over TCP; nothing is known about it.
	TCP
)

// Caller identifies the program at the other end of a connection. It is immutable.
type Caller struct {
	Kind Kind
	// Credentials of a local process, in a pod or not, at the time when it connected.
	PID      int32
	UID, GID uint32
	Groups   []uint32 // its supplementary groups
	// PodUID is the pod's UID, in the form in which the kubelet writes it into the control group's
	// name.
	PodUID string
	// Address of a TCP caller.
	Address string
	// Why nothing is known (for Unknown).
	Why string
}

// Is reports whether two values describe the same caller.
func (c Caller) Is(d Caller) bool {
	return c.Kind == d.Kind && c.PID == d.PID && c.UID == d.UID && c.GID == d.GID && c.PodUID == d.PodUID &&
		c.Address == d.Address && c.Why == d.Why && slices.Equal(c.Groups, d.Groups)
}

// Principal is the key under which the server stores request identities, so that one caller does
// not get the answers of another that claims the same name.
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

// String names the caller in refusals and logs.
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

// Namer is an Authorizer that has better names for callers than String gives.
type Namer interface {
	Name(c Caller) string
}

// Verb is an operation on a namespace's keys.
type Verb int

// The verbs. A caller that may write does not automatically have the right to read.
const (
	Read   Verb = iota
	Watch       // keys, services, locks: follow changes
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

// Authorizer decides what each caller may do. It is safe for concurrent use.
type Authorizer interface {
	// Namespace is the caller's own namespace, which applies to requests that name none. "": the
	// caller has none. Namespace may wait, as long as ctx lets it, for information about a pod that
	// has just started.
	Namespace(ctx context.Context, c Caller) (string, error)
	// Authorize returns nil, or a *node.Error: CodePermissionDenied with the name of the rule that
	// refuses, CodeInvalidArgument if the name cannot be a namespace's, CodeUnavailable if the API
	// server cannot be asked, and CodeQuotaExceeded if the caller causes too many questions.
	Authorize(ctx context.Context, c Caller, v Verb, namespace string) error
	// Subject names the account to which the caller's connections, watches and requests are
	// charged.
	Subject(c Caller) string
}
