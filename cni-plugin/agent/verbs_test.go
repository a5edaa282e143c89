package agent_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/privileges"
)

// TestVerbs goes through ADD, CHECK, STATUS and DEL, and what the specification says of their
// failures.
func TestVerbs(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	l := n.list()
	expectCode(t, "STATUS without an agent", n.status(t, l), types.ErrLimitedConnectivity)
	_, err := n.add(t, l, n.newPod(t))
	expectCode(t, "ADD without an agent", err, types.ErrTryAgainLater)
	n.expectNothingLeft(t)

	n.start()
	check(t, n.status(t, l))
	p, q := n.newPod(t), n.newPod(t)
	result, err := n.add(t, l, p)
	check(t, err)
	if len(result.Interfaces) != 2 || result.Interfaces[1].Name != "eth0" ||
		result.Interfaces[1].Sandbox != p.rt.NetNS || len(result.IPs) != 1 || *result.IPs[0].Interface != 1 {
		t.Errorf("the result of ADD: %+v", result)
	}
	_, err = n.add(t, l, q)
	check(t, err)
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
	check(t, n.check(t, l, p))

	_, err = n.cniAddAgain(t, p)
	expectCode(t, "ADD of what is there", err, agentapi.CodeExists)
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80))) // it is as it was

	check(t, n.del(t, l, p))
	check(t, n.del(t, l, p)) // idempotent
	if err := exec.Command("ip", "netns", "del", q.space).Run(); err != nil {
		t.Fatal(err)
	}
	check(t, n.del(t, l, q)) // the namespace went first
	n.expectNothingLeft(t)

	// Mistakes of the runtime and of the configuration.
	gone := n.newPod(t)
	gone.rt.NetNS = "/var/run/netns/there-is-none"
	_, err = n.add(t, l, gone)
	if err == nil {
		t.Error("ADD to a namespace that is not there: no error")
	}
	file := n.newPod(t)
	file.rt.NetNS = filepath.Join(n.dir, "file")
	check(t, os.WriteFile(file.rt.NetNS, nil, 0o600))
	_, err = n.add(t, l, file)
	expectCode(t, "ADD to a file", err, types.ErrInvalidNetNS)
	n.expectNothingLeft(t)
	own := n.newPod(t)
	own.rt.NetNS = filepath.Join("/var/run/netns", n.space)
	_, err = n.add(t, l, own)
	expectCode(t, "ADD to the node's own namespace", err, types.ErrInvalidNetNS)
	if err != nil && !strings.Contains(err.Error(), "the node's own network namespace") {
		t.Errorf("the error is %v", err)
	}
	n.expectNothingLeft(t)
	// An IPAM plugin that takes an address and then fails.
	check(t, os.WriteFile(filepath.Join(n.bin, "failing-ipam"), []byte("#!/bin/sh\nout=$("+filepath.Join(n.bin, "host-local")+") || exit 1\n[ $CNI_COMMAND != ADD ] || exit 1\necho \"$out\"\n"), 0o700))
	failing := n.plugin()
	failing["ipam"].(map[string]any)["type"] = "failing-ipam"
	if _, err = n.add(t, n.list(failing), n.newPod(t)); err == nil {
		t.Error("ADD with an IPAM plugin that fails: no error")
	}
	n.expectNothingLeft(t)
	without := n.plugin()
	delete(without, "ipam")
	_, err = n.add(t, n.list(without), n.newPod(t))
	expectCode(t, "ADD without ipam", err, types.ErrInvalidNetworkConfig)
	large := n.plugin()
	large["mtu"] = 7
	_, err = n.add(t, n.list(large), n.newPod(t))
	expectCode(t, "ADD with an MTU of 7", err, types.ErrInvalidNetworkConfig)
	n.expectNothingLeft(t)
}

// TestVersions goes through the versions of the specification that runtimes in use have: containerd
// 1.6 and 1.7 have 1.0.
func TestVersions(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		l, p := n.listOf(version), n.newPod(t)
		result, err := n.add(t, l, p)
		check(t, err)
		if len(result.IPs) != 1 || len(result.Interfaces) != 2 {
			t.Errorf("%s: the result of ADD: %+v", version, result)
		}
		if version != "0.3.1" { // which has no CHECK
			check(t, n.check(t, l, p))
		}
		check(t, n.del(t, l, p))
	}
	n.expectNothingLeft(t)
	out, err := exec.Command("sh", "-c", "CNI_COMMAND=VERSION "+filepath.Join(n.bin, "netcraq-cni")+" </dev/null").Output()
	check(t, err)
	if !strings.Contains(string(out), `"1.1.0"`) {
		t.Errorf("VERSION says %s", out)
	}
}

