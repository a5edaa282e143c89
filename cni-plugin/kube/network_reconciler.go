package kube

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// networkReconciler has the controller control the network that nodes, pods and chains make. It is
// one object: a chain is refused because of another, and each link is of two nodes.
type networkReconciler struct {
	*operator

	in      *term                // of which what follows is
	since   map[string]time.Time // when a chain was first waited with
	program topology.ProgramSpec
	hosts   map[netip.Addr]string // the nodes that have the hosts' addresses
	report  faultReport
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
	nodes, err := listNodes(ctx, n.client)
	if err != nil {
		return reconcile.Result{}, err
	}
	wrong := n.check(nodes)
	now, _, err := t.look(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if n.o.Fabric == nil {
		n.pods.follow(t.Context(), agentsOf(nodes))
	}
	n.operator.nodes.follow(t.Context(), nodes, n.o.Addresses.ofNode)
	accepted, refused := accept(undeleted(list.Items))
	load := t.load(namesOf(accepted), now)
	leaving := map[string]bool{}
	formed := n.leftovers(ctx, t, now, accepted, leaving)
	underWay := len(formed) > 0
	formed, waiting := n.form(ctx, t, formed, accepted, now, nodes, load)
	for _, c := range accepted {
		leaving[c.Name] = c.Spec.Placement.Policy == v1alpha1.PlaceNone
	}
	t.Leave(leaving)
	trouble, ofPods, err := n.applyAll(t, nodes, formed, now)
	n.report.update(append(wrong, ofPods...), time.Now())

	plan := map[string]planned{}
	for _, c := range list.Items {
		plan[c.Name] = planned{generation: c.Generation, spec: c.Spec, refused: refused[c.Name],
			waiting: waiting[c.Name], wanted: slices.Contains(namesOf(accepted), c.Name)}
	}
	for _, f := range formed {
		p := plan[f.name]
		p.formed, p.trouble = true, trouble[f.name]
		plan[f.name] = p
	}
	t.mu.Lock()
	t.plan = plan
	t.mu.Unlock()
	for _, w := range []waker{n.chains, n.membership, n.keyChoices, n.nodeIndexes} {
		w.wake()
	}
	switch {
	case t.Context().Err() != nil:
		return reconcile.Result{}, nil // whoever leads now sees to it
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("the network is not as it should be: %w", err)
	case underWay || len(waiting) > 0:
		return reconcile.Result{RequeueAfter: restless}, nil
	}
	return reconcile.Result{RequeueAfter: restful}, nil
}

// check takes out of nodes what they cannot have.
func (n *networkReconciler) check(nodes []node) (wrong faults) {
	return append(n.o.Claims.settle(nodes), endpoints(nodes, n.o.P4RuntimePort, n.o.AgentPort)...)
}

// agentsOf are the addresses of nodes' agents.
func agentsOf(nodes []node) map[string]string {
	out := map[string]string{}
	for _, n := range nodes {
		if n.there && n.status.Agent != "" {
			out[n.Name] = n.status.Agent
		}
	}
	return out
}

// leftovers are the chains that nobody wants any more and that hold keys, which have to go first:
// they are marked as leaving.
func (n *networkReconciler) leftovers(
	ctx context.Context, t *term, now []api.Chain, accepted []*v1alpha1.NetcraqChain, leaving map[string]bool,
) (formed []formedChain) {
	wanted := namesOf(accepted)
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
		wasLeaving := t.IsLeaving(c.Name) // before it was seen to be empty
		empty, _, err := t.emptied(ctx, c.Name)
		if err != nil {
			n.log.Warn("whether a chain that is to go is empty", "chain", c.Name, "err", err)
		}
		if empty && wasLeaving {
			t.mu.Lock()
			delete(t.recorded, c.Name) // one of this name that is made later is another one
			t.mu.Unlock()
			continue
		}
		formed = append(formed, formedChain{name: c.Name, spec: v1alpha1.NetcraqChainSpec{ID: int32(c.ID),
			Profile: int32(h.Profile), LeaseMillis: int32(c.LeaseMillis)}, members: members})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, spec := range t.inherited { // they went while nobody led
		if slices.Contains(wanted, name) {
			continue
		}
		spec.Profile = v1alpha1.DefaultProfile // of the values nothing is needed any more
		if len(formed) > 0 {
			spec.Profile = formed[0].spec.Profile
		} else if len(accepted) > 0 {
			spec.Profile = accepted[0].Spec.Profile
		}
		leaving[name] = true
		formed = append(formed, formedChain{name: name, spec: spec, members: t.recorded[name]})
	}
	return formed
}

// form adds the chains that are wanted to those that are still there: as they are, or with their
// first members. waiting says what the others wait for. A chain begins when all its members answer:
// one that does not would keep it from that, so those that do are asked for when a chain is to
// begin.
func (n *networkReconciler) form(
	ctx context.Context, t *term, formed []formedChain, accepted []*v1alpha1.NetcraqChain, now []api.Chain,
	nodes []node, load map[string]int,
) (all []formedChain, waiting map[string]string) {
	waiting = map[string]string{}
	for _, c := range accepted {
		members := t.members(c.Name, now)
		switch {
		case members != nil:
		case len(formed) > 0 && c.Spec.Profile != formed[0].spec.Profile:
			waiting[c.Name] = fmt.Sprintf("the chain %s, which has another profile, is not gone yet", formed[0].name)
		default:
			if _, ok := n.since[c.Name]; !ok {
				n.since[c.Name] = time.Now()
			}
			var why string
			if members, why = form(&c.Spec, n.alive(ctx, nodes), load, time.Since(n.since[c.Name])); members == nil {
				waiting[c.Name] = why
			}
			for _, m := range members {
				load[m]++
			}
		}
		if members != nil {
			formed = append(formed, formedChain{name: c.Name, spec: c.Spec, members: members})
		}
	}
	return formed, waiting
}

// alive are the nodes, or the fabric's switches, that answer now.
func (n *networkReconciler) alive(ctx context.Context, nodes []node) []node {
	if n.o.Fabric != nil {
		return answering(ctx, switchesOf(n.o.Fabric))
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(x node) bool { return !n.pods.alive(x.Name) })
}

// applyAll has the network be as it should, or, if that cannot be had, as far as it was: what is
// new must not be in the way of what is there. trouble has what is wrong, by chains; wrong is what
// nodes say of their pods and what was left out.
func (n *networkReconciler) applyAll(
	t *term, nodes []node, formed []formedChain, now []api.Chain,
) (trouble map[string]error, wrong faults, err error) {
	if wrong, err = n.apply(t, nodes, formed, len(now) > 0); err == nil {
		return nil, wrong, nil
	}
	old := slices.DeleteFunc(slices.Clone(formed), func(f formedChain) bool { return chainNamed(now, f.name) == nil })
	retried := err
	if len(old) > 0 && len(old) < len(formed) {
		_, retried = n.apply(t, nodes, old, true)
	}
	trouble = map[string]error{}
	for _, f := range formed {
		if retried != nil || chainNamed(now, f.name) == nil {
			trouble[f.name] = err
		}
	}
	return trouble, wrong, err
}

// apply has the controller control the network as it is now. some: there are chains in it, which
// only an update takes away, since that makes sure that they hold nothing.
func (n *networkReconciler) apply(
	t *term, nodes []node, formed []formedChain, some bool,
) (wrong faults, err error) {
	profile := 0
	switch h := t.Hosted(); {
	case len(formed) > 0:
		profile = int(formed[0].spec.Profile)
	case h != nil && some:
		profile = h.Profile
	default:
		return nil, t.Host(nil, 0)
	}
	if n.program.Profile != strconv.Itoa(profile) {
		p, err := writeProgram(t.ProgramDir(), profile)
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

// spec is what the controller is told of, without what is wrong in the lists of nodes' pods. With a
// fabric the switches, links and hosts are those of its file.
func (n *networkReconciler) spec(
	ctx context.Context, nodes []node, formed []formedChain,
) (topology.Spec, faults, error) {
	a := n.o.Addresses
	if f := n.o.Fabric; f != nil {
		chains, err := chainSpecs(a, formed)
		return f.Spec(n.program, chains), nil, err
	}
	var chains []netip.AddrPort
	for _, f := range formed {
		address, err := a.service(f.spec.ID)
		if err != nil {
			return topology.Spec{}, nil, err
		}
		chains = append(chains, netip.AddrPortFrom(address, wire.Port))
	}
	open, err := n.fast.open(ctx, chains)
	if err != nil {
		return topology.Spec{}, nil, err
	}
	pods, wrong := n.pods.all()
	spec, more, err := build(a, clusterState{program: n.program, nodes: nodes, pods: pods, open: open,
		podRate: n.o.PodRate, chained: n.o.Chained, chains: formed, hosts: n.hosts})
	if err == nil {
		n.hosts = hostsByNode(spec)
	}
	return spec, append(wrong, more...), err
}

// hostsByNode are the nodes that have the hosts' addresses.
func hostsByNode(spec topology.Spec) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, h := range spec.Hosts {
		if ip, err := netip.ParseAddr(h.IP); err == nil {
			out[ip], _, _ = strings.Cut(h.Port, ":")
		}
	}
	return out
}
