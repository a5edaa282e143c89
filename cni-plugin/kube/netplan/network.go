// Package netplan describes the network that the leader's controller controls. The description
// follows from nodes, lists of pods and chains, and is made again when one of these changes. The
// package computes; it writes only the compiled program's files (program.go).
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

// The network that the leader gives the controller: each node's switch, a link between each two
// switches, and pods and the nodes themselves as hosts.

// Chain is a chain with members.
type Chain struct {
	Name    string
	Spec    v1alpha1.NetcraqChainSpec
	Members []string // head first; a running chain's current members, or a new chain's first ones
}

// ChainSpecs makes the topology's specifications of chains.
func ChainSpecs(a nodeview.Addressing, chains []Chain) (out []topology.ChainSpec, err error) {
	for _, c := range chains {
		address, err := a.Service(c.Spec.ID)
		if err != nil {
			return nil, err
		}
		id, lease, byHand := int(c.Spec.ID), int(c.Spec.LeaseMillis), 0 // no rejoining by the controller
		out = append(out, topology.ChainSpec{ID: &id, Name: c.Name, Address: address.String(),
			Members: c.Members, LeaseMillis: &lease, Slots: int(c.Spec.Slots),
			Rejoin: &byHand, Length: int(c.Spec.Length)})
	}
	return out, nil
}

// nodeRealm is the realm of the node API's keys.
const nodeRealm = "node"

// hostsAtMost keeps the network below the capacity of the program's routing table (4,096 entries).
const hostsAtMost = 3800

// Cluster is the input of the network.
type Cluster struct {
	Program topology.ProgramSpec
	Nodes   []nodeview.Node  // checked by nodeclaims
	Pods    map[string][]Pod // by node, as the agents list them
	Open    map[PodOn]string // pods with the fast path, and their namespaces
	PodRate int              // maximum rate of a pod's port, in packets a second; 0: no limit
	Chained bool             // another plugin gives pods their addresses
	Chains  []Chain
	// Hosts has, for the address of each host in the last network, the node that listed the host.
	Hosts map[netip.Addr]string
}

// candidateHost is a host that a node reports.
type candidateHost struct {
	topology.HostSpec
	of        *nodeview.Node
	ip        netip.Addr
	mac       net.HardwareAddr
	port      uint32
	namespace string // the namespace whose keys it may use by the fast path; "": none
	self      bool   // the host is the node itself
}

// Build builds the network. Nodes (the agents, the gateways, and root's other processes in a node's
// own network) have all rights. Pods may use only the keys of their namespace, if they are in
// c.Open. Wrong entries of a node's list are left out, and do not affect other nodes.
func Build(a nodeview.Addressing, c Cluster) (spec topology.Spec, wrong nodeclaims.Faults, err error) {
	spec.Program, spec.HostRate = c.Program, c.PodRate
	up, err := addSwitches(a, &spec, c)
	if err != nil {
		return spec, nil, err
	}
	if spec.Chains, err = ChainSpecs(a, c.Chains); err != nil {
		return spec, nil, err
	}
	// The node API's keys are a separate realm, to which no pod's principal has access: pods use
	// them through the socket, where the agent checks their namespace.
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
// number. It adds a chain member's switch whatever the node's status, because a member that is not
// in the network would make the whole network invalid. Such a switch gets an address where nothing
// listens, and the chain continues without it, as without a failed member.
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

// nowherePort is a port without a P4Runtime server (discard, RFC 863).
const nowherePort = 9

// hostsOf returns the hosts in an agent's list of its pods: the entries that are valid in
// themselves and for this node.
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
			if open { // a pod without the fast path needs no IPv4
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
			if open { // it has all rights in its namespace's realm, and no others
				h.namespace, h.Principal, h.Access = namespace, principalOf(namespace), nil
			}
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// ofNodesPods reports whether an address may belong to a pod of a node. An agent gives its pods
// addresses from its node's prefixes. Another plugin may use other addresses, but none from another
// node's prefixes.
func ofNodesPods(n *nodeview.Node, ip netip.Addr, chained bool, up []*nodeview.Node) bool {
	in := func(x *nodeview.Node) bool {
		return slices.ContainsFunc(x.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(ip) })
	}
	if !chained {
		return in(n) && ip != n.Address && ip != n.Second
	}
	return !slices.ContainsFunc(up, func(x *nodeview.Node) bool { return x != n && in(x) })
}

// uniqueAddresses leaves one host for each address. The node whose host had the address in the last
// network keeps it while it lists the host, so that no node takes an address in use. Otherwise a
// node itself wins against pods, and then the host of the node with the older Node object.
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

// fairShare leaves out hosts if there are more than the network can hold. The nodes themselves
// always stay. Every node may have the same number of pods, and the other nodes share what one does
// not use. So a node with many pods displaces no pod of a node with few.
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
