package privileges_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/masquerade"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/cni-plugin/privileges"
	"github.com/netcraq/netcraq/switch/ebpf"
	"github.com/netcraq/netcraq/switch/target"
	"github.com/netcraq/netcraq/switch/userspace"
)

var quiet = slog.New(slog.DiscardHandler)

// Environment variables for the test's child processes. They name the function to try, and the
// capability to drop before.
const (
	envTry     = "NETCRAQ_TEST_TRY"
	envWithout = "NETCRAQ_TEST_WITHOUT"
)

// functions are the agent's actions that need a privilege. Each one runs in a separate network
// namespace.
var functions = map[string]struct {
	capability string // capability that the action needs
	do         func() error
}{
	"a pod's interface": {"NET_ADMIN", func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a0"}, PeerName: "a1"})
	}},
	"masquerading": {"NET_ADMIN", func() error {
		return masquerade.KeepRules(true, podroutes.Node{Name: "n1", Address: netip.MustParseAddr("192.0.2.1"),
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}}, nil)
	}},
	"a route": {"NET_ADMIN", func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		_, to, err := net.ParseCIDR("10.244.2.0/24")
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: to, Protocol: 79})
	}},
	"a port of the interpreter": {"NET_RAW", func() error {
		d, err := userspace.New(userspace.Options{CPUPort: 510, OnlyUDP: wire.Port, Log: quiet})
		if err != nil {
			return err
		}
		defer d.Close()
		return d.AddPort(target.Port{Number: 1, Iface: "lo"})
	}},
	"a pod's namespace": {"SYS_ADMIN", func() error {
		runtime.LockOSThread()
		h, err := netns.Get()
		if err != nil {
			return err
		}
		defer h.Close()
		return netns.Set(h)
	}},
	"the switch in the kernel": {"SYS_ADMIN", func() error {
		d, err := ebpf.New(ebpf.Options{Hook: ebpf.HookTC, CPUPort: 510, OnlyUDP: wire.Port, Log: quiet})
		if err != nil {
			return err
		}
		return d.Close()
	}},
	// the administrator of a namespace may change its parameters, if /proc/sys is writable
	"forwarding": {"NET_ADMIN", agent.EnableForwarding},
}

func TestMain(m *testing.M) {
	name := os.Getenv(envTry)
	if name == "" {
		os.Exit(m.Run())
	}
	var keep []privileges.Capability
	for _, c := range privileges.Needed {
		if c.Name != os.Getenv(envWithout) {
			keep = append(keep, c)
		}
	}
	if err := privileges.Limit(privileges.Numbers(keep)); err != nil { // Limit starts this program again
		fmt.Println("limiting:", err)
		os.Exit(1)
	}
	fmt.Printf("check: %q\n", fmt.Sprint(privileges.Check(privileges.Needed)))
	if err := functions[name].do(); err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println("done")
}

// try makes a child process call a function with all privileges except for one. If without is "",
// the process has all privileges.
func try(t *testing.T, name, without string) (check, said string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envTry+"="+name, envWithout+"="+without)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	check, said, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	return check, said
}

// TestAbsence drops one capability at a time. Its purpose must fail, and everything else must work.
// The agent must name the missing capability.
func TestAbsence(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root, to have something to be taken away")
	}
	taken := map[string]bool{}
	for name, f := range functions {
		if check, said := try(t, name, ""); said != "done" || check != `check: "<nil>"` {
			t.Errorf("%s, with all capabilities: %s (%s)", name, said, check)
			continue
		}
		for _, c := range privileges.Needed {
			check, said := try(t, name, c.Name)
			if want := "the capability " + c.Name + " is missing"; strings.Count(check, "is missing") != 1 ||
				!strings.Contains(check, want) || !strings.Contains(check, c.For) {
				t.Errorf("without %s the agent says %s", c.Name, check)
			}
			denied := strings.HasPrefix(said, "error: ") && regexp.MustCompile("(?i)not permitted|permission denied|EPERM|EACCES").MatchString(said)
			switch {
			case c.Name == f.capability && !denied:
				t.Errorf("%s, without %s: %s", name, c.Name, said)
			case c.Name == f.capability:
				taken[c.Name] = true
				t.Logf("without %s, %s: %s", c.Name, name, said)
			case said != "done":
				t.Errorf("%s, without %s, which is not for it: %s", name, c.Name, said)
			}
		}
	}
	for _, c := range privileges.Needed {
		if !taken[c.Name] {
			t.Errorf("nothing fails without %s: is it needed?", c.Name)
		}
	}
}

// TestManifest checks that the container has exactly the needed capabilities, and that
// docs/kubernetes.md explains each of them.
func TestManifest(t *testing.T) {
	manifest, err := os.ReadFile("../deploy/agent/base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`capabilities: \{drop: \[ALL\], add: \[([A-Z_, ]+)\]\}`).FindSubmatch(manifest)
	if m == nil {
		t.Fatal("the container's capabilities are not where they were")
	}
	given := strings.Split(string(m[1]), ", ")
	var needed []string
	docs, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range privileges.Needed {
		needed = append(needed, c.Name)
		if !strings.Contains(string(docs), "| `"+c.Name+"` | "+c.For+" |") {
			t.Errorf("docs/kubernetes.md does not say what %s is for: %s", c.Name, c.For)
		}
	}
	slices.Sort(given)
	if !slices.Equal(given, needed) {
		t.Errorf("the container has %q, the agent needs %q", given, needed)
	}
}
