package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// config is the plugin's configuration in the network's list.
//
//	{
//	  "type": "netcraq-cni",
//	  "socket": "/run/netcraq/agent.sock",   the node agent's socket; this is the default
//	  "mtu": 1450,                           bytes; default: the agent's
//	  "ipam": {"type": "host-local", ...}    any IPAM plugin
//	}
//
// In chained mode the plugin makes another plugin's interfaces ports of the switch:
//
//	{"type": "netcraq-cni", "chained": true, "socket": ...}
type config struct {
	types.PluginConf
	Socket  string `json:"socket,omitempty"`
	MTU     int    `json:"mtu,omitempty"`
	Chained bool   `json:"chained,omitempty"`
}

// readConfig reads what the runtime writes to stdin.
func readConfig(stdin []byte) (*config, error) {
	c := &config{}
	if err := json.Unmarshal(stdin, c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the network's configuration cannot be read", err.Error())
	}
	if c.Socket == "" {
		c.Socket = agentapi.DefaultSocket
	}
	switch {
	case c.Chained && (c.IPAM.Type != "" || c.MTU != 0):
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "netcraq-cni of the network "+c.Name+" is chained, so addresses and MTU are the other plugin's: leave ipam and mtu out, or chained", "")
	case !c.Chained && c.IPAM.Type == "":
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "the network "+c.Name+" has no ipam section: name an IPAM plugin, such as host-local, or behind another plugin give \"chained\": true", "")
	}
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", err.Error())
	}
	return c, nil
}

// agent returns a client of the node's agent.
func (c *config) agent() *agentapi.Client { return agentapi.NewClient(c.Socket) }

// asCNI converts an error to a CNI error. unreachable is the code for an agent that does not
// answer.
func asCNI(err error, unreachable uint) error {
	if err == nil {
		return nil
	}
	var already *types.Error
	if errors.As(err, &already) { // the IPAM plugin has already returned a CNI error
		return err
	}
	var said *agentapi.Error
	if errors.As(err, &said) {
		return types.NewError(said.Code, said.Message, said.Details)
	}
	if errors.Is(err, agentapi.ErrNotThere) {
		return types.NewError(unreachable, err.Error(), "see whether the netcraq-agent pod of this node runs")
	}
	return types.NewError(types.ErrTryAgainLater, err.Error(), "")
}

// prefix converts an address with a prefix length from CNI's form to the agent's form.
func prefix(n net.IPNet) (netip.Prefix, error) {
	ip, ok := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	ip = ip.Unmap()
	if !ok || size == 0 || size != ip.BitLen() {
		return netip.Prefix{}, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("%s is no address with a prefix", n.String()), "")
	}
	return netip.PrefixFrom(ip, bits), nil
}

// address converts an address. nil becomes the zero Addr.
func address(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// addresses and routes convert the addresses and routes of a result to the agent's form.
func addresses(r *current.Result) ([]agentapi.Address, error) {
	var out []agentapi.Address
	for _, ip := range r.IPs {
		p, err := prefix(ip.Address)
		if err != nil {
			return nil, err
		}
		out = append(out, agentapi.Address{Prefix: p, Gateway: address(ip.Gateway)})
	}
	return out, nil
}

func routes(r *current.Result) ([]agentapi.Route, error) {
	var out []agentapi.Route
	for _, d := range r.Routes {
		p, err := prefix(d.Dst)
		if err != nil {
			return nil, err
		}
		route := agentapi.Route{Destination: p, Gateway: address(d.GW), MTU: d.MTU, AdvMSS: d.AdvMSS,
			Priority: d.Priority}
		if d.Table != nil {
			route.Table = *d.Table
		}
		if d.Scope != nil {
			route.Scope = *d.Scope
		}
		out = append(out, route)
	}
	return out, nil
}