// TestNotReady asks an agent that has not looked at what is there.
func TestNotReady(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	listener, err := agent.Listen(n.socket())
	check(t, err)
	a, err := agent.New(agent.Options{Dir: n.state(), FirstPort: 1, LastPort: 1})
	check(t, err)
	server := &http.Server{Handler: a.Handler()}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	l, p := n.list(), n.newPod(t)
	expectCode(t, "STATUS", n.status(t, l), types.ErrPluginNotAvailable)
	_, err = n.add(t, l, p)
	expectCode(t, "ADD", err, types.ErrTryAgainLater)
	expectCode(t, "DEL", n.del(t, l, p), types.ErrTryAgainLater)
	n.expectNothingLeft(t)
}

// TestStepFails has the kernel refuse a step in the middle.
func TestStepFails(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	conf := n.plugin()
	// a gateway that is nowhere
	conf["ipam"].(map[string]any)["routes"] = []map[string]string{{"dst": "10.9.0.0/16", "gw": "172.16.0.1"}}
	_, err := n.add(t, n.list(conf), n.newPod(t))
	expectCode(t, "ADD", err, agentapi.CodeFailed)
	if err == nil || !strings.Contains(err.Error(), "step container: the container's route to 10.9.0.0/16") {
		t.Errorf("the error is %v", err)
	}
	n.expectNothingLeft(t)
}

// cniAddAgain is ADD with a cache that does not know the first one.
func (n *node) cniAddAgain(t testing.TB, p *pod) (any, error) {
	t.Helper()
	other := *p
	rt := *p.rt
	// host-local has given this container an address, and says so itself otherwise
	rt.ContainerID = p.rt.ContainerID + "-again"
	other.rt = &rt
	return n.add(t, n.list(), &other)
}

// TestCheck changes one thing after another behind the agent's back.
func TestCheck(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	l := n.list()
	for _, c := range []struct {
		name   string
		tamper func(p *pod, host string) []string // an ip command
		says   string
	}{
		{"address", func(p *pod, _ string) []string {
			return []string{"-n", p.space, "addr", "del", p.ip.String() + "/24", "dev", "eth0"}
		}, "does not have the address"},
		{"default route", func(p *pod, _ string) []string { return []string{"-n", p.space, "route", "del", "default"} }, "no route to 0.0.0.0/0"},
		{"gateway", func(p *pod, host string) []string { return []string{"-n", n.space, "addr", "flush", "dev", host} }, "gateway's address"},
		{"route", func(p *pod, host string) []string {
			return []string{"-n", n.space, "route", "del", p.ip.String(), "dev", host}
		}, "the node has no route"},
		{"container's end down", func(p *pod, _ string) []string { return []string{"-n", p.space, "link", "set", "eth0", "down"} }, "eth0 is down"},
		{"node's end down", func(_ *pod, host string) []string { return []string{"-n", n.space, "link", "set", host, "down"} }, "is down"},
		{"MTU", func(p *pod, _ string) []string { return []string{"-n", p.space, "link", "set", "eth0", "mtu", "1000"} }, "an MTU of 1000"},
		{"Ethernet address", func(p *pod, _ string) []string {
			return []string{"-n", p.space, "link", "set", "eth0", "address", "02:00:00:00:00:01"}
		}, "Ethernet address"},
		{"no interface", func(p *pod, host string) []string { return []string{"-n", n.space, "link", "del", host} }, "Link not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := n.newPod(t)
			result, err := n.add(t, l, p)
			check(t, err)
			check(t, n.check(t, l, p))
			sh(t, "ip", c.tamper(p, result.Interfaces[0].Name)...)
			err = n.check(t, l, p)
			expectCode(t, "CHECK", err, agentapi.CodeNotAsItWas)
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("CHECK says %q, not %q", err, c.says)
			}
			check(t, n.del(t, l, p))
		})
	}
	t.Run("ingress filter", func(t *testing.T) {
		p := n.newPod(t)
		result, err := n.add(t, l, p)
		check(t, err)
		check(t, n.run(t, func(context.Context) error {
			i, err := net.InterfaceByName(result.Interfaces[0].Name)
			if err != nil {
				return err
			}
			return ingressfilter.Detach(i.Index)
		}))
		expectCode(t, "CHECK", n.check(t, l, p), agentapi.CodeNotAsItWas)
		check(t, n.del(t, l, p))
	})
	t.Run("not attached", func(t *testing.T) {
		p := n.newPod(t)
		_, err := n.add(t, l, p)
		check(t, err)
		check(t, agentapi.NewClient(n.socket()).Detach(context.Background(),
			agentapi.Attachment{Network: "pods", ContainerID: p.rt.ContainerID, IfName: "eth0"}))
		expectCode(t, "CHECK", n.check(t, l, p), types.ErrUnknownContainer)
		check(t, n.del(t, l, p))
	})
	n.expectNothingLeft(t)
}

