// Package podaddresses tells kube-network-policies which pod has an address. Kubernetes guarantees
// that policies apply to a pod before the pod's first process runs. But the API server learns a
// pod's addresses seconds later. The node's agent knows the addresses at once, because it makes the
// interfaces.
package podaddresses

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

const (
	// pendingIndex is an index of pods. Under pendingValue it lists the node's pods whose addresses
	// the API server does not know.
	pendingIndex = "netcraqPending"
	pendingValue = "here"

	// soon is the maximum age of the agent's list while a pod of the node starts. It is shorter
	// than the time between the end of ADD and the first process of the container.
	soon = 20 * time.Millisecond
	// later is the maximum age of the agent's list at all other times. It is needed for sandboxes
	// that are made again with other addresses.
	later = time.Second
	// patience is the timeout of a request to the agent. Such a request delays connections.
	patience = 200 * time.Millisecond
	// between is the minimum time between two log messages about a failure.
	between = time.Minute
)

// errNobody makes the library treat an address as belonging to no pod. If the library gets an empty
// list instead, it calls its NRI plugin without checking that it has one.
var errNobody = errors.New("no pod has this address")

// Lister lists the attachments of a node. A client of the agent implements it.
type Lister interface {
	Attachments(ctx context.Context) ([]agentapi.Record, error)
}

// Informer is an informer for looking up pods by address. It also uses the agent's list of
// attachments.
type Informer struct {
	coreinformers.PodInformer
	index *indexer
}

// New makes an Informer for the pods of a node. Call it before the informer is started.
func New(pods coreinformers.PodInformer, node string, agent Lister) (*Informer, error) {
	err := pods.Informer().AddIndexers(cache.Indexers{pendingIndex: func(object any) ([]string, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Spec.NodeName != node || pod.Spec.HostNetwork || ended(pod) || len(pod.Status.PodIPs) > 0 {
			return nil, nil
		}
		return []string{pendingValue}, nil
	}})
	if err != nil {
		return nil, err
	}
	return &Informer{pods, &indexer{Indexer: pods.Informer().GetIndexer(), agent: agent}}, nil
}

// Informer returns the shared informer. Its index is this package's index.
func (i *Informer) Informer() cache.SharedIndexInformer {
	return sharedInformer{i.PodInformer.Informer(), i.index}
}

type sharedInformer struct {
	cache.SharedIndexInformer
	index *indexer
}

func (i sharedInformer) GetIndexer() cache.Indexer { return i.index }

type indexer struct {
	cache.Indexer
	agent Lister

	mu    sync.Mutex
	local map[netip.Addr]string // namespace/name of the pods that the agent has attached, by address
	asked time.Time
	told  time.Time
}

// ended reports whether the processes of a pod have ended for good. The pod's status still has its
// addresses, although another pod may have them by now.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// ByIndex returns the pods with an address. The library's only index is the index of addresses.
func (x *indexer) ByIndex(name, address string) ([]any, error) {
	if name == pendingIndex {
		return x.Indexer.ByIndex(name, address)
	}
	pending, err := x.Indexer.ByIndex(pendingIndex, pendingValue)
	if err != nil {
		return nil, err
	}
	if len(pending) > 0 {
		if pod := x.attached(address, soon); pod != nil {
			return []any{pod}, nil
		}
	}
	found, err := x.Indexer.ByIndex(name, address)
	if err != nil {
		return nil, err
	}
	var live []any
	for _, object := range found {
		if pod, ok := object.(*corev1.Pod); ok && !ended(pod) {
			live = append(live, pod)
		}
	}
	if len(live) > 0 {
		return live, nil
	}
	if pod := x.attached(address, later); pod != nil {
		return []any{pod}, nil
	}
	return nil, errNobody
}

// attached returns the pod to which the node's agent has given an address, or nil. It uses an
// answer of the agent that is at most as old as age.
func (x *indexer) attached(address string, age time.Duration) *corev1.Pod {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return nil
	}
	x.mu.Lock()
	if now := time.Now(); now.Sub(x.asked) >= age {
		x.ask(now)
	}
	key, ok := x.local[ip.Unmap()]
	x.mu.Unlock()
	if !ok {
		return nil
	}
	object, ok, err := x.GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	pod, ok := object.(*corev1.Pod)
	if !ok || ended(pod) {
		return nil
	}
	return pod
}

// ask requests the list of attachments from the agent. If the agent does not answer, its last
// answer stays valid.
func (x *indexer) ask(now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	records, err := x.agent.Attachments(ctx)
	x.asked = time.Now()
	if err != nil {
		if now.Sub(x.told) > between {
			klog.ErrorS(err, "pods that begin are known when the API server knows their addresses, and not before")
			x.told = now
		}
		return
	}
	x.local = make(map[netip.Addr]string, 2*len(records))
	for _, r := range records {
		if r.Pod.Name == "" {
			continue
		}
		for _, a := range r.Addresses {
			x.local[a.Prefix.Addr().Unmap()] = r.Pod.Namespace + "/" + r.Pod.Name
		}
	}
}
