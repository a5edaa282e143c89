package authority

// PodInfo describes a pod of this node.
type PodInfo struct {
	UID                                 string
	Namespace, Name, ServiceAccountName string
}

// Pods knows the pods of this node. It is safe for concurrent use, and fast, because each request
// asks it.
type Pods interface {
	// Pod finds a pod by its UID. One that has ended is no longer there.
	Pod(uid string) (PodInfo, bool)
	// Changed is closed with the next change. Ask for it before Pod, and nothing is missed.
	Changed() <-chan struct{}
}
