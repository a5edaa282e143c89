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

// waitForCluster waits until the API server answers, and knows enough about this node. Meanwhile
// the kubelet gets the answer that the agent is alive, because it waits longer each time before it
// starts an agent again.
func (o *Options) waitForCluster(
	ctx context.Context, scheme *runtime.Scheme,
) (mgr ctrl.Manager, self podroutes.Node, err error) {
	if _, err := rest.HTTPClientFor(o.Config); err != nil { // no waiting mends that
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

// waitFor calls get until it succeeds or ctx ends, and logs each new reason for waiting.
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

// ownNode is what the API server knows about this node. It has to have an address, and a prefix for
// pods, which the controller manager gives it (--allocate-node-cidrs). Where another plugin is the
// pods' network the prefix is not needed.
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

// startWait is the time between two looks at a node that cannot be worked with yet.
const startWait = time.Second

// cache is what is kept of the API server's objects. An agent that may not lead has to do with its
// own node's pods alone.
func (o *Options) cache() cache.Options {
	out := cache.Options{DefaultTransform: withoutBallast}
	if o.Lead == nil {
		out.ByObject = map[client.Object]cache.ByObject{&corev1.Pod{}: {
			Field: fields.OneTermEqualSelector("spec.nodeName", o.Node)}}
	}
	return out
}

// withoutBallast drops what nobody here reads of cached objects, such as a node's list of images.
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
