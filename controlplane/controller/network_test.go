package controller_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"log/slog"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/admin"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/poll"
	"github.com/netcraq/netcraq/wire"
)

// The end-to-end tests run real switch processes on veth interfaces. Everything lives in network namespaces without a name, made by clone(2) for
// child processes: the switches and the test itself in one, each host in one of its own. They go, with all that is in them, when their processes do,
// so a killed run leaves nothing; and the processes go with their parent (PDEATHSIG).
const (
	envInside = "NETCRAQ_TEST_INSIDE" // set in the child that has a namespace of its own
	envHost   = "NETCRAQ_TEST_HOST"   // set in a child that is a host
)

// Main is what TestMain of a package with such tests calls.
func Main(m *testing.M) {
	if os.Getenv(envHost) != "" {
		hostMain()
		return
	}
	os.Exit(m.Run())
}

// inNamespace runs the rest of a test in a process with a network namespace of its own. It returns false in the parent, which has nothing more to do.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envInside) == t.Name() {
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
	cmd.Env = append(os.Environ(), envInside+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- SKIP") {
			t.Skipf("skipped in its namespace:\n%s", out)
		}
	}
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("in its namespace: %v", err)
	}
	return false
}

func sh(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// layout is what a network is made of: switches 1 to n, each with a host at port 1. Links take the next free ports of both ends.
type layout struct {
	n      int
	links  [][2]int
	chains []chainSpec
	// binary is the netcraq-switch, where it is built already
	binary string
	// profile is the width of values; 0: 128 bits
	profile wire.Profile
	// faults are what the cables do to frames (netcraq-switch --faults), those to the hosts included; "": they do nothing.
	faults string
}

type chainSpec struct {
	id      int
	name    string
	members []int
	lease   int // milliseconds
	// patience is in milliseconds; 0: nobody is taken out of the chain but by hand
	patience int
}

// line is n switches in a row and a chain over all of them.
func line(n, lease int) layout {
	l := layout{n: n, chains: []chainSpec{{id: 3, name: "main", lease: lease}}}
	for i := 1; i <= n; i++ {
		l.chains[0].members = append(l.chains[0].members, i)
		if i < n {
			l.links = append(l.links, [2]int{i, i + 1})
		}
	}
	return l
}

// network is a running layout.
type network struct {
	t        *testing.T
	layout   layout
	dir      string
	binary   string
	options  []string   // of the switch
	ports    [][]string // of each switch, its interfaces; port 1 first
	switches []*exec.Cmd
	cables   []string // the ends in the box of cables, two for each
	hosts    []*host
	proxies  []*proxy
	file     string // the topology
}

// basePort and the ones above it are the switches' P4Runtime servers; each is reached through a proxy that can be cut.
const basePort = 50051

func switchAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 255, byte(n)}) }

func serviceAddrOf(chain int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 254, byte(chain)}) }

var serviceAddr = serviceAddrOf(3)

// newNetwork starts the switches and hosts of a layout. engine is the embedded switch's (--engine), tc or xdp for the kernel at that hook, or bmv2.
func newNetwork(t *testing.T, engine string, l layout) *network {
	t.Helper()
	l.profile = cmp.Or(l.profile, wire.Profile128)
	nw := &network{t: t, layout: l, dir: t.TempDir(), ports: make([][]string, l.n+1), switches: make([]*exec.Cmd, l.n+1), proxies: make([]*proxy, l.n+1)}
	box := cmp.Or(l.binary, filepath.Join(nw.dir, "netcraq-switch"))
	if engine == "bmv2" {
		nw.binary = mustLook(t, "simple_switch_grpc")
	} else {
		nw.binary = box
		nw.options = []string{"--engine", engine}
		if engine == "tc" || engine == "xdp" {
			nw.options = []string{"--engine", "ebpf", "--hook", engine}
		}
	}
	if l.binary == "" && (nw.binary == box || l.faults != "") {
		buildSwitch(t, box)
	}
	port := func(i int) string {
		name := fmt.Sprintf("s%d-%d", i, len(nw.ports[i])+1)
		nw.ports[i] = append(nw.ports[i], name)
		return name
	}
	for i := 1; i <= l.n; i++ {
		nw.link(port(i), fmt.Sprintf("h%d", i))
	}
	var links [][]string
	for _, e := range l.links {
		a, b := port(e[0]), port(e[1])
		nw.link(a, b)
		links = append(links, []string{strings.Replace(a, "-", ":", 1), strings.Replace(b, "-", ":", 1)})
	}
	nw.startCables(box)
	for i := 1; i <= l.n; i++ {
		nw.startSwitch(i)
		nw.hosts = append(nw.hosts, startHost(t, i, l.profile))
		nw.proxies[i] = startProxy(t, fmt.Sprintf("127.0.0.1:%d", basePort+i-1))
	}
	nw.writeTopology(links)
	return nw
}

