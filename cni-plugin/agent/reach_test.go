package agent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// lan makes nodes that share one link, or that have a router between each two of them. The bridge
// or router is in its own namespace.
func lan(t testing.TB, count int, routed bool, args ...string) []*node {
	t.Helper()
	needs(t)
	middle := namespace(t, "lan")
	var file struct {
		Nodes []podroutes.Node `json:"nodes"`
	}
	var nodes []*node
	if !routed {
		sh(t, "ip", "-n", middle, "link", "add", "name", "bridge0", "type", "bridge")
		sh(t, "ip", "-n", middle, "link", "set", "bridge0", "up")
	}
	sh(t, "ip", "netns", "exec", middle, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	path := filepath.Join(t.TempDir(), "nodes.json")
	for i := 1; i <= count; i++ {
		name := fmt.Sprintf("node%d", i)
		n := newNode(t, fmt.Sprintf("10.244.%d.0/24", i), append([]string{"--nodes", path, "--node", name, "--device-id", fmt.Sprint(i)}, args...)...)
		n.lan = middle
		nodes = append(nodes, n)
		cable := fmt.Sprintf("n%d", i)
		sh(t, "ip", "-n", n.space, "link", "add", "eth0", "type", "veth", "peer", "name", cable, "netns", middle)
		addr := fmt.Sprintf("192.168.0.%d", i)
		if routed {
			addr = fmt.Sprintf("192.168.%d.2", i)
			sh(t, "ip", "-n", middle, "addr", "add", fmt.Sprintf("192.168.%d.1/24", i), "dev", cable)
		} else {
			sh(t, "ip", "-n", middle, "link", "set", cable, "master", "bridge0")
		}
		sh(t, "ip", "-n", middle, "link", "set", cable, "up")
		sh(t, "ip", "-n", n.space, "addr", "add", addr+"/24", "dev", "eth0")
		sh(t, "ip", "-n", n.space, "link", "set", "eth0", "up")
		if routed {
			sh(t, "ip", "-n", n.space, "route", "add", "default", "via", fmt.Sprintf("192.168.%d.1", i))
		}
		file.Nodes = append(file.Nodes, podroutes.Node{Name: name, Address: netip.MustParseAddr(addr),
			PodCIDRs: []netip.Prefix{n.cidr}})
	}
	b, err := json.Marshal(file)
	check(t, err)
	check(t, os.WriteFile(path, b, 0o600))
	return nodes
}

// TestAcrossNodes makes pods of two nodes talk. The nodes are on one link, or have a router between
// them that has no routes to pods.
func TestAcrossNodes(t *testing.T) {
	for _, c := range []struct {
		name   string
		routed bool
		mode   string
		route  string // text that the node's route to the other pods must contain
	}{
		{"one link", false, "auto", "via 192.168.0.2 dev eth0"},
		{"routed", true, "auto", "via 10.244.2.0 dev " + podroutes.Device},
		{"one link, VXLAN all the same", false, "vxlan", "via 10.244.2.0 dev " + podroutes.Device},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := lan(t, 2, c.routed, "--routes", c.mode)
			a, b := nodes[0], nodes[1]
			a.start()
			b.start()
			if r := sh(t, "ip", "-n", a.space, "route", "show", "10.244.2.0/24"); !strings.Contains(r, c.route) {
				t.Errorf("the route to the other node's pods is %q, not %q", r, c.route)
			}
			p, q, r := a.mustAdd(t), b.mustAdd(t), a.mustAdd(t)
			for _, pair := range [][2]*pod{{p, q}, {q, p}, {p, r}} {
				check(t, talk(t, pair[0].space, pair[1].space, netip.AddrPortFrom(pair[1].ip, 80)))
			}
			// Probes also come from the node itself.
			check(t, talk(t, a.space, q.space, netip.AddrPortFrom(q.ip, 80)))
			if out, err := exec.Command("ip", "netns", "exec", p.space, "ping", "-c1", "-W3", q.ip.String()).CombinedOutput(); err != nil {
				t.Errorf("ping: %v\n%s", err, out)
			}
			// A restart of the agent changes nothing. The agent also repairs routes that another
			// program has changed.
			a.kill()
			sh(t, "ip", "-n", a.space, "route", "del", "10.244.2.0/24")
			// This is a route to a node that no longer exists.
			sh(t, "ip", "-n", a.space, "route", "add", "10.99.0.0/16", "dev", "eth0", "protocol", fmt.Sprint(podroutes.Protocol))
			a.start()
			check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
			if r := sh(t, "ip", "-n", a.space, "route", "show", "10.99.0.0/16"); r != "" {
				t.Errorf("a stale route is there: %s", r)
			}
		})
	}
	t.Run("a node that cannot be reached is its own trouble", func(t *testing.T) {
		nodes := lan(t, 2, true, "--routes", "direct")
		nodes[0].start()
		nodes[0].mustAdd(t)
		said := func() bool {
			return strings.Contains(nodes[0].output.String(), "is on no link of this node, and the mode is direct")
		}
		poll.Until(t, 10*time.Second, "the agent says so", said, nodes[0].output.String)
	})
}

// whoAsks connects over TCP from a namespace, and returns the source address that the server sees.
func whoAsks(t testing.TB, from, at string, to netip.AddrPort) netip.Addr {
	t.Helper()
	l, err := inside(t, at, func() (net.Listener, error) { return listen(to) })
	check(t, err)
	defer l.Close()
	seen := make(chan netip.Addr, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			defer c.Close()
			seen <- c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			_, _ = io.Copy(c, c)
		}
	}()
	if err := say(t, from, to); err != nil {
		t.Logf("%s does not reach %s: %v", from, to, err)
		return netip.Addr{}
	}
	return <-seen
}

