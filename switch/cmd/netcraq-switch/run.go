package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/bmthrift"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf"
	"github.com/netcraq/netcraq/switch/engineselect"
	"github.com/netcraq/netcraq/switch/eventlog"
	"github.com/netcraq/netcraq/switch/nanomsg"
	"github.com/netcraq/netcraq/switch/p4rtserver"
	"github.com/netcraq/netcraq/switch/ports"
	"github.com/netcraq/netcraq/switch/target"
	"github.com/netcraq/netcraq/switch/userspace"
)

// jsonVersion is the newest version of the BMv2 JSON format that this switch supports. The switch
// accepts any version 2.x.
const jsonVersion = "2.23"

// engine is an implementation that runs P4 programs.
type engine struct {
	name string
	// start creates a device. Its argument why becomes the reason that target.Device.Engine
	// reports.
	start func(o *options, why string, log *slog.Logger, p ports.Options) (target.Device, error)
}

// engines lists the engines in the order in which --engine auto prefers them.
var engines = []engine{
	{"ebpf", func(o *options, why string, log *slog.Logger, p ports.Options) (target.Device,
		error) {
		return startEBPF(o, why, log, p)
	}},
	{"interp", func(o *options, why string, log *slog.Logger, p ports.Options) (target.Device,
		error) {
		return startInterp(o, why, log, p)
	}},
}

func startEBPF(o *options, why string, log *slog.Logger, p ports.Options) (engineselect.Engine,
	error) {
	if p.Faults != nil {
		return nil,
			fmt.Errorf(
				"--faults works on frames in this process, and the kernel's do not come here: use --engine interp: %w", target.ErrUnsupported)
	}
	if o.priorities > 1 {
		return nil, fmt.Errorf("--priority-queues %d: the kernel's engine has no queues between "+
			"ingress and egress; use --engine interp: %w", o.priorities, target.ErrUnsupported)
	}
	e := ebpf.Options{Why: why, Hook: o.hook, CPUPort: o.cpuPort, DropPort: o.dropPort,
		OnlyUDP: o.onlyUDP, Log: log}
	if p.Tap != nil {
		names := map[uint32]string{}
		for _, spec := range o.ports {
			names[spec.number] = spec.iface
		}
		e.Tap = func(at time.Time, port uint32, out bool, frame []byte) {
			direction := ports.Rx
			if out {
				direction = ports.Tx
			}
			if name := names[port]; name != "" { // Frames of the controller belong to no interface.
				p.Tap(at, name, direction, frame)
			}
			if p.AfterBatch != nil {
				p.AfterBatch()
			}
		}
	}
	return ebpf.New(e)
}

func startInterp(o *options, why string, log *slog.Logger, p ports.Options) (engineselect.Engine,
	error) {
	return userspace.New(userspace.Options{Why: why, CPUPort: o.cpuPort, DropPort: o.dropPort,
		OnlyUDP: o.onlyUDP, Log: log, Ports: p, Priorities: o.priorities, Events: o.events})
}

// startEngine creates the device that the command line selects. With --engine auto, the switch
// selects an engine twice. It first considers the kernel and the options, and later, for each
// program, what the engine supports.
func startEngine(o *options, log *slog.Logger, p ports.Options) (target.Device, error) {
	if o.engine == "auto" {
		fast, err := startEBPF(o, "the first choice of --engine auto", log, p)
		if err != nil {
			return startInterp(o, fmt.Sprintf("--engine auto: not ebpf, since %v", err), log, p)
		}
		slow, err := startInterp(o, "--engine auto", log, p)
		if err != nil {
			_ = fast.Close()
			return nil, err
		}
		return engineselect.New(fast, slow, log), nil
	}
	var names []string
	for _, e := range engines {
		if o.engine == e.name {
			return e.start(o, "chosen with --engine", log, p)
		}
		names = append(names, e.name)
	}
	return nil, fmt.Errorf("there is no engine %q; --engine takes auto or one of: %s", o.engine,
		strings.Join(names, ", "))
}

