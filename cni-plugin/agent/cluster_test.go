package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

// These tests run everything: a runtime's library (libcni), the plugin's binary, the agent's
// binary, and network namespaces for nodes and pods. Namespace names begin with the PID of the test
// process. So the next run can remove namespaces that a killed run has left.

const namespacePrefix = "ncqtest-"

// envDies is an environment variable that makes this test binary run as an agent. The agent kills
// itself before a step of its first attachment.
const envDies = "NETCRAQ_TEST_AGENT_DIES_AT"

var binaries struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	if step := os.Getenv(envDies); step != "" {
		if err := mortalAgent(os.Args[1], os.Args[2], step); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if binaries.dir != "" {
		os.RemoveAll(binaries.dir)
	}
	os.Exit(code)
}

// mortalAgent runs netcraq-agent, and kills the process at a step.
func mortalAgent(socket, state, dieAt string) error {
	l, err := agent.Listen(socket)
	if err != nil {
		return err
	}
	sw, err := nodeswitch.Start(nodeswitch.Options{Engine: "auto", P4Runtime: "127.0.0.1:9559", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	a, err := agent.New(agent.WithStep(agent.Options{Dir: state, Switch: sw, FirstPort: 16, LastPort: 20,
		MTU: 1500}, func(name string) {
		if name == dieAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}))
	if err != nil {
		return err
	}
	if err := errors.Join(agent.EnableForwarding(), a.Reconcile()); err != nil {
		return err
	}
	a.SetReady(true, "")
	return http.Serve(l, a.Handler())
}

// needs skips the test if privileges or tools are missing. It builds the binaries once.
func needs(t testing.TB) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("skipped: needs ip (iproute2)")
	}
	binaries.Do(func() {
		removeOld()
		if binaries.dir, binaries.err = os.MkdirTemp("", "netcraq-cni-"); binaries.err != nil {
			return
		}
		const plugins = "github.com/containernetworking/plugins/plugins/"
		out, err := exec.Command("go", "build", "-o", binaries.dir, "github.com/netcraq/netcraq/cni-plugin/netcraq-cni", "github.com/netcraq/netcraq/cni-plugin/netcraq-agent",
			"github.com/netcraq/netcraq/switch/cmd/netcraq-switch", "github.com/netcraq/netcraq/test/e2e/testpod",
			"github.com/containernetworking/cni/cnitool", plugins+"ipam/host-local", plugins+"meta/portmap", plugins+"meta/bandwidth", plugins+"meta/tuning", plugins+"main/bridge", plugins+"main/ptp").CombinedOutput()
		if err != nil {
			binaries.err = fmt.Errorf("building: %w\n%s", err, out)
		}
	})
	if binaries.err != nil {
		t.Fatal(binaries.err)
	}
	return binaries.dir
}

// removeOld removes the namespaces of test processes that are dead.
func removeOld() {
	names, _ := filepath.Glob("/var/run/netns/" + namespacePrefix + "*")
	for _, n := range names {
		var pid int
		name := filepath.Base(n)
		if _, err := fmt.Sscanf(name, namespacePrefix+"%d-", &pid); err == nil && syscall.Kill(pid, 0) != nil {
			_ = exec.Command("ip", "netns", "del", name).Run()
		}
	}
}

var namespaces int