// buildSwitch builds the embedded switch.
func buildSwitch(t *testing.T, file string) {
	t.Helper()
	sh(t, "go", "build", "-o", file, "github.com/netcraq/netcraq/switch/cmd/netcraq-switch")
}

func mustLook(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("skipped: %s is not on PATH", name)
	}
	return path
}

// link connects two interfaces that it makes: by a veth pair, or, where cables have faults, by two with the box of cables in between.
func (nw *network) link(a, b string) {
	nw.t.Helper()
	if nw.layout.faults != "" {
		c := fmt.Sprintf("c%d", len(nw.cables)/2+1)
		nw.cables = append(nw.cables, c+"a", c+"b")
		nw.veth(a, c+"a")
		nw.veth(c+"b", b)
		return
	}
	nw.veth(a, b)
}

// cablesProgram is p4c's output for cables.p4, which passes frames from one end of a cable to the other.
//
//go:embed testdata/cables.json
var cablesProgram []byte

// startCables starts the switch that all cables go through, if they have faults.
func (nw *network) startCables(binary string) {
	nw.t.Helper()
	if len(nw.cables) == 0 {
		return
	}
	cables := filepath.Join(nw.dir, "cables.json")
	if err := os.WriteFile(cables, cablesProgram, 0o600); err != nil {
		nw.t.Fatal(err)
	}
	args := []string{"--engine", "interp", "--faults", nw.layout.faults}
	for n, ifc := range nw.cables {
		args = append(args, "-i", fmt.Sprintf("%d@%s", n+1, ifc))
	}
	args = append(args, cables, "--", "--grpc-server-addr", fmt.Sprintf("127.0.0.1:%d", basePort-1))
	nw.start(exec.Command(binary, args...), "cables", basePort-1)
}

func (nw *network) veth(a, b string) {
	nw.t.Helper()
	sh(nw.t, "ip", "link", "add", a, "type", "veth", "peer", "name", b)
	// For the next network in this namespace. That of a host may have taken the pair with it by then.
	nw.t.Cleanup(func() { exec.Command("ip", "link", "del", a).Run() })
	for _, x := range []string{a, b} {
		sh(nw.t, "sysctl", "-qw", "net.ipv6.conf."+x+".disable_ipv6=1")
		sh(nw.t, "ip", "link", "set", x, "up")
	}
}

func (nw *network) startSwitch(i int) {
	nw.t.Helper()
	args := append(slices.Clone(nw.options), "--device-id", fmt.Sprint(i), "--no-p4")
	for n, ifc := range nw.ports[i] {
		args = append(args, "-i", fmt.Sprintf("%d@%s", n+1, ifc))
	}
	args = append(args, "--", "--grpc-server-addr", fmt.Sprintf("127.0.0.1:%d", basePort+i-1), "--cpu-port", "510")
	nw.switches[i] = nw.start(exec.Command(nw.binary, args...), fmt.Sprintf("s%d", i), basePort+i-1)
}