// run runs the switch until ctx ends.
func run(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2) // one for the packet thread, and one for all other goroutines
	}
	log, closeLog, err := openLog(o, stdout, stderr)
	if err != nil {
		return err
	}
	defer closeLog()
	for _, s := range o.ignored {
		log.Info("option of BMv2 ignored", "option", s)
	}
	if o.unused != "" {
		log.Warn("the program is not loaded, because of --no-p4", "program", o.unused)
	}
	popts, closePorts, err := portOptions(o, log)
	if err != nil {
		return err
	}
	defer closePorts()

	// These steps can fail, so they run before the switch changes interfaces.
	program, err := readProgram(o)
	if err != nil {
		return err
	}
	gopts, err := o.grpc.serverOptions()
	if err != nil {
		return err
	}
	listener, err := listen(o.grpc.addr)
	switch {
	case err == nil:
		defer listener.Close()
	case o.thrift.port != 0 && !o.grpc.given && errors.Is(err, syscall.EADDRINUSE):
		// Scripts for BMv2's simple_switch start several switches and do not configure P4Runtime.
		// Such a switch therefore runs without P4Runtime if the port is in use.
		log.Warn(
			"P4Runtime is not served: another has its port. Give --grpc-server-addr after --",
			"err", err)
		listener = nil
	default:
		return err
	}
	publisher, err := o.thrift.publish(log)
	if err != nil {
		return err
	}
	if publisher != nil {
		defer publisher.Close()
	}
	closeEvents := o.publishEvents(log)
	defer closeEvents()

	dev, err := startEngine(o, log, popts)
	if err != nil {
		return err
	}
	if o.engine != "interp" && log.Enabled(ctx, levelTrace) {
		log.Info("packets' way through the program is traced on the interpreter only: " +
			"--engine interp")
	}
	if o.nanolog != "" && !strings.HasPrefix(dev.Engine(), "interp") {
		log.Warn("the event log (--nanolog) has nothing of packets that the kernel takes through "+
			"the program: --engine interp", "engine", dev.Engine())
	}
	defer dev.Close()
	server := p4rtserver.New(dev, p4rtserver.Options{DeviceID: o.deviceID, Log: log})
	if err := program.load(server); err != nil {
		return err
	}
	for _, p := range o.ports {
		if err := dev.AddPort(target.Port{Number: p.number, Iface: p.iface}); err != nil {
			return err
		}
	}
	// The Thrift port opens after all ports are added, because programs such as p4-utils send
	// packets as soon as it is open.
	var forThrift net.Listener
	if o.thrift.port != 0 {
		if forThrift, err = o.thrift.listen(); err != nil {
			return err
		}
		defer forThrift.Close()
	}

	failed := make(chan error, 1)
	p4runtime := "no address"
	if listener != nil {
		p4runtime = listener.Addr().String()
		connections := p4rtserver.NewConnections(o.maxConnections, log)
		gs := grpc.NewServer(connections.ServerOptions(gopts...)...)
		server.Register(gs)
		go func() { failed <- gs.Serve(connections.Listen(listener)) }()
		defer gs.Stop()
	}
	if forThrift != nil {
		topts := bmthrift.Options{DeviceID: o.deviceID, SwapDisabled: o.thrift.swapDisabled,
			Log: log}
		if publisher != nil {
			topts.Publisher, topts.Notifications = publisher, o.thrift.notifications
		}
		ts := bmthrift.New(dev, server.Local(), topts)
		go func() { _ = ts.Serve(forThrift) }()
		defer ts.Close()
		log.Info("Thrift is served", "address", forThrift.Addr())
	}
	if o.grpc.addr == defaultAddr && listener != nil {
		log.Info(
			"P4Runtime is served on this machine only; give --grpc-server-addr after -- for others")
	}
	log.Info("ready", "device", o.deviceID, "ports", len(o.ports), "engine", dev.Engine(),
		"p4runtime", p4runtime)
	name, _, _ := strings.Cut(dev.Engine(), ":")
	fmt.Fprintf(stderr, "ready: device %d, %d ports, engine %s, P4Runtime on %s\n", o.deviceID,
		len(o.ports), name, p4runtime)
	select {
	case <-ctx.Done():
		log.Info("ending")
		return nil
	case err := <-failed:
		return fmt.Errorf("the P4Runtime server ended: %w", err)
	}
}

// publish creates the publisher of notifications, or returns nil if there is none. Any process can
// occupy the default address. In that case the switch runs without a publisher.
func (o *thriftOptions) publish(log *slog.Logger) (*nanomsg.Publisher, error) {
	if o.notifications == "" {
		return nil, nil
	}
	p, err := nanomsg.Listen(o.notifications, log)
	switch {
	case err == nil:
		return p, nil
	case o.notificationsGiven:
		return nil, fmt.Errorf("publishing digests (--notifications-addr): %w", err)
	}
	log.Warn("digests are not published; give --notifications-addr", "err", err)
	return nil, nil
}

// publishEvents starts to publish the event log, if the command line requests it. If that fails,
// the switch runs without an event log, because scripts for BMv2 request it even when nobody
// listens.
func (o *options) publishEvents(log *slog.Logger) (done func()) {
	if o.nanolog == "" {
		return func() {}
	}
	p, err := nanomsg.Listen(o.nanolog, log)
	if err != nil {
		log.Warn("the event log is not published; give another --nanolog", "err", err)
		return func() {}
	}
	o.events = eventlog.New(o.deviceID, p)
	return p.Close
}

