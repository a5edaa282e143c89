package lab

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/testutil/p4proxy"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
	"github.com/netcraq/netcraq/p4src"
	"github.com/netcraq/netcraq/switch/bmv2test"
)

// The end-to-end tests run real switch processes on veth interfaces. Everything is in unnamed
// network namespaces, which clone(2) creates for child processes. The switches and the test share
// one namespace, and each host has its own. A namespace ends with its last process, and the
// processes end with their parent (PDEATHSIG). So a killed run leaves no processes or namespaces
// behind.
const (
	EnvInside = "NETCRAQ_TEST_INSIDE" // set in the child process that has its own namespace
	envHost   = "NETCRAQ_TEST_HOST"   // set in a child process that is a host
)

// Main runs the tests of a package. The function TestMain of a package that uses this package calls
// it.
func Main(m *testing.M) {
	if os.Getenv(envHost) != "" {
		hostMain()
		return
	}
	if os.Getenv(envBusy) != "" {
		busyMain()
	}
	if does := os.Getenv(envNode); does != "" {
		if err := nodeServerMain(does); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	forget, err := keepBuilt()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	forget()
	os.Exit(code)
}

// InNamespace runs the rest of a test in a process with its own network namespace. In the parent
// process, it returns false, and the test must then return.
func InNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(EnvInside) == t.Name() {
		sh(t, "ip", "link", "set", "lo", "up")
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for network namespaces and AF_PACKET")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("skipped: needs ip (iproute2)")
	}
	var timeout time.Duration // 0 means no time limit
	if end, ok := t.Deadline(); ok {
		// with this time limit, the child prints where it hangs
		timeout = max(time.Second, time.Until(end)-5*time.Second)
	}
	args := []string{"-test.run=^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$", "-test.v", "-test.timeout=" + timeout.String()}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), EnvInside+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if skippedInside(t.Name(), out, err) {
		t.Skipf("skipped in its namespace:\n%s", out)
	}
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("in its namespace: %v", err)
	}
	return false
}

// skippedInside returns whether a whole test was skipped in its namespace, according to its output.
// If only a part of the test was skipped, or a part failed, it returns false.
func skippedInside(name string, out []byte, err error) bool {
	return err == nil && strings.Contains(string(out), "--- SKIP: "+name+" (")
}

func sh(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// Layout describes a network. It has the switches 1 to N, each with a host at port 1. Links use the
// next free ports of both switches.
type Layout struct {
	N      int
	Links  [][2]int
	Chains []Chain
	// Profile is the width of values. 0 means 128 bits.
	Profile wire.Profile
	// Faults are the faults of all cables, including the cables to hosts. The form is that of
	// netcraq-switch --faults. "" means no faults.
	Faults string
	// Messages makes the network put a proxy in front of each switch. The proxies can delay
	// P4Runtime's messages (Network.Messages).
	Messages bool
}

type Chain struct {
	ID      int
	Name    string
	Members []int
	Lease   int // duration of leases in milliseconds
	// Short is the duration of leases in milliseconds while messages arrive promptly. If it is set,
	// Patience is the controller's default. 0 means that leases always have the duration Lease.
	Short int
	// Patience is the time in milliseconds after which the controller gives up a member that does
	// not answer. 0 means that members leave the chain only on an operator's command.
	Patience int
	// Rejoin is the time in milliseconds for which a lost member must be stable before it rejoins
	// automatically. 0 means that it rejoins only on an operator's command.
	Rejoin int
}

// Line returns a layout of n switches in a row, with a chain over all of them.
func Line(n, lease int) Layout {
	l := Layout{N: n, Chains: []Chain{{ID: 3, Name: "main", Lease: lease}}}
	for i := 1; i <= n; i++ {
		l.Chains[0].Members = append(l.Chains[0].Members, i)
		if i < n {
			l.Links = append(l.Links, [2]int{i, i + 1})
		}
	}
	return l
}

// Network is a running network of real switches and hosts, as a Layout describes it.
type Network struct {
	T        *testing.T
	Layout   Layout
	dir      string
	binary   string
	options  []string   // options of the switches' command lines
	ports    [][]string // interfaces of each switch, port 1 first
	switches []*exec.Cmd
	cables   []string // interfaces of the switch that simulates the cables; each cable has two
	Hosts    []*Host
	Proxies  []*Proxy
	// for each switch, the second proxy in front of it, which can delay messages; nil if there is
	// none
	Messages []*p4proxy.Proxy
	file     string // path of the file with the topology
}

// BasePort is the first port of the switches' P4Runtime servers. Each server is reached through a
// proxy that a test can cut. The ports are outside the range that the kernel assigns to connections
// (ip_local_port_range, which includes 50051). Otherwise a restarted switch might find its port in
// use.
const BasePort = 9559

// SwitchServer returns the address of a switch's P4Runtime server itself, without its proxy.
func SwitchServer(n int) string { return fmt.Sprintf("127.0.0.1:%d", BasePort+n-1) }

func SwitchAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 255, byte(n)}) }

