package authority

import (
	"context"
	"fmt"
	"slices"
)

// Kind is how much is known about a caller.
type Kind int

const (
	// Unknown: nothing that could be believed. It may do nothing.
	Unknown Kind = iota
	// Process is one of this machine that is in no pod.
	Process
	// Pod is a process in a pod of Kubernetes'.
	Pod
	// TCP is a caller that connected over TCP; nothing is known about it.
	TCP
)

// Caller is who is behind a connection. It is a value that does not change.
type Caller struct {
	Kind Kind
	// Of a process of this machine, in a pod or not, as it was when it connected.
	PID      int32
	UID, GID uint32
	Groups   []uint32 // its other groups
	// PodUID is the pod's, as the kubelet writes it into the name of its control group.
	PodUID string
	// Address, by TCP.
	Address string
	// Why nothing is known (Unknown).
	Why string
}

// Is says whether two values are the same caller.
func (c Caller) Is(d Caller) bool {
	return c.Kind == d.Kind && c.PID == d.PID && c.UID == d.UID && c.GID == d.GID && c.PodUID == d.PodUID &&
		c.Address == d.Address && c.Why == d.Why && slices.Equal(c.Groups, d.Groups)
}

// Principal is the key under which identities of requests are kept, so that one caller does not get
// the answers of another that claims the same name.
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

// Verb is an operation on a namespace's keys.
type Verb int

// The verbs. Whoever may write may not therefore read.
const (
	Read   Verb = iota
	Watch       // keys, services, locks: follow changes
	Write       // write to existing keys, and delete them
	Create      // keys that are not there
	numVerbs
)

var verbs = [numVerbs]string{"read", "watch", "write", "create"}

func (v Verb) String() string {
	if v < 0 || v >= numVerbs {
		return fmt.Sprintf("verb %d", int(v))
	}
	return verbs[v]
}

// Authorizer decides who may do what. It is safe for concurrent use.
type Authorizer interface {
	// Namespace is the caller's own namespace, for requests that name none. "": it has none.
	// Namespace may wait, as long as ctx lets it, for information about a pod that has just
	// started.
	Namespace(ctx context.Context, c Caller) (string, error)
	// Authorize returns nil, or a *node.Error: CodePermissionDenied with the name of the rule that
	// refuses, CodeInvalidArgument if the name cannot be a namespace's, CodeUnavailable if nobody
	// can be asked, and CodeQuotaExceeded if the caller asks too much.
	Authorize(ctx context.Context, c Caller, v Verb, namespace string) error
	// Subject is on whose account a caller's connections, watches and requests are.
	Subject(c Caller) string
}
