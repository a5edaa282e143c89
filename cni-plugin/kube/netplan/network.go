// Package netplan writes the network down that the leader's controller is to control. It follows
// from nodes, lists of pods and chains, and is made again each time that one of these has changed.
// The package computes. It writes one thing, the compiled program's files (program.go).
//
//	nodes (nodeview, nodeclaims) ─┐
//	pods of each node (Pod) ──────┼──▶ Build ──▶ topology.Spec, and what was left out
//	chains with members (Chain) ──┘
package netplan

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/fabric"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// The network that the leader tells the controller of: each node's switch, a link between each two,
// pods and the nodes themselves as hosts.

// Chain is a chain with members.
type Chain struct {
	Name    string
	Spec    v1alpha1.NetcraqChainSpec
	Members []string // head first: of the chain as it is, or those that are to form it
}

// ChainSpecs writes chains down.
func ChainSpecs(a nodeview.Addressing, chains []Chain) (out []topology.ChainSpec, err error) {
	for _, c := range chains {
		address, err := a.Service(c.Spec.ID)
		if err != nil {
			return nil, err
		}
		id, lease, byHand := int(c.Spec.ID), int(c.Spec.LeaseMillis), 0 // the operator chooses the members
		out = append(out, topology.ChainSpec{ID: &id, Name: c.Name, Address: address.String(),
			Members: c.Members, LeaseMillis: &lease, Slots: int(c.Spec.Slots),
			Rejoin: &byHand, Length: int(c.Spec.Length)})
	}
	return out, nil
}

// nodeRealm are the keys of the node API.
const nodeRealm = "node"

// hostsAtMost keeps the network below what the program's table of routes holds (4,096 entries).
const hostsAtMost = 3800

// Cluster is the input of the network.
type Cluster struct {
	Program topology.ProgramSpec
	Nodes   []nodeview.Node  // as settle and endpoints have left them
	Pods    map[string][]Pod // by node, as the agents list them
	Open    map[PodOn]string // pods with the fast path, and their namespaces
	PodRate int              // packets a second that a pod's port may send; 0: any number
	Chained bool             // another plugin gives pods their addresses
	Chains  []Chain
	// hosts are the nodes that had the hosts' addresses in the last network.
	Hosts map[netip.Addr]string
}

// candidateHost is a host that a node says is there.
type candidateHost struct {
	topology.HostSpec
	of        *nodeview.Node
	ip        netip.Addr
	mac       net.HardwareAddr
	port      uint32
	namespace string // whose keys it may use by the fast path; "": none
	self      bool   // it is the node itself
}

