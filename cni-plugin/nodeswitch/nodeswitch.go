// Package nodeswitch runs the embedded P4 switch of a Kubernetes node in this process, and serves
// P4Runtime for it. It shares its interfaces with the node: the program gets NetCRAQ's packets, the
// kernel everything else (see "Sharing interfaces with the host" in docs/switch.md).
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
	// Engine runs the program: ebpf, interp, or auto, which is ebpf if the kernel and the
	// privileges allow it.
	Engine string
	// DeviceID is the P4Runtime device id.
	DeviceID uint64
	// P4Runtime is the server's address. It has no encryption and no authentication, so it must be
	// a loopback address: pods have a loopback of their own, except for those in the host's
	// network. "": it is served only at Secure.
	P4Runtime string
	// Secure is a second address of the P4Runtime server, for controllers on other nodes; "": there
	// is none. Nothing is served there before a client has shown a certificate that TLS.ClientCAs
	// have signed.
	Secure string
	// TLS is for Secure: the server's certificate, and ClientCAs. GetConfigForClient may choose
	// others for each connection, and which certificates are accepted (VerifyConnection). It cannot
	// change that clients must have one, nor TLS 1.3.
	TLS *tls.Config
	// AfterOthers puts the program behind those of others at an interface: at tc by a late filter
	// of clsact. Otherwise it is before them. (The interpreter gets copies, and is in nobody's
	// way.)
	AfterOthers bool
	// Restored, if not nil, is called when the switch has put its program back at a port from which
	// somebody had removed it, or could not. It must not call the switch.
	Restored func(iface string, err error)
	// Log receives events. nil means slog.Default().
	Log *slog.Logger
}

// Switch is a running switch without a program until a controller pushes one.
type Switch struct {
	device  target.Device
	place   ingressfilter.Place // of filters, behind the program
	servers []*grpc.Server
	secure  net.Addr
	failed  chan error

	mu      sync.Mutex
	peers   map[uint32]fabricPort // by the port's number
	uplinks []int                 // indexes of the operator's interfaces

	filtering sync.Mutex
	filters   map[int]ingressfilter.Rules // by the index of the interface that has them
}

// maxConnections is how many connections each P4Runtime address has open at most. A controller
// needs one. Connections without a call, such as those that never finish TLS's handshake, give way
// to new ones: those of the address that has the most come first.
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

// mutual is a server's side of TLS that no client passes without a certificate.
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
	conf.NextProtos = []string{"h2"} // gRPC's; it sets it in what it is given, and not in what is chosen for a client
	if choose := o.GetConfigForClient; choose != nil {
		conf.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := choose(h)
			switch {
			case err != nil:
				return nil, err
			case c == nil:
				return nil, nil // what was given holds
			case c.ClientCAs == nil: // which would accept any certificate that this machine trusts
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

// Engine names the engine that runs the program, and why.
func (s *Switch) Engine() string { return s.device.Engine() }

// SecureAddress is where P4Runtime is served with TLS, nil if it is not.
func (s *Switch) SecureAddress() net.Addr { return s.secure }

// Failed gets an error if the P4Runtime server ends by itself.
func (s *Switch) Failed() <-chan error { return s.failed }

// AddPort makes an interface a port.
func (s *Switch) AddPort(number uint32, iface string) error {
	return s.device.AddPort(target.Port{Number: number, Iface: iface})
}

// RemovePort removes an interface from the ports.
func (s *Switch) RemovePort(number uint32) error { return s.device.RemovePort(number) }

// NamedPorts returns the ports that table entries name: as the match of ingress_port (port_trust),
// or as an action's parameter port (session_lease, ipv4_lpm).
func (s *Switch) NamedPorts() (map[uint32]bool, error) {
	pipeline := s.device.Pipeline()
	if pipeline == nil {
		return nil, nil
	}
	named := map[uint32]bool{}
	add := func(b []byte) { named[uint32(new(big.Int).SetBytes(b).Uint64())] = true }
	for _, t := range pipeline.Program().Tables() {
		key := slices.IndexFunc(t.Keys, func(k bmv2json.Key) bool { return k.Name == "ingress_port" })
		param := map[string]int{} // by action
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
