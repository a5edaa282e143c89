package nodeclaims

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// TestClaims checks which node keeps an address or a prefix that two Nodes claim.
func TestClaims(t *testing.T) {
	nodes := func(change func(n []nodeview.Node)) []nodeview.Node {
		n := testutil.ThreeNodes()
		for i := range n {
			n[i].Created = time.Unix(int64(100+i), 0)
			n[i].Second = netip.MustParseAddr(fmt.Sprintf("fd01::%d", i+1))
			n[i].PodCIDRs = append(n[i].PodCIDRs, netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%d::/64", i+1)))
		}
		if change != nil {
			change(n)
		}
		return n
	}
	for _, c := range []struct {
		what    string
		chained bool
		seen    bool // whether Settle has seen the unchanged nodes before
		change  func(n []nodeview.Node)
		want    string // addresses and prefixes that nodes lose
	}{
		{"all is well", false, false, nil, ""},
		{"the younger loses", false, false, func(n []nodeview.Node) { n[2].Address = n[0].Address }, "n3: no address"},
		{"the age is not in the name", false, false, func(n []nodeview.Node) {
			n[2].Address, n[2].Created = n[0].Address, time.Unix(1, 0)
		}, "n1: no address"},
		{"the older one comes later", false, true, func(n []nodeview.Node) { n[0].Address = n[2].Address }, "n1: no address"},
		{"an IPv6 address", false, true, func(n []nodeview.Node) { n[0].Second = n[2].Second }, "n1: no second address"},
		{"a first address that is another's second", false, true, func(n []nodeview.Node) { n[0].Address = n[2].Second }, "n1: no address"},
		{"an address of another's prefix", false, false, func(n []nodeview.Node) { n[0].Address = netip.MustParseAddr("10.244.3.9") }, "n1: no address"},
		{"... behind another plugin", true, false, func(n []nodeview.Node) { n[0].Address = netip.MustParseAddr("10.244.3.9") }, "n3: 1 prefixes"},
		{"... where the prefix was there before", true, true, func(n []nodeview.Node) { n[0].Address = netip.MustParseAddr("10.244.3.9") }, "n1: no address"},
		{"an IPv6 address of another's prefix", false, false, func(n []nodeview.Node) { n[0].Second = netip.MustParseAddr("fd00:0:0:3::9") }, "n1: no second address"},
		{"its own prefix's address", false, false, func(n []nodeview.Node) { n[0].Address = netip.MustParseAddr("10.244.1.1") }, ""},
		{"a prefix with another's address", true, false, func(n []nodeview.Node) { n[0].PodCIDRs[0] = netip.MustParsePrefix("192.0.2.0/24") }, "n1: 1 prefixes"},
		{"a prefix that overlaps", false, false, func(n []nodeview.Node) { n[2].PodCIDRs[0] = netip.MustParsePrefix("10.244.0.0/16") }, "n3: 1 prefixes"},
		{"the older one's prefix comes later", true, true, func(n []nodeview.Node) { n[0].PodCIDRs[0] = netip.MustParsePrefix("10.244.0.0/16") }, "n1: 1 prefixes"},
		{"an IPv6 prefix that overlaps", false, false, func(n []nodeview.Node) { n[2].PodCIDRs[1] = netip.MustParsePrefix("fd00::/16") }, "n3: 1 prefixes"},
		{"the services' prefix", false, false, func(n []nodeview.Node) { n[0].PodCIDRs[0] = netip.MustParsePrefix("10.0.254.128/25") }, "n1: 1 prefixes"},
		{"a switch's address", false, false, func(n []nodeview.Node) { n[0].Address = netip.MustParseAddr("10.0.255.200") }, "n1: no address"},
		{"IPv4 in IPv6", false, false, func(n []nodeview.Node) { n[0].Address = netip.MustParseAddr("::ffff:192.0.2.3") }, "n1: no address"},
		{"an IPv6 address of a link", false, false, func(n []nodeview.Node) { n[0].Second = netip.MustParseAddr("fe80::1") }, "n1: no second address"},
		{"a node that has gone claims nothing", false, true, func(n []nodeview.Node) {
			n[0].Address, n[2] = n[2].Address, nodeview.Node{Node: podroutes.Node{Name: "n3"},
				Number: 3, Status: n[2].Status}
		}, "n3: no address, no second address, 0 prefixes"},
	} {
		t.Run(c.what, func(t *testing.T) {
			x := &Claims{Addressing: nodeview.Addressing{Services: netip.MustParsePrefix("10.0.254.0/24"),
				Switches: netip.MustParsePrefix("10.0.255.0/24")},
				chained: c.chained}
			if c.seen {
				x.Settle(nodes(nil))
			}
			for range 2 { // the second call must give the same result
				got := nodes(c.change)
				wrong := x.Settle(got)
				var lost []string
				for _, n := range got {
					var of []string
					if !n.Address.IsValid() {
						of = append(of, "no address")
					}
					if !n.Second.IsValid() && (n.Address.IsValid() || !n.There) {
						of = append(of, "no second address")
					}
					if len(n.PodCIDRs) != 2 {
						of = append(of, fmt.Sprintf("%d prefixes", len(n.PodCIDRs)))
					}
					if of != nil {
						lost = append(lost, n.Name+": "+strings.Join(of, ", "))
					}
					if (wrong.ErrorOf(n.Name) != nil) != (of != nil && n.There) {
						t.Errorf("of %s is left out: %v", n.Name, wrong.ErrorOf(n.Name))
					}
				}
				if s := strings.Join(lost, "; "); s != c.want {
					t.Errorf("lost: %s; not %s", s, c.want)
				}
			}
		})
	}
}
