package podroutes

import (
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// TestPortTaken checks that another plugin's tunnel is not filtered if it uses a NetCRAQ port. The
// error names the tunnel and the remedy. A tunnel at another port can coexist with NetCRAQ's
// tunnels, whatever its identifier.
func TestPortTaken(t *testing.T) {
	n, lan := udptest.NewSpace(t), udptest.NewSpace(t)
	udptest.Cable(t, n, "eth0", []string{"192.168.0.1/24"}, lan, "eth0", []string{"192.168.0.2/24"})
	self, others := node("node1", "192.168.0.1", "10.244.1.0/24"), []Node{node("node2", "192.168.0.2", "10.244.2.0/24")}
	for _, c := range []struct {
		port, vni int
		taken     bool
	}{{VXLANPort, 1, true}, {20035, 1, true}, {8472, 1, false}, {8472, VNI, false}} {
		n.Do(func() error {
			up, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "flannel.1"
			v := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: c.vni, VtepDevIndex: up.Attrs().Index,
				SrcAddr: net.IPv4(192, 168, 0, 1), Port: c.port}
			if err := netlink.LinkAdd(v); err != nil {
				return err
			}
			defer func() { udptest.Check(t, netlink.LinkDel(v)) }()
			err = ApplyTunnels(self, others)
			filtered, err2 := ingressfilter.TunnelsFiltered()
			if err2 != nil {
				return err2
			}
			if c.taken {
				if err == nil || !strings.Contains(err.Error(), "flannel.1") || !strings.Contains(err.Error(), "Backend.Port") || filtered {
					t.Errorf("port %d is taken: %v, filtered: %v", c.port, err, filtered)
				}
				return nil
			}
			if err != nil || !filtered {
				t.Errorf("port %d: %v, filtered: %v", c.port, err, filtered)
			}
			if _, err := PeerLink(self, others[0]); err != nil {
				t.Errorf("beside a tunnel at port %d: %v", c.port, err)
			}
			return nil
		})
	}
}
