package kube

import (
	"crypto/tls"
	"errors"
	"net/netip"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// attachment is how a node is connected to the switches.
type attachment struct {
	sw           agent.Switch // nil: none on the node
	engine       string       // what runs the program, for people
	connectHost  func() error // the node itself
	connectPeers func(self podroutes.Node, peers map[uint32]podroutes.Node) error
	failed       <-chan error // gets an error if it ends by itself
	close        func() error
}

// attach starts the node's own switch, or attaches the node to those of the fabric.
func (o *Options) attach(self podroutes.Node, p4runtime string, conf *tls.Config) (*attachment, error) {
	services := []netip.Prefix{o.Services, o.Switches}
	if o.Fabric == nil {
		sw, err := nodeswitch.Start(nodeswitch.Options{Engine: o.Engine, DeviceID: 1, P4Runtime: o.P4Runtime,
			Secure: p4runtime, TLS: conf, Log: o.Log})
		if err != nil {
			return nil, err
		}
		connect := func() error { return errors.Join(nodeswitch.FilterStack(), sw.ConnectHost(self.Address, services)) }
		return &attachment{sw: sw, engine: sw.Engine(), connectHost: connect, connectPeers: sw.ConnectPeers,
			failed: sw.Failed(), close: sw.Close}, nil
	}
	h, err := o.Fabric.Host(self.Name)
	if err != nil {
		return nil, err
	}
	return &attachment{engine: "none here: the node is at the switch " + h.Switch.Name,
		// What a switch of the node's own has left from before it was attached to the fabric goes.
		connectHost: func() error {
			return errors.Join(nodeswitch.DisconnectHost(), podroutes.RemovePeerLinks(nil),
				o.Fabric.Connect(h, []netip.Prefix{o.Services}))
		},
		connectPeers: func(podroutes.Node, map[uint32]podroutes.Node) error { // somebody may have removed a route
			return o.Fabric.Connect(h, []netip.Prefix{o.Services})
		},
		close: func() error { return nil }}, nil
}
