package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/netcraq/netcraq/cni-plugin/kube/fastpath"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// waitForCluster waits until the API server answers and has enough information about this node.
// Meanwhile it answers kubelet's liveness probes. Otherwise kubelet would restart the agent, at
// growing intervals.
func (o *Options) waitForCluster(
	ctx context.Context, scheme *runtime.Scheme,
) (mgr ctrl.Manager, self podroutes.Node, err error) {
	if _, err := rest.HTTPClientFor(o.Config); err != nil { // this error is permanent, so there is no point in waiting
		return nil, self, fmt.Errorf("the API server: %w", err)
	}
	if end, err := serveWaiting(o.HealthPort); err == nil {
		defer end()
	} else {
		o.Log.Warn("a kubelet may end this agent while it waits for the API server", "err", err)
	}
	err = o.waitFor(ctx, "the API server "+o.Config.Host, func() (err error) {
		mgr, err = ctrl.NewManager(o.Config, manager.Options{Scheme: scheme,
			Metrics: metricsserver.Options{BindAddress: "0"},
			Cache:   o.cache(),
			Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{},
				&corev1.ConfigMap{}}}}})
		return err
	})
	if err == nil {
		err = o.waitFor(ctx, "this node, "+o.Node, func() (err error) {
			self, err = ownNode(ctx, mgr.GetAPIReader(), o.Node, o.Chained)
			return err
		})
	}
	return mgr, self, err
}

// waitFor calls get until it succeeds or ctx ends. It logs each new reason for waiting.
func (o *Options) waitFor(ctx context.Context, what string, get func() error) error {
	for said := ""; ; {
		err := get()
		if err == nil {
			return nil
		}
		if text := err.Error(); text != said {
			o.Log.Warn("waiting for "+what, "err", err)
			said = text
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(startWait):
		}
	}
}

// ownNode returns the API server's information about this node. The node must have an address, and
// a prefix for pods, which the controller manager assigns (--allocate-node-cidrs). If another
// plugin makes the pods' network, the node needs no prefix.
func ownNode(ctx context.Context, r client.Reader, name string, chained bool) (podroutes.Node, error) {
	var n corev1.Node
	if err := r.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
		return podroutes.Node{}, err
	}
	out := nodeview.FromNode(&n).Node
	if chained && out.Address.Is4() {
		return out, nil
	}
	return out, out.Check()
}

// startWait is how often the agent checks a node that it cannot use yet.
const startWait = time.Second

// cache returns which objects of the API server are cached. An agent that may not lead needs only
// the pods of its own node.
func (o *Options) cache() cache.Options {
	out := cache.Options{DefaultTransform: withoutBallast}
	if o.Lead == nil {
		out.ByObject = map[client.Object]cache.ByObject{&corev1.Pod{}: {
			Field: fields.OneTermEqualSelector("spec.nodeName", o.Node)}}
	}
	return out
}

// withoutBallast removes unused fields from cached objects, for example a node's list of images.
func withoutBallast(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.Status.Images, n.Status.VolumesInUse, n.Status.VolumesAttached = nil, nil, nil
	}
	if p, ok := o.(*corev1.Pod); ok {
		return fastpath.Trim(p), nil
	}
	if m, ok := o.(client.Object); ok {
		m.SetManagedFields(nil)
	}
	return o, nil
}
