package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/privileges"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestVerbs runs ADD, CHECK, STATUS and DEL. It also causes the failures that the specification
// defines.
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
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80))) // the failed ADD has changed nothing

	check(t, n.del(t, l, p))
	check(t, n.del(t, l, p)) // DEL is idempotent
	if err := exec.Command("ip", "netns", "del", q.space).Run(); err != nil {
		t.Fatal(err)
	}
	check(t, n.del(t, l, q)) // the namespace was deleted before the DEL
	n.expectNothingLeft(t)

	// The following are mistakes of the runtime and of the configuration.
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
	// This IPAM plugin allocates an address and then fails.
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
	named := n.newPod(t)
	named.rt.IfName = "eth%d" // the kernel would make eth0 of this name
	_, err = n.add(t, l, named)
	expectCode(t, "ADD of eth%d", err, types.ErrInvalidEnvironmentVariables)
	n.expectNothingLeft(t)
	large := n.plugin()
	large["mtu"] = 7
	_, err = n.add(t, n.list(large), n.newPod(t))
	expectCode(t, "ADD with an MTU of 7", err, types.ErrInvalidNetworkConfig)
	n.expectNothingLeft(t)
}

// TestRepeatedAdd checks that a repeated ADD is refused and changes nothing. The pod keeps its
// interface and its address. No other pod gets this address.
func TestRepeatedAdd(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	l, p := n.list(), n.newPod(t)
	_, err := n.add(t, l, p)
	check(t, err)
	first := p.ip
	for range 2 { // the second iteration finds what the first has left
		_, err = n.add(t, l, p)
		expectCode(t, "ADD of what is attached", err, agentapi.CodeExists)
	}
	records, err := filepath.Glob(filepath.Join(n.state(), "*.json"))
	check(t, err)
	for _, r := range records { // even without a record, the interface shows that the pod is attached
		check(t, os.Rename(r, r+".lost"))
	}
	n.kill()
	n.start()
	_, err = n.add(t, l, p)
	expectCode(t, "ADD of what is attached and has no record", err, agentapi.CodeExists)
	for range 3 {
		if q := n.mustAdd(t); q.ip == first {
			t.Fatalf("the address %s is given to two pods", q.ip)
		}
	}
	q := n.mustAdd(t)
	check(t, talk(t, q.space, p.space, netip.AddrPortFrom(first, 80)))
	check(t, n.del(t, l, p))
	_, err = n.add(t, l, p) // an ADD after the DEL succeeds
	check(t, err)
}

// TestConcurrentAdds makes several concurrent ADDs of one container and interface. One ADD
// succeeds, and keeps its address. If there is a concurrent DEL, either the ADD or the DEL may come
// last.
func TestConcurrentAdds(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	l := n.list()
	for round := range 4 {
		p := n.newPod(t)
		results := make(chan error, 4)
		var mu sync.Mutex
		var won *current.Result
		for range cap(results) {
			go func() {
				own := *p
				r, err := n.add(t, l, &own)
				if err == nil {
					mu.Lock()
					won = r
					mu.Unlock()
				}
				results <- err
			}()
		}
		failed := 0
		for range cap(results) {
			if <-results != nil {
				failed++
			}
		}
		if failed != cap(results)-1 {
			t.Fatalf("round %d: %d of %d ADDs failed", round, failed, cap(results))
		}
		hasLease := func(r *current.Result) {
			t.Helper()
			if _, err := os.Stat(filepath.Join(n.dir, "addresses", "pods", r.IPs[0].Address.IP.String())); err != nil {
				t.Errorf("round %d: the pod has no lease: %v", round, err)
			}
		}
		hasLease(won)
		added := make(chan *current.Result)
		go func() {
			own := *p
			r, _ := n.add(t, l, &own)
			added <- r
		}()
		check(t, n.del(t, l, p))
		if r := <-added; r != nil { // this ADD came after the DEL
			hasLease(r)
			check(t, n.del(t, l, p))
		}
	}
	n.expectNothingLeft(t)
}

