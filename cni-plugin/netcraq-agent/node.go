package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/netcraq/netcraq/cni-plugin/guard"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/wire"
)

// Ports of a node's switch: 1 to 15 are the operator's, for links to other switches; the others are the pods'.
const (
	lastUplink = 15
	lastPort   = topology.MaxPort
)

// uplink is an interface of the node that is a port of its switch.
type uplink struct {
	port  uint32
	iface string
}

func parseUplinks(args []string) ([]uplink, error) {
	var out []uplink
	for _, s := range args {
		number, iface, ok := strings.Cut(s, "@")
		n, err := strconv.ParseUint(number, 10, 32)
		if !ok || iface == "" || err != nil || n < 1 || n > lastUplink {
			return nil, fmt.Errorf("--uplink takes PORT@IFACE with a port from 1 to %d, such as 1@eth0, not %q", lastUplink, s)
		}
		for _, u := range out {
			if u.port == uint32(n) || u.iface == iface {
				return nil, fmt.Errorf("--uplink %s: the port or the interface is given twice", s)
			}
		}
		out = append(out, uplink{uint32(n), iface})
	}
	return out, nil
}

// addUplinks makes them ports. Each has a guard, too: what comes to the switch from outside is not for the node's own stack, whoever runs the program.
func addUplinks(sw *nodeswitch.Switch, uplinks []uplink) error {
	for _, u := range uplinks {
		l, err := net.InterfaceByName(u.iface)
		if err != nil {
			return fmt.Errorf("the uplink %s: %w", u.iface, err)
		}
		if err := guard.Attach(l.Index, guard.Rules{Ports: []uint16{wire.Port}}); err != nil {
			return fmt.Errorf("the uplink %s: %w", u.iface, err)
		}
		if err := sw.AddPort(u.port, u.iface); err != nil {
			return fmt.Errorf("the uplink %s: %w", u.iface, err)
		}
	}
	return nil
}

// removeGuards leaves the node's interfaces as they were. Pods' keep theirs.
func removeGuards(uplinks []uplink) {
	for _, u := range uplinks {
		if l, err := net.InterfaceByName(u.iface); err == nil {
			_ = guard.Detach(l.Index) // the process ends
		}
	}
}

// cluster is the file of nodes, seen from one of them.
type cluster struct {
	self   podroutes.Node
	others []podroutes.Node
}

func readCluster(path, name string) (*cluster, error) {
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
	return c, nil
}

// podMTU is the MTU of pods, in bytes.
func podMTU(o *options, c *cluster) (int, error) {
	if o.mtu != 0 {
		return o.mtu, nil
	}
	if c == nil {
		return 1500, nil
	}
	links, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("listing interfaces: %w", err)
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			return 0, fmt.Errorf("the addresses of %s: %w", l.Name, err)
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || p.Addr() != c.self.Address {
				continue
			}
			if o.routes == podroutes.Direct {
				return l.MTU, nil
			}
			return l.MTU - podroutes.VXLANOverhead, nil
		}
	}
	return 0, errors.Join(fmt.Errorf("no interface has this node's address %s", c.self.Address), badInput{errors.New("correct the file of nodes, or give --mtu")})
}
