package nodeview

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestFromNode checks that a node's primary address comes first, and then the first address of the
// other family.
func TestFromNode(t *testing.T) {
	for _, c := range []struct{ addresses, prefixes, want string }{
		{"192.0.2.1 fd01::1", "10.244.1.0/24 fd00::/64", "192.0.2.1 fd01::1 [10.244.1.0/24 fd00::/64]"},
		{"fd01::1 192.0.2.1", "fd00::/64 10.244.1.0/24", "fd01::1 192.0.2.1 [fd00::/64 10.244.1.0/24]"},
		{"fd01::1", "fd00::/64", "fd01::1 invalid IP [fd00::/64]"},
		{"192.0.2.1 192.0.2.9 fd01::1 fd01::2", "10.244.1.0/24", "192.0.2.1 fd01::1 [10.244.1.0/24]"},
		{"nonsense 192.0.2.1", "10.244.1.0/24 nonsense", "192.0.2.1 invalid IP [10.244.1.0/24]"},
	} {
		n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: strings.Fields(c.prefixes)}}
		for _, a := range strings.Fields(c.addresses) {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.1"},
				corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		got := FromNode(n)
		var prefixes []string
		for _, p := range got.PodCIDRs {
			prefixes = append(prefixes, p.String())
		}
		if s := got.Address.String() + " " + got.Second.String() + " [" + strings.Join(prefixes, " ") + "]"; s != c.want {
			t.Errorf("%s, %s: %s, not %s", c.addresses, c.prefixes, s, c.want)
		}
	}
}
