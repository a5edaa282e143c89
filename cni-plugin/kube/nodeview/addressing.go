package nodeview

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Addressing computes the data plane's addresses.
type Addressing struct {
	Services, Switches netip.Prefix
}

// Service is the address of the chain with an id.
func (a Addressing) Service(id int32) (netip.Addr, error) {
	return nth(a.Services, uint32(id)+1)
}

// OfSwitch is the address of the switch of the node with a number.
func (a Addressing) OfSwitch(number int32) (netip.Addr, error) {
	return nth(a.Switches, uint32(number))
}

// OfNode is a node's own address as a host of the network: its IPv4 address or, if it has none, an
// address in the switches' prefix at a fixed distance from its switch's.
func (a Addressing) OfNode(n Node) (netip.Addr, error) {
	if four := n.In(false); four.IsValid() {
		return four, nil
	}
	return a.OfHost(n.Number)
}

// OfHost is OfNode's address in the switches' prefix, for the node with a number.
func (a Addressing) OfHost(number int32) (netip.Addr, error) {
	return nth(a.Switches, uint32(v1alpha1.MaxNodes+1+number))
}

// nth is the n-th address of a prefix. The first and the last address stay unused.
func nth(p netip.Prefix, n uint32) (netip.Addr, error) {
	if size := uint64(1) << (32 - p.Bits()); uint64(n) >= size-1 {
		return netip.Addr{}, fmt.Errorf("%s has no address number %d: give a larger prefix", p, n)
	}
	b := p.Masked().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+n)
	return netip.AddrFrom4(b), nil
}

// IsSwitchMAC reports whether a MAC address belongs to a switch. The topology makes it from the
// switch's address. It includes switches that have left, because a chain may still need them.
func (a Addressing) IsSwitchMAC(m net.HardwareAddr) bool {
	return m[0] == 0x02 && m[1] == 0x4E && a.Switches.Contains(netip.AddrFrom4([4]byte(m[2:6])))
}

// Usable reports whether an address is valid for a node or a pod.
func Usable(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() &&
		!a.IsLoopback() && !(a.Is6() && a.IsLinkLocalUnicast()) &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && a != topology.DefaultController
}
