package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/testutil/testcerts"
)

// machine is a healthy machine, as files in a folder that replaces its root directory.
type machine struct {
	t *testing.T
	Options
	probes probes
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	none := func() error { return nil }
	m := &machine{t: t, Options: Options{Root: dir + "/root", Proc: dir + "/proc", Admin: "unix://" + dir + "/nobody.sock"},
		probes: probes{load: none, ring: none, tcx: none, helper: func(asm.BuiltinFunc) error { return nil },
			clock: func() (int32, time.Duration, error) { return 0, time.Millisecond, nil }}}
	m.proc("sys/kernel/osrelease", "6.12.0-amd64\n")
	m.proc("sys/net/core/bpf_jit_enable", "1\n")
	m.proc("sys/net/ipv4/ip_forward", "1\n")
	m.proc("sys/net/ipv6/conf/all/forwarding", "1\n")
	m.proc("sys/net/ipv4/conf/all/rp_filter", "2\n")
	m.proc("self/limits", limitsFile("unlimited", "1048576"))
	m.proc("self/cgroup", "0::/user.slice\n")
	m.proc("self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	for _, f := range []string{"tcp", "tcp6", "udp", "udp6"} {
		m.proc("thread-self/net/"+f, socketsHead)
	}
	m.root("/sys/kernel/btf/vmlinux", "btf")
	m.root("/etc/cni/net.d/10-netcraq.conflist", ownNetwork)
	for _, p := range []string{"netcraq-cni", "host-local", "portmap"} {
		m.root("/opt/cni/bin/"+p, "program")
	}
	return m
}

const ownNetwork = `{"cniVersion": "1.0.0", "name": "netcraq", "plugins": [{"type": "netcraq-cni", "ipam": {"type": "host-local"}}, {"type": "portmap"}]}`

const socketsHead = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func limitsFile(locked, files string) string {
	return "Limit                     Soft Limit           Hard Limit           Units\n" +
		"Max locked memory         " + locked + "              " + locked + "            bytes\n" +
		"Max open files            " + files + "                 1048576              files\n"
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) proc(path, text string) { m.t.Helper(); m.write(filepath.Join(m.Proc, path), text) }
func (m *machine) root(path, text string) { m.t.Helper(); m.write(filepath.Join(m.Root, path), text) }