// Build builds the network. Nodes (the agents, the gateways, and root's other processes in a node's
// own network) may do everything. Pods may use only the keys of their namespace, if they are among
// the open ones. Errors in a node's list are left out, and do not affect other nodes.
func Build(a nodeview.Addressing, c Cluster) (spec topology.Spec, wrong nodeclaims.Faults, err error) {
	spec.Program, spec.HostRate = c.Program, c.PodRate
	up, err := addSwitches(a, &spec, c)
	if err != nil {
		return spec, nil, err
	}
	if spec.Chains, err = ChainSpecs(a, c.Chains); err != nil {
		return spec, nil, err
	}
	// The node API's keys are a realm of their own, to which no pod's principal has access: pods
	// come by the socket, where their namespace is checked.
	everywhere, unbounded := map[string]string{topology.DefaultRealm: "write", nodeRealm: "write"}, 0
	spec.Realms = append(spec.Realms, topology.RealmSpec{Name: nodeRealm, Prefixes: []string{nodeapi.KeyPrefix}})
	var all []candidateHost
	for _, n := range up {
		address, err := a.OfNode(*n)
		if err != nil {
			wrong.Add(n.Name, nodeclaims.WrongNodeHost, "%v", err)
			continue
		}
		all = append(all, candidateHost{HostSpec: topology.HostSpec{Name: "node@" + n.Name, Principal: fabric.System,
			Access: &everywhere, Rate: &unbounded}, of: n, ip: address, mac: nodeswitch.HostMAC(address),
			port: nodeswitch.HostPort, self: true})
	}
	for _, n := range up {
		all = append(all, hostsOf(a, n, c, up, &wrong)...)
	}
	all = uniqueAddresses(all, c.Hosts, &wrong)
	for _, h := range fairShare(all, hostsAtMost, &wrong) {
		h.IP, h.MAC, h.Port = h.ip.String(), h.mac.String(), h.of.Name+":"+strconv.Itoa(int(h.port))
		spec.Hosts = append(spec.Hosts, h.HostSpec)
		if h.namespace != "" {
			everywhere[principalOf(h.namespace)] = "write"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(everywhere)) {
		if namespace, ok := strings.CutPrefix(name, principalOf("")); ok {
			spec.Realms = append(spec.Realms, topology.RealmSpec{Name: name, Prefixes: []string{keysOf(namespace)}})
		}
	}
	return spec, wrong, nil
}

// addSwitches adds the nodes' switches and the links between them, and returns their nodes by
// number. A member of a chain has its switch there whatever its status says, because a chain with a
// member that is not in the network would make the whole network invalid. The switch is then under
// an address that leads nowhere, and the chain continues without it as without one that has failed.
func addSwitches(a nodeview.Addressing, spec *topology.Spec, c Cluster) (up []*nodeview.Node, err error) {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		member := slices.ContainsFunc(c.Chains, func(f Chain) bool { return slices.Contains(f.Members, n.Name) })
		if n.Connected() || n.Number != 0 && member {
			up = append(up, n)
		}
	}
	slices.SortFunc(up, func(x, y *nodeview.Node) int { return cmp.Compare(x.Number, y.Number) })
	device := uint64(1)
	for i, n := range up {
		address, err := a.OfSwitch(n.Number)
		if err != nil {
			return nil, err
		}
		s := topology.SwitchSpec{Name: n.Name, P4Runtime: n.Status.P4Runtime, Server: n.Name, DeviceID: &device,
			Address: address.String()}
		if s.P4Runtime == "" {
			s.P4Runtime = netip.AddrPortFrom(address, nowherePort).String()
		}
		for _, p := range n.PodCIDRs {
			if p.Addr().Is4() { // pods without IPv4 are not hosts of the network
				s.Prefixes = append(s.Prefixes, p.String())
			}
		}
		spec.Switches = append(spec.Switches, s)
		for _, m := range up[:i] {
			spec.Links = append(spec.Links, []string{fmt.Sprintf("%s:%d", m.Name, n.Number),
				fmt.Sprintf("%s:%d", n.Name, m.Number)})
		}
	}
	return up, nil
}

// nowherePort is the port of a P4Runtime server that is not there (discard, RFC 863).
const nowherePort = 9