func ServiceAddrOf(chain int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 254, byte(chain)}) }

var ServiceAddr = ServiceAddrOf(3)

// NewNetwork starts the switches and hosts of a layout. engine is a value of netcraq-switch's
// option --engine. It can also be tc or xdp, for the kernel engine at that hook, or bmv2.
func NewNetwork(t *testing.T, engine string, l Layout) *Network {
	t.Helper()
	l.Profile = cmp.Or(l.Profile, wire.Profile128)
	nw := &Network{T: t, Layout: l, dir: t.TempDir(), ports: make([][]string, l.N+1),
		switches: make([]*exec.Cmd, l.N+1), Proxies: make([]*Proxy, l.N+1),
		Messages: make([]*p4proxy.Proxy, l.N+1)}
	box := ""
	if engine != "bmv2" || l.Faults != "" {
		box = Built(t, "switch/cmd/netcraq-switch")
	}
	if engine == "bmv2" {
		nw.binary = MustLook(t, "simple_switch_grpc")
		// With logging, the switch would format log lines for every packet, even if nothing reads
		// them.
		nw.options = []string{"--log-level", "off"}
	} else {
		nw.binary = box
		nw.options = []string{"--engine", engine}
		if engine == "tc" || engine == "xdp" {
			nw.options = []string{"--engine", "ebpf", "--hook", engine}
		}
	}
	port := func(i int) string {
		name := fmt.Sprintf("s%d-%d", i, len(nw.ports[i])+1)
		nw.ports[i] = append(nw.ports[i], name)
		return name
	}
	for i := 1; i <= l.N; i++ {
		nw.link(port(i), fmt.Sprintf("h%d", i))
	}
	var links [][]string
	for _, e := range l.Links {
		a, b := port(e[0]), port(e[1])
		nw.link(a, b)
		links = append(links, []string{strings.Replace(a, "-", ":", 1), strings.Replace(b, "-", ":", 1)})
	}
	nw.startCables(box)
	for i := 1; i <= l.N; i++ {
		nw.StartSwitch(i)
		nw.Hosts = append(nw.Hosts, startHost(t, i, l.Profile))
		target := SwitchServer(i)
		if l.Messages {
			nw.Messages[i] = nw.startMessages(target)
			target = nw.Messages[i].Addr
		}
		nw.Proxies[i] = StartProxy(t, target)
	}
	nw.writeTopology(links)
	return nw
}

func MustLook(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("skipped: %s is not on PATH", name)
	}
	return path
}

// link creates and connects two interfaces. They are a veth pair. But if cables have faults, they
// are connected through the switch that simulates the cables.
func (nw *Network) link(a, b string) {
	nw.T.Helper()
	if nw.Layout.Faults != "" {
		c := fmt.Sprintf("c%d", len(nw.cables)/2+1)
		nw.cables = append(nw.cables, c+"a", c+"b")
		nw.veth(a, c+"a")
		nw.veth(c+"b", b)
		return
	}
	nw.veth(a, b)
}

// cablesProgram is p4c's output for cables.p4, which passes frames between the two ends of a cable.
//
//go:embed testdata/cables.json
var cablesProgram []byte

// startCables starts the switch that simulates all cables, if they have faults.
func (nw *Network) startCables(binary string) {
	nw.T.Helper()
	if len(nw.cables) == 0 {
		return
	}
	cables := filepath.Join(nw.dir, "cables.json")
	if err := os.WriteFile(cables, cablesProgram, 0o600); err != nil {
		nw.T.Fatal(err)
	}
	args := []string{"--engine", "interp", "--faults", nw.Layout.Faults}
	for n, ifc := range nw.cables {
		args = append(args, "-i", fmt.Sprintf("%d@%s", n+1, ifc))
	}
	args = append(args, cables, "--", "--grpc-server-addr", fmt.Sprintf("127.0.0.1:%d", BasePort-1))
	nw.start(exec.Command(binary, args...), "cables", BasePort-1)
}

func (nw *Network) veth(a, b string) {
	nw.T.Helper()
	sh(nw.T, "ip", "link", "add", a, "type", "veth", "peer", "name", b)
	// The pair must be gone before the next network in this namespace starts. The end of a host's
	// namespace may already have removed it.
	nw.T.Cleanup(func() { exec.Command("ip", "link", "del", a).Run() })
	for _, x := range []string{a, b} {
		sh(nw.T, "sysctl", "-qw", "net.ipv6.conf."+x+".disable_ipv6=1")
		sh(nw.T, "ip", "link", "set", x, "up")
	}
}

