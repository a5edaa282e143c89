package reconcilers

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/chainplan"
	"github.com/netcraq/netcraq/cni-plugin/kube/netplan"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// networkReconciler makes the controller control the network that follows from nodes, pods and
// chains. It handles all objects together, because a chain can cause the refusal of another chain,
// and each link belongs to two nodes.
type networkReconciler struct {
	*Operator

	in      *term                // term to which the following fields belong
	since   map[string]time.Time // when each chain without members was first seen
	program topology.ProgramSpec
	hosts   map[netip.Addr]string // the node that listed each host, by the host's address
	report  nodeclaims.Report
}

// Reconcile implements reconcile.Reconciler.
func (n *networkReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	t := n.leading()
	if t == nil {
		return reconcile.Result{}, nil
	}
	if n.in != t {
		n.in, n.since, n.program, n.hosts = t, map[string]time.Time{}, topology.ProgramSpec{}, nil
	}
	var list v1alpha1.NetcraqChainList
	if err := n.client.List(ctx, &list); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the chains: %w", err)
	}
	nodes, err := nodeview.List(ctx, n.client)
	if err != nil {
		return reconcile.Result{}, err
	}
	wrong := n.check(nodes)
	now, _, err := t.look(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if n.o.Fabric == nil {
		n.pods.Follow(t.Context(), agentsOf(nodes))
	}
	n.Operator.nodes.Follow(t.Context(), nodes, n.o.Addresses.OfNode)
	accepted, refused := chainplan.Accept(chainplan.Undeleted(list.Items))
	load := t.load(chainplan.Names(accepted), now)
	leaving := map[string]bool{}
	formed := n.leftovers(ctx, t, now, accepted, leaving)
	underWay := len(formed) > 0
	formed, waiting := n.form(ctx, t, formed, accepted, now, nodes, load)
	for _, c := range accepted {
		leaving[c.Name] = c.Spec.Placement.Policy == v1alpha1.PlaceNone
	}
	t.Leave(leaving)
	trouble, ofPods, err := n.applyAll(t, nodes, formed, now)
	n.report.Update(append(wrong, ofPods...), time.Now())

	plan := map[string]chainplan.Plan{}
	for _, c := range list.Items {
		plan[c.Name] = chainplan.Plan{Generation: c.Generation, Spec: c.Spec, Refused: refused[c.Name],
			Waiting: waiting[c.Name], Wanted: slices.Contains(chainplan.Names(accepted), c.Name)}
	}
	for _, f := range formed {
		p := plan[f.Name]
		p.Formed, p.Trouble = true, trouble[f.Name]
		plan[f.Name] = p
	}
	t.mu.Lock()
	t.plan = plan
	t.mu.Unlock()
	for _, w := range []apiobjects.Waker{n.chains, n.membership, n.keyChoices, n.nodeIndexes} {
		w.Wake()
	}
	switch {
	case t.Context().Err() != nil:
		return reconcile.Result{}, nil // the current leader handles this
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("the network is not as it should be: %w", err)
	case underWay || len(waiting) > 0:
		return reconcile.Result{RequeueAfter: restless}, nil
	}
	return reconcile.Result{RequeueAfter: restful}, nil
}

// check removes the statements that cannot be true from nodes.
func (n *networkReconciler) check(nodes []nodeview.Node) (wrong nodeclaims.Faults) {
	return append(n.o.Claims.Settle(nodes), nodeclaims.Endpoints(nodes, n.o.P4RuntimePort, n.o.AgentPort)...)
}

// agentsOf returns the addresses of the nodes' agents.
func agentsOf(nodes []nodeview.Node) map[string]string {
	out := map[string]string{}
	for _, n := range nodes {
		if n.There && n.Status.Agent != "" {
			out[n.Name] = n.Status.Agent
		}
	}
	return out
}