// namespace makes a network namespace that is deleted with the test.
func namespace(t testing.TB, what string) string {
	t.Helper()
	namespaces++
	name := fmt.Sprintf("%s%d-%s%d", namespacePrefix, os.Getpid(), what, namespaces)
	sh(t, "ip", "netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	sh(t, "ip", "-n", name, "link", "set", "lo", "up")
	return name
}

func sh(t testing.TB, command string, args ...string) string {
	t.Helper()
	out, err := exec.Command(command, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", command, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inside runs f on a thread in a network namespace. The sockets that f opens and the processes that
// it starts are in that namespace.
func inside[T any](t testing.TB, space string, f func() (T, error)) (T, error) {
	t.Helper()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		h, err := netns.GetFromName(space)
		if err == nil {
			defer h.Close()
			err = netns.Set(h)
		}
		if err != nil {
			done <- result{err: err}
			return
		}
		value, err := f()
		done <- result{value, err}
	}()
	r := <-done
	return r.value, r.err
}

// node is a cluster node: a network namespace with an agent.
type node struct {
	t      testing.TB
	space  string
	dir    string // folder for files of the agent, of host-local and of libcni
	bin    string
	cidr   netip.Prefix
	second netip.Prefix // pods' prefix of the second address family; zero if pods have only one family
	args   []string     // the agent's arguments
	agent  *exec.Cmd
	output *syncbuffer.Buffer
	cni    *libcni.CNIConfig
	lan    string // namespace of the bridge or router, if there is one
	file   string // plugin list with which pods are made; "" means a list with only netcraq-cni
}

// newNode makes a node without an agent.
func newNode(t testing.TB, cidr string, args ...string) *node {
	t.Helper()
	n := &node{t: t, bin: needs(t), space: namespace(t, "node"), dir: t.TempDir(), cidr: netip.MustParsePrefix(
		cidr), args: args}
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{n.bin}, filepath.Join(n.dir, "cache"),
		// set explicitly, because otherwise libcni sets it at the first call, from any goroutine
		&invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}})
	t.Cleanup(func() {
		n.kill()
		if t.Failed() && n.output != nil {
			t.Logf("the agent's output:\n%s", n.output)
		}
	})
	return n
}

func (n *node) socket() string { return filepath.Join(n.dir, "run", "agent.sock") }
func (n *node) state() string  { return filepath.Join(n.dir, "run", "attachments") }

// start starts the node's agent and waits until the agent is ready.
func (n *node) start() {
	n.t.Helper()
	n.launch(nil, append([]string{filepath.Join(n.bin, "netcraq-agent"), "--socket", n.socket(), "--state-dir", n.state(), "--log-level", "debug"}, n.args...)...)
}

// startMortal starts an agent that kills itself before a step.
func (n *node) startMortal(step string) {
	n.t.Helper()
	n.launch([]string{envDies + "=" + step}, os.Args[0], n.socket(), n.state())
}

func (n *node) launch(env []string, command ...string) {
	n.t.Helper()
	n.output = &syncbuffer.Buffer{}
	n.agent = exec.Command("ip", append([]string{"netns", "exec", n.space}, command...)...)
	n.agent.Env = append(os.Environ(), env...)
	n.agent.Stdout, n.agent.Stderr = n.output, n.output
	n.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the kernel sends the death signal when the thread that started the process ends
	check(n.t, n.agent.Start())
	client := agentapi.NewClient(n.socket())
	poll.Nil(n.t, 20*time.Second, "the agent is ready", func() error {
		s, err := client.Status(context.Background())
		if err == nil && !s.Ready {
			err = fmt.Errorf("%v", s)
		}
		return err
	}, n.output.String)
}

// kill kills the node's agent with SIGKILL if it runs.
func (n *node) kill() {
	if n.agent != nil {
		_ = n.agent.Process.Kill()
		_ = n.agent.Wait()
		n.agent = nil
	}
}

// died waits until the agent has ended by itself.
func (n *node) died() {
	n.t.Helper()
	done := make(chan error, 1)
	go func(c *exec.Cmd) { done <- c.Wait() }(n.agent)
	select {
	case <-done:
		n.agent = nil
	case <-time.After(20 * time.Second):
		n.t.Fatal("the agent lives")
	}
}

// plugin returns the configuration of netcraq-cni.
func (n *node) plugin() map[string]any {
	var ranges [][]map[string]string
	var routes []map[string]string
	for _, p := range []netip.Prefix{n.cidr, n.second} {
		if p.IsValid() {
			ranges = append(ranges, []map[string]string{{"subnet": p.String()}})
			routes = append(routes, map[string]string{"dst": netip.PrefixFrom(anyAddress(p.Addr()), 0).String()})
		}
	}
	return map[string]any{"type": "netcraq-cni", "socket": n.socket(), "ipam": map[string]any{"type": "host-local",
		"dataDir": filepath.Join(n.dir, "addresses"), "ranges": ranges, "routes": routes}}
}

