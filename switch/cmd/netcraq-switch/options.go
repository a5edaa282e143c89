package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/netcraq/netcraq/switch/ebpf"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/userspace"
)

// options contains the validated command line.
type options struct {
	ports          []portSpec
	deviceID       uint64
	json           string // JSON file of the program; "" with --no-p4
	noP4           bool
	p4info         string
	engine         string
	hook           ebpf.Hook
	onlyUDP        uint16
	faults         string
	maxConnections int
	pcap           string // directory for captures; "" for none
	dump           int    // number of bytes of each frame to log

	logConsole bool
	logFile    string
	logLevel   slog.Level
	logOff     bool

	nanolog  string // address at which the event log is published; "" for no event log
	thrift   thriftOptions
	grpc     grpcOptions
	cpuPort  uint32 // 0 if there is no CPU port
	dropPort uint32
	// number of priorities of each port's egress queue
	priorities int

	events interp.Events // nil if the event log is not published

	// options of BMv2 that were given but have no effect here, each with an explanation
	ignored []string
	// program file that was given in addition to --no-p4, and that the switch ignores
	unused  string
	help    bool
	version bool
	jsonVer bool
}

type grpcOptions struct {
	addr              string
	given             bool // set if the command line contains the address
	tls               bool
	ca, cert, key     string
	requireClientCert bool
}

// thriftOptions configure the Thrift server.
type thriftOptions struct {
	port         uint16 // TCP port; 0 for no Thrift server
	addr         string
	swapDisabled bool
	// nanomsg address at which digests are published
	notifications      string
	notificationsGiven bool
}

// listen creates the listener of the Thrift server.
func (o *thriftOptions) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(o.addr, strconv.Itoa(int(o.port))))
	if err != nil {
		return nil, fmt.Errorf("listening for Thrift (--thrift-port): %w", err)
	}
	return l, nil
}

type portSpec struct {
	number uint32
	iface  string
}

const (
	defaultAddr        = "127.0.0.1:9559"
	defaultThriftAddr  = "127.0.0.1"
	defaultDropPort    = 511
	defaultConnections = 64
)

// levelTrace is the level below slog.LevelDebug. At this level the switch logs each packet's path
// through the program (interpreter only) and, with --dump-packet-data, each frame.
const levelTrace = userspace.LevelTrace

var levels = map[string]slog.Level{
	"trace": levelTrace, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
	"error": slog.LevelError,
}

// foreign lists the options of BMv2's simple_switch_grpc that have no effect here, each with its
// warning. The switch accepts them because scripts for BMv2 pass them.
var foreign = []struct {
	name     string
	hasValue bool
	why      string
}{
	{"debugger", false, "there is no debugger"},
	{"debugger-addr", true, "there is no debugger"},
	{"log-flush", false, "the log is never buffered"},
	{"log-file-max-size", true, "the log file is not rotated"},
	{"log-file-max-files", true, "the log file is not rotated"},
	{"max-port-count", true, "the number of ports is not limited"},
	{"warn-on-invalid-hdr-read", false, "reading an invalid header is not reported"},
	{"ret-zero-on-invalid-hdr-read", false, "reading an invalid header gives what was there"},
}

// foreignTarget lists the options of BMv2 that have no effect here and that follow "--" on the
// command line.
var foreignTarget = []struct {
	name     string
	hasValue bool
	why      string
}{
	{"enable-swap", false, "a new program can always be swapped in"},
	{"dp-grpc-server-addr", true, "frames come from interfaces only"},
	{"max-mc-groups", true, "the number of multicast groups is not limited"},
	{"max-l1-entries", true, "the number of multicast replicas is not limited"},
	{"max-l2-entries", true, "the number of multicast replicas is not limited"},
}

// errUsage marks errors in the command line.
var errUsage = errors.New("usage")

func usageError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

