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

// The end-to-end tests run real switch processes on veth interfaces. Everything lives in network
// namespaces without a name, made by clone(2) for child processes: the switches and the test itself
// in one, each host in one of its own. They go, with all that is in them, when their processes do,
// so a killed run leaves nothing; and the processes go with their parent (PDEATHSIG).
const (
	EnvInside = "NETCRAQ_TEST_INSIDE" // set in the child that has a namespace of its own
	envHost   = "NETCRAQ_TEST_HOST"   // set in a child that is a host
)

// Main is what TestMain of a package with such tests calls.
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

// InNamespace runs the rest of a test in a process with a network namespace of its own. It returns
// false in the parent, which has nothing more to do.
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
	var timeout time.Duration // none
	if end, ok := t.Deadline(); ok {
		timeout = max(time.Second, time.Until(end)-5*time.Second) // before the parent's, so that it says where it hangs
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

// skippedInside says whether a test was skipped in its namespace, by its output: itself, and not
// only a part of it; and nothing of it failed.
func skippedInside(name string, out []byte, err error) bool {
	return err == nil && strings.Contains(string(out), "--- SKIP: "+name+" (")
}

func sh(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// Layout is what a network is made of: switches 1 to n, each with a host at port 1. Links take the
// next free ports of both ends.
type Layout struct {
	N      int
	Links  [][2]int
	Chains []Chain
	// profile is the width of values; 0: 128 bits
	Profile wire.Profile
	// faults are what the cables do to frames (netcraq-switch --faults), those to the hosts
	// included; "": they do nothing.
	Faults string
	// Messages has a proxy before each switch that can deliver P4Runtime's messages late
	// (Network.Messages).
	Messages bool
}

type Chain struct {
	ID      int
	Name    string
	Members []int
	Lease   int // milliseconds
	// Short is how long leases are while everything is prompt, in milliseconds, and then patience
	// is the controller's default; 0: as Lease says
	Short int
	// patience is in milliseconds; 0: nobody is taken out of the chain but by hand
	Patience int
	// Rejoin is how many milliseconds a member that was lost must be steady before it comes back by
	// itself; 0: it does by hand only
	Rejoin int
}

// Line is n switches in a row and a chain over all of them.
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

// Network is a running layout.
type Network struct {
	T        *testing.T
	Layout   Layout
	dir      string
	binary   string
	options  []string   // of the switch
	ports    [][]string // of each switch, its interfaces; port 1 first
	switches []*exec.Cmd
	cables   []string // the ends in the box of cables, two for each
	Hosts    []*Host
	Proxies  []*Proxy
	Messages []*p4proxy.Proxy // of each switch, between its Proxy and the switch; nil: none
	file     string           // the topology
}

// BasePort and the ones above it are the switches' P4Runtime servers; each is reached through a
// proxy that can be cut. They are none of those that the kernel gives to connections
// (ip_local_port_range; 50051 is one): a switch that comes back would find its port taken.
const BasePort = 9559

// SwitchServer is where a switch serves P4Runtime, without any proxy.
func SwitchServer(n int) string { return fmt.Sprintf("127.0.0.1:%d", BasePort+n-1) }

func SwitchAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 255, byte(n)}) }

func ServiceAddrOf(chain int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 254, byte(chain)}) }

var ServiceAddr = ServiceAddrOf(3)

// NewNetwork starts the switches and hosts of a layout. engine is the embedded switch's (--engine),
// tc or xdp for the kernel at that hook, or bmv2.
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
		// It formats lines for every packet else, whether they are written somewhere or not.
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

// link connects two interfaces that it makes: by a veth pair, or, where cables have faults, by two
// with the box of cables in between.
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

// cablesProgram is p4c's output for cables.p4, which passes frames from one end of a cable to the
// other.
//
//go:embed testdata/cables.json
var cablesProgram []byte

// startCables starts the switch that all cables go through, if they have faults.
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
	// For the next network in this namespace. That of a host may have taken the pair with it by
	// then.
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

// answers waits until somebody takes connections at an address. The end of its log is said if
// nobody does.
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

// KillSwitch ends a switch as a crash does.
func (nw *Network) KillSwitch(i int) {
	nw.switches[i].Process.Kill()
	nw.switches[i].Wait()
}

// PauseSwitch stops a switch's process (SIGSTOP), or has it continue.
func (nw *Network) PauseSwitch(i int, pause bool) {
	nw.T.Helper()
	s := map[bool]syscall.Signal{true: syscall.SIGSTOP, false: syscall.SIGCONT}[pause]
	if err := nw.switches[i].Process.Signal(s); err != nil {
		nw.T.Fatal(err)
	}
}

// Program writes the compiled program for a width of values in bits into the network's folder,
// uncompressed, so that a controller of an earlier release reads it, too. It returns the paths of
// the JSON and of the P4Info.
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

// Changed is the network's file with changes.
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