// start starts a switch process and waits until it serves P4Runtime.
func (nw *network) start(cmd *exec.Cmd, name string, port int) *exec.Cmd {
	nw.t.Helper()
	log, err := os.OpenFile(filepath.Join(nw.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		nw.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		nw.t.Fatal(err)
	}
	nw.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	poll.Nil(nw.t, 20*time.Second, name+" serves P4Runtime", func() error {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			conn.Close()
		}
		return err
	}, func() string {
		b, _ := os.ReadFile(log.Name())
		return fmt.Sprint(tail(b, 20))
	})
	return cmd
}

// killSwitch ends a switch as a crash does.
func (nw *network) killSwitch(i int) {
	nw.switches[i].Process.Kill()
	nw.switches[i].Wait()
}

func (nw *network) writeTopology(links [][]string) {
	compiled, err := filepath.Abs("../../../p4src/compiled")
	if err != nil {
		nw.t.Fatal(err)
	}
	type m = map[string]any
	var switches, hosts, chains []m
	for i := 1; i <= nw.layout.n; i++ {
		name := fmt.Sprintf("s%d", i)
		switches = append(switches, m{"name": name, "p4runtime": nw.proxies[i].addr, "deviceId": i, "address": switchAddr(i).String()})
		hosts = append(hosts, m{"name": fmt.Sprintf("h%d", i), "ip": hostAddr(i).String(), "mac": hostMAC(i), "port": name + ":1"})
	}
	for _, c := range nw.layout.chains {
		chains = append(chains, m{"id": c.id, "name": c.name, "address": serviceAddrOf(c.id).String(), "members": names(c.members), "leaseMillis": c.lease, "patienceMillis": c.patience})
	}
	profile := fmt.Sprint(int(nw.layout.profile))
	program := filepath.Join(compiled, "netcraq-"+profile)
	b, err := json.MarshalIndent(m{
		"program":  m{"profile": profile, "json": program + ".json", "p4info": program + ".p4info.txtpb"},
		"sessions": m{"ttlSeconds": 2},
		"switches": switches, "links": links, "hosts": hosts, "chains": chains,
	}, "", "\t")
	if err != nil {
		nw.t.Fatal(err)
	}
	nw.file = filepath.Join(nw.dir, "net.json")
	if err := os.WriteFile(nw.file, b, 0o600); err != nil {
		nw.t.Fatal(err)
	}
}

func names(switches []int) []string {
	var out []string
	for _, i := range switches {
		out = append(out, fmt.Sprintf("s%d", i))
	}
	return out
}

// proxy is a TCP proxy that can be cut, as the network between controller and switch can.
type proxy struct {
	addr string
	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &proxy{addr: l.Addr().String(), open: map[net.Conn]bool{}}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil || !p.add(in, out) {
				in.Close()
				continue
			}
			go p.copy(in, out)
			go p.copy(out, in)
		}
	}()
	return p
}

func (p *proxy) add(in, out net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		out.Close()
		return false
	}
	p.open[in], p.open[out] = true, true
	return true
}

func (p *proxy) copy(from, to net.Conn) {
	io.Copy(to, from)
	from.Close()
	to.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, from)
	delete(p.open, to)
}

// setCut breaks all connections and refuses new ones, or lets them through again.
func (p *proxy) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		for c := range p.open {
			c.Close()
		}
	}
}

// running is a controller in this process.
type running struct {
	t    *testing.T
	api  *api.Client
	c    *controller.Controller
	stop func()
}

// startController starts a controller with the admin API. state "" is none.
func (nw *network) startController(state string) *running {
	nw.t.Helper()
	top, err := topology.Load(nw.file)
	if err != nil {
		nw.t.Fatal(err)
	}
	return nw.startControllerWith(state, top)
}

