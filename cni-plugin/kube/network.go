package kube

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	nodeapi "github.com/netcraq/netcraq/api/node"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/fabric"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// The network that the leader tells the controller of: each node's switch, a link between each two,
// pods and the nodes themselves as hosts.

// formedChain is a chain with members.
type formedChain struct {
	name    string
	spec    v1alpha1.NetcraqChainSpec
	members []string // head first: of the chain as it is, or those that are to form it
}

// chainSpecs writes chains down.
func chainSpecs(a addressing, chains []formedChain) (out []topology.ChainSpec, err error) {
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

// nodeRealm are the keys of the node API.
const nodeRealm = "node"

// hostsAtMost keeps the network below what the program's table of routes holds (4,096 entries).
const hostsAtMost = 3800

// What a switch's ports are for: the first ones lead to other nodes' switches, the last one to the
// node itself, and those between to pods.
const (
	firstPodPort = v1alpha1.MaxNodes + 1
	lastPodPort  = nodeswitch.HostPort - 1
	podPorts     = lastPodPort - firstPodPort + 1
)

// clusterState is what the network follows from.
type clusterState struct {
	program topology.ProgramSpec
	nodes   []node           // as settle and endpoints have left them
	pods    map[string][]pod // by node, as the agents list them
	open    map[podOn]string // pods with the fast path, and their namespaces
	podRate int              // packets a second that a pod's port may send; 0: any number
	chained bool             // another plugin gives pods their addresses
	chains  []formedChain
	// hosts are the nodes that had the hosts' addresses in the last network.
	hosts map[netip.Addr]string
}

// candidateHost is a host that a node says is there.
type candidateHost struct {
	topology.HostSpec
	of        *node
	ip        netip.Addr
	mac       net.HardwareAddr
	port      uint32
	namespace string // whose keys it may use by the fast path; "": none
	self      bool   // it is the node itself
}

// build writes the network down: nodes (the agents, the gateways, and root's other processes in a
// node's own network) may do everything, pods nothing but with the keys of their namespace, if they
// are among the open ones. What is wrong with a node's list is left out, and does not change what
// the network has of other nodes.
func build(a addressing, c clusterState) (spec topology.Spec, wrong faults, err error) {
	spec.Program, spec.HostRate = c.program, c.podRate
	up, err := addSwitches(a, &spec, c)
	if err != nil {
		return spec, nil, err
	}
	if spec.Chains, err = chainSpecs(a, c.chains); err != nil {
		return spec, nil, err
	}
	// The node API's keys are a realm of their own, of which no pod's principal has anything: pods
	// come in by the socket, where it is looked whose namespace is whose.
	everywhere, unbounded := map[string]string{topology.DefaultRealm: "write", nodeRealm: "write"}, 0
	spec.Realms = append(spec.Realms, topology.RealmSpec{Name: nodeRealm, Prefixes: []string{nodeapi.KeyPrefix}})
	var all []candidateHost
	for _, n := range up {
		address, err := a.ofNode(*n)
		if err != nil {
			wrong.add(n.Name, wrongNodeHost, "%v", err)
			continue
		}
		all = append(all, candidateHost{HostSpec: topology.HostSpec{Name: "node@" + n.Name, Principal: fabric.System,
			Access: &everywhere, Rate: &unbounded}, of: n, ip: address, mac: nodeswitch.HostMAC(address),
			port: nodeswitch.HostPort, self: true})
	}
	for _, n := range up {
		all = append(all, hostsOf(a, n, c, up, &wrong)...)
	}
	all = uniqueAddresses(all, c.hosts, &wrong)
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
// an address that leads nowhere, and the chain goes on without it as without one that has failed.
func addSwitches(a addressing, spec *topology.Spec, c clusterState) (up []*node, err error) {
	for i := range c.nodes {
		n := &c.nodes[i]
		member := slices.ContainsFunc(c.chains, func(f formedChain) bool { return slices.Contains(f.members, n.Name) })
		if n.connected() || n.number != 0 && member {
			up = append(up, n)
		}
	}
	slices.SortFunc(up, func(x, y *node) int { return cmp.Compare(x.number, y.number) })
	device := uint64(1)
	for i, n := range up {
		address, err := a.ofSwitch(n.number)
		if err != nil {
			return nil, err
		}
		s := topology.SwitchSpec{Name: n.Name, P4Runtime: n.status.P4Runtime, Server: n.Name, DeviceID: &device,
			Address: address.String()}
		if s.P4Runtime == "" {
			s.P4Runtime = netip.AddrPortFrom(address, nowherePort).String()
		}
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
	return up, nil
}

// nowherePort is the port of a P4Runtime server that is not there (discard, RFC 863).
const nowherePort = 9

// hostsOf are the hosts among what a node's agent lists as its pods: those that are right by
// themselves and by what is known of the node.
func hostsOf(a addressing, n *node, c clusterState, up []*node, wrong *faults) (hosts []candidateHost) {
	ports, macs := map[uint32]bool{}, map[string]bool{}
	if own, err := a.ofNode(*n); err == nil {
		macs[nodeswitch.HostMAC(own).String()] = true
	}
	for _, p := range c.pods[n.Name] {
		namespace, open := c.open[podOn{uid: p.UID, node: n.Name}]
		mac, err := net.ParseMAC(p.MAC)
		switch {
		case p.IP.Is6() && usable(p.IP):
			if open { // otherwise it asks for nothing that takes IPv4
				wrong.add(n.Name, podWithoutIPv4, "pod %.64q asks for the fast path and has no IPv4 address", p.UID)
			}
		case !usable(p.IP) || a.services.Contains(p.IP) || a.switches.Contains(p.IP):
			wrong.add(n.Name, wrongPodIP, "%.64s is not an address of a pod", p.IP)
		case !ofNodesPods(n, p.IP, c.chained, up):
			wrong.add(n.Name, podIPElsewhere, "%s is not in the node's prefixes", p.IP)
		case p.Port < firstPodPort || p.Port > lastPodPort || ports[p.Port]:
			wrong.add(n.Name, wrongPodPort, "port %d of %s is not for pods, or another pod's", p.Port, p.IP)
		case err != nil || len(mac) != 6 || mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00" ||
			macs[mac.String()] || a.switchMAC(mac):
			wrong.add(n.Name, wrongPodMAC, "%.64q of %s is not a MAC address of one interface, or another's", p.MAC, p.IP)
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
func ofNodesPods(n *node, ip netip.Addr, chained bool, up []*node) bool {
	in := func(x *node) bool {
		return slices.ContainsFunc(x.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(ip) })
	}
	if !chained {
		return in(n) && ip != n.Address && ip != n.Second
	}
	return !slices.ContainsFunc(up, func(x *node) bool { return x != n && in(x) })
}

// uniqueAddresses leaves one host of each address. Whoever had the address in the last network
// keeps it while its node lists it, so that no node takes an address that is in use. Of others the
// node itself comes before pods, and the host of the node with the older Node object comes first.
func uniqueAddresses(all []candidateHost, had map[netip.Addr]string, wrong *faults) (out []candidateHost) {
	first := map[netip.Addr]int{}
	before := func(x, y *candidateHost) bool {
		if a, b := had[x.ip] == x.of.Name, had[y.ip] == y.of.Name; a != b {
			return a
		}
		if x.self != y.self {
			return x.self
		}
		return compareAge(x.of, y.of) < 0
	}
	for i := range all {
		if j, ok := first[all[i].ip]; !ok || before(&all[i], &all[j]) {
			first[all[i].ip] = i
		}
	}
	for i, h := range all {
		if j := first[h.ip]; j != i {
			wrong.add(h.of.Name, podIPTaken, "%s is the address of %s at node %s", h.ip, all[j].Name, all[j].of.Name)
			continue
		}
		out = append(out, h)
	}
	return out
}

// fairShare leaves out hosts where there are more than the network takes. The nodes themselves are
// in it in any case. Every node may have the same number of pods, and what one node does not use is
// shared by the others. So a node with many pods displaces none of a node with few.
func fairShare(all []candidateHost, most int, wrong *faults) (out []candidateHost) {
	pods := map[*node]int{}
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
	had := map[*node]int{}
	for _, h := range all {
		if !h.self {
			if had[h.of]++; had[h.of] > share {
				wrong.add(h.of.Name, tooManyInNetwork, "the network takes %d pods of this node", share)
				continue
			}
		}
		out = append(out, h)
	}
	return out
}
