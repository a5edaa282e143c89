package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/nftables"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// bridgePlugin and ptpPlugin return configurations of the CNI project's plugins. Such a plugin is
// before netcraq-cni in the list.
func (n *node) bridgePlugin() map[string]any {
	return map[string]any{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": n.hostLocal()}
}

func (n *node) ptpPlugin() map[string]any {
	return map[string]any{"type": "ptp", "ipam": n.hostLocal()}
}

func (n *node) hostLocal() map[string]any {
	return map[string]any{"type": "host-local", "dataDir": filepath.Join(n.dir, "addresses"),
		"ranges": [][]map[string]string{{{"subnet": n.cidr.String()}}}, "routes": []map[string]string{{"dst": "0.0.0.0/0"}}}
}

// chainedPlugin returns the configuration of netcraq-cni when it is chained after another plugin.
func (n *node) chainedPlugin() map[string]any {
	return map[string]any{"type": "netcraq-cni", "chained": true, "socket": n.socket()}
}

// others are the plugins whose interfaces netcraq-cni shares.
var others = map[string]func(*node) map[string]any{"bridge": (*node).bridgePlugin, "ptp": (*node).ptpPlugin}

// underlay makes routes between the nodes' pods, which the pods' network usually makes.
func underlay(t *testing.T, nodes []*node) {
	t.Helper()
	for i, n := range nodes {
		sh(t, "ip", "netns", "exec", n.space, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
		for j, m := range nodes {
			if i != j {
				sh(t, "ip", "-n", n.space, "route", "add", m.cidr.String(), "via", fmt.Sprintf("192.168.0.%d", j+1))
			}
		}
	}
}

// mustAddTo runs ADD of a list, and fails the test if ADD fails.
func (n *node) mustAddTo(t testing.TB, l *libcni.NetworkConfigList) *pod {
	t.Helper()
	p := n.newPod(t)
	_, err := n.add(t, l, p)
	check(t, err)
	return p
}

// TestBehind forms a chain over the switches of two nodes. Another plugin makes the network of the
// nodes' pods. Pods reach each other as before, and also the chain. Their forged packets do not
// arrive. A restart, DEL, CHECK and GC do not change the other plugin's work.
func TestBehind(t *testing.T) {
	for other := range others {
		for _, engine := range []string{"ebpf", "interp"} {
			t.Run(other+" "+engine, func(t *testing.T) { chained(t, other, engine) })
		}
	}
}

func chained(t *testing.T, other, engine string) {
	before := others[other]
	nodes := lan(t, 2, false, "--engine", engine, "--services", "10.0.254.0/24", "--chained")
	a, b := nodes[0], nodes[1]
	a.args, b.args = append(a.args, "--peer", "1@node2"), append(b.args, "--peer", "1@node1")
	underlay(t, nodes)
	alone := a.list(before(a))
	old := a.mustAddTo(t, alone) // this pod is made before the agent starts
	a.start()
	b.start()
	la, lb := a.list(before(a), a.chainedPlugin()), b.list(before(b), b.chainedPlugin())
	p, q, r := a.mustAddTo(t, la), b.mustAddTo(t, lb), a.mustAddTo(t, la)
	control := startController(t, nodes, p, q)
	added, err := control.AddKey(t.Context(), "main", admin.KeySpec{Name: "/leader", Value: []byte("alice")})
	check(t, err)
	key := wire.Key(added.KeyID)
	fromP, fromQ := newClient(t, p.space), newClient(t, q.space)
	expect(t, "a pod at the head", fromP, key, "alice")
	expect(t, "a pod at the tail", fromQ, key, "alice")
	put(t, control, fromQ, key, "bob")
	expect(t, "a pod at the head", fromP, key, "bob")
	expect(t, "a process of the node", newClient(t, a.space), key, "bob")
	allTalk := func() {
		t.Helper()
		for _, pair := range [][2]*pod{{p, q}, {q, p}, {p, r}, {old, p}, {q, old}} { // pods can still reach each other
			check(t, talk(t, pair[0].space, pair[1].space, netip.AddrPortFrom(pair[1].ip, 80)))
		}
		check(t, talk(t, a.space, q.space, netip.AddrPortFrom(q.ip, 80)))
	}
	allTalk()

	forged := wire.Packet{Op: wire.Ack, Key: key, Epoch: 1, Version: wire.MakeVersion(1, 1000), Value: []byte("mallory")}
	for _, how := range []forgery{{}, {options: true}, {fragment: true}} {
		for _, to := range []netip.AddrPort{service, netip.MustParseAddrPort("10.0.255.1:20035"), netip.MustParseAddrPort("10.0.255.2:20035")} {
			how.send(t, p, netip.AddrPortFrom(p.ip, 20035), to, forged)
		}
	}
	nothing(t, control, "s1", r.space, key)
	forgedReplies(t, p, r)
	(&way{from: a, out: "eth0", space: b.space, in: "eth0", targets: []netip.Addr{q.ip}}).offloaded(t, r, p)
	expect(t, "a pod at the head, after frames that change on the way", fromP, key, "bob")
	if other == "bridge" {
		forgedByNeighbour(t, a, old, p)
		guardsComeBack(t, a, p)
		expect(t, "a pod at the head, when its filters are there again", fromP, key, "bob")
	}
	contained(t, nodes, p)
	forgedFabric(t, nodes, p, forged, map[string]*client.Client{"a pod at the head": fromP, "a pod at the tail": fromQ})

	// With the agent killed, the other plugin's network still works. No NetCRAQ packet of a pod
	// passes the filters.
	host := hostEnd(t, a, p)
	a.kill()
	allTalk()
	if seen(t, b.space, "eth0", p.ip, wire.Port, false, func() {
		forgery{}.send(t, p, netip.AddrPortFrom(p.ip, 20035), netip.AddrPortFrom(q.ip, 20035), forged)
	}) {
		t.Error("without a switch a pod's NetCRAQ packets leave the node")
	}
	late := a.newPod(t)
	_, err = a.add(t, la, late)
	expectCode(t, "ADD without an agent", err, types.ErrTryAgainLater)
	check(t, a.del(t, la, late)) // runtimes also send DEL after a failed ADD
	check(t, a.del(t, la, r))    // this DEL needs no agent, because it is for another plugin's pod
	a.start()
	for _, pair := range [][2]*pod{{p, q}, {old, q}} {
		check(t, talk(t, pair[0].space, pair[1].space, netip.AddrPortFrom(pair[1].ip, 80)))
	}
	check(t, a.check(t, la, p))
	there, err := agentapi.NewClient(a.socket()).Attachments(t.Context())
	check(t, err)
	if len(there) != 1 || there[0].ContainerID != p.rt.ContainerID || there[0].Host.Name != host {
		t.Errorf("after a restart and a DEL meanwhile there are %+v", there)
	}

	check(t, a.del(t, la, p))
	check(t, a.del(t, la, p))
	check(t, a.del(t, alone, old))
	check(t, b.del(t, lb, q))
	a.expectOnlyTheirs(t)
}

// forgedByNeighbour makes a pod that is not a port of the switch send forged answers of the chain
// to a pod that is a port. The packets go over the pods' common bridge. They have every
// encapsulation that a kernel unwraps, and also other source ports of the chain's address. They
// arrive only without the filter at the receiver's end.
func forgedByNeighbour(t *testing.T, n *node, from, to *pod) {
	t.Helper()
	sh(t, "ip", "netns", "exec", n.space, "sh", "-c", // the bridge must not depend on br_netfilter, which may be loaded
		"! cd /proc/sys/net/bridge 2>/dev/null || echo 0 > bridge-nf-call-iptables")
	const asked = 5005
	socket, err := inside(t, to.space, func() (net.PacketConn, error) {
		return net.ListenPacket("udp4", fmt.Sprintf("0.0.0.0:%d", asked))
	})
	check(t, err)
	defer socket.Close()
	mac, err := inside(t, to.space, func() (net.HardwareAddr, error) {
		l, err := net.InterfaceByName("eth0")
		if err != nil {
			return nil, err
		}
		return l.HardwareAddr, nil
	})
	check(t, err)
	answer := func(source netip.AddrPort) udptest.Packet {
		payload := make([]byte, 64)
		return udptest.Packet{EthernetDst: mac, EthernetSrc: net.HardwareAddr{2, 0, 0, 0, 0, 9}, Src: source,
			Dst: netip.AddrPortFrom(to.ip, asked), Payload: payload, Mark: len(payload) - 2}
	}
	var forged [][]byte
	for _, source := range []netip.AddrPort{service, netip.AddrPortFrom(service.Addr(), 53),
		netip.AddrPortFrom(from.ip, wire.Port)} {
		for _, way := range udptest.Wrap(answer(source)) {
			forged = append(forged, way.Frames...)
		}
	}
	arrives := func(patience time.Duration, frames ...[]byte) bool {
		for end := time.Now().Add(patience); time.Now().Before(end); {
			from.sendFrames(t, frames...)
			check(t, socket.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
			if _, _, err := socket.ReadFrom(make([]byte, 1500)); err == nil {
				return true
			}
		}
		return false
	}
	if !arrives(10*time.Second, answer(netip.AddrPortFrom(from.ip, 53)).Frame()) {
		t.Error("other UDP does not arrive: the test means nothing")
	}
	if arrives(300*time.Millisecond, forged...) {
		t.Error("an answer in the chain's name, which a neighbour on the bridge has forged, arrives")
	}
	poll.Until(t, 10*time.Second, "one arrives without the filter: else the test means nothing", func() bool {
		n.onHost(t, hostEnd(t, n, to), ingressfilter.DetachEgress) // the agent attaches the filter again
		return arrives(50*time.Millisecond, answer(service).Frame())
	})
}

// guardsComeBack removes all filters from a pod's interface, and waits until the agent has attached
// them again.
func guardsComeBack(t *testing.T, n *node, p *pod) {
	t.Helper()
	host := hostEnd(t, n, p)
	for _, detach := range []func(int) error{ingressfilter.DetachEgress, ingressfilter.Detach, framefilter.Detach} {
		n.onHost(t, host, detach)
	}
	for _, there := range []func(int) (bool, error){ingressfilter.EgressAttached, ingressfilter.Attached,
		framefilter.Attached} {
		poll.Until(t, 30*time.Second, "a filter is there again", func() bool {
			is, err := atInterface(t, n, host, there)
			return err == nil && is
		})
	}
}

// expectOnlyTheirs is like expectNothingLeft, but permits the node's own things and the bridge's
// route.
func (n *node) expectOnlyTheirs(t testing.TB) {
	t.Helper()
	for _, l := range n.left(t) {
		if !strings.Contains(l, "interface ncqnode") && !strings.Contains(l, "interface ncqf") && l != "route to "+n.cidr.String() {
			t.Errorf("left: %s", l)
		}
	}
}

// withoutIPv6 disables IPv6, so that the kernel adds no IPv6 addresses to interfaces while a test
// compares them.
func (n *node) withoutIPv6() {
	n.t.Helper()
	sh(n.t, "ip", "netns", "exec", n.space, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
}

// picture returns all visible state of the node's network as text: interfaces, addresses, routes,
// bridge ports, qdiscs, filters, and tcx programs by their identifiers.
func picture(t testing.TB, n *node) string {
	t.Helper()
	var out strings.Builder
	for _, c := range []string{"ip -d link", "ip -d addr", "ip -4 route show table all", "ip -6 route show table all", "ip rule",
		"bridge -d link", "tc qdisc"} {
		f := append([]string{"netns", "exec", n.space}, strings.Fields(c)...)
		b, err := exec.Command("ip", f...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", c, err, b)
		}
		out.WriteString("# " + c + "\n" + string(b))
	}
	out.WriteString(tables(t, n))
	_, err := inside(t, n.space, func() (struct{}, error) {
		links, err := net.Interfaces()
		if err != nil {
			return struct{}{}, err
		}
		for _, l := range links {
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				q, err := link.QueryPrograms(link.QueryOptions{Target: l.Index, Attach: at})
				if err != nil {
					return struct{}{}, err
				}
				for _, p := range q.Programs {
					fmt.Fprintf(&out, "# %s %v program %d\n", l.Name, at, p.ID)
				}
			}
			b, err := exec.Command("tc", "-s", "filter", "show", "dev", l.Name, "ingress").CombinedOutput()
			if err != nil && !bytes.Contains(b, []byte("Parent Qdisc doesn't exists")) {
				return struct{}{}, fmt.Errorf("%w: %s", err, b)
			}
			fmt.Fprintf(&out, "# %s filters %s\n", l.Name, b)
		}
		return struct{}{}, nil
	})
	check(t, err)
	// The result omits values that clocks and conntrack change.
	return regexp.MustCompile(`(valid_lft|expires|used|gc_timer|hello_timer|tcn_timer|topology_change_timer|message_age_timer|forward_delay_timer|hold_timer) +[0-9.a-z]+`).
		ReplaceAllString(out.String(), "$1")
}

func tables(t testing.TB, n *node) string {
	t.Helper()
	found, err := inside(t, n.space, func() ([]*nftables.Table, error) {
		c, err := nftables.New()
		if err != nil {
			return nil, err
		}
		return c.ListTables()
	})
	check(t, err)
	out := ""
	for _, f := range found {
		out += map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "table ip "}[f.Family] + f.Name + "\n"
	}
	return out
}

// TestChainedLeavesNoTrace checks that DEL, GC and removal take away everything of a port. The
// other plugin's work must be as it was before.
func TestChainedLeavesNoTrace(t *testing.T) {
	for other, before := range others {
		t.Run(other, func(t *testing.T) {
			n := newNode(t, "10.244.1.0/24", "--chained")
			n.withoutIPv6()
			alone := n.list(before(n))
			p, q := n.mustAddTo(t, alone), n.mustAddTo(t, alone)
			check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
			atFirst := picture(t, n)
			n.start()
			was := picture(t, n)
			client := agentapi.NewClient(n.socket())
			chain := func(p *pod) agentapi.Attachment {
				t.Helper()
				at := agentapi.Attachment{Network: "pods", ContainerID: p.rt.ContainerID, IfName: "eth0"}
				check(t, client.Chain(t.Context(), &agentapi.Chain{Attachment: at, Namespace: p.rt.NetNS,
					Addresses: []agentapi.Address{{Prefix: netip.PrefixFrom(p.ip, n.cidr.Bits())}}}))
				return at
			}
			same := func(after string) {
				t.Helper()
				if now := picture(t, n); now != was {
					t.Errorf("after %s the node's network is\n%s\nand was\n%s", after, now, was)
				}
			}
			at := chain(p)
			if picture(t, n) == was {
				t.Fatal("a port cannot be seen: the test means nothing")
			}
			check(t, client.Detach(t.Context(), at))
			same("DEL")
			chain(p)
			chain(q)
			_, err := client.Collect(t.Context(), &agentapi.Collect{Network: "pods", Valid: []agentapi.Attachment{}})
			check(t, err)
			same("GC")
			chain(p)
			chain(q)
			n.kill()
			n.start()
			if there, err := client.Attachments(t.Context()); err != nil || len(there) != 2 {
				t.Errorf("after a restart: %+v, %v", there, err)
			}
			check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
			n.kill()
			sh(t, "ip", "netns", "exec", n.space, filepath.Join(n.bin, "netcraq-agent"), "cleanup",
				"--cni-conf-dir", t.TempDir(), "--state-dir", n.state())
			if now := picture(t, n); now != atFirst {
				t.Errorf("after cleanup the node's network is\n%s\nand was\n%s", now, atFirst)
			}
		})
	}
}

// TestChainedResult checks that the plugin returns the previous result unchanged, whatever it
// contains.
func TestChainedResult(t *testing.T) {
	n := newNode(t, "10.244.1.0/24", "--chained")
	n.start()
	p := n.mustAddTo(t, n.list(n.bridgePlugin()))
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		family := ""
		if version[0] == '0' {
			family = `"version":"4",`
		}
		result := fmt.Sprintf(`{"cniVersion":%q, "x-of-theirs": [1.50, {"b":1,"a":2}],
			"interfaces": [{"name": "cni0"}, {"name": "lie0", "mac": "00:00:00:00:00:01"}, {"name":"eth0","sandbox":%q,"pciID":"none"}],
			"ips": [{%s"interface":2,"address":"%s/24","gateway":"10.244.1.1"}], "dns": {"nameservers":["192.0.2.53"]}}`, version, p.rt.NetNS, family, p.ip)
		out, err := n.plug(t, p, "ADD", n.chained(version, result))
		check(t, err)
		if out != result {
			t.Errorf("CNI %s: the result is\n%s\nand was\n%s", version, out, result)
		}
		_, err = n.plug(t, p, "DEL", n.chained(version, result))
		check(t, err)
	}
}

// chained returns the configuration that a runtime gives to the chained plugin.
func (n *node) chained(version, result string) string {
	prev := ""
	if result != "" {
		prev = `"prevResult":` + result + ","
	}
	return fmt.Sprintf(`{"cniVersion":%q,"name":"pods",%s"type":"netcraq-cni","chained":true,"socket":%q}`, version, prev, n.socket())
}

// plug runs the plugin's binary as a runtime does.
func (n *node) plug(t testing.TB, p *pod, command, stdin string) (string, error) {
	t.Helper()
	c := exec.Command("ip", "netns", "exec", n.space, filepath.Join(n.bin, "netcraq-cni"))
	c.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + p.rt.ContainerID, "CNI_NETNS=" + p.rt.NetNS, "CNI_IFNAME=" + p.rt.IfName, "CNI_PATH=" + n.bin}
	c.Stdin = strings.NewReader(stdin)
	out, err := c.Output()
	if err != nil {
		e := &types.Error{}
		if json.Unmarshal(out, e) == nil && e.Code != 0 {
			return "", e
		}
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}

// TestChainedLies gives the plugin false results, lists in a wrong order, and namespaces that are
// not the pod's. The agent must believe only the kernel. A refused request must leave no trace.
func TestChainedLies(t *testing.T) {
	n := newNode(t, "10.244.1.0/24", "--chained")
	n.withoutIPv6()
	n.start()
	control := agentapi.NewClient(n.socket())
	l := n.list(n.bridgePlugin(), n.chainedPlugin())
	alone := n.list(n.bridgePlugin())
	victim := n.mustAddTo(t, l)
	p := n.mustAddTo(t, alone)
	there := func(want int) []agentapi.Record {
		t.Helper()
		r, err := control.Attachments(t.Context())
		check(t, err)
		if len(r) != want {
			t.Errorf("%d attachments, not %d: %+v", len(r), want, r)
		}
		return r
	}
	theirs := hostEnd(t, n, victim)
	result := func(interfaces, ips string) string {
		return fmt.Sprintf(`{"cniVersion":"1.0.0","interfaces":[%s],"ips":[%s]}`, interfaces, ips)
	}
	inside := func(name, sandbox string) string { return fmt.Sprintf(`{"name":%q,"sandbox":%q}`, name, sandbox) }
	ip := func(a netip.Addr, i int) string { return fmt.Sprintf(`{"address":"%s/24","interface":%d}`, a, i) }
	refused := func(name string, p *pod, stdin string, code uint, says string) {
		t.Helper()
		was := picture(t, n)
		_, err := n.plug(t, p, "ADD", stdin)
		if code != 0 || err == nil {
			expectCode(t, name, err, code)
		}
		if err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: it says %q, not %q", name, err, says)
		}
		there(1)
		if now := picture(t, n); now != was {
			t.Errorf("%s: the node's network is\n%s\nand was\n%s", name, now, was)
		}
	}
	const invalid, space = types.ErrInvalidNetworkConfig, types.ErrInvalidNetNS

	refused("first in the list", p, n.chained("1.0.0", ""), invalid, "nothing is before it")
	refused("no address", p, n.chained("1.0.0", result(inside("eth0", p.rt.NetNS), "")), invalid, "has no address of eth0")
	refused("another's sandbox", p, n.chained("1.0.0", result(inside("eth0", victim.rt.NetNS), ip(p.ip, 0))), invalid, "has no address of eth0")
	refused("another interface of the pod", p, n.chained("1.0.0", result(inside("net1", p.rt.NetNS), ip(p.ip, 0))), invalid, "has no address of eth0")
	refused("an interface that is not in the list", p, n.chained("1.0.0", result(inside("eth0", p.rt.NetNS), ip(p.ip, 7))), 0, "")
	refused("another's address", p, n.chained("1.0.0", result(inside("eth0", p.rt.NetNS), ip(victim.ip, 0))), invalid, "does not have the address "+victim.ip.String())
	refused("an ipam section, too", p, strings.Replace(n.chained("1.0.0", result(inside("eth0", p.rt.NetNS), ip(p.ip, 0))), `"chained"`, `"ipam":{"type":"host-local"},"chained"`, 1), invalid, "leave ipam and mtu out")
	good := n.chained("1.0.0", result(inside("eth0", p.rt.NetNS), ip(p.ip, 0)))
	host := *p
	rt := *p.rt
	host.rt = &rt
	host.rt.NetNS = "/var/run/netns/" + n.space
	refused("the node's own namespace", &host, strings.ReplaceAll(good, p.rt.NetNS, host.rt.NetNS), space, "is the node's own network namespace")
	host.rt.NetNS = "/dev/null"
	refused("no namespace", &host, strings.ReplaceAll(good, p.rt.NetNS, host.rt.NetNS), 0, "")

	// The other end of this pair of interfaces is in a third namespace, as for a pod inside a pod.
	third, nested := namespace(t, "third"), n.newPod(t)
	nested.ip = netip.MustParseAddr("10.244.1.200")
	sh(t, "ip", "-n", third, "link", "add", "x", "type", "veth", "peer", "name", "eth0", "netns", nested.space)
	sh(t, "ip", "-n", nested.space, "addr", "add", "10.244.1.200/24", "dev", "eth0")
	refused("the other end is elsewhere", nested, n.chained("1.0.0", result(inside("eth0", nested.rt.NetNS), ip(nested.ip, 0))), space, "is not in the node's network namespace")
	// Both ends of this pair are in the pod. The second end has the index of one of the node's
	// interfaces.
	own := n.newPod(t)
	sh(t, "ip", "-n", own.space, "link", "add", "eth0", "type", "veth", "peer", "name", "y")
	sh(t, "ip", "-n", own.space, "addr", "add", "10.244.1.201/24", "dev", "eth0")
	refused("both ends in the pod", own, n.chained("1.0.0", result(inside("eth0", own.rt.NetNS), ip(netip.MustParseAddr("10.244.1.201"), 0))), space, "is not in the node's network namespace")
	noPair := n.newPod(t)
	sh(t, "ip", "-n", noPair.space, "link", "add", "eth0", "type", "bridge")
	sh(t, "ip", "-n", noPair.space, "addr", "add", "10.244.1.202/24", "dev", "eth0")
	refused("no pair", noPair, n.chained("1.0.0", result(inside("eth0", noPair.rt.NetNS), ip(netip.MustParseAddr("10.244.1.202"), 0))), invalid, "of the type bridge")
	// This pod has assigned itself the address of another pod.
	thief := n.mustAddTo(t, alone)
	sh(t, "ip", "-n", thief.space, "addr", "add", victim.ip.String()+"/24", "dev", "eth0")
	refused("another's address, taken", thief, n.chained("1.0.0", result(inside("eth0", thief.rt.NetNS), ip(victim.ip, 0))), invalid, "is that of "+victim.rt.ContainerID)

	// A false interface name has no effect, because the port is at the pod's own interface.
	lie := n.chained("1.0.0", result(fmt.Sprintf(`{"name":%q},%s`, theirs, inside("eth0", p.rt.NetNS)), ip(p.ip, 1)))
	_, err := n.plug(t, p, "ADD", lie)
	check(t, err)
	there(2)
	if got := hostEnd(t, n, p); got == theirs {
		t.Errorf("the port is at %s, which is another pod's", got)
	}
	check(t, n.check(t, l, victim))
	_, err = n.plug(t, p, "ADD", lie)
	expectCode(t, "a second time", err, agentapi.CodeExists)
	rt2 := *p.rt
	rt2.ContainerID += "-other"
	_, err = n.plug(t, &pod{space: p.space, rt: &rt2}, "ADD", lie)
	expectCode(t, "under another name", err, invalid)
	there(2)
	_, err = n.plug(t, p, "DEL", lie)
	check(t, err)

	// netcraq-cni is twice in this list. The second ADD fails and says so, and the runtime's DEL
	// then removes everything.
	twice := n.list(n.bridgePlugin(), n.chainedPlugin(), n.chainedPlugin())
	d := n.newPod(t)
	_, err = n.add(t, twice, d)
	expectCode(t, "twice in the list", err, agentapi.CodeExists)
	if err != nil && !strings.Contains(err.Error(), "is netcraq-cni twice in the list") {
		t.Errorf("twice in the list: %v", err)
	}
	check(t, n.del(t, twice, d))
	there(1)
	first := n.list(n.chainedPlugin(), n.bridgePlugin())
	_, err = n.add(t, first, n.newPod(t))
	expectCode(t, "first in the list", err, invalid)
	unchained := map[string]any{"type": "netcraq-cni", "socket": n.socket(), "ipam": n.hostLocal()}
	_, err = n.add(t, n.list(n.bridgePlugin(), unchained), n.newPod(t))
	expectCode(t, "not chained, behind another", err, invalid)
	check(t, n.check(t, l, victim))
	check(t, talk(t, victim.space, p.space, netip.AddrPortFrom(p.ip, 80)))
}

