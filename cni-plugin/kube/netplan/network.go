// Package netplan describes the network that the leader's controller controls. The package computes
// the description from nodes, lists of pods, and chains. The leader computes it again when one of
// these changes. The package has no side effects, except that it writes the files of the compiled
// program (program.go).
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

// The leader gives this network to the controller. It has each node's switch and a link between
// each two switches. Its hosts are the pods and the nodes themselves.

// Chain is a chain's resource together with the chain's members.
type Chain struct {
	Name    string
	Spec    v1alpha1.NetcraqChainSpec
	Members []string // members, the head first; those of the running chain, or the first ones of a new chain
}

// ChainSpecs returns the specifications of chains for the topology.
func ChainSpecs(a nodeview.Addressing, chains []Chain) (out []topology.ChainSpec, err error) {
	for _, c := range chains {
		address, err := a.Service(c.Spec.ID)
		if err != nil {
			return nil, err
		}
		id, lease, byHand := int(c.Spec.ID), int(c.Spec.LeaseMillis), 0 // the controller never lets switches rejoin
		out = append(out, topology.ChainSpec{ID: &id, Name: c.Name, Address: address.String(),
			Members: c.Members, LeaseMillis: &lease, Slots: int(c.Spec.Slots),
			Rejoin: &byHand, Length: int(c.Spec.Length)})
	}
	return out, nil
}

// nodeRealm is the realm of the keys of the node API.
const nodeRealm = "node"

// hostsAtMost is the maximum number of hosts. It keeps the network below the capacity of the
// program's routing table (4,096 entries).
const hostsAtMost = 3800

// Cluster has everything from which Build makes the network.
type Cluster struct {
	Program topology.ProgramSpec
	Nodes   []nodeview.Node  // nodes that package nodeclaims has checked
	Pods    map[string][]Pod // pods by node, as the agents list them
	Open    map[PodOn]string // pods that have the fast path, with their namespaces
	PodRate int              // maximum rate at a pod's port, in packets a second; 0 means no limit
	Chained bool             // true if another plugin gives pods their addresses
	Chains  []Chain
	// Hosts has the address of each host in the previous network, with the node that listed the
	// host.
	Hosts map[netip.Addr]string
}

// candidateHost is a host that a node reports.
type candidateHost struct {
	topology.HostSpec
	of        *nodeview.Node
	ip        netip.Addr
	mac       net.HardwareAddr
	port      uint32
	namespace string // namespace whose keys the host may use by the fast path, or ""
	self      bool   // the host is the node itself
}

// Build builds the network. Nodes have all rights. This includes the agents, the gateways, and
// root's other processes in a node's own network. A pod that is in c.Open may use the keys of its
// namespace, and other pods may use none. Build leaves out wrong entries of a node's list, which
// then do not affect other nodes.
func Build(a nodeview.Addressing, c Cluster) (spec topology.Spec, wrong nodeclaims.Faults, err error) {
	spec.Program, spec.HostRate = c.Program, c.PodRate
	up, err := addSwitches(a, &spec, c)
	if err != nil {
		return spec, nil, err
	}
	if spec.Chains, err = ChainSpecs(a, c.Chains); err != nil {
		return spec, nil, err
	}
	// The keys of the node API are in a separate realm, to which no pod's principal has access.
	// Pods use these keys through the socket, where the agent checks the pod's namespace.
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
// number. It adds the switch of a chain's member even if the node's status is incomplete, because a
// member that is not in the network would make the whole network invalid. Such a switch gets an
// address where nothing listens, and the chain continues without it, as without a failed member.
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

// nowherePort is a port at which no P4Runtime server listens (discard, RFC 863).
const nowherePort = 9

// hostsOf returns the hosts that an agent lists as its pods. It omits entries that are invalid in
// themselves or for this node.
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
			if open { // the host has all rights in its namespace's realm, and no others
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

// uniqueAddresses leaves at most one host for each address. If a node's host had the address in the
// previous network, this node keeps the address while it lists the host. So no node can take an
// address that is in use. Otherwise a node itself wins against pods. Then the host of the node with
// the older Node object wins.
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

// fairShare leaves out hosts if there are more than the network can hold. It never leaves out the
// nodes themselves. Every node may have the same number of pods. If a node does not use its share,
// the other nodes share the remainder. So a node with many pods displaces no pod of a node with few
// pods.
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
		return all // the network can hold all hosts
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
