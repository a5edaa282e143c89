package fastpath

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The switch takes the packets of a pod with the fast path before the kernel's netfilter sees them,
// where NetworkPolicy is enforced. So the leader evaluates the policies itself. If they do not let
// a pod send to the chains, the pod's port stays closed.

// mayReach reports whether the policies of a pod's namespace let the pod send UDP to all of these
// addresses. The addresses do not belong to pods, so rules for pods and namespaces never match
// them.
func mayReach(pod *corev1.Pod, policies []networking.NetworkPolicy, to []netip.AddrPort) bool {
	var egress []networking.NetworkPolicyEgressRule
	isolated := false
	for i := range policies {
		if p := &policies[i]; p.Namespace == pod.Namespace && aboutEgress(p) && selects(&p.Spec.PodSelector, pod) {
			isolated = true
			egress = append(egress, p.Spec.Egress...)
		}
	}
	return !isolated || !slices.ContainsFunc(to, func(a netip.AddrPort) bool {
		return !slices.ContainsFunc(egress, func(r networking.NetworkPolicyEgressRule) bool {
			return toAddress(r.To, a.Addr()) && toPort(r.Ports, a.Port())
		})
	})
}

// aboutEgress reports whether a policy is about egress. A policy without types is about egress if
// it has egress rules.
func aboutEgress(p *networking.NetworkPolicy) bool {
	if len(p.Spec.PolicyTypes) == 0 {
		return len(p.Spec.Egress) > 0
	}
	return slices.Contains(p.Spec.PolicyTypes, networking.PolicyTypeEgress)
}

// selects reports whether a selector selects a pod. A selector that cannot be parsed selects all
// pods, because a policy that is not understood must not open anything. (The API server does not
// accept such a selector.)
func selects(s *metav1.LabelSelector, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err != nil || selector.Matches(labels.Set(pod.Labels))
}

func toAddress(peers []networking.NetworkPolicyPeer, a netip.Addr) bool {
	in := func(s string) bool { p, err := netip.ParsePrefix(s); return err == nil && p.Contains(a) }
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networking.NetworkPolicyPeer) bool {
		return p.IPBlock != nil && in(p.IPBlock.CIDR) && !slices.ContainsFunc(p.IPBlock.Except, in)
	})
}

// toPort reports whether the ports of a rule include a UDP port. It ignores named ports, because
// they are ports of pods and never of a chain.
func toPort(ports []networking.NetworkPolicyPort, udp uint16) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networking.NetworkPolicyPort) bool {
		switch {
		case p.Protocol == nil || *p.Protocol != corev1.ProtocolUDP: // the default protocol is TCP
			return false
		case p.Port == nil:
			return true
		case p.EndPort != nil:
			return p.Port.IntVal <= int32(udp) && int32(udp) <= *p.EndPort
		}
		return p.Port.IntVal == int32(udp)
	})
}
