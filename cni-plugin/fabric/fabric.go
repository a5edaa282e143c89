// Package fabric is for clusters whose switches are not on the nodes. Such switches are top-of-rack
// switches that run the P4 program themselves and speak P4Runtime. A file lists the switches, the
// links between them, and the port of each node. All nodes have the same file:
//
//	agent, gateway ──▶ the node's interface ──▶ switch (a host port)
//	pod ──╳ the node's stack
//
// The switches see a node as one host. Its pods would share the node's address and rights. So the
// node forwards no NetCRAQ packets of its pods ([Fabric.Connect], and the filters at the pods'
// interfaces). The switch treats the port as a host's, so the program accepts no acknowledgement or
// reply from it.
package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/netcraq/netcraq/controlplane/topology"
)

// Fabric is the content of the file that describes the fabric.
type Fabric struct {
	spec topology.Spec
	top  *topology.Topology
}

// Read reads and checks a file. The file has the form of a controller's topology
// (controlplane/topology/example.yaml), without the parts that the cluster decides (the program,
// chains and sessions). The hosts in the file are nodes, and have the nodes' names.
func Read(path string) (*Fabric, error) {
	spec, err := topology.ReadSpec(path)
	if err != nil {
		return nil, err
	}
	if spec.Program != (topology.ProgramSpec{}) {
		return nil, fmt.Errorf("%s: program: leave it out: which program the switches run follows from the chains' profile", path)
	}
	byDefault(&spec)
	if len(spec.Chains) > 0 {
		return nil, fmt.Errorf("%s: chains: leave them out: chains are NetcraqChains", path)
	}
	checked := spec
	checked.Program = topology.ProgramSpec{JSON: "-", P4Info: "-"} // a placeholder: the cluster sets the program
	top, err := topology.New(checked, path)
	if err != nil {
		return nil, err
	}
	if t := spec.TLS; t.CA == "" || t.Cert == "" {
		return nil, fmt.Errorf("%s: p4runtimeTLS: give ca, cert and key: whoever reaches a switch's P4Runtime owns the switch, and pods may reach it", path)
	}
	return &Fabric{spec, top}, nil
}

// System is the principal of nodes for which the file sets no access. The agents and gateways on
// these nodes serve the cluster's control plane.
const System = "system"

// byDefault sets the rights of nodes for which the file sets neither a principal nor access. They
// may read and write everything, with sessions that are leased to them. Without byDefault they
// could use any session, as the hosts of a lab's topology file can.
func byDefault(spec *topology.Spec) {
	everywhere := map[string]string{topology.DefaultRealm: "write"}
	for _, r := range spec.Realms {
		everywhere[r.Name] = "write"
	}
	spec.Hosts = slices.Clone(spec.Hosts)
	for i := range spec.Hosts {
		if h := &spec.Hosts[i]; h.Principal == "" && h.Access == nil {
			h.Principal, h.Access = System, &everywhere
		}
	}
}

// Switches returns the switches of the fabric, in the order of the file.
func (f *Fabric) Switches() []*topology.Switch { return f.top.Switches }

// Host returns a node's entry in the fabric.
func (f *Fabric) Host(node string) (*topology.Host, error) {
	i := slices.IndexFunc(f.top.Hosts, func(h *topology.Host) bool { return h.Name == node })
	if i < 0 {
		return nil, fmt.Errorf("the file of switches has no host %q: where is this node?", node)
	}
	return f.top.Hosts[i], nil
}

// Spec returns the network's specification with a program and chains.
func (f *Fabric) Spec(program topology.ProgramSpec, chains []topology.ChainSpec) topology.Spec {
	s := f.spec
	s.Program, s.Chains = program, chains
	return s
}

// addresses returns the prefixes to which nodes send. These are the service prefixes, and the
// switches' own addresses if no service prefix contains them.
func (f *Fabric) addresses(services []netip.Prefix) []netip.Prefix {
	out := slices.Clone(services)
	for _, s := range f.top.Switches {
		if !slices.ContainsFunc(services, func(p netip.Prefix) bool { return p.Contains(s.Address) }) {
			out = append(out, netip.PrefixFrom(s.Address, s.Address.BitLen()))
		}
	}
	return out
}

// interfaceOf returns the interface of this machine that connects a host to its switch. This is the
// interface that has the host's Ethernet and IPv4 addresses.
func interfaceOf(h *topology.Host) (*net.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("this node's interfaces: %w", err)
	}
	for _, l := range all {
		if l.HardwareAddr.String() != h.MAC.String() {
			continue
		}
		addrs, err := l.Addrs()
		if err != nil {
			return nil, fmt.Errorf("the addresses of %s: %w", l.Name, err)
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == h.IP {
				return &l, nil
			}
		}
		err = fmt.Errorf("%s has not the address %s, under which the file of switches has this node", l.Name, h.IP)
		return nil, errors.Join(err, fmt.Errorf("give the interface that address, or correct the file"))
	}
	return nil, fmt.Errorf("no interface of this node has the Ethernet address %s that the file of switches names", h.MAC)
}