// TestChainedCheck changes things that CHECK must notice, and things that only the other plugin's
// CHECK must notice.
func TestChainedCheck(t *testing.T) {
	n := newNode(t, "10.244.1.0/24", "--chained")
	n.start()
	l := n.list(n.ptpPlugin(), n.chainedPlugin())
	for _, c := range []struct {
		name   string
		tamper func(p *pod, host string)
		says   string
	}{
		{"nothing", func(*pod, string) {}, ""},
		{"the filter", func(_ *pod, host string) { n.onHost(t, host, ingressfilter.Detach) }, "no ingress filter"},
		{"the Ethernet address", func(p *pod, _ string) {
			sh(t, "ip", "-n", p.space, "link", "set", "eth0", "address", "02:00:00:00:00:01")
		}, "Ethernet address"},
		{"the interface", func(p *pod, host string) { sh(t, "ip", "-n", n.space, "link", "del", host) }, "no interface eth0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := n.mustAddTo(t, l)
			host := hostEnd(t, n, p)
			var err error
			poll.Until(t, 20*time.Second, "CHECK is faster than the agent, which puts the filter back", func() bool {
				c.tamper(p, host)
				_, err = n.plug(t, p, "CHECK", n.chained("1.0.0", `{"cniVersion":"1.0.0","ips":[]}`))
				return err != nil || c.says == ""
			})
			switch {
			case c.says == "":
				check(t, err)
			case !strings.Contains(err.Error(), c.says):
				t.Errorf("CHECK says %v, not %q", err, c.says)
			default:
				expectCode(t, "CHECK", err, agentapi.CodeNotAsItWas)
			}
			check(t, n.del(t, l, p))
		})
	}
	p := n.mustAddTo(t, l)
	sh(t, "ip", "-n", p.space, "link", "set", "eth0", "address", "02:00:00:00:00:01")
	_, err := n.plug(t, p, "CHECK", n.chained("1.0.0", fmt.Sprintf(`{"cniVersion":"1.0.0","ips":[],
		"interfaces":[{"name":"eth0","sandbox":%q,"mac":"02:00:00:00:00:01"}]}`, p.rt.NetNS)))
	// CHECK accepts a MAC address that a later plugin has changed.
	check(t, err)
	check(t, n.del(t, l, p))
	n.expectNothingLeft(t)
}