// TestGCWithoutList checks that a GC without a list of valid attachments is refused and removes
// nothing. A list in the form of the specification's first printing is accepted.
func TestGCWithoutList(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	p, q := n.mustAdd(t), n.mustAdd(t)
	collect := func(more map[string]any) error {
		t.Helper()
		conf := n.plugin()
		conf["name"], conf["cniVersion"] = "pods", "1.1.0"
		maps.Copy(conf, more)
		b, err := json.Marshal(conf)
		check(t, err)
		return n.run(t, func(ctx context.Context) error {
			return invoke.ExecPluginWithoutResult(ctx, filepath.Join(n.bin, "netcraq-cni"), b,
				&invoke.Args{Command: "GC", Path: n.bin}, nil)
		})
	}
	expectCode(t, "GC without a list", collect(nil), types.ErrInvalidNetworkConfig)
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
	stays := func(pods ...*pod) []types.GCAttachment { return gcArgs(pods...).ValidAttachments }
	check(t, collect(map[string]any{"cni.dev/attachments": stays(p, q)}))
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
	check(t, collect(map[string]any{"cni.dev/valid-attachments": stays(p), "cni.dev/attachments": stays(p, q)}))
	if left := strings.Join(n.left(t), "\n"); !strings.Contains(left, p.ip.String()) ||
		strings.Contains(left, q.ip.String()) {
		t.Errorf("after a GC that keeps %s there is\n%s", p.ip, left)
	}
	check(t, collect(map[string]any{"cni.dev/valid-attachments": []any{}}))
	n.expectNothingLeft(t)
}

// TestReserved checks that no container gets an address that leads to the switch, whichever plugin
// assigned it.
func TestReserved(t *testing.T) {
	a, err := agent.New(agent.Options{Dir: t.TempDir(), FirstPort: 1, LastPort: 1,
		Reserved: []netip.Prefix{netip.MustParsePrefix("10.0.254.0/24"), netip.MustParsePrefix("10.0.255.0/24")}})
	check(t, err)
	at := agentapi.Attachment{Network: "pods", ContainerID: "c", IfName: "eth0"}
	for address, code := range map[string]uint{"10.0.255.7/32": types.ErrInvalidNetworkConfig,
		"10.0.253.7/32": types.ErrTryAgainLater} { // this address is valid, but the agent is not ready
		addresses := []agentapi.Address{{Prefix: netip.MustParsePrefix(address)}}
		_, err := a.Attach(&agentapi.Attach{Attachment: at, Namespace: "/nowhere", Addresses: addresses})
		for what, err := range map[string]error{"ADD": err, "chained ADD": a.Chain(&agentapi.Chain{Attachment: at,
			Namespace: "/nowhere", Addresses: addresses})} {
			var said *agentapi.Error
			if !errors.As(err, &said) || said.Code != code {
				t.Errorf("%s with %s: %v, want code %d", what, address, err, code)
			}
		}
	}
}

// TestVersions tests the versions of the CNI specification that runtimes in use have. For example,
// containerd 1.6 and 1.7 use 1.0.
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
		if version != "0.3.1" { // version 0.3.1 has no CHECK
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

// TestNotReady sends requests to an agent that has not run Reconcile.
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
	at := agentapi.Attachment{Network: "pods", ContainerID: p.rt.ContainerID, IfName: "eth0"}
	record := filepath.Join(n.state(), at.HostName()+".json")
	check(t, os.WriteFile(record, nil, 0o600))
	expectCode(t, "DEL of what the agent has not looked at", n.del(t, l, p), types.ErrTryAgainLater)
	check(t, os.Remove(record))
	check(t, n.del(t, l, p)) // nothing of this pod can exist
	n.expectNothingLeft(t)
}