// startControllerWith is startController with another topology than the file's.
func (nw *network) startControllerWith(state string, top *topology.Topology) *running {
	nw.t.Helper()
	var store controller.Store = controller.Memory{}
	if state != "" {
		store = controller.File(filepath.Join(nw.dir, state))
	}
	log, err := os.OpenFile(filepath.Join(nw.dir, "controller.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		nw.t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, err := controller.New(controller.Options{Topology: top, Store: store, Log: logger})
	if err != nil {
		nw.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	server := httptest.NewServer(admin.Handler(c, nil))
	r := &running{t: nw.t, c: c, api: api.NewClient(server.URL)}
	var once sync.Once
	r.stop = func() {
		once.Do(func() { cancel(); <-done; server.CloseClientConnections(); server.Close(); log.Close() })
	}
	nw.t.Cleanup(func() {
		r.stop()
		if nw.t.Failed() {
			b, _ := os.ReadFile(filepath.Join(nw.dir, "controller.log"))
			nw.t.Logf("controller's log:\n%s", tail(b, 120))
		}
	})
	return r
}

func tail(b []byte, lines int) []byte {
	all := bytes.Split(b, []byte("\n"))
	return bytes.Join(all[max(0, len(all)-lines):], []byte("\n"))
}

// waitReady waits until all chains serve.
func (r *running) waitReady() api.Chain {
	r.t.Helper()
	r.waitAllReady()
	return r.chain()
}

func (r *running) waitAllReady() {
	r.t.Helper()
	poll.Nil(r.t, 30*time.Second, "all chains are ready", func() error { return r.api.Ready(r.t.Context()) }, r.history)
}

func (r *running) chain() api.Chain {
	r.t.Helper()
	c, err := r.api.Chain(r.t.Context(), "main")
	if err != nil {
		r.t.Fatal(err)
	}
	return *c
}

func (r *running) history() string {
	var b strings.Builder
	r.api.Events(context.Background(), 0, false, func(e api.Event) error {
		fmt.Fprintf(&b, "  %s %s %s %s %s\n", e.Time.Format("05.0000"), e.Type, e.Chain, e.Switch, e.Message)
		return nil
	})
	return b.String()
}

func (r *running) waitEvent(kind, sw string) {
	r.t.Helper()
	r.waitUntil(func() (found bool) {
		r.api.Events(r.t.Context(), 0, false, func(e api.Event) error { found = found || e.Type == kind && (sw == "" || e.Switch == sw); return nil })
		return found
	}, "an event "+kind+" "+sw)
}

func hostAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }
func hostMAC(n int) string      { return fmt.Sprintf("02:00:00:00:00:%02x", n) }

// host is a process in a namespace of its own that sends packets for the test.
type host struct {
	t       *testing.T
	profile wire.Profile
	cmd     *exec.Cmd
	in      io.WriteCloser
	mu      sync.Mutex
	next    int
	waits   map[int]chan hostReply
	closed  chan struct{}
}

type hostRequest struct {
	ID      int
	To      netip.AddrPort
	Payload []byte
	Timeout time.Duration
	Work    *workload // instead of a packet
	Watch   *watch    // the same
	Named   *namedWork
}

type hostReply struct {
	ID      int
	From    netip.AddrPort
	Payload []byte
	History []call
	Answers []int64 // of a watch
	Named   []namedCall
	Err     string
}

func startHost(t *testing.T, n int, profile wire.Profile) *host {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	h := startHostProcess(t, profile, cmd)
	ifc := fmt.Sprintf("h%d", n)
	pid := fmt.Sprint(h.cmd.Process.Pid)
	sh(t, "ip", "link", "set", ifc, "netns", pid)
	// Everything is behind the switch: a route to all by one neighbour, whose address nobody checks.
	for _, args := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "set", ifc, "address", hostMAC(n)},
		{"ip", "addr", "add", hostAddr(n).String() + "/32", "dev", ifc},
		{"ip", "link", "set", ifc, "up"},
		{"ip", "route", "add", "10.0.0.0/8", "dev", ifc, "via", "10.255.255.254", "onlink"},
		{"ip", "neigh", "add", "10.255.255.254", "lladdr", "02:00:00:00:ff:ff", "dev", ifc},
	} {
		sh(t, "nsenter", append([]string{"--net=/proc/" + pid + "/ns/net", "--"}, args...)...)
	}
	return h
}

