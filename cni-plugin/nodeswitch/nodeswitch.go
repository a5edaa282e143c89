// Package nodeswitch runs a Kubernetes node's embedded P4 switch in this process, and serves
// P4Runtime for it. The switch shares its interfaces with the node: the switch's program gets
// NetCRAQ packets, and the kernel gets all other packets (see "Sharing interfaces with the host" in
// docs/switch.md).
package nodeswitch

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf"
	"github.com/netcraq/netcraq/switch/p4rtserver"
	"github.com/netcraq/netcraq/switch/ports"
	"github.com/netcraq/netcraq/switch/target"
	"github.com/netcraq/netcraq/switch/userspace"
)

// Options configure a switch.
type Options struct {
	// Engine selects how the switch's program runs. It is ebpf, interp, or auto. auto means ebpf if
	// the kernel and the privileges allow it.
	Engine string
	// DeviceID is the P4Runtime device ID of the switch.
	DeviceID uint64
	// P4Runtime is the address at which the server serves plain text. Clients are not authenticated
	// there, so it must be a loopback address. Pods outside of the host's network have their own
	// loopback. If it is "", P4Runtime is served only at Secure.
	P4Runtime string
	// Secure is a second address of the P4Runtime server, for controllers on other nodes, or "". It
	// serves only clients with a certificate signed by one of TLS.ClientCAs.
	Secure string
	// TLS configures Secure with the server's certificate and ClientCAs. GetConfigForClient may
	// replace both for each connection, and VerifyConnection may refuse certificates. Neither can
	// disable client certificates or TLS 1.3.
	TLS *tls.Config
	// AfterOthers puts the program after other programs at an interface, as a late filter of
	// clsact. Otherwise the program comes before them. (The interpreter gets copies of packets, so
	// its place does not matter.)
	AfterOthers bool
	// Restored, if not nil, is called after someone has removed the switch's program from a port.
	// err is nil if the switch has restored the program. Restored must not call the switch.
	Restored func(iface string, err error)
	// Log receives events. nil means slog.Default().
	Log *slog.Logger
}

// Switch is a running switch. It has no program until a controller pushes one.
type Switch struct {
	device  target.Device
	place   ingressfilter.Place // place of the filters, which are after the program
	servers []*grpc.Server
	secure  net.Addr
	failed  chan error

	mu      sync.Mutex
	peers   map[uint32]fabricPort // ports to other switches, by port number
	uplinks []int                 // indexes of the interfaces that the operator named

	filtering sync.Mutex
	filters   map[int]ingressfilter.Rules // rules of the filters, by the index of their interface
}

// maxConnections is the maximum number of open connections at each P4Runtime address. A controller
// needs one connection. At the limit, a new connection replaces a connection without a call, for
// example an unfinished TLS handshake. That connection is from the remote address with the most
// connections.
const maxConnections = 64

// Start starts a switch in the network namespace of the calling thread.
func Start(o Options) (*Switch, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	addr, err := netip.ParseAddrPort(o.P4Runtime)
	if alone := o.P4Runtime == "" && o.Secure != ""; !alone && (err != nil || !addr.Addr().IsLoopback()) {
		return nil, fmt.Errorf("P4Runtime would be served at %q: it has to be a loopback address with a port, such as 127.0.0.1:9559, since whoever reaches it owns the switch", o.P4Runtime)
	}
	type endpoint struct {
		address string
		options []grpc.ServerOption
	}
	var endpoints []endpoint
	if o.P4Runtime != "" {
		endpoints = append(endpoints, endpoint{o.P4Runtime, p4rtserver.ServerOptions()})
	}
	if o.Secure != "" {
		conf, err := mutual(o.TLS)
		if err != nil {
			return nil, fmt.Errorf("serving P4Runtime at %s: %w", o.Secure, err)
		}
		endpoints = append(endpoints, endpoint{o.Secure, append(p4rtserver.ServerOptions(),
			grpc.Creds(credentials.NewTLS(conf)))})
	}
	device, err := start(o)
	if err != nil {
		return nil, fmt.Errorf("starting the node's switch: %w", err)
	}
	s := &Switch{device: device, failed: make(chan error, len(endpoints)), peers: map[uint32]fabricPort{},
		filters: map[int]ingressfilter.Rules{}}
	if o.AfterOthers {
		s.place = ingressfilter.LastFilter
	}
	service := p4rtserver.New(device, p4rtserver.Options{DeviceID: o.DeviceID, Log: o.Log})
	for _, e := range endpoints {
		listener, err := net.Listen("tcp", e.address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serving P4Runtime: %w", err), s.Close())
		}
		if e.address == o.Secure {
			s.secure = listener.Addr()
		}
		bound := p4rtserver.NewConnections(maxConnections, o.Log)
		server := grpc.NewServer(bound.ServerOptions(e.options...)...)
		service.Register(server)
		s.servers = append(s.servers, server)
		bounded := bound.Listen(listener)
		go func() { s.failed <- server.Serve(bounded) }()
	}
	return s, nil
}