// process adds a process with a socket.
func (m *machine) process(pid int, name string, inode int) {
	m.t.Helper()
	at := strconv.Itoa(pid)
	m.proc(at+"/comm", name[:min(len(name), 15)]+"\n")
	m.proc(at+"/cmdline", "/usr/local/bin/"+name+"\x00--flag\x00")
	if inode == 0 {
		return
	}
	if err := os.MkdirAll(filepath.Join(m.Proc, at, "fd"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(m.Proc, at, "fd/3")); err != nil {
		m.t.Fatal(err)
	}
}

// listens adds a socket that listens on a port.
func (m *machine) listens(file string, port, inode int) {
	m.proc("thread-self/net/"+file, socketsHead+
		fmt.Sprintf("   0: 00000000:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 %d 1\n", port, inode))
}

// look runs one check.
func (m *machine) look(name string) []Finding {
	m.t.Helper()
	l := newLook(m.Options)
	l.probes = m.probes
	for _, c := range checks {
		if c.Name == name {
			l.check = name
			c.Run(m.t.Context(), l)
		}
	}
	return l.report.Findings
}

// wantFinding requires a finding with a level, a subject and words.
func wantFinding(t *testing.T, all []Finding, level Level, subject string, words ...string) {
	t.Helper()
	for _, f := range all {
		fits := f.Level == level && f.Subject == subject
		for _, w := range words {
			fits = fits && strings.Contains(f.Message+" -> "+f.Advice, w)
		}
		if fits {
			if (level == Problem || level == Warning) && f.Advice == "" {
				t.Errorf("it does not say what to do: %+v", f)
			}
			return
		}
	}
	t.Errorf("no finding %s of %q with %q in %+v", level, subject, words, all)
}

// wantCalm requires that there are no warnings and no problems.
func wantCalm(t *testing.T, all []Finding) {
	t.Helper()
	for _, f := range all {
		if f.Level == Problem || f.Level == Warning || f.Level == Unseen {
			t.Errorf("of a machine on which nothing is wrong: %+v", f)
		}
	}
}

// TestFindings breaks one thing of a machine at a time, and checks what the report says.
func TestFindings(t *testing.T) {
	lacks := func() error { return ebpf.ErrNotSupported }
	deny := func() error { return unix.EPERM }
	for _, c := range []struct {
		name    string
		check   string
		broken  func(*machine)
		level   Level
		subject string
		words   []string
	}{
		{"old kernel", "kernel", func(m *machine) { m.proc("sys/kernel/osrelease", "5.4.0-190-generic\n") }, Problem, "version",
			[]string{"5.4.0-190-generic", "5.18", "--engine interp"}},
		{"kernel without tcx by version", "kernel", func(m *machine) { m.proc("sys/kernel/osrelease", "6.1.0\n") }, Note, "version", []string{"clsact", "6.6"}},
		{"no version", "kernel", func(m *machine) { m.proc("sys/kernel/osrelease", "what\n") }, Unseen, "version", []string{"what"}},
		{"no eBPF", "kernel", func(m *machine) { m.probes.load = lacks }, Problem, "eBPF", []string{"CONFIG_BPF_SYSCALL"}},
		{"may not load", "kernel", func(m *machine) { m.probes.load = deny }, Unseen, "eBPF", []string{"as root"}},
		{"no helper", "kernel", func(m *machine) {
			m.probes.helper = func(asm.BuiltinFunc) error { return ebpf.ErrNotSupported }
		}, Problem, "helpers", []string{"FnLoop"}},
		{"no ring", "kernel", func(m *machine) { m.probes.ring = lacks }, Problem, "helpers", []string{"ring buffers"}},
		{"no tcx", "kernel", func(m *machine) { m.probes.tcx = lacks }, Note, "tcx", []string{"clsact"}},
		{"no BTF", "kernel", func(m *machine) { os.Remove(m.Root + "/sys/kernel/btf/vmlinux") }, Note, "BTF", nil},
		{"interpreted", "kernel", func(m *machine) { m.proc("sys/net/core/bpf_jit_enable", "0\n") }, Warning, "compiler", []string{"bpf_jit_enable=1"}},
		{"logged", "kernel", func(m *machine) { m.proc("sys/net/core/bpf_jit_enable", "2\n") }, Warning, "compiler", []string{"logs"}},
		{"hardened", "kernel", func(m *machine) { m.proc("sys/net/core/bpf_jit_harden", "2\n") }, Note, "compiler", []string{"blinded"}},
		{"locked down", "kernel", func(m *machine) {
			m.root("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n")
		}, Problem, "lockdown", []string{"lockdown=integrity"}},

		{"locked memory", "limits", func(m *machine) {
			m.proc("sys/kernel/osrelease", "5.4.0\n")
			m.proc("self/limits", limitsFile("65536", "1024"))
		}, Problem, "locked memory", []string{"64 KiB", "LimitMEMLOCK"}},
		{"locked memory of a new kernel", "limits", func(m *machine) { m.proc("self/limits", limitsFile("65536", "1024")) }, OK, "locked memory", nil},
		{"the agent's open files", "limits", func(m *machine) {
			m.process(77, "netcraq-agent", 0)
			m.proc("77/limits", limitsFile("unlimited", "256"))
		}, Warning, "open files", []string{"process 77", "256", "LimitNOFILE"}},
		{"no limits", "limits", func(m *machine) { os.Remove(m.Proc + "/self/limits") }, Unseen, "limits", nil},
		{"strange limits", "limits", func(m *machine) { m.proc("self/limits", "x\n") }, Unseen, "limits", []string{"not understood"}},

		{"version 1", "cgroups", func(m *machine) {
			m.proc("self/mountinfo", "30 24 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n")
		}, Warning, "control groups", []string{"pids", "unified_cgroup_hierarchy=1"}},
		{"both versions", "cgroups", func(m *machine) {
			m.proc("self/mountinfo", "30 24 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n")
		}, Note, "control groups", []string{"/sys/fs/cgroup/unified"}},
		{"no control groups", "cgroups", func(m *machine) { m.proc("self/mountinfo", "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n") }, Problem, "control groups", []string{"mount -t cgroup2"}},
		{"mounts unseen", "cgroups", func(m *machine) { os.Remove(m.Proc + "/self/mountinfo") }, Unseen, "control groups", nil},
		{"another kernel's /proc", "cgroups", func(m *machine) { m.proc("self/cgroup", "12:pids:/user\n") }, Problem, "own control group", nil},

		{"no forwarding, without an agent", "sysctls", func(m *machine) { m.proc("sys/net/ipv4/ip_forward", "0\n") }, Note, "net.ipv4.ip_forward", []string{"the agent sets it"}},
		{"forwarding set back", "sysctls", func(m *machine) {
			m.proc("sys/net/ipv4/ip_forward", "0\n")
			m.process(77, "netcraq-agent", 0)
		}, Problem, "net.ipv4.ip_forward", []string{"set it back", "/etc/sysctl.d"}},
		{"no forwarding of IPv6", "sysctls", func(m *machine) { m.proc("sys/net/ipv6/conf/all/forwarding", "0\n") }, Note, "net.ipv6.conf.all.forwarding", nil},
		{"strict", "sysctls", func(m *machine) { m.proc("sys/net/ipv4/conf/all/rp_filter", "1\n") }, Warning, "net.ipv4.conf.all.rp_filter", []string{"strict", "loose"}},
		{"forwarding unseen", "sysctls", func(m *machine) { os.Remove(m.Proc + "/sys/net/ipv4/ip_forward") }, Unseen, "net.ipv4.ip_forward", nil},

		{"port taken", "ports", func(m *machine) { m.process(31, "nginx", 4711); m.listens("tcp", 9560, 4711) }, Problem, "tcp 9560",
			[]string{"nginx, process 31", "--agent-port"}},
		{"port taken, by IPv6", "ports", func(m *machine) { m.process(31, "nginx", 4711); m.listens("tcp6", 20036, 4711) }, Problem, "tcp 20036", []string{"nginx"}},
		{"port taken by whom", "ports", func(m *machine) { m.listens("tcp", 9559, 4711) }, Unseen, "tcp 9559", []string{"as root"}},
		{"port of ours", "ports", func(m *machine) { m.process(31, "netcraq-agent", 4711); m.listens("tcp", 9559, 4711) }, OK, "tcp 9559", []string{"process 31"}},
		{"the chains' port", "ports", func(m *machine) { m.process(31, "resolver", 4711); m.listens("udp", 20035, 4711) }, Warning, "udp 20035", []string{"resolver"}},
		{"somebody's tunnel", "ports", func(m *machine) { m.listens("udp", 20035, 0) }, Warning, "udp 20035", []string{"ip -d link"}},
		{"our tunnel", "ports", func(m *machine) { m.listens("udp", 20037, 0) }, OK, "udp 20037", nil},
		{"sockets unseen", "ports", func(m *machine) { os.Remove(m.Proc + "/thread-self/net/tcp") }, Unseen, "tcp", nil},

		{"another network first", "cni", func(m *machine) {
			m.root("/etc/cni/net.d/05-cilium.conflist", `{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"cilium-cni"}]}`)
			m.root("/opt/cni/bin/cilium-cni", "x")
		}, Problem, "10-netcraq.conflist", []string{"is not used", "remove the file"}},
		{"no network", "cni", func(m *machine) { os.RemoveAll(m.Root + "/etc/cni") }, Note, "/etc/cni/net.d", nil},
		{"chained", "cni", func(m *machine) {
			m.root("/etc/cni/net.d/10-netcraq.conflist", `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"portmap"},{"type":"netcraq-cni"}]}`)
		}, OK, "10-netcraq.conflist", []string{"behind portmap"}},
		{"not in it", "cni", func(m *machine) {
			m.root("/etc/cni/net.d/10-netcraq.conflist", `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"portmap"}]}`)
		}, Note, "10-netcraq.conflist", []string{"not in it"}},
		{"no JSON", "cni", func(m *machine) { m.root("/etc/cni/net.d/00-half.conflist", `{"cniVersion":`) }, Problem, "00-half.conflist", []string{"mend or remove"}},
		{"plugin missing", "cni", func(m *machine) { os.Remove(m.Root + "/opt/cni/bin/portmap") }, Problem, "portmap", []string{"/opt/cni/bin"}},
		{"IPAM plugin missing", "cni", func(m *machine) { os.Remove(m.Root + "/opt/cni/bin/host-local") }, Problem, "host-local", nil},
		{"plugin no program", "cni", func(m *machine) { os.Chmod(m.Root+"/opt/cni/bin/netcraq-cni", 0o644) }, Problem, "netcraq-cni", []string{"chmod 0755"}},

		{"unsynchronized", "clocks", func(m *machine) {
			m.probes.clock = func() (int32, time.Duration, error) { return unix.STA_UNSYNC, 16 * time.Second, nil }
		}, Warning, "synchronization", []string{"chrony"}},
		{"clock unseen", "clocks", func(m *machine) {
			m.probes.clock = func() (int32, time.Duration, error) { return 0, 0, errors.New("no") }
		}, Unseen, "synchronization", nil},
		{"slow clock", "clocks", func(m *machine) {
			m.root("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n")
		}, Warning, "clock source", []string{"hpet"}},
		{"no controller", "clocks", func(*machine) {}, Unseen, "controller", nil},
		{"no etcd's authority", "clocks", func(m *machine) { m.Etcd, m.EtcdCA = []string{"https://127.0.0.1:1"}, m.Root+"/no.crt" }, Unseen, "etcd", []string{"no.crt"}},

		{"no certificate", "certificates", func(m *machine) { m.Certificates = []Certificate{{File: m.Root + "/no.crt"}} }, Problem, "", nil},
		{"no PEM", "certificates", func(m *machine) { m.root("/etc/kubernetes/pki/ca.crt", "x") }, Problem, "/etc/kubernetes/pki/ca.crt", []string{"PEM"}},
		{"broken PEM", "certificates", func(m *machine) {
			m.root("/etc/kubernetes/pki/ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
		}, Problem, "/etc/kubernetes/pki/ca.crt", []string{"not understood"}},
		{"no server", "certificates", func(m *machine) { m.ServedCertificates = []string{"127.0.0.1:1"} }, Problem, "127.0.0.1:1", nil},

		{"no controller", "sockets", func(*machine) {}, Problem, "controller", []string{"Its log"}},
		{"no agent", "sockets", func(*machine) {}, Note, agentSocket, []string{"no agent runs"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			m := newMachine(t)
			c.broken(m)
			if c.subject == "" {
				c.subject = m.Root + "/no.crt"
			}
			wantFinding(t, m.look(c.check), c.level, c.subject, c.words...)
		})
	}
}

// TestCalm checks that the report of a healthy machine has no warnings or problems.
func TestCalm(t *testing.T) {
	m := newMachine(t)
	for _, c := range []string{"kernel", "limits", "cgroups", "sysctls", "ports", "cni"} {
		wantCalm(t, m.look(c))
	}
}

// TestCertificates checks expired certificates, future ones, and ones for other names.
func TestCertificates(t *testing.T) {
	authority := testcerts.NewAuthority(t)
	etcd, _ := authority.Issue("etcd", "etcd", "etcd.example")
	look := func(at time.Time, name string) []Finding {
		m := newMachine(t)
		m.Now = func() time.Time { return at }
		m.Certificates = []Certificate{{etcd.CertFile, name}}
		return m.look("certificates")
	}
	now := time.Now()
	wantFinding(t, look(now, "etcd.example"), OK, etcd.CertFile, "valid until")
	wantFinding(t, look(now.Add(48*time.Hour), ""), Problem, etcd.CertFile, "expired", "renew")
	wantFinding(t, look(now.Add(-48*time.Hour), ""), Problem, etcd.CertFile, "not valid before", "clocks")
	wantFinding(t, look(now, "192.0.2.1"), Problem, etcd.CertFile, "not for 192.0.2.1", "subject alternative names")

	// The certificate is valid for a year and is in its last month. The test checks it in a file
	// and at a server.
	m := newMachine(t)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.StartTLS()
	defer server.Close()
	m.ServedCertificates = []string{server.Listener.Addr().String()}
	m.Now = func() time.Time { return server.Certificate().NotAfter.Add(-10 * 24 * time.Hour) }
	wantFinding(t, m.look("certificates"), Warning, server.Listener.Addr().String(), "in 10 days", "renew")
	m.Now = func() time.Time { return server.Certificate().NotAfter.Add(time.Second) }
	wantFinding(t, m.look("certificates"), Problem, server.Listener.Addr().String(), "expired")
}

// dated returns a server whose clock always shows the same time.
func dated(at time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", at.UTC().Format(http.TimeFormat))
		fmt.Fprint(w, "[]")
	})
}

