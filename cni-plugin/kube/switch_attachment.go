package kube

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/guards"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// attachment is the connection of a node to the switches.
type attachment struct {
	sw          agent.Switch // nil if the node runs no switch
	engine      string       // description of the engine that runs the program
	connectHost func() error // connects the node itself as a host, if it has an IPv4 address
	// connectNumbered connects the node itself as a host, if it has no IPv4 address. The node then
	// gets an address made from its number. The function is called repeatedly.
	connectNumbered func(number int32) error
	connectPeers    func(self podroutes.Node, peers map[uint32]podroutes.Node) error
	restore         func(guards.Report) // has the same meaning as nodeswitch.Switch.Restore
	failed          <-chan error        // receives an error if the switch ends unexpectedly
	close           func() error
}

// attach starts the node's own switch. If there is a fabric, it attaches the node to the fabric's
// switches instead.
func (o *Options) attach(
	self podroutes.Node, p4runtime string, conf *tls.Config, report guards.Report,
) (*attachment, error) {
	services := []netip.Prefix{o.Services, o.Switches}
	if o.Fabric == nil {
		sw, err := nodeswitch.Start(nodeswitch.Options{Engine: o.Engine, DeviceID: 1, P4Runtime: o.P4Runtime,
			Secure: p4runtime, TLS: conf, AfterOthers: o.AfterOthers, Log: o.Log,
			Restored: func(iface string, err error) { report(guards.SwitchProgram, iface, err) }})
		if err != nil {
			return nil, err
		}
		connect := func() error {
			err := nodeswitch.FilterStack()
			if four := self.In(false); err == nil && four.IsValid() {
				err = sw.ConnectHost(four, services)
			}
			return err
		}
		return &attachment{sw: sw, engine: sw.Engine(), connectHost: connect,
			connectNumbered: o.connectNumbered(self, sw, services), connectPeers: sw.ConnectPeers,
			restore: sw.Restore, failed: sw.Failed(), close: sw.Close}, nil
	}
	h, err := o.Fabric.Host(self.Name)
	if err != nil {
		return nil, err
	}
	return &attachment{engine: "none here: the node is at the switch " + h.Switch.Name,
		// connectHost removes what a switch of this node has left, and then connects the node to
		// the fabric.
		connectHost: func() error {
			return errors.Join(nodeswitch.DisconnectHost(), podroutes.RemovePeerLinks(nil),
				o.Fabric.Connect(h, []netip.Prefix{o.Services}))
		},
		connectPeers: func(podroutes.Node, map[uint32]podroutes.Node) error { // someone may have removed a route
			return o.Fabric.Connect(h, []netip.Prefix{o.Services})
		},
		connectNumbered: func(int32) error { return nil },
		restore:         func(guards.Report) {},
		close:           func() error { return nil }}, nil
}

// connectNumbered returns the function attachment.connectNumbered for a node that runs its own
// switch. NetCRAQ packets are always IPv4, even between nodes without IPv4, because separate
// tunnels carry them from switch to switch. A node without IPv4 therefore gets an IPv4 address from
// the switches' prefix. Only the node's interface to its switch has this address.
func (o *Options) connectNumbered(
	self podroutes.Node, sw *nodeswitch.Switch, services []netip.Prefix,
) func(number int32) error {
	var connected netip.Addr
	return func(number int32) error {
		if self.In(false).IsValid() || number == 0 {
			return nil
		}
		address, err := nodeview.Addressing{Services: o.Services, Switches: o.Switches}.OfHost(number)
		if err != nil || address == connected {
			return err
		}
		if connected.IsValid() {
			return fmt.Errorf("%w: the node's number is %d now", errRenumbered, number)
		}
		if err := sw.ConnectHost(address, services); err != nil {
			return err
		}
		connected = address
		return nil
	}
}

// errRenumbered ends an agent that must restart, because the node's own processes get another
// address at the switch.
var errRenumbered = errors.New("its own processes are to reach the switch under another address")
