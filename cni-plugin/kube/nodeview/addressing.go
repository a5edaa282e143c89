package nodeview

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Addressing computes the addresses of the data plane.
type Addressing struct {
	Services, Switches netip.Prefix
}

// Service returns the address of the chain with this ID.
func (a Addressing) Service(id int32) (netip.Addr, error) {
	return nth(a.Services, uint32(id)+1)
}

// OfSwitch returns the address of the switch of the node with this number.
func (a Addressing) OfSwitch(number int32) (netip.Addr, error) {
	return nth(a.Switches, uint32(number))
}

// OfNode returns a node's own address as a host of the network. This is its IPv4 address. If it has
// none, this is an address in the switches' prefix at a fixed distance from its switch's address.
func (a Addressing) OfNode(n Node) (netip.Addr, error) {
	if four := n.In(false); four.IsValid() {
		return four, nil
	}
	return a.OfHost(n.Number)
}

// OfHost returns the address in the switches' prefix that OfNode uses for the node with this
// number.
func (a Addressing) OfHost(number int32) (netip.Addr, error) {
	return nth(a.Switches, uint32(v1alpha1.MaxNodes+1+number))
}

// nth returns the n-th address of a prefix. It never returns the first or the last address.
func nth(p netip.Prefix, n uint32) (netip.Addr, error) {
	if size := uint64(1) << (32 - p.Bits()); uint64(n) >= size-1 {
		return netip.Addr{}, fmt.Errorf("%s has no address number %d: give a larger prefix", p, n)
	}
	b := p.Masked().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+n)
	return netip.AddrFrom4(b), nil
}

// IsSwitchMAC reports whether a MAC address belongs to a switch. The topology makes such addresses
// from the switches' IP addresses. Switches that have left also count, because a chain may still
// need them.
func (a Addressing) IsSwitchMAC(m net.HardwareAddr) bool {
	return m[0] == 0x02 && m[1] == 0x4E && a.Switches.Contains(netip.AddrFrom4([4]byte(m[2:6])))
}

// Usable reports whether an address is valid for a node or a pod.
func Usable(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() &&
		!a.IsLoopback() && !(a.Is6() && a.IsLinkLocalUnicast()) &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && a != topology.DefaultController
}