// TestDrift compares clocks with a controller's, through its socket, and with etcd's. All clocks
// are fixed, because a server's time is cut to the second. With running clocks, the findings would
// depend on when within a second the test runs.
func TestDrift(t *testing.T) {
	now := time.Date(2030, time.May, 6, 7, 8, 9, int(700*time.Millisecond), time.UTC)
	for _, c := range []struct {
		ahead time.Duration
		level Level
		words string
	}{
		{0, OK, "agrees"}, {10 * time.Second, Warning, "ahead"}, {-10 * time.Second, Warning, "behind"},
		{-time.Hour, Problem, "1h0m0s behind"},
	} {
		m := newMachine(t)
		m.Now = func() time.Time { return now }
		serveUnix(t, strings.TrimPrefix(m.Admin, "unix://"), dated(now.Add(c.ahead)))
		etcd := httptest.NewServer(dated(now.Add(c.ahead)))
		defer etcd.Close()
		m.Etcd = []string{etcd.URL}
		all := m.look("clocks")
		wantFinding(t, all, c.level, "controller", c.words)
		wantFinding(t, all, c.level, "etcd "+etcd.URL, c.words)
	}
}

func TestApart(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, c := range []struct{ before, after, said, want time.Duration }{
		{0, 0, 0, 0},
		{900 * time.Millisecond, 950 * time.Millisecond, 0, 0},
		{500 * time.Millisecond, 600 * time.Millisecond, time.Second, 400 * time.Millisecond},
		{2500 * time.Millisecond, 3 * time.Second, time.Second, -500 * time.Millisecond},
	} {
		if got := apart(at.Add(c.before), at.Add(c.after), at.Add(c.said)); got != c.want {
			t.Errorf("asked from %v to %v, told %v: %v apart, want %v", c.before, c.after, c.said, got, c.want)
		}
	}
}

