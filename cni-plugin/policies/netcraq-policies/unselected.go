package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/policies/podaddresses"
	"github.com/netcraq/netcraq/cni-plugin/policies/queue"
)

// unselected tells the kernel which pods of a node no policy selects, so that their packets do not
// wait for judgement. A pod counts as unselected only if the agent, which has made the pod's
// interface, and the API server agree about it. The packets of all other pods are judged.
type unselected struct {
	node     string
	agent    podaddresses.Lister
	pods     corelisters.PodLister
	policies networkinglisters.NetworkPolicyLister
	changed  chan struct{} // signals, with room for one signal, that something may have changed

	records []agentapi.Record // last answer of the agent
	written []string          // list of interfaces that the kernel has
	at      time.Time
}

const (
	// agentEvery is the interval between two requests to the agent.
	agentEvery = time.Second
	// agentPatience is the timeout of a request to the agent. Such a request delays changes of
	// policies.
	agentPatience = 200 * time.Millisecond
)

// newUnselected makes an unselected, which watches pods and policies. Call it before the informers
// are started.
func newUnselected(factory informers.SharedInformerFactory, agent podaddresses.Lister,
	node string) (*unselected, error) {
	u := &unselected{node: node, agent: agent, pods: factory.Core().V1().Pods().Lister(),
		policies: factory.Networking().V1().NetworkPolicies().Lister(), changed: make(chan struct{}, 1)}
	change := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != node {
			return
		}
		select {
		case u.changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: change, DeleteFunc: change,
		UpdateFunc: func(_, object any) { change(object) }}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(handler)
	if err == nil {
		_, err = factory.Networking().V1().NetworkPolicies().Informer().AddEventHandler(handler)
	}
	return u, err
}

// run keeps the kernel's set up to date until ctx ends. It then empties the set, because this
// process will not know of later policies. The informers must be in sync.
func (u *unselected) run(ctx context.Context) {
	tick := time.NewTicker(agentEvery)
	defer tick.Stop()
	told := ""
	for ctx.Err() == nil {
		err := u.write(ctx)
		if errors.Is(err, unix.ENOENT) { // someone has removed the tables, and Rules.Keep will restore them
			err = nil
		}
		if err != nil && err.Error() != told {
			klog.ErrorS(err, "packets of pods that no policy selects are judged, too")
			told = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-u.changed:
		}
	}
	if err := queue.SetUnselected(nil); err != nil && !errors.Is(err, unix.ENOENT) {
		klog.ErrorS(err, "pods that no policy selects are not judged for a while", "while", queue.Lasting)
	}
}

// write writes the set of interfaces to the kernel if it has changed or is about to expire.
func (u *unselected) write(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, agentPatience)
	records, err := u.agent.Attachments(asked)
	cancel()
	if err == nil { // after an error, the last answer stays valid, because no other interface reuses such a name
		u.records = records
	}
	now := u.interfaces()
	if slices.Equal(now, u.written) && time.Since(u.at) < queue.Lasting/3 {
		return nil
	}
	if err := queue.SetUnselected(now); err != nil {
		u.at = time.Time{} // the content of the kernel's set is unknown
		return err
	}
	u.written, u.at = now, time.Now()
	return nil
}

// interfaces returns the names of the interfaces of pods that no policy selects, sorted.
func (u *unselected) interfaces() (names []string) {
	for _, r := range u.records {
		pod, err := u.pods.Pods(r.Pod.Namespace).Get(r.Pod.Name)
		if err == nil && r.Pod.UID != "" && r.Pod.UID == string(pod.UID) && !u.selected(pod) &&
			len(r.Host.Name) < unix.IFNAMSIZ {
			names = append(names, r.Host.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// selected reports whether a policy selects a pod, or may select it.
func (u *unselected) selected(pod *corev1.Pod) bool {
	policies, err := u.policies.NetworkPolicies(pod.Namespace).List(labels.Everything())
	if err != nil {
		return true
	}
	for _, p := range policies {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || selector.Matches(labels.Set(pod.Labels)) {
			return true
		}
	}
	return false
}