// TestDelWithoutAgent checks that DEL of a pod with an interface on the node requires the agent.
// After a reboot there is no interface. DEL then gives the address back and succeeds without an
// agent.
func TestDelWithoutAgent(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	l, p := n.list(), n.mustAdd(t)
	n.kill()
	expectCode(t, "DEL without an agent", n.del(t, l, p), types.ErrTryAgainLater)
	sh(t, "ip", "netns", "del", p.space) // a reboot removes namespaces, interfaces and routes, too
	gone := func() bool { return !strings.Contains(strings.Join(n.left(t), " "), "interface") }
	poll.Until(t, 10*time.Second, "the interface has gone", gone)
	for range 2 {
		check(t, n.del(t, l, p))
	}
	for _, what := range n.left(t) {
		if strings.Contains(what, "addresses") {
			t.Errorf("left: %s", what)
		}
	}
	n.start() // the agent forgets the record; a reboot would remove it
	n.expectNothingLeft(t)
}

// TestStepFails makes the kernel refuse a step in the middle of an ADD.
func TestStepFails(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	conf := n.plugin()
	// The gateway of this route does not exist.
	conf["ipam"].(map[string]any)["routes"] = []map[string]string{{"dst": "10.9.0.0/16", "gw": "172.16.0.1"}}
	_, err := n.add(t, n.list(conf), n.newPod(t))
	expectCode(t, "ADD", err, agentapi.CodeFailed)
	if err == nil || !strings.Contains(err.Error(), "step container: the container's route to 10.9.0.0/16") {
		t.Errorf("the error is %v", err)
	}
	n.expectNothingLeft(t)
}

// cniAddAgain runs ADD for a pod that is already attached. Its cache does not know the first ADD.
func (n *node) cniAddAgain(t testing.TB, p *pod) (any, error) {
	t.Helper()
	other := *p
	rt := *p.rt
	// With the same container ID, host-local itself would refuse, because it has given this
	// container an address.
	rt.ContainerID = p.rt.ContainerID + "-again"
	other.rt = &rt
	return n.add(t, n.list(), &other)
}

// TestCheck makes one change at a time without the agent's knowledge. CHECK must find each of them.
func TestCheck(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	l := n.list()
	for _, c := range []struct {
		name   string
		tamper func(p *pod, host string) []string // arguments for an ip command that makes the change
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
		{"MTU", func(p *pod, _ string) []string { return []string{"-n", p.space, "link", "set", "eth0", "mtu", "9000"} }, "an MTU of 9000"},
		{"node's MTU", func(_ *pod, host string) []string { return []string{"-n", n.space, "link", "set", host, "mtu", "1000"} }, "an MTU of 1000"},
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
		poll.Until(t, 20*time.Second, "CHECK is faster than the agent, which puts the filter back", func() bool {
			n.onHost(t, result.Interfaces[0].Name, ingressfilter.Detach)
			if err = n.check(t, l, p); err != nil {
				expectCode(t, "CHECK", err, agentapi.CodeNotAsItWas)
			}
			return err != nil
		})
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

// TestSecondInterface checks that a second interface of a container does not change the first one's
// routes, neither while it exists nor after its DEL. When the first interface goes, the second
// interface's routes come into use.
func TestSecondInterface(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.second = netip.MustParsePrefix("fd00:244:0:1::/64")
	n.start()
	l, p, q := n.list(), n.mustAdd(t), n.mustAdd(t)
	routes := func() string {
		return sh(t, "ip", "-4", "-n", p.space, "route") + sh(t, "ip", "-6", "-n", p.space, "route", "show", "dev", "eth0", "proto", "boot")
	}
	reaches := func(p *pod) {
		t.Helper()
		for _, ip := range q.ips {
			check(t, talk(t, p.space, q.space, netip.AddrPortFrom(ip, 80)))
		}
		for _, ip := range p.ips {
			check(t, talk(t, q.space, p.space, netip.AddrPortFrom(ip, 80)))
		}
	}
	before := routes()
	second := *p
	rt := *p.rt
	second.rt, rt.IfName = &rt, "net1"
	for range 2 {
		_, err := n.add(t, l, &second)
		check(t, err)
		reaches(p)
		check(t, n.check(t, l, p))
		check(t, n.check(t, l, &second))
		check(t, n.del(t, l, &second))
		if after := routes(); after != before {
			t.Errorf("after the second interface's DEL the routes are\n%s\nand were\n%s", after, before)
		}
		reaches(p)
	}
	_, err := n.add(t, l, &second)
	check(t, err)
	check(t, n.del(t, l, p))
	reaches(&second)
	check(t, n.del(t, l, &second))
}

// TestIPv6Disabled checks that the agent can assign IPv6 addresses to a container whose namespace
// has IPv6 disabled, as Docker's containers do. The node also disables IPv6 on new interfaces.
func TestIPv6Disabled(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.second = netip.MustParsePrefix("fd00:244:0:1::/64")
	n.start()
	p, q := n.newPod(t), n.newPod(t)
	for space, names := range map[string]string{n.space: "default", p.space: "all default lo", q.space: "default"} {
		sh(t, "ip", "netns", "exec", space, "sh", "-c", "for i in "+names+"; do echo 1 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; done")
	}
	l := n.list()
	for _, x := range []*pod{p, q} {
		_, err := n.add(t, l, x)
		check(t, err)
		check(t, n.check(t, l, x))
	}
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ips[1], 80)))
	sh(t, "ip", "netns", "exec", p.space, "ping", "-c1", "-W3", "::1")
}