func serveUnix(t *testing.T, path string, h http.Handler) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Close() })
}

// TestSockets checks an agent that is not ready, one that has died, and unhealthy chains.
func TestSockets(t *testing.T) {
	m := newMachine(t)
	chains := `[{"name": "main", "ready": true, "leaseMillis": 200, "members": [{"switch": "s1", "ready": true, "leaseLive": true}, {"switch": "s2", "ready": true}]},
		{"name": "b", "ready": true, "members": [{"switch": "s1", "ready": true}]}, {"name": "c", "reason": "installing", "members": []},
		{"name": "d", "ready": true, "length": 3, "missing": [{"switch": "s3", "why": "it is out of reach"}],
		"members": [{"switch": "s1", "ready": true}, {"switch": "s2", "ready": true}]}]`
	serveUnix(t, strings.TrimPrefix(m.Admin, "unix://"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, chains)
	}))
	serveUnix(t, m.Root+agentSocket, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"code":50,"msg":"the switch has no program yet"}`, http.StatusServiceUnavailable)
	}))
	stale := m.Root + nodeSocket
	if err := os.MkdirAll(filepath.Dir(stale), 0o755); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: stale}); err != nil { // no process listens on this socket
		t.Fatal(err)
	}
	unix.Close(fd)
	all := m.look("sockets")
	wantFinding(t, all, Problem, agentSocket, "no program yet")
	wantFinding(t, all, Problem, nodeSocket, "nobody listens")
	wantFinding(t, all, Warning, "chain main", "s2 may not answer", "switch list")
	wantFinding(t, all, OK, "chain b", "s1")
	wantFinding(t, all, Warning, "chain d", "2 of 3", "s3 (it is out of reach)")
	wantFinding(t, all, Warning, "chain c", "being changed", "chain show c")

	m = newMachine(t)
	serveUnix(t, strings.TrimPrefix(m.Admin, "unix://"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":{"code":"denied","message":"not you"}}`, http.StatusForbidden)
	}))
	wantFinding(t, m.look("sockets"), Unseen, "controller", "not you", "as root")
}

