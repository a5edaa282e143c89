package kube

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/netcraq/netcraq/api/kubernetes/v1alpha1"
	nodeapi "github.com/netcraq/netcraq/api/node"
	"github.com/netcraq/netcraq/cni-plugin/fabric"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/p4src"
)

// The network that the leader tells the controller of: each node's switch, a link between each two,
// pods and the nodes themselves as hosts.

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

// formedChain is a chain with members.
type formedChain struct {
	name    string
	spec    v1alpha1.NetcraqChainSpec
	members []string // head first: of the chain as it is, or those that are to form it
}

// chains writes chains down.
func (a addressing) chains(chains []formedChain) (out []topology.ChainSpec, err error) {
	for _, c := range chains {
		address, err := a.service(c.spec.ID)
		if err != nil {
			return nil, err
		}
		id, lease, byHand := int(c.spec.ID), int(c.spec.LeaseMillis), 0 // the operator chooses the members
		out = append(out, topology.ChainSpec{ID: &id, Name: c.name, Address: address.String(),
			Members: c.members, LeaseMillis: &lease, Slots: int(c.spec.Slots),
			Rejoin: &byHand, Length: int(c.spec.Length)})
	}
	return out, nil
}

// connected is a node whose switch is, or was, to be reached.
func (n node) connected() bool { return n.number != 0 && n.status.P4Runtime != "" }

// nodeRealm are the keys of the node API.
const nodeRealm = "node"

// hostsAtMost keeps the network below what the program's table of routes holds (4,096 entries).
const hostsAtMost = 3800

// build writes the network down: nodes (the agents, the gateways, and root's other processes in a
// node's own network) may do everything, pods nothing but with the keys of their namespace, if they
// are among open. A pod's port may send podRate packets a second (0: any number). Hosts with a
// fault are left out, and counted.
func (a addressing) build(program topology.ProgramSpec, nodes []node, pods map[string][]pod,
	open map[podOn]string, podRate int, chains []formedChain) (spec topology.Spec, leftOut int, err error) {
	spec.Program, spec.HostRate = program, podRate
	var up []node
	for _, n := range nodes {
		if n.connected() {
			up = append(up, n)
		}
	}
	slices.SortFunc(up, func(x, y node) int { return cmp.Compare(x.number, y.number) })
	device := uint64(1)
	taken := map[netip.Addr]bool{topology.DefaultController: true}
	macs := map[string]bool{}
	for i, n := range up {
		address, err := a.ofSwitch(n.number)
		if err != nil {
			return spec, 0, err
		}
		taken[address] = true
		s := topology.SwitchSpec{Name: n.Name, P4Runtime: n.status.P4Runtime, Server: n.Name, DeviceID: &device,
			Address: address.String()}
		for _, p := range n.PodCIDRs {
			if p.Addr().Is4() { // pods without IPv4 are no hosts of the network
				s.Prefixes = append(s.Prefixes, p.String())
			}
		}
		spec.Switches = append(spec.Switches, s)
		for _, m := range up[:i] {
			spec.Links = append(spec.Links, []string{fmt.Sprintf("%s:%d", m.Name, n.number),
				fmt.Sprintf("%s:%d", n.Name, m.number)})
		}
	}
	if spec.Chains, err = a.chains(chains); err != nil {
		return spec, 0, err
	}
	for _, c := range chains {
		address, _ := a.service(c.spec.ID)
		taken[address] = true
	}
	host := func(h topology.HostSpec, ip netip.Addr, mac, sw string, port uint32) bool {
		if !ip.Is4() || taken[ip] || macs[mac] || mac == "" || len(spec.Hosts) >= hostsAtMost {
			leftOut++
			return false
		}
		taken[ip], macs[mac] = true, true
		h.IP, h.MAC, h.Port = ip.String(), mac, sw+":"+strconv.Itoa(int(port))
		spec.Hosts = append(spec.Hosts, h)
		return true
	}
	// The node API's keys are a realm of their own, of which no pod's principal has anything: pods
	// come in by the socket, where it is looked whose namespace is whose.
	everywhere, unbounded := map[string]string{topology.DefaultRealm: "write", nodeRealm: "write"}, 0
	spec.Realms = append(spec.Realms, topology.RealmSpec{Name: nodeRealm, Prefixes: []string{nodeapi.KeyPrefix}})
	for _, n := range up {
		address, err := a.ofNode(n)
		if err != nil {
			return spec, 0, err
		}
		host(topology.HostSpec{Name: "node@" + n.Name, Principal: fabric.System, Access: &everywhere, Rate: &unbounded},
			address, nodeswitch.HostMAC(address).String(), n.Name, nodeswitch.HostPort)
	}
	for _, n := range up {
		for _, p := range pods[n.Name] {
			h := topology.HostSpec{Name: "pod@" + p.IP.String(), Access: &map[string]string{}}
			namespace, ok := open[podOn{p.UID, n.Name}]
			if p.IP.Is6() && !ok {
				continue // it asks for nothing that takes IPv4
			}
			if ok {
				// which may do everything in the realm of its name, and nothing else
				h.Principal, h.Access = principalOf(namespace), nil
			}
			if host(h, p.IP, strings.ToLower(p.MAC), n.Name, p.Port) && ok {
				everywhere[principalOf(namespace)] = "write"
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(everywhere)) {
		if namespace, ok := strings.CutPrefix(name, principalOf("")); ok {
			spec.Realms = append(spec.Realms, topology.RealmSpec{Name: name, Prefixes: []string{keysOf(namespace)}})
		}
	}
	return spec, leftOut, nil
}

// writeProgram puts the compiled program for a width of values into a folder, where the controller
// reads it.
func writeProgram(dir string, profile int) (topology.ProgramSpec, error) {
	json, info, err := p4src.Compiled(profile)
	if err != nil {
		return topology.ProgramSpec{}, err
	}
	p := topology.ProgramSpec{Profile: strconv.Itoa(profile), JSON: filepath.Join(dir, "netcraq.json"),
		P4Info: filepath.Join(dir, "netcraq.p4info.txtpb")}
	for path, b := range map[string][]byte{p.JSON: json, p.P4Info: info} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return topology.ProgramSpec{}, fmt.Errorf("writing the program for the controller: %w", err)
		}
	}
	return p, nil
}