func (nw *Network) StartSwitch(i int) {
	nw.T.Helper()
	args := append(slices.Clone(nw.options), "--device-id", fmt.Sprint(i), "--no-p4")
	for n, ifc := range nw.ports[i] {
		args = append(args, "-i", fmt.Sprintf("%d@%s", n+1, ifc))
	}
	args = append(args, bmv2test.ThriftFlags(nw.T, nw.binary, testport.Free(nw.T))...)
	args = append(args, "--", "--grpc-server-addr", fmt.Sprintf("127.0.0.1:%d", BasePort+i-1), "--cpu-port", "510")
	nw.switches[i] = nw.start(exec.Command(nw.binary, args...), fmt.Sprintf("s%d", i), BasePort+i-1)
}

// start starts a switch process and waits until it serves P4Runtime.
func (nw *Network) start(cmd *exec.Cmd, name string, port int) *exec.Cmd {
	nw.T.Helper()
	log, err := os.OpenFile(filepath.Join(nw.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		nw.T.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		nw.T.Fatal(err)
	}
	nw.T.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	nw.answers(20*time.Second, name+" serves P4Runtime", "tcp", fmt.Sprintf("127.0.0.1:%d", port), log.Name())
	return cmd
}

// answers waits until a server accepts connections at an address. If no server does so within
// limit, the test fails with the end of the server's log.
func (nw *Network) answers(limit time.Duration, what, network, address, log string) {
	nw.T.Helper()
	poll.Nil(nw.T, limit, what, func() error {
		conn, err := net.Dial(network, address)
		if err == nil {
			conn.Close()
		}
		return err
	}, func() string {
		b, _ := os.ReadFile(log)
		return string(tail(b, 20))
	})
}

// KillSwitch kills a switch, as a crash would.
func (nw *Network) KillSwitch(i int) {
	nw.switches[i].Process.Kill()
	nw.switches[i].Wait()
}

// PauseSwitch stops a switch's process (SIGSTOP) if pause is true. Otherwise it continues the
// process.
func (nw *Network) PauseSwitch(i int, pause bool) {
	nw.T.Helper()
	s := map[bool]syscall.Signal{true: syscall.SIGSTOP, false: syscall.SIGCONT}[pause]
	if err := nw.switches[i].Process.Signal(s); err != nil {
		nw.T.Fatal(err)
	}
}

// Program writes the compiled P4 program for a width of values in bits into the network's folder.
// The JSON is not compressed, so that a controller of an earlier release can also read it. It
// returns the paths of the JSON and of the P4Info.
func (nw *Network) Program(bits int) (json, p4info string) {
	nw.T.Helper()
	json, p4info, err := p4src.Write(filepath.Join(nw.dir, fmt.Sprintf("netcraq-%d", bits)), bits)
	if err != nil {
		nw.T.Fatal(err)
	}
	return json, p4info
}

func (nw *Network) writeTopology(links [][]string) {
	type m = map[string]any
	var switches, hosts, chains []m
	for i := 1; i <= nw.Layout.N; i++ {
		name := fmt.Sprintf("s%d", i)
		switches = append(switches, m{"name": name, "p4runtime": nw.Proxies[i].Addr, "deviceId": i, "address": SwitchAddr(i).String()})
		hosts = append(hosts, m{"name": fmt.Sprintf("h%d", i), "ip": HostAddr(i).String(), "mac": HostMAC(i), "port": name + ":1"})
	}
	for _, c := range nw.Layout.Chains {
		chains = append(chains, m{"id": c.ID, "name": c.Name, "address": ServiceAddrOf(c.ID).String(),
			"members": Names(c.Members), "leaseMillis": c.Lease, "rejoinMillis": c.Rejoin})
		chain := chains[len(chains)-1]
		if c.Short > 0 {
			chain["shortLeaseMillis"] = c.Short
		} else {
			chain["patienceMillis"] = c.Patience
		}
	}
	program, info := nw.Program(int(nw.Layout.Profile))
	b, err := json.MarshalIndent(m{
		"program":  m{"profile": fmt.Sprint(int(nw.Layout.Profile)), "json": program, "p4info": info},
		"sessions": m{"ttlSeconds": 2},
		"switches": switches, "links": links, "hosts": hosts, "chains": chains,
	}, "", "\t")
	if err != nil {
		nw.T.Fatal(err)
	}
	nw.file = filepath.Join(nw.dir, "net.json")
	if err := os.WriteFile(nw.file, b, 0o600); err != nil {
		nw.T.Fatal(err)
	}
}

func Names(switches []int) []string {
	var out []string
	for _, i := range switches {
		out = append(out, fmt.Sprintf("s%d", i))
	}
	return out
}

func HostAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }
func HostMAC(n int) string      { return fmt.Sprintf("02:00:00:00:00:%02x", n) }

// Changed returns the network's topology with changes.
func (nw *Network) Changed(changes ...func(topologytest.Object)) *topology.Topology {
	nw.T.Helper()
	top := topologytest.Read(nw.T, nw.file, func(topologytest.Object) {})
	for _, change := range changes {
		change(top)
	}
	b, err := json.Marshal(top)
	if err != nil {
		nw.T.Fatal(err)
	}
	t, err := topology.Parse(b, "changed.json")
	if err != nil {
		nw.T.Fatal(err)
	}
	return t
}
