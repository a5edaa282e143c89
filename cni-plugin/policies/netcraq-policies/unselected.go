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

// unselected tells the kernel which pods of a node no policy selects, so that nobody waits for a
// judgement of their packets. A pod counts among them only if the agent, which made its interface,
// and the API server mean the same pod by it: all others are judged.
type unselected struct {
	node     string
	agent    podaddresses.Lister
	pods     corelisters.PodLister
	policies networkinglisters.NetworkPolicyLister
	changed  chan struct{} // has room for one: something may have changed

	records []agentapi.Record // last reported by the agent
	written []string          // that the kernel has
	at      time.Time
}

const (
	// agentEvery is the time between two questions to the agent.
	agentEvery = time.Second
	// agentPatience bounds a question to the agent: a policy that has changed waits meanwhile.
	agentPatience = 200 * time.Millisecond
)

// newUnselected watches pods and policies. It has to be called before the informers are started.
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

// run keeps the kernel's set up to date until ctx ends. The informers have to be in sync. The set
// is empty then: policies that come later are not known.
func (u *unselected) run(ctx context.Context) {
	tick := time.NewTicker(agentEvery)
	defer tick.Stop()
	told := ""
	for ctx.Err() == nil {
		err := u.write(ctx)
		if errors.Is(err, unix.ENOENT) { // somebody has removed the tables: Rules.Keep puts them back
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

// write has the kernel know the pods, if it does not, or if what it knows is about to lapse.
func (u *unselected) write(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, agentPatience)
	records, err := u.agent.Attachments(asked)
	cancel()
	if err == nil { // otherwise what it has said counts: no other interface has such a name
		u.records = records
	}
	now := u.interfaces()
	if slices.Equal(now, u.written) && time.Since(u.at) < queue.Lasting/3 {
		return nil
	}
	if err := queue.SetUnselected(now); err != nil {
		u.at = time.Time{} // what the kernel has is not known
		return err
	}
	u.written, u.at = now, time.Now()
	return nil
}

// interfaces are those of pods that no policy selects, sorted.
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

// selected reports whether a policy selects a pod, or may.
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