// mutual returns a configuration that requires a client certificate.
func mutual(o *tls.Config) (*tls.Config, error) {
	switch {
	case o == nil || o.ClientCAs == nil:
		return nil, errors.New("whoever reaches it owns the switch, so there have to be ClientCAs that know the controllers")
	case len(o.Certificates) == 0 && o.GetCertificate == nil:
		return nil, errors.New("the server has no certificate")
	}
	strict := func(c *tls.Config) *tls.Config {
		c = c.Clone()
		c.ClientAuth, c.MinVersion, c.GetConfigForClient = tls.RequireAndVerifyClientCert, tls.VersionTLS13, nil
		return c
	}
	conf := strict(o)
	conf.NextProtos = []string{"h2"} // gRPC does not set this in a configuration that is chosen for a client
	if choose := o.GetConfigForClient; choose != nil {
		conf.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := choose(h)
			switch {
			case err != nil:
				return nil, err
			case c == nil:
				return nil, nil // the base configuration stays valid
			case c.ClientCAs == nil: // otherwise any certificate that this machine trusts would be accepted
				return nil, errors.New("there are no ClientCAs that know the controllers")
			}
			c = strict(c)
			c.NextProtos = conf.NextProtos
			return c, nil
		}
	}
	return conf, nil
}

func start(o Options) (target.Device, error) {
	interp := func(why string) (target.Device, error) {
		return userspace.New(userspace.Options{Why: why, CPUPort: topology.CPUPort, OnlyUDP: wire.Port, Log: o.Log,
			Ports: ports.Options{Mark: ingressfilter.SwitchMark}})
	}
	kernel := func(why string) (target.Device, error) {
		hook := ebpf.HookTC
		if o.AfterOthers {
			hook = ebpf.HookClsact
		}
		return ebpf.New(ebpf.Options{Why: why, Hook: hook, LateFilters: o.AfterOthers, CPUPort: topology.CPUPort,
			OnlyUDP: wire.Port, Mark: ingressfilter.SwitchMark, After: framefilter.Name, Restored: o.Restored,
			Log: o.Log})
	}
	switch o.Engine {
	case "interp":
		return interp("as configured")
	case "ebpf":
		return kernel("as configured")
	case "auto", "":
		d, err := kernel("the first choice")
		if err != nil {
			return interp(fmt.Sprintf("not ebpf, since %v", err))
		}
		return d, nil
	}
	return nil, fmt.Errorf("there is no engine %q: auto, ebpf or interp", o.Engine)
}

// Engine returns the name of the engine that runs the program, and why it was chosen.
func (s *Switch) Engine() string { return s.device.Engine() }

// SecureAddress returns the address at which P4Runtime is served with TLS, or nil.
func (s *Switch) SecureAddress() net.Addr { return s.secure }

// Failed returns a channel that receives an error if the P4Runtime server ends unexpectedly.
func (s *Switch) Failed() <-chan error { return s.failed }

// AddPort makes an interface a port of the switch.
func (s *Switch) AddPort(number uint32, iface string) error {
	return s.device.AddPort(target.Port{Number: number, Iface: iface})
}

// RemovePort removes a port from the switch.
func (s *Switch) RemovePort(number uint32) error { return s.device.RemovePort(number) }

// NamedPorts returns the ports that appear in table entries. They may be in the match field
// ingress_port (port_trust), or in an action's parameter port (session_lease, ipv4_lpm).
func (s *Switch) NamedPorts() (map[uint32]bool, error) {
	pipeline := s.device.Pipeline()
	if pipeline == nil {
		return nil, nil
	}
	named := map[uint32]bool{}
	add := func(b []byte) { named[uint32(new(big.Int).SetBytes(b).Uint64())] = true }
	for _, t := range pipeline.Program().Tables() {
		key := slices.IndexFunc(t.Keys, func(k bmv2json.Key) bool { return k.Name == "ingress_port" })
		param := map[string]int{} // index of the parameter port of each action
		for _, a := range t.Actions {
			if i := slices.IndexFunc(a.Params, func(p bmv2json.Param) bool { return p.Name == "port" }); i >= 0 {
				param[a.Name] = i
			}
		}
		if key < 0 && len(param) == 0 {
			continue
		}
		entries, err := pipeline.Entries(t.Name)
		if err != nil {
			return nil, fmt.Errorf("reading the entries of %s: %w", t.Name, err)
		}
		for _, e := range entries {
			if key >= 0 {
				add(e.Match[key].Value)
			}
			if e.Action == nil {
				continue
			}
			if i, ok := param[e.Action.Action]; ok {
				add(e.Action.Params[i])
			}
		}
	}
	return named, nil
}

// Close ends the switch.
func (s *Switch) Close() error {
	s.removeFilters()
	for _, server := range s.servers {
		server.Stop()
	}
	return s.device.Close()
}