// anyAddress returns the unspecified address of the same family, 0.0.0.0 or ::.
func anyAddress(a netip.Addr) netip.Addr {
	if a.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// list returns a network configuration list with plugins. Without arguments the list has only
// netcraq-cni.
func (n *node) list(plugins ...map[string]any) *libcni.NetworkConfigList {
	n.t.Helper()
	if len(plugins) == 0 && n.file != "" {
		l, err := libcni.ConfListFromFile(n.file)
		check(n.t, err)
		return l
	}
	return n.listOf("1.1.0", plugins...)
}

// listOf is like list, for a given version of the CNI specification.
func (n *node) listOf(version string, plugins ...map[string]any) *libcni.NetworkConfigList {
	n.t.Helper()
	if len(plugins) == 0 {
		plugins = []map[string]any{n.plugin()}
	}
	b, err := json.Marshal(map[string]any{"cniVersion": version, "name": "pods", "plugins": plugins})
	check(n.t, err)
	l, err := libcni.NetworkConfFromBytes(b)
	check(n.t, err)
	return l
}

// pod is a container.
type pod struct {
	space  string
	rt     *libcni.RuntimeConf
	ip     netip.Addr
	ips    []netip.Addr // all addresses of the pod; the first one is ip
	object *corev1.Pod  // object of the pod, if there is an API server
}

func (n *node) newPod(t testing.TB) *pod {
	t.Helper()
	space := namespace(t, "pod")
	return &pod{space: space, rt: &libcni.RuntimeConf{ContainerID: space, NetNS: "/var/run/netns/" + space, IfName: "eth0"}}
}

// add runs ADD of a list for a pod.
func (n *node) add(t testing.TB, l *libcni.NetworkConfigList, p *pod) (*current.Result, error) {
	t.Helper()
	r, err := inside(t, n.space, func() (types.Result, error) {
		return n.cni.AddNetworkList(context.Background(), l, p.rt)
	})
	if err != nil {
		return nil, err
	}
	result, err := current.NewResultFromResult(r)
	check(t, err)
	p.ips = nil
	for _, ip := range result.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		p.ips = append(p.ips, a.Unmap())
	}
	p.ip = p.ips[0]
	return result, nil
}

func (n *node) mustAdd(t testing.TB) *pod {
	t.Helper()
	p := n.newPod(t)
	_, err := n.add(t, n.list(), p)
	check(t, err)
	return p
}

func (n *node) del(t testing.TB, l *libcni.NetworkConfigList, p *pod) error {
	t.Helper()
	return n.run(t, func(ctx context.Context) error { return n.cni.DelNetworkList(ctx, l, p.rt) })
}

func (n *node) check(t testing.TB, l *libcni.NetworkConfigList, p *pod) error {
	t.Helper()
	return n.run(t, func(ctx context.Context) error { return n.cni.CheckNetworkList(ctx, l, p.rt) })
}

func (n *node) status(t testing.TB, l *libcni.NetworkConfigList) error {
	t.Helper()
	return n.run(t, func(ctx context.Context) error { return n.cni.GetStatusNetworkList(ctx, l) })
}

func (n *node) run(t testing.TB, f func(context.Context) error) error {
	t.Helper()
	_, err := inside(t, n.space, func() (struct{}, error) { return struct{}{}, f(context.Background()) })
	return err
}

// expectCode requires that err is a CNI error with a code.
func expectCode(t testing.TB, what string, err error, code uint) {
	t.Helper()
	var e *types.Error
	switch {
	case err == nil:
		t.Errorf("%s: no error, not one with code %d", what, code)
	case !errors.As(err, &e):
		t.Errorf("%s: %v, which is no error of CNI", what, err)
	case e.Code != code:
		t.Errorf("%s: code %d (%v), not %d", what, e.Code, err, code)
	}
}