const usageText = `netcraq-switch runs a P4 program on network interfaces and serves P4Runtime.

  netcraq-switch [options] -i PORT@IFACE ... PROGRAM.json [-- target options]
  netcraq-switch [options] -i PORT@IFACE ... --no-p4      [-- target options]

PROGRAM.json is the output of p4c-bm2-ss for a v1model program. With --no-p4 the
switch drops all packets until a controller pushes a program. The command line
is compatible with BMv2's simple_switch_grpc, so scripts written for it work
unchanged.

For example, two ports, a controller on this machine, and packet-in and
packet-out on port 510:

  sudo netcraq-switch -i 1@s1-eth1 -i 2@s1-eth2 --device-id 1 --no-p4 -- \
      --grpc-server-addr 127.0.0.1:50051 --cpu-port 510

Options:
%s
Target options, after "--":
%s
Once it is ready, the switch prints one line on stderr that begins with
"ready:". SIGINT and SIGTERM end it. Exit codes: 0 after such a signal; 1 if it
cannot start or run; 2 for a mistake on the command line.
`

// flagSets has one flag set for each of the two parts of the command line, before and after "--".
type flagSets struct {
	main, target *pflag.FlagSet
	interfaces   []string
	level        string
}

// parseOptions reads the command line without the program's name.
func parseOptions(args []string) (*options, error) {
	o := &options{}
	f := newFlagSets(o)
	mainArgs, targetArgs := args, []string(nil)
	for i, a := range args {
		if a == "--" {
			mainArgs, targetArgs = args[:i], args[i+1:]
			break
		}
	}
	if err := f.main.Parse(adjoined(f.main, mainArgs)); err != nil {
		name, _ := strings.CutPrefix(err.Error(), "unknown flag: --")
		if f.target.Lookup(name) != nil {
			return nil, usageError("%v: write it after --, as for simple_switch_grpc", err)
		}
		return nil, usageError("%v", err)
	}
	if err := f.target.Parse(targetArgs); err != nil {
		return nil, usageError("after --: %v", err)
	}
	if o.help || o.version || o.jsonVer {
		return o, nil
	}
	if extra := f.target.Args(); len(extra) > 0 {
		return nil, usageError("after --: unexpected %q", extra[0])
	}
	return o, f.check(o)
}

// adjoined joins an option that has an optional value with the value. BMv2 treats "--pcap DIR" like
// "--pcap=DIR", unless the next word is an option, but pflag only accepts the second form.
func adjoined(s *pflag.FlagSet, args []string) (out []string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if name, long := strings.CutPrefix(a, "--"); long && i+1 < len(args) &&
			!strings.HasPrefix(args[i+1], "-") {
			// Boolean options never take a value from the next word.
			if flag := s.Lookup(name); flag != nil && flag.NoOptDefVal != "" &&
				flag.Value.Type() != "bool" {
				i++
				a += "=" + args[i]
			}
		}
		out = append(out, a)
	}
	return out
}

// abbreviable allows unambiguous abbreviations of option names, as BMv2 does.
func abbreviable(s *pflag.FlagSet) {
	var names []string
	s.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	s.SetNormalizeFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if slices.Contains(names, given) {
			return pflag.NormalizedName(given)
		}
		meant := ""
		for _, name := range names {
			switch {
			case !strings.HasPrefix(name, given) || given == "":
			case meant != "":
				return pflag.NormalizedName(given) // An ambiguous abbreviation is not an option.
			default:
				meant = name
			}
		}
		return pflag.NormalizedName(cmp.Or(meant, given))
	})
}

// decimal is a numeric option in decimal notation. pflag's own numeric options would read a number
// with a leading 0 as octal.
type decimal[T uint16 | uint32 | uint64 | int] struct{ to *T }

func (d decimal[T]) String() string {
	if d.to == nil { // pflag calls String on the zero value.
		return "0"
	}
	return fmt.Sprint(*d.to)
}

func (d decimal[T]) Type() string { return "number" }

