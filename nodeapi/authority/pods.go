package authority

// PodInfo describes a pod of this node.
type PodInfo struct {
	UID                                 string
	Namespace, Name, ServiceAccountName string
}

// Pods finds the pods of this node. It is safe for concurrent use. It must be fast, because every
// request calls it.
type Pods interface {
	// Pod returns the pod with a UID. It does not find pods that have ended.
	Pod(uid string) (PodInfo, bool)
	// Changed returns a channel that is closed at the next change. To miss no change, call Changed
	// before Pod.
	Changed() <-chan struct{}
}