// left lists what remains of attachments: interfaces, routes to pods, records and addresses.
func (n *node) left(t testing.TB) []string {
	t.Helper()
	out, err := inside(t, n.space, func() ([]string, error) {
		links, err := netlink.LinkList()
		if err != nil {
			return nil, err
		}
		var out []string
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Name, "ncq") || l.Type() == "veth" && strings.HasPrefix(l.Attrs().Name, "veth") {
				out = append(out, "interface "+l.Attrs().Name)
			}
		}
		routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
		for _, r := range routes {
			if r.Dst == nil || r.Type == unix.RTN_UNREACHABLE { // discards packets to addresses without a pod
				continue
			}
			ip, ok := netip.AddrFromSlice(r.Dst.IP)
			if ok && (n.cidr.Contains(ip.Unmap()) || n.second.IsValid() && n.second.Contains(ip.Unmap())) {
				out = append(out, "route to "+r.Dst.String())
			}
		}
		return out, err
	})
	check(t, err)
	records, err := filepath.Glob(filepath.Join(n.state(), "*"))
	check(t, err)
	addresses, err := filepath.Glob(filepath.Join(n.dir, "addresses", "pods", "10.*"))
	check(t, err)
	return append(append(out, records...), addresses...)
}

func (n *node) expectNothingLeft(t testing.TB) {
	t.Helper()
	if l := n.left(t); len(l) > 0 {
		t.Errorf("left: %v", l)
	}
}

// listen starts listening for TCP at a port, on all addresses of the address's family.
func listen(at netip.AddrPort) (net.Listener, error) {
	return net.Listen("tcp", netip.AddrPortFrom(anyAddress(at.Addr()), at.Port()).String())
}

// talk makes a TCP client in one namespace send a line to a server in another namespace. The client
// must read the line back.
func talk(t testing.TB, from, to string, addr netip.AddrPort) error {
	t.Helper()
	l, err := inside(t, to, func() (net.Listener, error) { return listen(addr) })
	check(t, err)
	defer l.Close()
	go echo(l)
	return say(t, from, addr)
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			b := make([]byte, 64)
			for {
				n, err := c.Read(b)
				if err != nil {
					return
				}
				if _, err := c.Write(b[:n]); err != nil {
					return
				}
			}
		}()
	}
}

func say(t testing.TB, from string, addr netip.AddrPort) error {
	t.Helper()
	_, err := inside(t, from, func() (struct{}, error) {
		c, err := net.DialTimeout("tcp", addr.String(), 3*time.Second)
		if err != nil {
			return struct{}{}, err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(3 * time.Second))
		b := make([]byte, 5)
		if _, err := c.Write([]byte("hello")); err != nil {
			return struct{}{}, err
		}
		_, err = c.Read(b)
		if err == nil && string(b) != "hello" {
			err = fmt.Errorf("%q came back", b)
		}
		return struct{}{}, err
	})
	return err
}

// gcArgs returns the arguments of a GC for which only these pods are valid.
func gcArgs(valid ...*pod) *libcni.GCArgs {
	args := &libcni.GCArgs{}
	for _, p := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: p.rt.ContainerID,
			IfName: p.rt.IfName})
	}
	return args
}

// talkVia is like talk, but the client reaches the server through another address and port.
func talkVia(t testing.TB, from, to string, addr netip.AddrPort, port uint16) error {
	t.Helper()
	l, err := inside(t, to, func() (net.Listener, error) { return net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", port)) })
	check(t, err)
	defer l.Close()
	go echo(l)
	return say(t, from, addr)
}

// send sends a number of bytes over TCP. It returns the time until the receiver has read the last
// byte.
func send(t testing.TB, from, to string, addr netip.AddrPort, bytes int64) time.Duration {
	t.Helper()
	l, err := inside(t, to, func() (net.Listener, error) { return net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", addr.Port())) })
	check(t, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, c)
			c.Close()
		}
		done <- err
	}()
	c, err := inside(t, from, func() (net.Conn, error) { return net.DialTimeout("tcp", addr.String(), 3*time.Second) })
	check(t, err)
	began := time.Now()
	_, err = io.CopyN(c, zeroes{}, bytes)
	check(t, errors.Join(err, c.Close()))
	check(t, <-done)
	return time.Since(began)
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { clear(b); return len(b), nil }
