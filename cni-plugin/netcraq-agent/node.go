package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// Ports of a node's switch. The first ports lead to other switches, and the last one leads to the
// node itself. All other ports are for pods.
const (
	lastUplink = v1alpha1.MaxNodes
	lastPort   = nodeswitch.HostPort - 1
)

// fabricPort is a port of the node's switch that leads to another switch.
type fabricPort struct {
	number uint32
	iface  string
	node   string          // name of the node at the tunnel's other end; "" if the operator named an interface
	peer   *podroutes.Node // the node at the tunnel's other end, after resolve has found it
}

// parseFabric parses the options --uplink and --peer.
func parseFabric(uplinks, peers []string) ([]*fabricPort, error) {
	var out []*fabricPort
	for i, s := range append(slices.Clone(uplinks), peers...) {
		option, what := "--uplink", "IFACE"
		if i >= len(uplinks) {
			option, what = "--peer", "NODE"
		}
		number, name, ok := strings.Cut(s, "@")
		n, err := strconv.ParseUint(number, 10, 32)
		if !ok || name == "" || err != nil || n < 1 || n > lastUplink {
			return nil, fmt.Errorf("%s takes PORT@%s with a port from 1 to %d, not %q", option, what, lastUplink, s)
		}
		p := &fabricPort{number: uint32(n), iface: name}
		if option == "--peer" {
			p.iface, p.node = "", name
		}
		for _, q := range out {
			if q.number == p.number || q.iface == p.iface && q.node == p.node {
				return nil, fmt.Errorf("%s %s: the port or its other end is given twice", option, s)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// resolve finds the nodes at the other ends of the tunnels.
func (c *cluster) resolve(fabric []*fabricPort) error {
	for _, p := range fabric {
		if p.node == "" {
			continue
		}
		if c == nil {
			return fmt.Errorf("--peer %d@%s needs --nodes, to know where the node is", p.number, p.node)
		}
		i := slices.IndexFunc(c.others, func(n podroutes.Node) bool { return n.Name == p.node })
		if i < 0 {
			return fmt.Errorf("--peer %d@%s: the file of nodes does not have it", p.number, p.node)
		}
		p.peer = &c.others[i]
	}
	return nil
}

// parseServices parses the option --services.
func parseServices(args []string, c *cluster) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range args {
		p, err := netip.ParsePrefix(s)
		if err != nil || !p.Addr().Is4() || p.Bits() == 0 {
			return nil, fmt.Errorf("--services takes an IPv4 prefix, such as 10.0.254.0/24, not %q", s)
		}
		out = append(out, p)
	}
	if len(out) > ingressfilter.MaxSources {
		return nil, fmt.Errorf("--services is given %d times, and the filters take %d prefixes: use fewer and larger ones",
			len(out), ingressfilter.MaxSources)
	}
	if len(out) > 0 && c == nil {
		return nil, errors.New("--services needs --nodes, to know this node's address")
	}
	if len(out) > 0 && !c.self.In(false).IsValid() {
		return nil, fmt.Errorf("--services needs an IPv4 address of node %s, since NetCRAQ's packets are IPv4", c.self.Name)
	}
	for _, p := range out { // the node sends packets for these prefixes to the switch
		for _, n := range append([]podroutes.Node{c.self}, c.others...) {
			if taken := n.Overlapping(p); taken != "" {
				return nil, fmt.Errorf("--services %s overlaps %s: give a prefix that no node and no pod has", p, taken)
			}
		}
	}
	return out, nil
}

// connect makes the switch's ports to other switches.
func connect(sw *nodeswitch.Switch, c *cluster, fabric []*fabricPort) error {
	peers := map[uint32]podroutes.Node{}
	for _, p := range fabric {
		if p.peer != nil {
			peers[p.number] = *p.peer
		} else if err := sw.ConnectUplink(p.number, p.iface); err != nil {
			return err
		}
	}
	var self podroutes.Node
	if c != nil {
		self = c.self
	}
	return sw.ConnectPeers(self, peers)
}

// cluster is the content of the file of nodes, from the perspective of one node.
type cluster struct {
	self   podroutes.Node
	others []podroutes.Node
}

// readCluster reads the file of nodes. If chained is set, the nodes need no pod prefixes.
func readCluster(path, name string, chained bool) (*cluster, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the file of nodes: %w", err)
	}
	var file struct {
		Nodes []podroutes.Node `json:"nodes"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, fmt.Errorf("the file of nodes %s: %w", path, err)
	}
	c := &cluster{}
	for _, n := range file.Nodes {
		if n.Name == name {
			c.self = n
		} else {
			c.others = append(c.others, n)
		}
	}
	if c.self.Name == "" {
		return nil, fmt.Errorf("the node %q is not in %s: give its name there with --node", name, path)
	}
	if chained && c.self.Address.Is4() {
		return c, nil
	}
	if err := c.self.Check(); err != nil {
		return nil, fmt.Errorf("the file of nodes %s: %w", path, err)
	}
	return c, nil
}

// podMTU returns the MTU of pods, in bytes.
func podMTU(o *options, c *cluster) (int, error) {
	if o.mtu != 0 {
		return o.mtu, nil
	}
	if c == nil {
		return 1500, nil
	}
	mtu, err := podroutes.MTU(c.self, o.routes)
	if err != nil {
		return 0, errors.Join(err, badInput{errors.New("correct the file of nodes, or give --mtu")})
	}
	return mtu, nil
}