// inNamespace moves the test to a new network namespace with a pair of interfaces.
func inNamespace(t *testing.T) (netlink.Link, netlink.Link) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces are root's")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0", MTU: 1500}, PeerName: "up1"}); err != nil {
		t.Fatal(err)
	}
	var out []netlink.Link
	for _, name := range []string{"up0", "up1"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out[0], out[1]
}

// passes loads a program that lets all packets pass.
func passes(t *testing.T, name string, kind ebpf.ProgramType, verdict int32) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: kind, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestHooks checks that the report names the owners of the programs at an interface. It lists the
// programs in the order in which they run.
func TestHooks(t *testing.T) {
	up, other := inNamespace(t)
	l := newLook(Options{Checks: []string{"hooks"}})
	hooks(t.Context(), l)
	wantFinding(t, l.report.Findings, OK, "interfaces", "no programs")

	for _, name := range []string{"cil_from_netdev", "netcraq"} {
		at, err := link.AttachTCX(link.TCXOptions{Program: passes(t, name, ebpf.SchedCLS, -1),
			Attach: ebpf.AttachTCXIngress, Interface: up.Attrs().Index})
		if err != nil {
			t.Skipf("no tcx here: %v", err)
		}
		t.Cleanup(func() { at.Close() })
	}
	q := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: up.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := netlink.QdiscAdd(q); err != nil {
		t.Fatal(err)
	}
	old := passes(t, "cali_tc_old", ebpf.SchedCLS, -1)
	if err := netlink.FilterAdd(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: up.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS,
		Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1,
	}, Fd: old.FD(), Name: "cali_tc_old", DirectAction: true}); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetXdpFd(other, passes(t, "scrubber", ebpf.XDP, 2).FD()); err != nil {
		t.Fatal(err)
	}
	own, err := link.AttachTCX(link.TCXOptions{Program: passes(t, "netcraq", ebpf.SchedCLS, -1),
		Attach: ebpf.AttachTCXEgress, Interface: other.Attrs().Index})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })

	report, err := Run(t.Context(), Options{Checks: []string{"hooks"}})
	if err != nil {
		t.Fatal(err)
	}
	all := report.Findings
	wantFinding(t, all, Note, "up0", "tcx ingress: cil_from_netdev (Cilium's, id ", "), netcraq (NetCRAQ's, id", "from left to right")
	wantFinding(t, all, Note, "up0", "clsact ingress: cali_tc_old (Calico's")
	wantFinding(t, all, Note, "up0", "tcx runs before")
	wantFinding(t, all, Warning, "up1", "XDP: scrubber (id", "UDP of port 20035")

	report, _ = Run(t.Context(), Options{Checks: []string{"hooks"}, Interfaces: []string{"lo"}})
	wantFinding(t, report.Findings, OK, "interfaces", "no programs at any of 1")
}

