package kube

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// addressing says who has which address in the data plane.
type addressing struct {
	services, switches netip.Prefix
}

// service is the address of the chain with an id.
func (a addressing) service(id int32) (netip.Addr, error) {
	return nth(a.services, uint32(id)+1)
}

// ofSwitch is the address of the switch of the node with a number.
func (a addressing) ofSwitch(number int32) (netip.Addr, error) {
	return nth(a.switches, uint32(number))
}

// ofNode is the address that a node itself has as a host of the network: its own IPv4 address, or,
// where it has none, the one of the switches' prefix that is a fixed way behind its switch's.
func (a addressing) ofNode(n node) (netip.Addr, error) {
	if four := n.In(false); four.IsValid() {
		return four, nil
	}
	return a.ofHost(n.number)
}

// ofHost is that address for a node with a number, and without an IPv4 address.
func (a addressing) ofHost(number int32) (netip.Addr, error) {
	return nth(a.switches, uint32(v1alpha1.MaxNodes+1+number))
}

// nth is an address of a prefix; the first and the last are nobody's.
func nth(p netip.Prefix, n uint32) (netip.Addr, error) {
	if size := uint64(1) << (32 - p.Bits()); uint64(n) >= size-1 {
		return netip.Addr{}, fmt.Errorf("%s has no address number %d: give a larger prefix", p, n)
	}
	b := p.Masked().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+n)
	return netip.AddrFrom4(b), nil
}

// switchMAC says whether a MAC address is that of a switch, which the topology makes from the
// switch's address. Those of switches that have left count, too: a chain may still need them.
func (a addressing) switchMAC(m net.HardwareAddr) bool {
	return m[0] == 0x02 && m[1] == 0x4E && a.switches.Contains(netip.AddrFrom4([4]byte(m[2:6])))
}

// usable says whether a node or a pod can have an address.
func usable(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() &&
		!a.IsLoopback() && !(a.Is6() && a.IsLinkLocalUnicast()) &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && a != topology.DefaultController
}