// startHostProcess starts a process that does what a host is asked to (hostMain).
func startHostProcess(t *testing.T, profile wire.Profile, cmd *exec.Cmd) *host {
	t.Helper()
	h := &host{t: t, profile: profile, cmd: cmd, waits: map[int]chan hostReply{}, closed: make(chan struct{})}
	cmd.Env = append(os.Environ(), envHost+"=1")
	cmd.Stderr = os.Stderr
	var err error
	if h.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	go h.receive(out)
	return h
}

func (h *host) receive(out io.Reader) {
	defer close(h.closed)
	d := json.NewDecoder(bufio.NewReader(out))
	for {
		var r hostReply
		if d.Decode(&r) != nil {
			return
		}
		h.mu.Lock()
		ch := h.waits[r.ID]
		delete(h.waits, r.ID)
		h.mu.Unlock()
		ch <- r
	}
}

// ask sends one packet and gives its answer, or an error if none comes in time.
func (h *host) ask(to netip.Addr, p *wire.Packet, timeout time.Duration) (*wire.Packet, error) {
	payload, err := p.Marshal(h.profile)
	if err != nil {
		return nil, err
	}
	r, err := h.request(hostRequest{To: netip.AddrPortFrom(to, wire.Port), Payload: payload, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	out := new(wire.Packet)
	return out, out.Unmarshal(r.Payload, h.profile)
}

// request asks the host process for something.
func (h *host) request(req hostRequest) (hostReply, error) {
	ch := make(chan hostReply, 1)
	h.mu.Lock()
	h.next++
	req.ID = h.next
	h.waits[req.ID] = ch
	b, err := json.Marshal(req)
	if err == nil {
		_, err = h.in.Write(append(b, '\n'))
	}
	h.mu.Unlock()
	if err != nil {
		return hostReply{}, err
	}
	select {
	case r := <-ch:
		if r.Err != "" {
			return r, errors.New(r.Err)
		}
		return r, nil
	case <-h.closed:
		return hostReply{}, errors.New("the host process ended")
	}
}

// hostMain is a host process: requests on stdin, replies on stdout, each from a socket of its own.
func hostMain() {
	var mu sync.Mutex
	enc := json.NewEncoder(os.Stdout)
	d := json.NewDecoder(bufio.NewReader(os.Stdin))
	limit := make(chan struct{}, 64)
	for {
		var req hostRequest
		if d.Decode(&req) != nil {
			return
		}
		limit <- struct{}{}
		go func() {
			defer func() { <-limit }()
			var r hostReply
			var err error
			switch {
			case req.Work != nil:
				r.History, err = req.Work.run()
			case req.Watch != nil:
				r.Answers, err = req.Watch.run()
			case req.Named != nil:
				r.Named, err = req.Named.run()
			default:
				r = exchangeUDP(req)
			}
			if err != nil {
				r.Err = err.Error()
			}
			r.ID = req.ID
			mu.Lock()
			defer mu.Unlock()
			enc.Encode(r)
		}()
	}
}

func exchangeUDP(req hostRequest) hostReply {
	r := hostReply{ID: req.ID}
	conn, err := net.ListenUDP("udp4", nil)
	if err != nil {
		r.Err = err.Error()
		return r
	}
	defer conn.Close()
	if _, err := conn.WriteToUDPAddrPort(req.Payload, req.To); err != nil {
		r.Err = err.Error()
		return r
	}
	conn.SetReadDeadline(time.Now().Add(req.Timeout))
	b := make([]byte, 2048)
	n, from, err := conn.ReadFromUDPAddrPort(b)
	if err != nil {
		r.Err = err.Error()
		return r
	}
	r.From, r.Payload = from, b[:n]
	return r
}