// TestHolders checks that the report names a process that has a program open.
func TestHolders(t *testing.T) {
	m := newMachine(t)
	m.process(88, "bpfman", 0)
	m.proc("88/fdinfo/5", "pos:\t0\nlink_type:\ttcx\nprog_id:\t4242\n")
	l := newLook(m.Options)
	if said := l.sequence([]hooked{{"tcx ingress", 4242, "watcher"}}); said != "watcher (id 4242, held by bpfman, process 88)" {
		t.Errorf("it says %q", said)
	}
}

// TestInterfaces checks an uplink with a small MTU, and a tunnel whose MTU is too large for it.
func TestInterfaces(t *testing.T) {
	up, _ := inNamespace(t)
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}}
	if err := netlink.AddrAdd(up, address); err != nil {
		t.Fatal(err)
	}
	way := &netlink.Route{LinkIndex: up.Attrs().Index, Gw: net.IPv4(192, 0, 2, 2)}
	if err := netlink.RouteAdd(way); err != nil {
		t.Fatal(err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "ncqvx", 1450
	v := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, VtepDevIndex: up.Attrs().Index,
		SrcAddr: net.IPv4(192, 0, 2, 1), Port: 20037}
	if err := netlink.LinkAdd(v); err != nil {
		t.Fatal(err)
	}
	look := func(names ...string) []Finding {
		r, err := Run(t.Context(), Options{Checks: []string{"interfaces"}, Interfaces: names})
		if err != nil {
			t.Fatal(err)
		}
		return r.Findings
	}
	all := look()
	wantCalm(t, all)
	wantFinding(t, all, OK, "up0", "MTU 1500")
	wantFinding(t, all, OK, "ncqvx", "MTU 1450, in up0's 1500")
	attrs.Name = "flannel.1"
	theirs := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: 2, VtepDevIndex: up.Attrs().Index,
		SrcAddr: net.IPv4(192, 0, 2, 1), Port: 20037}
	if err := netlink.LinkAdd(theirs); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, look(), Problem, "flannel.1", "UDP port 20037", "Backend.Port")
	if err := netlink.LinkDel(theirs); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetMTU(up, 1000); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetMTU(v, 1450); err != nil {
		t.Logf("the kernel took the tunnel's MTU down: %v", err)
	}
	all = look()
	wantFinding(t, all, Problem, "up0", "only 128, 1024, 4096 fit", "mtu 1500")
	if now, _ := netlink.LinkByName("ncqvx"); now.Attrs().MTU > 950 {
		wantFinding(t, all, Problem, "ncqvx", "are lost", "mtu 950")
	}
	wantFinding(t, look("eth9"), Problem, "eth9", "no such interface")
}