func (d decimal[T]) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return errors.New("it is not a number, or it is too large")
	}
	if *d.to = T(n); uint64(*d.to) != n || *d.to < 0 {
		return errors.New("it is too large")
	}
	return nil
}

// usage writes the help text.
func usage(w io.Writer) {
	f := newFlagSets(&options{})
	fmt.Fprintf(w, usageText, f.main.FlagUsagesWrapped(80), f.target.FlagUsagesWrapped(80))
}

func newFlagSets(o *options) *flagSets {
	f := &flagSets{main: pflag.NewFlagSet("netcraq-switch", pflag.ContinueOnError),
		target: pflag.NewFlagSet("target", pflag.ContinueOnError)}
	m := f.main
	m.SortFlags = false
	m.Usage, f.target.Usage = func() {}, func() {}
	m.StringArrayVarP(&f.interfaces, "interface", "i", nil,
		"attach network interface IFACE as port PORT, given as `PORT@IFACE`; repeat for each port")
	m.Var(decimal[uint64]{&o.deviceID}, "device-id", "device id in P4Runtime requests; `N`")
	m.BoolVar(&o.noP4, "no-p4", false, "start without a program")
	m.StringVar(&o.p4info, "p4info", "",
		"P4Info of PROGRAM.json (text or binary `FILE`), so that controllers can read and write without pushing it first")
	m.StringVar(&o.engine, "engine", "auto", "engine that runs the program: `auto|ebpf|interp`")
	m.Var(&o.hook, "hook",
		"kernel hook of the ebpf engine: `auto|tc|xdp|clsact`. xdp is used on ports with native driver support, tc on the others. auto is xdp, except that veth ports use tc. clsact is tc as on Linux before 6.6")
	m.Var(decimal[uint16]{&o.onlyUDP}, "only-udp",
		"share the interfaces with the host: the program gets IPv4 packets of UDP port `N`, the host all others. Packets of that port with a VLAN tag, fragments or IP options are dropped. With --engine interp the host gets a copy of every packet")
	o.maxConnections = defaultConnections
	m.Var(decimal[int]{&o.maxConnections}, "max-connections",
		"serve P4Runtime to at most `N` connections; a new one replaces an idle one, or is refused")
	m.Var(decimal[uint16]{&o.thrift.port}, "thrift-port",
		"serve Thrift on TCP port `N`, for simple_switch_CLI and p4-utils (default: no Thrift)")
	m.StringVar(&o.thrift.addr, "thrift-addr", defaultThriftAddr,
		"address of the Thrift server, `HOST`. Thrift has no authentication, so everyone who reaches the port can change everything. Pass 0.0.0.0 to listen on every address, as BMv2 does")
	m.StringVar(&o.thrift.notifications, "notifications-addr", "",
		"publish digests at the nanomsg `ADDRESS`, ipc://PATH or tcp://HOST:PORT (default with --thrift-port: ipc:///tmp/bmv2-N-notifications.ipc with the device id for N, as BMv2)")
	m.BoolVar(&o.logConsole, "log-console", false, "log to stdout")
	m.StringVar(&o.logFile, "log-file", "", "log to `FILE`")
	m.StringVarP(&f.level, "log-level", "L", "info",
		"trace, debug, info, warn, error or off; `LEVEL`")
	m.StringVar(&o.pcap, "pcap", "",
		"record IFACE_in.pcap and IFACE_out.pcap of each interface in `DIR` (without a value: the current directory)")
	m.Lookup("pcap").NoOptDefVal = "."
	m.StringVar(&o.nanolog, "nanolog", "",
		"publish the path of each packet through the program at the nanomsg `ADDRESS`, in the format of BMv2's event log "+
			"(nanomsg_client.py); only for programs that run in interp")
	m.Var(decimal[int]{&o.dump}, "dump-packet-data", "log the first `N` bytes of each frame")
	m.StringVar(&o.faults, "faults", "",
		"lose, duplicate, reorder and delay frames, for tests: a `FILE` or the rules themselves,\n"+
			"e.g. 'seed=7; 1/rx: loss=0.01; *: delay=2ms, jitter=1ms, dup=0.01, reorder=0.05'")
	m.BoolVarP(&o.help, "help", "h", false, "show this help")
	m.BoolVarP(&o.version, "version", "v", false, "show the version")
	m.BoolVar(&o.jsonVer, "json-version", false, "show the version of the JSON format that the switch reads")
	for _, x := range foreign {
		addForeign(m, x.name, x.hasValue)
	}
	addForeign(m, "use-files", true)
	addForeign(m, "packet-in", true)
	addForeign(m, "restore-state", true)

	t := f.target
	t.SortFlags = false
	t.StringVar(&o.grpc.addr, "grpc-server-addr", defaultAddr,
		"address of the P4Runtime server, `HOST:PORT`. Pass 0.0.0.0:9559 to listen on every address, as BMv2 does")
	t.BoolVar(&o.grpc.tls, "grpc-server-ssl", false, "serve P4Runtime over TLS")
	t.StringVar(&o.grpc.cert, "grpc-server-cert", "", "the server's certificate, PEM `FILE`")
	t.StringVar(&o.grpc.key, "grpc-server-key", "", "the server's private key, PEM `FILE`")
	t.StringVar(&o.grpc.ca, "grpc-server-cacert", "",
		"CA certificates that must have signed clients' certificates, PEM `FILE`")
	t.BoolVar(&o.grpc.requireClientCert, "grpc-server-with-client-auth", false,
		"refuse clients without a certificate")
	t.Var(decimal[uint32]{&o.cpuPort}, "cpu-port",
		"port `N` of packet-in and packet-out (default: none)")
	o.dropPort = defaultDropPort
	t.Var(decimal[uint32]{&o.dropPort}, "drop-port", "egress port `N` that means drop")
	o.priorities = 1
	t.Var(decimal[int]{&o.priorities}, "priority-queues",
		fmt.Sprintf("number `N` of priority queues for each port between ingress and egress, 1 to %d; the largest number is sent first. "+
			"With more than one the program runs in interp", interp.MaxQueuePriorities))
	t.Var(decimal[int]{&o.dump}, "dump-packet-data", "")
	_ = t.MarkHidden("dump-packet-data")
	t.BoolVar(&o.thrift.swapDisabled, "disable-swap", false,
		"refuse programs that come over Thrift")
	for _, x := range foreignTarget {
		addForeign(t, x.name, x.hasValue)
	}
	addForeign(t, "load-modules", true)
	abbreviable(m)
	abbreviable(t)
	return f
}

