package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/logonce"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// member connects a node to the other nodes. It publishes the addresses of its switch and agent in
// its NetcraqNode.
type member struct {
	client client.Client
	self   podroutes.Node
	claims *nodeclaims.Claims
	status v1alpha1.NetcraqNodeStatus
	silent bool // true if the node has no switch to publish
	log    *slog.Logger

	route           func(self podroutes.Node, others []podroutes.Node) error // makes routes to other nodes' pods
	connect         func(self podroutes.Node, peers map[uint32]podroutes.Node) error
	connectNumbered func(number int32) error // has the same meaning as attachment.connectNumbered
	// restart is called after a change that the process can handle only by a restart.
	restart func(error)
	// lost wakes Reconcile after someone has deleted kernel objects (for example routes) of this
	// node.
	lost apiobjects.Waker

	trouble map[string]logonce.Last // logged errors, by their subject
}

const (
	// lookAgain is how often Reconcile checks while everything works. The kernel does not report
	// every removal.
	lookAgain = time.Minute
	// tryAgain is the pause after a failed check.
	tryAgain = 5 * time.Second
)

// setup registers the reconciler with a manager.
func (m *member) setup(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("member").
		Watches(&corev1.Node{}, apiobjects.Everything, builder.WithPredicates(nodeview.Changed)).
		Watches(&v1alpha1.NetcraqNode{}, apiobjects.Everything).
		WatchesRawSource(m.lost.Source(apiobjects.One)).
		Complete(m)
}

// Reconcile implements reconcile.Reconciler.
func (m *member) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	nodes, err := nodeview.List(ctx, m.client)
	if err != nil {
		return reconcile.Result{}, err
	}
	own, _ := nodeview.Around(nodes, m.self.Name)
	for _, a := range []struct{ was, is netip.Addr }{{m.self.Address, own.Address}, {m.self.Second, own.Second}} {
		if own.There && own.Address.IsValid() && a.was != a.is {
			m.restart(fmt.Errorf("this node's address was %s and is %s", a.was, a.is))
			return reconcile.Result{}, nil
		}
	}
	// This node takes its own address from its own Node object, even if other Nodes claim the same
	// address.
	m.say("claims", "the nodes leave out some of what this node's Node says",
		m.claims.Settle(nodes).ErrorOf(m.self.Name))
	_, others := nodeview.Around(nodes, m.self.Name)
	host := m.connectNumbered(own.Number)
	if errors.Is(host, errRenumbered) {
		m.restart(host)
		return reconcile.Result{}, nil
	}
	// A node that cannot be reached must not affect other nodes. Reconcile does everything that it
	// can, and retries later.
	again := reconcile.Result{RequeueAfter: lookAgain}
	for _, did := range []bool{m.say("routes", "pods of some other nodes are not reached", m.route(m.self, others)),
		m.say("peers", "the switches of some other nodes are not reached", m.connect(m.self, nodeview.Peers(nodes, m.self.Name))),
		m.say("host", "this node's own processes do not reach its switch", host)} {
		if !did {
			again.RequeueAfter = tryAgain
		}
	}
	if own.Number == 0 || own.Status == m.status || m.silent {
		return again, nil
	}
	nn := &v1alpha1.NetcraqNode{}
	if err := m.client.Get(ctx, client.ObjectKey{Name: m.self.Name}, nn); err != nil {
		return again, client.IgnoreNotFound(err)
	}
	nn.Status = m.status
	if err := m.client.Status().Update(ctx, nn); err != nil {
		return reconcile.Result{}, fmt.Errorf("saying where this node's switch is: %w", err)
	}
	m.log.Info("this node has a number", "number", own.Number)
	return again, nil
}

// say logs an error once. It returns true if err is nil.
func (m *member) say(subject, text string, err error) bool {
	if m.trouble == nil {
		m.trouble = map[string]logonce.Last{}
	}
	c := m.trouble[subject]
	if c.IsNew(err) {
		m.log.Error(text, "err", err)
	}
	m.trouble[subject] = c
	return err == nil
}