// hostsOf are the hosts in an agent's list of its pods: those entries that are valid by themselves
// and by what is known about the node.
func hostsOf(a nodeview.Addressing, n *nodeview.Node, c Cluster, up []*nodeview.Node,
	wrong *nodeclaims.Faults) (hosts []candidateHost) {
	ports, macs := map[uint32]bool{}, map[string]bool{}
	if own, err := a.OfNode(*n); err == nil {
		macs[nodeswitch.HostMAC(own).String()] = true
	}
	for _, p := range c.Pods[n.Name] {
		namespace, open := c.Open[PodOn{UID: p.UID, Node: n.Name}]
		mac, err := net.ParseMAC(p.MAC)
		switch {
		case p.IP.Is6() && nodeview.Usable(p.IP):
			if open { // otherwise it asks for nothing that takes IPv4
				wrong.Add(n.Name, nodeclaims.PodWithoutIPv4, "pod %.64q asks for the fast path and has no IPv4 address", p.UID)
			}
		case !nodeview.Usable(p.IP) || a.Services.Contains(p.IP) || a.Switches.Contains(p.IP):
			wrong.Add(n.Name, nodeclaims.WrongPodIP, "%.64s is not an address of a pod", p.IP)
		case !ofNodesPods(n, p.IP, c.Chained, up):
			wrong.Add(n.Name, nodeclaims.PodIPElsewhere, "%s is not in the node's prefixes", p.IP)
		case p.Port < FirstPodPort || p.Port > LastPodPort || ports[p.Port]:
			wrong.Add(n.Name, nodeclaims.WrongPodPort, "port %d of %s is not for pods, or another pod's", p.Port, p.IP)
		case err != nil || len(mac) != 6 || mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00" ||
			macs[mac.String()] || a.IsSwitchMAC(mac):
			wrong.Add(n.Name, nodeclaims.WrongPodMAC, "%.64q of %s is not a MAC address of one interface, or another's", p.MAC, p.IP)
		default:
			ports[p.Port], macs[mac.String()] = true, true
			h := candidateHost{HostSpec: topology.HostSpec{Name: "pod@" + p.IP.String(), Access: &map[string]string{}},
				of: n, ip: p.IP, mac: mac, port: p.Port}
			if open { // it may do everything in the realm of its name, and nothing else
				h.namespace, h.Principal, h.Access = namespace, principalOf(namespace), nil
			}
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// ofNodesPods says whether an address may be that of a pod of a node. An agent gives its pods
// addresses of its node's prefixes. Another plugin need not, but gives none of another node's
// prefixes.
func ofNodesPods(n *nodeview.Node, ip netip.Addr, chained bool, up []*nodeview.Node) bool {
	in := func(x *nodeview.Node) bool {
		return slices.ContainsFunc(x.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(ip) })
	}
	if !chained {
		return in(n) && ip != n.Address && ip != n.Second
	}
	return !slices.ContainsFunc(up, func(x *nodeview.Node) bool { return x != n && in(x) })
}

// uniqueAddresses leaves one host of each address. Whoever had the address in the last network
// keeps it while its node lists it, so that no node takes an address that is in use. Of others the
// node itself comes before pods, and the host of the node with the older Node object comes first.
func uniqueAddresses(all []candidateHost, had map[netip.Addr]string, wrong *nodeclaims.Faults) (out []candidateHost) {
	first := map[netip.Addr]int{}
	before := func(x, y *candidateHost) bool {
		if a, b := had[x.ip] == x.of.Name, had[y.ip] == y.of.Name; a != b {
			return a
		}
		if x.self != y.self {
			return x.self
		}
		return nodeview.CompareAge(x.of, y.of) < 0
	}
	for i := range all {
		if j, ok := first[all[i].ip]; !ok || before(&all[i], &all[j]) {
			first[all[i].ip] = i
		}
	}
	for i, h := range all {
		if j := first[h.ip]; j != i {
			wrong.Add(h.of.Name, nodeclaims.PodIPTaken, "%s is the address of %s at node %s", h.ip, all[j].Name, all[j].of.Name)
			continue
		}
		out = append(out, h)
	}
	return out
}

// fairShare leaves out hosts where there are more than the network takes. The nodes themselves are
// in it in any case. Every node may have the same number of pods, and what one node does not use is
// shared by the others. So a node with many pods displaces none of a node with few.
func fairShare(all []candidateHost, most int, wrong *nodeclaims.Faults) (out []candidateHost) {
	pods := map[*nodeview.Node]int{}
	for _, h := range all {
		if h.self {
			most--
		} else {
			pods[h.of]++
		}
	}
	share := most
	left := len(pods)
	for _, n := range slices.Sorted(maps.Values(pods)) {
		if share = most / left; n > share {
			break
		}
		most, left, share = most-n, left-1, n
	}
	if left == 0 {
		return all // everything fits
	}
	had := map[*nodeview.Node]int{}
	for _, h := range all {
		if !h.self {
			if had[h.of]++; had[h.of] > share {
				wrong.Add(h.of.Name, nodeclaims.TooManyInNetwork, "the network takes %d pods of this node", share)
				continue
			}
		}
		out = append(out, h)
	}
	return out
}