func addForeign(s *pflag.FlagSet, name string, hasValue bool) {
	if hasValue {
		s.String(name, "", "")
	} else {
		s.Bool(name, false, "")
	}
	_ = s.MarkHidden(name)
}

// check validates the options and converts them.
func (f *flagSets) check(o *options) error {
	o.grpc.given = f.target.Changed("grpc-server-addr")
	o.thrift.notificationsGiven = f.main.Changed("notifications-addr")
	switch {
	case o.thrift.port == 0: // only Thrift clients read published digests
		o.thrift.notifications = ""
	case !o.thrift.notificationsGiven:
		o.thrift.notifications = fmt.Sprintf("ipc:///tmp/bmv2-%d-notifications.ipc", o.deviceID)
	}
	switch args := f.main.Args(); {
	case len(args) > 1:
		return usageError(
			"one program at most, not %q; target options such as --cpu-port come after \"--\"",
			args)
	case len(args) == 1 && o.noP4:
		o.unused = args[0]
	case len(args) == 1:
		o.json = args[0]
	case !o.noP4 && f.main.Changed("pcap") && o.pcap != ".":
		return usageError(
			"no program: the word behind --pcap, %q, is its directory; --pcap=. is for here",
			o.pcap)
	case !o.noP4:
		return usageError(
			"no program: give the JSON that p4c-bm2-ss wrote, or --no-p4 to wait for a controller to push one")
	}
	if o.p4info != "" && o.json == "" {
		return usageError("--p4info describes a program: give the program's JSON too")
	}
	for _, s := range f.interfaces {
		p, err := parsePort(s)
		if err != nil {
			return err
		}
		for _, q := range o.ports {
			if p.number == q.number {
				return usageError("port %d is given twice: as %s and as %s", p.number, q.iface,
					p.iface)
			}
			if p.iface == q.iface {
				return usageError("interface %s is given twice: as port %d and as port %d", p.iface,
					q.number, p.number)
			}
		}
		o.ports = append(o.ports, p)
	}
	for name, inUse := range map[string]uint32{"CPU": o.cpuPort, "drop": o.dropPort} {
		for _, p := range o.ports {
			if p.number == inUse && (name != "CPU" || inUse != 0) {
				return usageError("port %d (%s) is the %s port", p.number, p.iface, name)
			}
		}
	}
	if o.cpuPort != 0 && o.cpuPort == o.dropPort {
		return usageError("the CPU port and the drop port are both %d; give another --drop-port",
			o.cpuPort)
	}
	if o.priorities < 1 || o.priorities > interp.MaxQueuePriorities {
		return usageError("--priority-queues is 1 to %d, not %d", interp.MaxQueuePriorities,
			o.priorities)
	}
	if o.maxConnections < 1 {
		return usageError("--max-connections is at least 1, not %d", o.maxConnections)
	}
	if err := f.checkLog(o); err != nil {
		return err
	}
	for _, name := range []string{"use-files", "packet-in", "restore-state"} {
		if f.main.Changed(name) {
			return usageError(
				"--%s is not supported: frames come from interfaces, state from P4Runtime", name)
		}
	}
	if f.target.Changed("load-modules") {
		return usageError("--load-modules is not supported: externs are v1model's alone")
	}
	for _, x := range foreign {
		if f.main.Changed(x.name) {
			o.ignored = append(o.ignored, "--"+x.name+": "+x.why)
		}
	}
	for _, x := range foreignTarget {
		if f.target.Changed(x.name) {
			o.ignored = append(o.ignored, "--"+x.name+": "+x.why)
		}
	}
	return o.grpc.check()
}