// TestGC has the runtime forget one container, and the agent lose the record of another.
func TestGC(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	l := n.list()
	keep, stale, lost := n.mustAdd(t), n.mustAdd(t), n.mustAdd(t)
	n.kill()
	records, err := filepath.Glob(filepath.Join(n.state(), "*.json"))
	check(t, err)
	for _, r := range records {
		if b, _ := os.ReadFile(r); strings.Contains(string(b), lost.rt.ContainerID) {
			check(t, os.Remove(r))
		}
	}
	n.start()
	check(t, talk(t, keep.space, lost.space, netip.AddrPortFrom(lost.ip, 80))) // what has no record is left alone
	// The cache is libcni's: without it, it does not send a DEL of its own.
	check(t, os.RemoveAll(filepath.Join(n.dir, "cache")))
	check(t, n.run(t, func(ctx context.Context) error {
		return n.cni.GCNetworkList(ctx, l, gcArgs(keep))
	}))
	left := strings.Join(n.left(t), "\n")
	if strings.Count(left, "interface") != 1 || strings.Count(left, ".json") != 1 ||
		!strings.Contains(left, keep.ip.String()) || strings.Contains(left, stale.ip.String()) ||
		strings.Contains(left, lost.ip.String()) {
		t.Errorf("left after GC:\n%s", left)
	}
	check(t, n.del(t, l, keep))
	n.expectNothingLeft(t)
}

// TestSocket looks who can talk to the agent.
func TestSocket(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	for path, mode := range map[string]os.FileMode{n.socket(): 0o600, filepath.Dir(n.socket()): 0o700} {
		i, err := os.Stat(path)
		check(t, err)
		if i.Mode().Perm() != mode {
			t.Errorf("%s has the permissions %o, not %o", path, i.Mode().Perm(), mode)
		}
	}
	check(t, os.Chmod(filepath.Dir(n.socket()), 0o755)) // the socket's own must do, too
	for p := n.dir; p != "/"; p = filepath.Dir(p) {
		i, err := os.Stat(p)
		check(t, err)
		check(t, os.Chmod(p, i.Mode().Perm()|0o111))
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestSocketAsNobody$", "-test.v")
	cmd.Env = append(os.Environ(), "NETCRAQ_TEST_SOCKET="+n.socket())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := exec.Command("ip", "netns", "exec", n.space, filepath.Join(n.bin, "netcraq-agent"),
		"--socket", n.socket(), "--state-dir", n.state()).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "another agent listens") {
		t.Errorf("a second agent at the socket: %v\n%s", err, out)
	}
	if out, err := exec.Command(filepath.Join(n.bin, "netcraq-agent"), "--socket",
		filepath.Join(n.dir, "other.sock"), "--p4runtime", "0.0.0.0:9559", "--state-dir", n.dir).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "loopback") {
		t.Errorf("P4Runtime for everybody: %v\n%s", err, out)
	}
}

// TestSocketAsNobody is run by TestSocket as another user.
func TestSocketAsNobody(t *testing.T) {
	socket := os.Getenv("NETCRAQ_TEST_SOCKET")
	if socket == "" {
		t.Skip("only for TestSocket")
	}
	if os.Getuid() == 0 {
		t.Fatal("this is root")
	}
	if c, err := net.Dial("unix", socket); err == nil {
		c.Close()
		t.Error("anybody can talk to the agent")
	} else if !strings.Contains(fmt.Sprint(err), "permission denied") {
		t.Error(err)
	}
}

// TestPrivileges: the agent has the capabilities that it needs, and can get no others.
func TestPrivileges(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.agent.Process.Pid))
	check(t, err)
	want := uint64(0)
	for _, c := range privileges.Needed {
		want |= 1 << c.Number
	}
	seen := 0
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "CapPrm", "CapEff", "CapBnd":
			seen++
			if got, err := strconv.ParseUint(value, 16, 64); err != nil || got&^want != 0 {
				t.Errorf("%s %s: more than %016x", name, value, want)
			}
		case "NoNewPrivs":
			seen++
			if value != "1" {
				t.Errorf("it may get new privileges")
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d of 4 lines were there:\n%s", seen, b)
	}
}

// TestMissingPrivilege: an agent that lacks a capability says at once which, what for, and what to
// do, and does not begin.
func TestMissingPrivilege(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	for _, c := range privileges.Needed {
		less := "-" + strings.ToLower(c.Name)
		out, err := exec.Command("ip", "netns", "exec", n.space, "setpriv", "--bounding-set", less, "--inh-caps", less, filepath.Join(n.bin, "netcraq-agent"), "--socket", n.socket(),
			"--state-dir", n.state()).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "the capability "+c.Name+" is missing, which is for "+c.For+": run as root") {
			t.Errorf("without %s: %v\n%s", c.Name, err, out)
		}
	}
}
