package podroutes

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// Each two switches are connected by a tunnel that only these two use, like a cable. A shared
// network would not work, for three reasons. An acknowledgement leaves a switch with the Ethernet
// addresses with which it came, so a bridge would learn wrong locations of switches. A network card
// accepts only frames to its own address. And the P4 program sends one copy through each port, so
// each neighbour needs its own port.

// peerPrefix is the prefix of the names of tunnels between switches.
const peerPrefix = "ncqf"

// PeerLink makes the tunnel between a node's switch and another node's switch. It returns the name
// of the tunnel's interface, which the caller must set up. It does not change a tunnel that is
// already correct. Call Apply first, because it sets which nodes may send in the tunnel.
func PeerLink(self, peer Node) (string, error) {
	if filtered, err := ingressfilter.TunnelsFiltered(); err != nil || !filtered {
		return "", errors.Join(fmt.Errorf("there is no tunnel to node %s before podroutes.Apply has said who may send in it", peer.Name), err)
	}
	x, y, err := between(self, peer)
	if err != nil {
		return "", err
	}
	out, err := sourceLink(x)
	if err != nil {
		return "", err
	}
	name := PeerName(peer)
	vni := PeerVNI(x, y)
	l, err := netlink.LinkByName(name)
	if v, ok := l.(*netlink.Vxlan); err == nil && ok && v.VxlanId == vni && v.Port == VXLANPort &&
		v.SrcAddr.Equal(x.AsSlice()) && v.Group.Equal(y.AsSlice()) {
		return name, nil
	}
	if err == nil {
		if err := netlink.LinkDel(l); err != nil {
			return "", fmt.Errorf("removing an old %s: %w", name, err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, out.Attrs().MTU-overhead(x)
	v := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: vni, VtepDevIndex: out.Attrs().Index,
		SrcAddr: x.AsSlice(), Group: y.AsSlice(), Port: VXLANPort}
	if err := netlink.LinkAdd(v); err != nil {
		return "", fmt.Errorf("making the tunnel %s to node %s: %w", name, peer.Name, err)
	}
	return name, nil
}

// RemovePeerLinks removes the tunnels to all nodes except those in keep.
func RemovePeerLinks(keep []Node) error {
	links, err := netlinkdump.Whole(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("listing interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		name := l.Attrs().Name
		if l.Type() != "vxlan" || !strings.HasPrefix(name, peerPrefix) || slices.ContainsFunc(keep, func(n Node) bool {
			return PeerName(n) == name
		}) {
			continue
		}
		if err := netlink.LinkDel(l); err != nil {
			errs = append(errs, fmt.Errorf("removing the tunnel %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// PeerName returns the interface name of the tunnel to a node. It is the prefix and the other
// node's IPv4 address, or the prefix and 55 bits of a hash of its IPv6 address, because interface
// names have at most 15 characters.
func PeerName(peer Node) string {
	if four := peer.In(false); four.IsValid() {
		return fmt.Sprintf("%s%x", peerPrefix, four.As4())
	}
	sum := sha256.Sum256(peer.Address.AsSlice())
	return peerPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:11])
}

// PeerVNI returns the network identifier of the tunnel between two addresses of one family, 24
// bits. It is computed from both addresses, and is the same at both ends. Two tunnels hardly ever
// have the same identifier. If they do, the kernel refuses the second tunnel.
func PeerVNI(a, b netip.Addr) int {
	x, y := a.AsSlice(), b.AsSlice()
	if bytes.Compare(x, y) > 0 {
		x, y = y, x
	}
	sum := sha256.Sum256(append(x, y...))
	vni := int(sum[0])<<16 | int(sum[1])<<8 | int(sum[2])
	if vni == VNI || vni == 0 {
		vni = VNI + 1
	}
	return vni
}