func (f *flagSets) checkLog(o *options) error {
	if o.logConsole && o.logFile != "" {
		return usageError("--log-console and --log-file exclude each other")
	}
	if f.level == "off" {
		o.logOff = true
		return nil
	}
	level, ok := levels[f.level]
	if !ok {
		return usageError("--log-level is trace, debug, info, warn, error or off, not %q", f.level)
	}
	o.logLevel = level
	return nil
}

func (g *grpcOptions) check() error {
	if _, _, err := net.SplitHostPort(g.addr); err != nil {
		return usageError("--grpc-server-addr is HOST:PORT, such as %s: %v", defaultAddr, err)
	}
	if !g.tls {
		if g.cert != "" || g.key != "" || g.ca != "" || g.requireClientCert {
			return usageError("certificates are for TLS: give --grpc-server-ssl too")
		}
		return nil
	}
	if g.cert == "" || g.key == "" {
		return usageError("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
	}
	if g.requireClientCert && g.ca == "" {
		return usageError(
			"--grpc-server-with-client-auth needs --grpc-server-cacert, to know which clients' certificates are good")
	}
	return nil
}

// parsePort parses the argument PORT@IFACE.
func parsePort(s string) (portSpec, error) {
	number, iface, ok := strings.Cut(s, "@")
	if !ok || iface == "" {
		return portSpec{}, usageError("-i takes PORT@IFACE, such as 1@eth0, not %q", s)
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return portSpec{}, usageError("-i takes PORT@IFACE with a number as PORT, not %q", s)
	}
	return portSpec{uint32(n), iface}, nil
}
