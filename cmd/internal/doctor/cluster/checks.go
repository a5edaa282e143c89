package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-semver/semver"
	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// daemonSets reads the DaemonSets of a component, and reports those that are being updated.
func (l *look) daemonSets(ctx context.Context, name string) ([]apps.DaemonSet, bool) {
	found, ok := list[apps.DaemonSet](ctx, l, daemonSetsResource, l.Namespace, NameLabel+"="+name)
	for i := range found {
		s := &found[i]
		if want := s.Status.DesiredNumberScheduled; s.Status.UpdatedNumberScheduled < want {
			l.warn(s.Name, fmt.Sprintf("wait for it: kubectl -n %s rollout status daemonset/%s", s.Namespace, s.Name),
				"an update is under way: %d of %d pods are new", s.Status.UpdatedNumberScheduled, want)
		}
	}
	return found, ok
}

// perNode reports each pod of a component that is not ready, and each node without such a pod. It
// also reports how many nodes have a ready pod.
func (l *look) perNode(ctx context.Context, name string) {
	pods, ok := l.pods(ctx, l.Namespace, name)
	if !ok {
		return
	}
	nodes, ok := list[core.Node](ctx, l, nodesResource, "", "")
	if !ok {
		return
	}
	has := map[string]bool{}
	well := 0
	for i := range pods {
		p := &pods[i]
		has[p.Spec.NodeName] = true
		if is, why := ready(p); is {
			well++
		} else {
			l.problem(p.Spec.NodeName, adviceFor(p), "the pod %s is not ready: %s", p.Name, why)
		}
	}
	for _, n := range nodes {
		if !has[n.Name] {
			l.problem(n.Name, fmt.Sprintf("kubectl -n %s describe daemonset, and look for taints and selectors that keep it away", l.Namespace),
				"no pod of %s is on this node", name)
		}
	}
	if n := len(nodes); n == well {
		l.ok("", "ready on %s", count(n, "node"))
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func agents(ctx context.Context, l *look) {
	sets, ok := l.daemonSets(ctx, AgentName)
	switch {
	case !ok:
	case len(sets) == 0:
		l.problem("", "install it (docs/kubernetes.md), or pass --system-namespace with the namespace of its agents",
			"NetCRAQ is not in the namespace %s: there is no DaemonSet of agents", l.Namespace)
	default:
		l.perNode(ctx, AgentName)
	}
}

func policies(ctx context.Context, l *look) {
	sets, ok := l.daemonSets(ctx, PoliciesName)
	switch {
	case !ok:
	case len(sets) == 0:
		l.note("", "NetCRAQ does not enforce NetworkPolicy here (the chart's policies.enabled)")
	default:
		l.perNode(ctx, PoliciesName)
	}
}

// leader checks the Lease of the leading agent.
func leader(ctx context.Context, l *look) {
	var lease coordination.Lease
	object, err := l.client.Resource(leasesResource).Namespace(l.Namespace).Get(ctx, LeaderLease, metav1.GetOptions{})
	if err == nil {
		err = convert(object.Object, &lease)
	}
	logs := fmt.Sprintf("kubectl -n %s logs -l %s=%s,app.kubernetes.io/component=control-plane", l.Namespace, NameLabel, AgentName)
	if apierrors.IsNotFound(err) {
		l.problem("", logs, "no agent has ever led: there is no Lease %s", LeaderLease)
		return
	}
	if !l.was("leases", err) {
		return
	}
	holder := ""
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	switch renewed, lasts := lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds; {
	case holder == "" || renewed == nil || lasts == nil:
		l.problem("", logs, "no agent leads")
	case l.Now().After(renewed.Add(time.Duration(*lasts) * time.Second)):
		l.problem(holder, logs, "the agent of this node led, and has not said so for %v",
			l.Now().Sub(renewed.Time).Round(time.Second))
	default:
		l.ok(holder, "the agent of this node leads")
	}
}

// chain has the fields of a NetcraqChain that the checks read. It does not use the node agents'
// type, because commands and node agents do not import each other.
type chain struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Length int32 `json:"length"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration"`
		Length             int32              `json:"length"`
		Order              string             `json:"order"`
		PlacedKeys         int32              `json:"placedKeys"`
		Slots              int32              `json:"slots"`
		Conditions         []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// condition returns a chain's condition of a kind. If the chain has no such condition, the result
// has the status unknown.
func (c *chain) condition(kind string) metav1.Condition {
	for _, x := range c.Status.Conditions {
		if x.Type == kind {
			return x
		}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Message: "the leader has not reported it"}
}

func chains(ctx context.Context, l *look) {
	found, ok := list[chain](ctx, l, chainsResource, "", "")
	if ok && len(found) == 0 {
		l.warn("", "kubectl apply -f cni-plugin/deploy/chain.yaml, or helm upgrade --set chain.create=true",
			"there is no chain, so no key can be in the switches")
	}
	for i := range found {
		l.chain(&found[i])
	}
}

func (l *look) chain(c *chain) {
	describe := "kubectl describe netcraqchain " + c.Name
	accepted, up, full := c.condition("Accepted"), c.condition("Ready"), c.condition("FullLength")
	switch {
	case c.DeletionTimestamp != nil:
		l.warn(c.Name, describe, "it is being deleted, and waits until its keys are back in etcd")
	case accepted.Status == metav1.ConditionFalse:
		l.problem(c.Name, "change its spec", "its spec is not possible: %s", accepted.Message)
	case up.Status != metav1.ConditionTrue:
		l.problem(c.Name, describe+", and netcraq doctor on the node that it names",
			"it is not ready: %s", up.Message)
	case full.Status == metav1.ConditionFalse:
		l.warn(c.Name, "add a node, or let more be members (nodeSelector, excludedNodes)",
			"it has %d of %d members: %s", c.Status.Length, c.Spec.Length, full.Message)
	case c.Status.ObservedGeneration < c.Generation:
		l.warn(c.Name, "wait; if it stays so, look at the leader", "the leader has not seen the newest spec")
	case c.Status.Slots > 0 && c.Status.PlacedKeys >= c.Status.Slots:
		l.warn(c.Name, "remove keys, or exclude prefixes: netcraq placement exclude", "all %d slots are taken", c.Status.Slots)
	default:
		l.ok(c.Name, "%s; %d of %d slots are taken", c.Status.Order, c.Status.PlacedKeys, c.Status.Slots)
	}
}

// gatewayPort is the port of a gateway on a control-plane node.
const gatewayPort = ":23790"

// gateways checks the gateways in front of etcd, which are static pods. It also checks whether the
// nodes' API servers use the gateways.
func gateways(ctx context.Context, l *look) {
	pods, ok := l.pods(ctx, GatewayNamespace, GatewayName)
	if !ok {
		return
	}
	at := map[string]bool{}
	well := 0
	for i := range pods {
		p := &pods[i]
		at[p.Spec.NodeName] = true
		if is, why := ready(p); is {
			well++
		} else {
			l.problem(p.Spec.NodeName, adviceFor(p), "the gateway is not ready: %s", why)
		}
	}
	servers, ok := list[core.Pod](ctx, l, podsResource, GatewayNamespace, "component=kube-apiserver")
	if !ok {
		return
	}
	use, missing := 0, false
	for i := range servers {
		p := &servers[i]
		switch uses := strings.Contains(argument(p, "--etcd-servers"), gatewayPort); {
		case uses && !at[p.Spec.NodeName]:
			missing = true
			l.problem(p.Spec.NodeName, "put cni-plugin/deploy/etcd-monitor/etcd-monitor.yaml into /etc/kubernetes/manifests there",
				"the API server asks etcd through a gateway, and there is none on this node")
		case uses:
			use++
		case at[p.Spec.NodeName]:
			l.note(p.Spec.NodeName, "the API server does not use the gateway of its node (--etcd-servers)")
		}
	}
	switch {
	case missing:
	case len(pods) == 0:
		l.note("", "no gateway is before etcd, so etcd's keys stay out of the switches and no key can be durable")
	case well == len(pods):
		l.ok("", "%s ready; %s", count(well, "gateway"), usedBy(use))
	}
}

func usedBy(servers int) string {
	if servers == 0 {
		return "no API server uses them"
	}
	return "used by " + count(servers, "API server")
}

// argument returns the value of a flag of a pod's containers, or "" if no container has the flag.
func argument(p *core.Pod, flag string) string {
	for _, c := range p.Spec.Containers {
		for _, a := range slices.Concat(c.Command, c.Args) {
			if v, ok := strings.CutPrefix(a, flag+"="); ok {
				return v
			}
		}
	}
	return ""
}

// images compares the container images of all components. Agents of one DaemonSet may differ during
// an update, because releases one minor version apart work together.
func images(ctx context.Context, l *look) {
	byImage := map[string]bool{}
	content := map[string]map[string]struct{}{} // image IDs by image name
	var versions semver.Versions
	for _, part := range []struct{ namespace, name string }{
		{l.Namespace, AgentName}, {l.Namespace, PoliciesName}, {GatewayNamespace, GatewayName}} {
		pods, ok := l.pods(ctx, part.namespace, part.name)
		if !ok {
			return
		}
		for i := range pods {
			for _, c := range pods[i].Spec.Containers {
				byImage[c.Image] = true
				if v, err := semver.NewVersion(tag(c.Image)); err == nil {
					versions = append(versions, v)
				}
			}
			for _, c := range pods[i].Status.ContainerStatuses {
				if c.ImageID != "" {
					if content[c.Image] == nil {
						content[c.Image] = map[string]struct{}{}
					}
					content[c.Image][c.ImageID] = struct{}{}
				}
			}
		}
	}
	for _, image := range slices.Sorted(maps.Keys(content)) {
		if n := len(content[image]); n > 1 {
			l.warn(image, "use a tag that never moves, or a digest, and restart the pods", "nodes have %d different images of this name", n)
		}
	}
	names := slices.Sorted(maps.Keys(byImage))
	if len(names) == 0 {
		l.note("", "no part of NetCRAQ runs")
		return
	}
	if len(versions) > 0 {
		semver.Sort(versions)
		oldest, newest := versions[0], versions[len(versions)-1]
		switch {
		case oldest.Major != newest.Major || newest.Minor-oldest.Minor > 1:
			l.problem("", "update the oldest parts, one minor version at a time (docs/how-to/survive-an-upgrade.md)",
				"the versions %s and %s run together; only consecutive minor releases are tested together", oldest, newest)
			return
		case !oldest.Equal(*newest):
			l.warn("", "finish the update", "the versions %s and %s run together", oldest, newest)
			return
		}
	}
	l.ok("", "%s", strings.Join(names, ", "))
}

// tag returns an image's tag, or "" if the image has no tag.
func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name := image[strings.LastIndex(image, "/")+1:]
	_, t, _ := strings.Cut(name, ":")
	return strings.TrimPrefix(t, "v")
}