// TestChainedKilledInAdd kills the agent before each step. The runtime's DEL does not need an
// agent, because the pod is another plugin's. Then the next agent removes what is left.
func TestChainedKilledInAdd(t *testing.T) {
	n := newNode(t, "10.244.1.0/24", "--chained")
	l := n.list(n.bridgePlugin(), n.chainedPlugin())
	for _, step := range agent.ChainedSteps {
		t.Run(step, func(t *testing.T) {
			n.startMortal(step)
			p := n.newPod(t)
			_, err := n.add(t, l, p)
			expectCode(t, "ADD", err, types.ErrTryAgainLater)
			n.died()
			check(t, n.del(t, l, p))
			n.start()
			if records := filesIn(t, n.state()); len(records) != 0 {
				t.Errorf("records: %v", records)
			}
			_, err = n.add(t, l, p)
			check(t, err)
			check(t, n.check(t, l, p))
			check(t, n.del(t, l, p))
			n.expectOnlyTheirs(t)
			n.kill()
		})
	}
}

// onHost calls do with the index of an interface of the node.
func (n *node) onHost(t testing.TB, iface string, do func(ifindex int) error) {
	t.Helper()
	check(t, n.run(t, func(context.Context) error {
		l, err := net.InterfaceByName(iface)
		if err != nil {
			return err
		}
		return errors.Join(do(l.Index))
	}))
}
