package authority

// PodInfo describes a pod of this node.
type PodInfo struct {
	UID                                 string
	Namespace, Name, ServiceAccountName string
}

// Pods knows the pods of this node. It is safe for concurrent use, and fast, because every request
// calls it.
type Pods interface {
	// Pod finds a pod by its UID. A pod that has ended is not found.
	Pod(uid string) (PodInfo, bool)
	// Changed is closed with the next change. Call it before Pod, so that no change is missed.
	Changed() <-chan struct{}
}