// TestWorld makes a pod talk to a host outside of the cluster, which has no routes to pods. It also
// makes the pod talk to a host inside, which must see the pod's own address.
func TestWorld(t *testing.T) {
	nodes := lan(t, 2, true)
	a, b := nodes[0], nodes[1]
	a.start()
	b.start()
	p, q := a.mustAdd(t), b.mustAdd(t)
	node := netip.MustParseAddr("192.168.1.2")
	for _, router := range []string{"192.168.1.1", "192.168.2.1"} {
		if seen := whoAsks(t, p.space, a.lan, netip.AddrPortFrom(netip.MustParseAddr(router), 80)); seen != node {
			t.Errorf("outside, at %s, the pod is %s, not its node %s", router, seen, node)
		}
	}
	if seen := whoAsks(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)); seen != p.ip {
		t.Errorf("another pod sees %s, not %s", seen, p.ip)
	}
	if seen := whoAsks(t, p.space, b.space, netip.AddrPortFrom(netip.MustParseAddr("192.168.2.2"), 80)); seen != p.ip {
		t.Errorf("another node sees %s, not %s", seen, p.ip)
	}
	// Another start of the agent changes nothing. Without masquerading, no answer comes back from
	// outside.
	outside := netip.AddrPortFrom(netip.MustParseAddr("192.168.1.1"), 80)
	a.kill()
	a.start()
	if seen := whoAsks(t, p.space, a.lan, outside); seen != node {
		t.Errorf("after another start the pod is %s outside", seen)
	}
	a.kill()
	a.args = append(a.args, "--masquerade=false")
	a.start()
	if seen := whoAsks(t, p.space, a.lan, outside); seen.IsValid() {
		t.Errorf("without masquerading the pod is %s outside", seen)
	}
}

// TestBothFamilies gives each pod an IPv4 and an IPv6 address, with and without gateways from IPAM.
func TestBothFamilies(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		t.Skip("skipped: the kernel has no IPv6")
	}
	n.start()
	conf := n.plugin()
	ipam := conf["ipam"].(map[string]any)
	ipam["ranges"] = [][]map[string]string{{{"subnet": n.cidr.String()}}, {{"subnet": "fd00:244:1::/64"}}}
	ipam["routes"] = []map[string]string{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}}
	l := n.list(conf)
	var pods [2]*pod
	var six [2]netip.Addr
	for i := range pods {
		pods[i] = n.newPod(t)
		result, err := n.add(t, l, pods[i])
		check(t, err)
		if len(result.IPs) != 2 {
			t.Fatalf("addresses: %v", result.IPs)
		}
		six[i], _ = netip.AddrFromSlice(result.IPs[1].Address.IP)
		check(t, n.check(t, l, pods[i]))
	}
	for _, to := range []netip.Addr{pods[1].ip, six[1]} {
		if out, err := exec.Command("ip", "netns", "exec", pods[0].space, "ping", "-c1", "-W3", to.String()).CombinedOutput(); err != nil {
			t.Errorf("ping %s: %v\n%s", to, err, out)
		}
	}
	sh(t, "ip", "-n", pods[0].space, "-6", "route", "del", "default")
	if err := n.check(t, l, pods[0]); err == nil || !strings.Contains(err.Error(), "no route to ::/0") {
		t.Errorf("CHECK without the IPv6 route: %v", err)
	}
	for _, p := range pods {
		check(t, n.del(t, l, p))
	}
	n.expectNothingLeft(t)
}

// TestChained runs the plugins portmap and bandwidth after netcraq-cni, as a cluster's list does.
func TestChained(t *testing.T) {
	if _, err := exec.LookPath("iptables"); err != nil {
		if _, err := exec.LookPath("nft"); err != nil {
			t.Skip("skipped: portmap needs iptables or nft")
		}
	}
	nodes := lan(t, 2, false)
	n := nodes[0]
	n.start()
	l := n.list(n.plugin(), map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}},
		map[string]any{"type": "bandwidth", "capabilities": map[string]bool{"bandwidth": true}})
	p := n.newPod(t)
	const rate = 8_000_000 // bits per second
	p.rt.CapabilityArgs = map[string]any{
		"portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}},
		"bandwidth":    map[string]any{"ingressRate": rate, "ingressBurst": rate / 4, "egressRate": rate, "egressBurst": rate / 4},
	}
	result, err := n.add(t, l, p)
	check(t, err)
	if len(result.Interfaces) < 2 || result.Interfaces[1].Sandbox == "" {
		t.Errorf("the result of the list: %+v", result.Interfaces)
	}
	check(t, n.check(t, l, p))
	// Another machine connects through the node's port.
	check(t, talkVia(t, nodes[1].space, p.space, netip.MustParseAddrPort("192.168.0.1:8080"), 80))
	// The bandwidth plugin limits both directions. So 2 MB take 2 s, less the burst.
	for _, way := range []struct{ name, from, to, addr string }{{"to the pod", n.space, p.space, p.ip.String()},
		{"from the pod", p.space, n.space, "10.244.1.1"}} {
		took := send(t, way.from, way.to, netip.AddrPortFrom(netip.MustParseAddr(way.addr), 81), 2<<20)
		t.Logf("%s: 2 MiB in %v", way.name, took)
		if took < time.Second {
			t.Errorf("%s: 2 MiB took %v: bandwidth does not limit", way.name, took)
		}
	}
	check(t, n.status(t, l))
	n.kill()
	n.start()
	check(t, n.check(t, l, p))
	check(t, n.del(t, l, p))
	n.expectNothingLeft(t)
}