// openLog opens the log that the command line selects. Without --log-console and --log-file, the
// switch logs only warnings and errors, to stderr.
func openLog(o *options, stdout, stderr io.Writer) (*slog.Logger, func(), error) {
	if o.logOff {
		return slog.New(slog.DiscardHandler), func() {}, nil
	}
	to, level, done := stderr, max(o.logLevel, slog.LevelWarn), func() {}
	switch {
	case o.logConsole:
		to, level = stdout, o.logLevel
	case o.logFile != "":
		f, err := os.OpenFile(o.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, nil, fmt.Errorf("opening the log: %w", err)
		}
		to, level, done = f, o.logLevel, func() { _ = f.Close() }
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level,
		ReplaceAttr: nameTrace})), done, nil
}

// nameTrace gives levelTrace a name in the log, because slog knows no name for it.
func nameTrace(_ []string, a slog.Attr) slog.Attr {
	if level, ok := a.Value.Any().(slog.Level); ok && level == levelTrace {
		return slog.String(a.Key, "TRACE")
	}
	return a
}

// portOptions converts the options for faults, captures and dumps to options of the ports.
func portOptions(o *options, log *slog.Logger) (ports.Options, func(), error) {
	var p ports.Options
	done := func() {}
	if o.faults != "" {
		f, err := ports.LoadFaults(o.faults)
		if err != nil {
			return p, nil, err
		}
		p.Faults = f
		log.Warn("frames are lost, duplicated, reordered or delayed on purpose", "faults", o.faults)
	}
	var taps []func(time.Time, string, ports.Direction, []byte)
	if o.pcap != "" {
		c, err := ports.NewCapture(o.pcap)
		if err != nil {
			return p, nil, err
		}
		taps = append(taps, c.Frame)
		p.AfterBatch = c.Flush
		done = func() {
			if err := c.Close(); err != nil {
				log.Error("capture", "err", err)
			}
		}
	}
	if o.dump > 0 {
		taps = append(taps, func(_ time.Time, iface string, d ports.Direction, frame []byte) {
			log.Info("frame", "iface", iface, "direction", d, "bytes", len(frame), "data",
				hex.EncodeToString(frame[:min(len(frame), o.dump)]))
		})
	}
	if len(taps) > 0 {
		p.Tap = func(at time.Time, iface string, d ports.Direction, frame []byte) {
			for _, t := range taps {
				t(at, iface, d, frame)
			}
		}
	}
	return p, done, nil
}

// startProgram is the program with which the switch starts. All fields are nil if there is none.
type startProgram struct {
	prog   *bmv2json.Program
	json   []byte                         // JSON text of prog
	config *p4v1.ForwardingPipelineConfig // set if the command line also names a P4Info
}

func readProgram(o *options) (*startProgram, error) {
	if o.json == "" {
		return &startProgram{}, nil
	}
	data, err := bmv2json.Text(o.json)
	if err != nil {
		return nil, err
	}
	prog, err := bmv2json.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("the program %s: %w", o.json, err)
	}
	if o.p4info == "" {
		return &startProgram{prog: prog, json: data}, nil
	}
	text, err := os.ReadFile(o.p4info)
	if err != nil {
		return nil, fmt.Errorf("reading the P4Info: %w", err)
	}
	info := &p4cfg.P4Info{}
	if textErr := prototext.Unmarshal(text, info); textErr != nil {
		if err := proto.Unmarshal(text, info); err != nil ||
			len(info.Tables)+len(info.Actions) == 0 {
			return nil, fmt.Errorf("%s is not a P4Info file: %w", o.p4info, textErr)
		}
	}
	return &startProgram{prog: prog, json: data, config: &p4v1.ForwardingPipelineConfig{P4Info: info,
		P4DeviceConfig: data}}, nil
}

func (p *startProgram) load(server *p4rtserver.Server) error {
	switch {
	case p.prog == nil:
		return nil
	case p.config != nil:
		if err := server.Load(p.config); err != nil {
			return fmt.Errorf("loading the program: %w", err)
		}
	default:
		if err := server.Start(p.prog, p.json); err != nil {
			return fmt.Errorf("loading the program: %w", err)
		}
	}
	return nil
}

func listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil,
			fmt.Errorf(
				"P4Runtime: %w; another switch may be running, or give another address with -- --grpc-server-addr HOST:PORT", err)
	case err != nil:
		return nil, fmt.Errorf("P4Runtime: %w", err)
	}
	return l, nil
}

// serverOptions reads the TLS certificates and returns the options for gRPC servers.
func (g *grpcOptions) serverOptions() ([]grpc.ServerOption, error) {
	opts := p4rtserver.ServerOptions()
	if !g.tls {
		return opts, nil
	}
	cert, err := tls.LoadX509KeyPair(g.cert, g.key)
	if err != nil {
		return nil, fmt.Errorf("the server's certificate: %w", err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if g.ca != "" {
		pem, err := os.ReadFile(g.ca)
		if err != nil {
			return nil, fmt.Errorf("the clients' CA: %w", err)
		}
		cfg.ClientCAs = x509.NewCertPool()
		if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the clients' CA: there is no certificate in %s", g.ca)
		}
		cfg.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if g.requireClientCert {
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return append(opts, grpc.Creds(credentials.NewTLS(cfg))), nil
}