// TestPortsTaken checks that the report names the process that uses a port. The kernel's tables
// show this process.
func TestPortsTaken(t *testing.T) {
	inNamespace(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:9560")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	report, err := Run(t.Context(), Options{Checks: []string{"ports"}})
	if err != nil {
		t.Fatal(err)
	}
	wantFinding(t, report.Findings, Problem, "tcp 9560", fmt.Sprintf("process %d, has it", os.Getpid()))
	wantFinding(t, report.Findings, OK, "tcp 9559", "free")
}

// TestUnprivileged runs all checks as the user nobody, who can read little. The report must say
// what it could not read.
func TestUnprivileged(t *testing.T) {
	if os.Getenv("DOCTOR_AS_NOBODY") != "" {
		report, err := Run(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			fmt.Printf("%s %s %s: %s -> %s\n", f.Level, f.Check, f.Subject, f.Message, f.Advice)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can become nobody")
	}
	dir, err := os.MkdirTemp("", "doctor") // the user nobody cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "doctor.test")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run", "^TestUnprivileged$", "-test.count=1")
	cmd.Dir, cmd.Env = dir, []string{"DOCTOR_AS_NOBODY=1", "TMPDIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
	if said := string(out); !strings.Contains(said, "unseen kernel eBPF: loading a program: ") ||
		!strings.Contains(said, "-> run netcraqctl doctor as root") {
		t.Errorf("as nobody it does not say that it may not load programs:\n%s", out)
	}
}

func TestBadCheck(t *testing.T) {
	if _, err := Run(t.Context(), Options{Checks: []string{"kernel", "sorcery"}}); err == nil || !strings.Contains(err.Error(), "there are kernel, limits") {
		t.Errorf("a check that there is not: %v", err)
	}
	if _, err := ParseCertificate("=name"); err == nil {
		t.Error("a certificate without a file is taken")
	}
}

// TestFirewall checks that the report names a chain that drops forwarded packets unless a rule
// accepts them.
func TestFirewall(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for a network namespace")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	look := func() Finding {
		t.Helper()
		r, err := Run(t.Context(), Options{Checks: []string{"firewall"}})
		if err != nil || len(r.Findings) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Findings[0]
	}
	if f := look(); f.Level != OK {
		t.Errorf("without a firewall: %+v", f)
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	table := conn.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4})
	drop := nftables.ChainPolicyDrop
	for name, hook := range map[string]*nftables.ChainHook{"INPUT": nftables.ChainHookInput, "FORWARD": nftables.ChainHookForward} {
		conn.AddChain(&nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook,
			Priority: nftables.ChainPriorityFilter, Policy: &drop})
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if f := look(); f.Level != Warning || f.Subject != "nftables chain filter FORWARD" || !strings.Contains(f.Advice, "POD_CIDR") {
		t.Errorf("with a FORWARD chain that drops: %+v", f)
	}
}