// TestDNS checks that the result has the DNS settings of the IPAM plugin, unless the list has
// others.
func TestDNS(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	file := filepath.Join(n.dir, "resolv.conf")
	check(t, os.WriteFile(file, []byte("nameserver 10.96.0.10\nsearch cluster.local\n"), 0o600))
	conf := n.plugin()
	conf["ipam"].(map[string]any)["resolvConf"] = file
	for _, want := range []string{"10.96.0.10", "192.0.2.53"} {
		p := n.newPod(t)
		result, err := n.add(t, n.list(conf), p)
		check(t, err)
		if got := strings.Join(result.DNS.Nameservers, " "); got != want {
			t.Errorf("the name servers are %q, not %q", got, want)
		}
		check(t, n.del(t, n.list(conf), p))
		conf["dns"] = map[string]any{"nameservers": []string{"192.0.2.53"}}
	}
}

// TestCheckAfterTuning checks that CHECK accepts changes of the interface that a later plugin of
// the list has made.
func TestCheckAfterTuning(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	l := n.list(n.plugin(), map[string]any{"type": "tuning", "mac": "02:11:22:33:44:55", "mtu": 1400})
	p := n.newPod(t)
	_, err := n.add(t, l, p)
	check(t, err)
	check(t, n.check(t, l, p))
	sh(t, "ip", "-n", p.space, "link", "set", "eth0", "address", "02:00:00:00:00:01")
	expectCode(t, "CHECK of an Ethernet address that nobody gave", n.check(t, l, p), agentapi.CodeNotAsItWas)
	check(t, n.del(t, l, p))
}

