package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/kube/chainplan"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
)

// membershipReconciler brings a chain's members closer to its spec, one step at a time. It also
// empties a chain that must be removed. A step may take long, so chainReconciler writes the chain's
// status concurrently.
type membershipReconciler struct{ *Operator }

// Reconcile implements reconcile.Reconciler.
func (m *membershipReconciler) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	t := m.leading()
	if t == nil {
		return reconcile.Result{}, nil
	}
	c, ok := t.of(r.Name)
	h := t.Hosted()
	if !ok || !c.Formed || c.Trouble != nil || h == nil {
		return reconcile.Result{}, nil // the network reconciler must run first
	}
	nodes := nodeview.FabricSwitches(m.o.Fabric)
	if m.o.Fabric == nil {
		var err error
		if nodes, err = nodeview.List(ctx, m.client); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !c.Wanted {
		err := t.empty(ctx, h.Controller, r.Name)
		m.network.Wake()
		return reconcile.Result{RequeueAfter: restless}, err
	}
	now, ready, err := t.look(ctx)
	is := chainNamed(now, r.Name)
	if err != nil || is == nil {
		return reconcile.Result{}, err
	}
	s := chainplan.Next(&c.Spec, is, nodes, t.load(t.wanted(), now), t.settled(is, nodes, ready))
	if s != nil {
		// The step ends with the term, which may end before the agent does.
		err := t.take(t.Context(), h.Controller, r.Name, s)
		m.chains.Wake()
		if err != nil && t.Context().Err() == nil {
			return reconcile.Result{}, fmt.Errorf("%s: %w", s, err)
		}
	}
	if s != nil || !is.Ready || len(is.Members) != int(c.Spec.Length) {
		return reconcile.Result{RequeueAfter: restless}, nil
	}
	return reconcile.Result{RequeueAfter: restful}, nil
}

// wanted returns the names of the chains that the plan wants.
func (t *term) wanted() (out []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, p := range t.plan {
		if p.Wanted {
			out = append(out, name)
		}
	}
	return out
}

// chainControl is the part of a controller that the steps of a chain need.
type chainControl interface {
	Chain(ctx context.Context, name string) (*admin.Chain, error)
	BringIn(ctx context.Context, chain, sw string) (*admin.Chain, error)
	ChangeChain(ctx context.Context, chain string, change admin.ChainChange) (*admin.Chain, error)
	RemoveKey(ctx context.Context, chain, key string) error
}

// take executes the next step of a chain.
func (t *term) take(ctx context.Context, c chainControl, chain string, s *chainplan.Step) error {
	if s.BringIn == "" {
		change := admin.ChainChange{LeaseMillis: s.Lease}
		if s.Members != nil {
			change.Members = &s.Members
		}
		_, err := c.ChangeChain(ctx, chain, change)
		return err
	}
	candidate := rejoin.Candidate{Chain: chain, Switch: s.BringIn}
	before, err := c.Chain(ctx, chain)
	if err != nil {
		return err
	}
	_, err = c.BringIn(ctx, chain, s.BringIn)
	after, failed := c.Chain(ctx, chain)
	t.mu.Lock()
	defer t.mu.Unlock()
	// A step that was refused at once has not cost an epoch.
	cost := failed != nil || after.Epoch != before.Epoch
	if err == nil || cost {
		t.back.Tried(time.Since(t.began), candidate)
	}
	switch silent := errors.Is(err, &admin.Error{Code: admin.CodeDeadlineExceeded}); {
	case err == nil:
	case cost || silent:
		t.back.Again(time.Since(t.began), candidate)
	default: // for example, another chain needs the switch
		t.back.Later(time.Since(t.began), candidate)
	}
	return err
}

// empty removes the keys from a chain that must be removed, except for etcd's keys.
func (t *term) empty(ctx context.Context, c chainControl, chain string) error {
	_, left, err := t.emptied(ctx, chain)
	if err != nil {
		return fmt.Errorf("emptying it: %w", err)
	}
	for _, k := range left {
		err := c.RemoveKey(ctx, chain, strconv.FormatUint(uint64(k.KeyID), 10))
		if err != nil && !errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
			return fmt.Errorf("removing its keys: %w", err)
		}
	}
	return nil
}

// settled returns a function that reports whether a node's switch was ready for long enough to join
// a chain. ready has the switches that are ready now. For a lost member this time begins again.
func (t *term) settled(is *admin.Chain, nodes []nodeview.Node, ready map[string]bool) func(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Since(t.began)
	for _, n := range nodes {
		member := slices.ContainsFunc(is.Members, func(m admin.Member) bool { return m.Switch == n.Name })
		if c := (rejoin.Candidate{Chain: is.Name, Switch: n.Name}); ready[n.Name] && !member {
			t.back.There(now, c)
		} else {
			t.back.Away(c)
		}
	}
	return func(node string) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		due, ok := t.back.Due(now, rejoin.Candidate{Chain: is.Name, Switch: node})
		return ok && due <= now
	}
}