// leftovers returns the unwanted chains that still hold keys. It marks them as leaving, so that
// their keys are removed first.
func (n *networkReconciler) leftovers(
	ctx context.Context, t *term, now []admin.Chain, accepted []*v1alpha1.NetcraqChain, leaving map[string]bool,
) (formed []netplan.Chain) {
	wanted := chainplan.Names(accepted)
	h := t.Hosted()
	if h == nil { // the term has ended meanwhile, or there are no chains
		now = nil
	}
	for _, c := range now {
		members := t.members(c.Name, now)
		t.mu.Lock()
		delete(t.inherited, c.Name)
		t.mu.Unlock()
		if slices.Contains(wanted, c.Name) {
			continue
		}
		leaving[c.Name] = true
		wasLeaving := t.IsLeaving(c.Name) // must be read before the chain is found to be empty
		empty, _, err := t.emptied(ctx, c.Name)
		if err != nil {
			n.log.Warn("whether a chain that is to go is empty", "chain", c.Name, "err", err)
		}
		if empty && wasLeaving {
			t.mu.Lock()
			delete(t.recorded, c.Name) // a later chain with this name is another chain
			t.mu.Unlock()
			continue
		}
		formed = append(formed, netplan.Chain{Name: c.Name, Spec: v1alpha1.NetcraqChainSpec{ID: int32(c.ID),
			Profile: int32(h.Profile), LeaseMillis: int32(c.LeaseMillis)}, Members: members})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, spec := range t.inherited { // inherited chains were deleted while no agent led
		if slices.Contains(wanted, name) {
			continue
		}
		spec.Profile = v1alpha1.DefaultProfile // the values in the chain are not needed any more
		if len(formed) > 0 {
			spec.Profile = formed[0].Spec.Profile
		} else if len(accepted) > 0 {
			spec.Profile = accepted[0].Spec.Profile
		}
		leaving[name] = true
		formed = append(formed, netplan.Chain{Name: name, Spec: spec, Members: t.recorded[name]})
	}
	return formed
}

// form adds the wanted chains to the existing ones. A running chain gets its current members, and a
// new chain its first members. waiting says what chains without members wait for. A new chain
// starts only when all its members answer. So form chooses its first members only from switches
// that answer.
func (n *networkReconciler) form(
	ctx context.Context, t *term, formed []netplan.Chain, accepted []*v1alpha1.NetcraqChain, now []admin.Chain,
	nodes []nodeview.Node, load map[string]int,
) (all []netplan.Chain, waiting map[string]string) {
	waiting = map[string]string{}
	for _, c := range accepted {
		members := t.members(c.Name, now)
		switch {
		case members != nil:
		case len(formed) > 0 && c.Spec.Profile != formed[0].Spec.Profile:
			waiting[c.Name] = fmt.Sprintf("the chain %s, which has another profile, is not gone yet", formed[0].Name)
		default:
			if _, ok := n.since[c.Name]; !ok {
				n.since[c.Name] = time.Now()
			}
			var why string
			members, why = chainplan.Form(&c.Spec, n.alive(ctx, nodes), load, time.Since(n.since[c.Name]))
			if members == nil {
				waiting[c.Name] = why
			}
			for _, m := range members {
				load[m]++
			}
		}
		if members != nil {
			formed = append(formed, netplan.Chain{Name: c.Name, Spec: c.Spec, Members: members})
		}
	}
	return formed, waiting
}

// alive returns the nodes, or the switches of the fabric, that currently answer.
func (n *networkReconciler) alive(ctx context.Context, nodes []nodeview.Node) []nodeview.Node {
	if n.o.Fabric != nil {
		return answering(ctx, nodeview.FabricSwitches(n.o.Fabric))
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(x nodeview.Node) bool { return !n.pods.Alive(x.Name) })
}

// applyAll gives the controller the wanted network. If the controller refuses it, applyAll leaves
// out the new chains, so that they do not affect the existing ones. trouble has the errors, by
// chain. wrong has the statements of nodes about their pods that were left out.
func (n *networkReconciler) applyAll(
	t *term, nodes []nodeview.Node, formed []netplan.Chain, now []admin.Chain,
) (trouble map[string]error, wrong nodeclaims.Faults, err error) {
	if wrong, err = n.apply(t, nodes, formed, len(now) > 0); err == nil {
		return nil, wrong, nil
	}
	old := slices.DeleteFunc(slices.Clone(formed), func(f netplan.Chain) bool { return chainNamed(now, f.Name) == nil })
	retried := err
	if len(old) > 0 && len(old) < len(formed) {
		_, retried = n.apply(t, nodes, old, true)
	}
	trouble = map[string]error{}
	for _, f := range formed {
		if retried != nil || chainNamed(now, f.Name) == nil {
			trouble[f.Name] = err
		}
	}
	return trouble, wrong, err
}

// apply gives the controller the current network. some reports whether the network has chains. Only
// an update of the network removes chains, because it checks that they hold no keys.
func (n *networkReconciler) apply(
	t *term, nodes []nodeview.Node, formed []netplan.Chain, some bool,
) (wrong nodeclaims.Faults, err error) {
	profile := 0
	switch h := t.Hosted(); {
	case len(formed) > 0:
		profile = int(formed[0].Spec.Profile)
	case h != nil && some:
		profile = h.Profile
	default:
		return nil, t.Host(nil, 0)
	}
	if n.program.Profile != strconv.Itoa(profile) {
		p, err := netplan.WriteProgram(t.ProgramDir(), profile)
		if err != nil {
			return nil, err
		}
		n.program = p
	}
	spec, wrong, err := n.spec(t.Context(), nodes, formed)
	if err != nil {
		return wrong, err
	}
	top, err := topology.New(spec, "the cluster")
	if err != nil {
		return wrong, err
	}
	return wrong, t.Host(top, profile)
}

// spec returns the network's specification for the controller, without wrong entries in the lists
// of nodes' pods. If there is a fabric, the switches, links and hosts are those in its file.
func (n *networkReconciler) spec(
	ctx context.Context, nodes []nodeview.Node, formed []netplan.Chain,
) (topology.Spec, nodeclaims.Faults, error) {
	a := n.o.Addresses
	if f := n.o.Fabric; f != nil {
		chains, err := netplan.ChainSpecs(a, formed)
		return f.Spec(n.program, chains), nil, err
	}
	var chains []netip.AddrPort
	for _, f := range formed {
		address, err := a.Service(f.Spec.ID)
		if err != nil {
			return topology.Spec{}, nil, err
		}
		chains = append(chains, netip.AddrPortFrom(address, wire.Port))
	}
	open, err := n.fast.Open(ctx, chains)
	if err != nil {
		return topology.Spec{}, nil, err
	}
	pods, wrong := n.pods.All()
	spec, more, err := netplan.Build(a, netplan.Cluster{Program: n.program, Nodes: nodes, Pods: pods, Open: open,
		PodRate: n.o.PodRate, Chained: n.o.Chained, Chains: formed, Hosts: n.hosts})
	if err == nil {
		n.hosts = hostsByNode(spec)
	}
	return spec, append(wrong, more...), err
}

// hostsByNode returns the node that has listed each host, by the host's address.
func hostsByNode(spec topology.Spec) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, h := range spec.Hosts {
		if ip, err := netip.ParseAddr(h.IP); err == nil {
			out[ip], _, _ = strings.Cut(h.Port, ":")
		}
	}
	return out
}
