package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/switch/netlinkdump"
)

const (
	udpHeaders    = 20 + 8          // lengths of the IPv4 and UDP headers
	tunnelPort    = 20037           // UDP port of the tunnels of cni-plugin/podroutes
	vxlanOverhead = 14 + 8 + 8 + 20 // lengths of the Ethernet, VXLAN, UDP and IPv4 headers (cni-plugin/podroutes)
)

// links returns the interfaces to check.
func (l *look) links() ([]netlink.Link, error) {
	all, err := netlinkdump.Whole(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	out := all[:0]
	for _, link := range all {
		name := link.Attrs().Name
		if len(l.Interfaces) > 0 && slices.Contains(l.Interfaces, name) || len(l.Interfaces) == 0 && name != "lo" {
			out = append(out, link)
		}
	}
	return out, nil
}

func interfaces(_ context.Context, l *look) {
	links, err := l.links()
	if err != nil {
		l.unseen("interfaces", "listing them", err)
		return
	}
	for _, name := range l.Interfaces {
		if !slices.ContainsFunc(links, func(k netlink.Link) bool { return k.Attrs().Name == name }) {
			l.problem(name, "ip link lists those that there are", "there is no such interface")
		}
	}
	uplinks := l.uplinks()
	for _, link := range links {
		a := link.Attrs()
		if tunnel, ok := link.(*netlink.Vxlan); ok {
			l.tunnel(tunnel)
		}
		if uplinks[a.Index] {
			l.uplink(link)
		}
		features, err := netlinkdump.XDPFeatures(a.Index)
		native := err == nil && features&netlinkdump.RunsXDP != 0
		if native && link.Type() != "veth" {
			l.ok(a.Name, "its driver runs XDP programs natively")
		} else if err == nil && !native && uplinks[a.Index] {
			l.note(a.Name, "its driver runs no XDP programs: a switch's port there is served at tc")
		}
	}
}

// uplinks returns the indexes of the interfaces that have a default route.
func (l *look) uplinks() map[int]bool {
	out := map[int]bool{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlinkdump.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, family) })
		if err != nil {
			l.unseen("routes", "listing them", err)
		}
		for _, r := range routes {
			if r.Dst == nil || r.Dst.IP.IsUnspecified() {
				out[r.LinkIndex] = true
				for _, hop := range r.MultiPath {
					out[hop.LinkIndex] = true
				}
			}
		}
	}
	return out
}

// uplink reports the largest value that fits into a packet of an interface, inside a tunnel.
func (l *look) uplink(link netlink.Link) {
	a := link.Attrs()
	need := func(p wire.Profile) int { return p.PacketBytes() + udpHeaders + vxlanOverhead }
	if widest := need(wire.Profile8192); a.MTU >= widest {
		l.ok(a.Name, "MTU %d: packets with the widest values fit, in a tunnel, too (%d bytes)", a.MTU, widest)
	} else {
		var fit []string
		for _, p := range []wire.Profile{wire.Profile128, wire.Profile1024, wire.Profile4096} {
			if a.MTU >= need(p) {
				fit = append(fit, p.String())
			}
		}
		if len(fit) == 0 {
			fit = []string{"none"}
		}
		l.problem(a.Name, fmt.Sprintf("ip link set %s mtu 1500, or a chain whose spec.profile is one of those", a.Name),
			"MTU %d: of the widths of values (profiles, in bits) only %s fit into a tunnel's packets; 8192 takes %d bytes", a.MTU, strings.Join(fit, ", "), widest)
	}
}

// tunnel compares a VXLAN tunnel's MTU with that of its underlying interface.
func (l *look) tunnel(t *netlink.Vxlan) {
	if !strings.HasPrefix(t.Name, "ncq") && (t.Port == tunnelPort || t.Port == wire.Port) {
		l.problem(t.Name, "give it another one in its plugin's configuration, on all nodes: 8472 (flannel: Backend.Port in net-conf.json; Cilium: tunnelPort), or 4789 (Calico: vxlanPort)",
			"it uses UDP port %d, which NetCRAQ's tunnel needs", t.Port)
	}
	if t.VtepDevIndex == 0 {
		return
	}
	under, err := netlink.LinkByIndex(t.VtepDevIndex)
	if err != nil {
		l.unseen(t.Name, "looking at what carries the tunnel", err)
		return
	}
	overhead := vxlanOverhead
	if t.SrcAddr != nil && t.SrcAddr.To4() == nil {
		overhead += 20 // the outer IPv6 header is longer than IPv4's
	}
	if room := under.Attrs().MTU - overhead; t.MTU > room {
		l.problem(t.Name, fmt.Sprintf("ip link set %s mtu %d; or ip link set %s mtu %d, on all nodes", t.Name, room, under.Attrs().Name, t.MTU+overhead),
			"MTU %d, but %s, which carries the tunnel, has %d: packets of more than %d bytes are lost", t.MTU, under.Attrs().Name, under.Attrs().MTU, room)
	} else {
		l.ok(t.Name, "MTU %d, in %s's %d", t.MTU, under.Attrs().Name, under.Attrs().MTU)
	}
}