// TestGC makes the runtime forget one container, and the agent lose the record of another.
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
	check(t, talk(t, keep.space, lost.space, netip.AddrPortFrom(lost.ip, 80))) // GC keeps an unrecorded interface
	// These leases belong to no attachment. Some have an interface name, and the leases of an older
	// host-local have none.
	leases := filepath.Join(n.dir, "addresses", "pods")
	for ip, text := range map[string]string{"10.244.1.201": "unknown\r\neth0", "10.244.1.202": keep.rt.ContainerID + "\r\nnet1",
		"10.244.1.203": "old", "10.244.1.204": keep.rt.ContainerID} {
		check(t, os.WriteFile(filepath.Join(leases, ip), []byte(text), 0o600))
	}
	// Without its cache, libcni sends no DEL of its own.
	check(t, os.RemoveAll(filepath.Join(n.dir, "cache")))
	check(t, n.run(t, func(ctx context.Context) error {
		return n.cni.GCNetworkList(ctx, l, gcArgs(keep))
	}))
	left := strings.Join(n.left(t), "\n")
	if old := filepath.Join(leases, "10.244.1.204"); strings.Contains(left, old) { // its container is still valid
		check(t, os.Remove(old))
	} else {
		t.Errorf("a lease of a container that is there was released: %s", left)
	}
	if strings.Contains(left, "10.244.1.201") || strings.Contains(left, "10.244.1.202") || strings.Contains(left, "10.244.1.203") {
		t.Errorf("leases are left of containers that nobody knows: %s", left)
	}
	if strings.Count(left, "interface") != 1 || strings.Count(left, ".json") != 1 ||
		!strings.Contains(left, keep.ip.String()) || strings.Contains(left, stale.ip.String()) ||
		strings.Contains(left, lost.ip.String()) {
		t.Errorf("left after GC:\n%s", left)
	}
	check(t, n.del(t, l, keep))
	n.expectNothingLeft(t)
}

// TestSocket checks which users can connect to the agent.
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
	check(t, os.Chmod(filepath.Dir(n.socket()), 0o755)) // the mode of the socket itself must suffice, too
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

// TestSocketAsNobody runs as another user. TestSocket starts it in a separate process.
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

// TestPrivileges checks that the agent has the capabilities that it needs, and can acquire no
// others.
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

// TestMissingPrivilege checks that an agent that lacks a capability fails at once. Its error names
// the capability, what the agent needs it for, and the remedy.
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

// TestAttached checks that Attached reports a folder as soon as a record is stored in it.
func TestAttached(t *testing.T) {
	dir := t.TempDir()
	if agent.Attached(dir) {
		t.Error("an empty folder has records")
	}
	check(t, os.WriteFile(filepath.Join(dir, "ncq0.json"), []byte("{}"), 0o600))
	if !agent.Attached(dir) {
		t.Error("a record is not found")
	}
}

// TestRoutes checks that a route from IPAM is made in its table, with its scope, and that CHECK
// looks for it there.
func TestRoutes(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	conf := n.plugin()
	conf["ipam"].(map[string]any)["routes"] = []map[string]any{{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24", "table": 100},
		{"dst": "198.51.100.0/24", "scope": 253}}
	l, p := n.list(conf), n.newPod(t)
	_, err := n.add(t, l, p)
	check(t, err)
	for _, want := range [][2]string{{"100", "192.0.2.0/24 via 10.244.1.1 dev eth0"}, {"main", "198.51.100.0/24 dev eth0 scope link"}} {
		if got := sh(t, "ip", "-n", p.space, "route", "show", "table", want[0]); !strings.Contains(got, want[1]) {
			t.Errorf("the table %s is %q and has not %q", want[0], got, want[1])
		}
	}
	if got := sh(t, "ip", "-n", p.space, "route"); strings.Contains(got, "192.0.2.0/24") {
		t.Errorf("the main table has the other's route: %s", got)
	}
	check(t, n.check(t, l, p))
	sh(t, "ip", "-n", p.space, "route", "del", "192.0.2.0/24", "table", "100")
	expectCode(t, "CHECK without the route of a table", n.check(t, l, p), agentapi.CodeNotAsItWas)
	check(t, n.del(t, l, p))
}

// TestLongContainerID uses a very long container ID, because the specification does not limit its
// length.
func TestLongContainerID(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	l, p := n.list(), n.newPod(t)
	p.rt.ContainerID = strings.Repeat("c", 244) // libcni makes a file name of the ID, and file names are limited
	_, err := n.add(t, l, p)
	check(t, err)
	check(t, n.check(t, l, p))
	check(t, n.del(t, l, p))
	n.expectNothingLeft(t)
}
