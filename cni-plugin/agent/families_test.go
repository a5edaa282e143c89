package agent_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
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
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// familiesLAN is like lan, for two nodes. The nodes' link and the pods have these address families:
// "4", "6" or "46". The family of the node's own address comes first.
func familiesLAN(t *testing.T, nodeFamilies, podFamilies string, routed bool, args ...string) []*node {
	t.Helper()
	needs(t)
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		t.Skip("skipped: the kernel has no IPv6")
	}
	middle := namespace(t, "lan")
	sh(t, "ip", "netns", "exec", middle, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
	if !routed {
		sh(t, "ip", "-n", middle, "link", "add", "name", "bridge0", "type", "bridge")
		sh(t, "ip", "-n", middle, "link", "set", "bridge0", "up")
	}
	path := filepath.Join(t.TempDir(), "nodes.json")
	var file struct {
		Nodes []podroutes.Node `json:"nodes"`
	}
	var nodes []*node
	for i := 1; i <= 2; i++ {
		prefixes := map[rune]string{'4': fmt.Sprintf("10.244.%d.0/24", i), '6': fmt.Sprintf("fd00:244:0:%d::/64", i)}
		name := fmt.Sprintf("node%d", i)
		n := newNode(t, prefixes[rune(podFamilies[0])], append([]string{"--nodes", path, "--node", name}, args...)...)
		n.lan = middle
		known := podroutes.Node{Name: name, PodCIDRs: []netip.Prefix{n.cidr}}
		if len(podFamilies) > 1 {
			n.second = netip.MustParsePrefix(prefixes[rune(podFamilies[1])])
			known.PodCIDRs = append(known.PodCIDRs, n.second)
		}
		cable := fmt.Sprintf("n%d", i)
		sh(t, "ip", "-n", n.space, "link", "add", "eth0", "type", "veth", "peer", "name", cable, "netns", middle)
		sh(t, "ip", "-n", middle, "link", "set", cable, "up")
		sh(t, "ip", "-n", n.space, "link", "set", "eth0", "up")
		for _, f := range nodeFamilies {
			own, router, bits := fmt.Sprintf("192.168.0.%d", i), "", 24
			switch {
			case f == '4' && routed:
				own, router = fmt.Sprintf("192.168.%d.2", i), fmt.Sprintf("192.168.%d.1", i)
			case f == '6' && routed:
				own, router, bits = fmt.Sprintf("fd00:c:0:%d::2", i), fmt.Sprintf("fd00:c:0:%d::1", i), 64
			case f == '6':
				own, bits = fmt.Sprintf("fd00:c::%d", i), 64
			}
			sh(t, "ip", "-n", n.space, "addr", "add", fmt.Sprintf("%s/%d", own, bits), "dev", "eth0", "nodad")
			if routed {
				sh(t, "ip", "-n", middle, "addr", "add", fmt.Sprintf("%s/%d", router, bits), "dev", cable, "nodad")
				sh(t, "ip", "-n", n.space, "route", "add", "default", "via", router)
			}
			if a := netip.MustParseAddr(own); known.Address.IsValid() {
				known.Second = a
			} else {
				known.Address = a
			}
		}
		if !routed {
			sh(t, "ip", "-n", middle, "link", "set", cable, "master", "bridge0")
		}
		nodes, file.Nodes = append(nodes, n), append(file.Nodes, known)
	}
	b, err := json.Marshal(file)
	check(t, err)
	check(t, os.WriteFile(path, b, 0o600))
	return nodes
}

// TestFamilies makes pods of two nodes talk in each address family that the pods have. It does so
// for all families of the nodes' link.
func TestFamilies(t *testing.T) {
	for _, c := range []struct {
		name, nodes, pods string
		routed            bool
		mode              string
		routes            map[string]string // expected routes to the other node's pods
	}{
		{"IPv6 alone, one link", "6", "6", false, "auto", map[string]string{"fd00:244:0:2::/64": "via fd00:c::2 dev eth0"}},
		{"IPv6 alone, routed", "6", "6", true, "auto", map[string]string{"fd00:244:0:2::/64": "via fd00:244:0:2:: dev ncqvx6"}},
		{"both, one link", "46", "46", false, "direct", map[string]string{
			"fd00:244:0:2::/64": "via fd00:c::2 dev eth0", "10.244.2.0/24": "via 192.168.0.2 dev eth0"}},
		{"both, routed, IPv6 first", "64", "64", true, "auto", map[string]string{
			"fd00:244:0:2::/64": "via fd00:244:0:2:: dev ncqvx ", "10.244.2.0/24": "via 10.244.2.0 dev ncqvx "}},
		{"pods of both on nodes of IPv4", "4", "46", false, "auto", map[string]string{
			"fd00:244:0:2::/64": "via fd00:244:0:2:: dev ncqvx ", "10.244.2.0/24": "via 192.168.0.2 dev eth0"}},
		{"pods of both on nodes of IPv6", "6", "46", true, "vxlan", map[string]string{
			"fd00:244:0:2::/64": "via fd00:244:0:2:: dev ncqvx6", "10.244.2.0/24": "via 10.244.2.0 dev ncqvx6"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := familiesLAN(t, c.nodes, c.pods, c.routed, "--routes", c.mode)
			a, b := nodes[0], nodes[1]
			a.start()
			b.start()
			for to, want := range c.routes {
				if r := sh(t, "ip", "-n", a.space, family(to), "route", "show", to); !strings.Contains(r, want) {
					t.Errorf("the route to %s is %q, not %q", to, r, want)
				}
			}
			p, q, r := a.mustAdd(t), b.mustAdd(t), a.mustAdd(t)
			everything := func() {
				t.Helper()
				for _, pair := range [][2]*pod{{p, q}, {q, p}, {p, r}} {
					for i, ip := range pair[1].ips {
						seen := whoAsks(t, pair[0].space, pair[1].space, netip.AddrPortFrom(ip, 80))
						if seen != pair[0].ips[i] {
							t.Errorf("%s: who asks is %s, not %s", ip, seen, pair[0].ips[i])
						}
						// the first size fits without fragments, and the second one does not
						for _, size := range []string{"1300", "4000"} {
							ping := exec.Command("ip", "netns", "exec", pair[0].space, "ping", "-c1", "-W5", "-s", size, ip.String())
							if out, err := ping.CombinedOutput(); err != nil {
								t.Errorf("ping of %s bytes to %s: %v\n%s", size, ip, err, out)
							}
						}
					}
				}
				for _, ip := range q.ips { // kubelet's probes also come from the node itself
					check(t, talk(t, b.space, q.space, netip.AddrPortFrom(ip, 80)))
				}
			}
			everything()
			check(t, a.check(t, a.list(), p))
			// A restart of the agent changes nothing. The agent also repairs settings that another
			// program has changed.
			a.kill()
			for to := range c.routes {
				sh(t, "ip", "-n", a.space, family(to), "route", "del", to)
			}
			sh(t, "ip", "-n", a.space, "-6", "route", "add", "fd00:99::/64", "dev", "eth0", "protocol", fmt.Sprint(podroutes.Protocol))
			a.start()
			everything()
			if r := sh(t, "ip", "-n", a.space, "-6", "route", "show", "fd00:99::/64"); r != "" {
				t.Errorf("a stale route is there: %s", r)
			}
			for i, ip := range p.ips {
				if ip.Is6() {
					forgedSource(t, a, b, p, q, i)
				}
			}
			for _, x := range []*pod{p, r} {
				check(t, a.del(t, a.list(), x))
			}
			for _, l := range a.left(t) {
				// the node keeps its own tunnel interface
				if l != "interface "+podroutes.Device && l != "interface "+podroutes.Device6 && !strings.HasSuffix(l, ":0:1::/128") {
					t.Errorf("left: %s", l)
				}
			}
		})
	}
}

// family returns the ip command's option for the address family of a prefix.
func family(prefix string) string {
	if strings.Contains(prefix, ":") {
		return "-6"
	}
	return "-4"
}

// forgedSource makes a pod send an IPv6 packet to another pod. It does so once from its own
// address, and once from the address of a third pod.
func forgedSource(t *testing.T, a, b *node, p, q *pod, i int) {
	t.Helper()
	mac, err := inside(t, a.space, func() (net.HardwareAddr, error) {
		l, err := net.InterfaceByName(hostEnd(t, a, p))
		if err != nil {
			return nil, err
		}
		return l.HardwareAddr, nil
	})
	check(t, err)
	arrives := func(from netip.Addr, port uint16, patience time.Duration) bool {
		t.Helper()
		c, err := inside(t, q.space, func() (net.PacketConn, error) {
			return net.ListenPacket("udp6", fmt.Sprintf("[::]:%d", port))
		})
		check(t, err)
		defer c.Close()
		f := udptest.Packet{EthernetDst: mac, EthernetSrc: net.HardwareAddr{2, 0, 0, 0, 0, 9},
			Src: netip.AddrPortFrom(from, 5000),
			Dst: netip.AddrPortFrom(q.ips[i], port), Payload: make([]byte, 64)}.Frame6()
		for end := time.Now().Add(patience); time.Now().Before(end); {
			p.sendFrames(t, f)
			check(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
			if _, _, err := c.ReadFrom(make([]byte, 100)); err == nil {
				return true
			}
		}
		return false
	}
	if !arrives(p.ips[i], 5001, 10*time.Second) {
		t.Errorf("a pod's UDP from its own address %s does not arrive", p.ips[i])
	}
	for _, from := range []netip.Addr{q.ips[i].Next(), netip.MustParseAddr("fd00:c::2"), netip.MustParseAddr("2001:db8::1")} {
		if arrives(from, 5001, 200*time.Millisecond) {
			t.Errorf("a pod's UDP from %s arrives: its own address is %s", from, p.ips[i])
		}
	}
}

// TestWorldFamilies makes pods talk to a host outside of the cluster that has no routes to pods. It
// does so in both address families.
func TestWorldFamilies(t *testing.T) {
	for _, families := range []string{"6", "46"} {
		t.Run(families, func(t *testing.T) {
			nodes := familiesLAN(t, families, families, true)
			a, b := nodes[0], nodes[1]
			a.start()
			b.start()
			p, q := a.mustAdd(t), b.mustAdd(t)
			for i, ip := range p.ips {
				node, router, other := "192.168.1.2", "192.168.2.1", "192.168.2.2"
				if ip.Is6() {
					node, router, other = "fd00:c:0:1::2", "fd00:c:0:2::1", "fd00:c:0:2::2"
				}
				at := func(s string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(s), 80) }
				if seen := whoAsks(t, p.space, a.lan, at(router)); seen.String() != node {
					t.Errorf("outside, at %s, the pod is %s, not its node %s", router, seen, node)
				}
				if seen := whoAsks(t, p.space, q.space, at(q.ips[i].String())); seen != ip {
					t.Errorf("another pod sees %s, not %s", seen, ip)
				}
				if seen := whoAsks(t, p.space, b.space, at(other)); seen != ip {
					t.Errorf("another node sees %s, not %s", seen, ip)
				}
			}
			a.kill()
			a.args = append(a.args, "--masquerade=false")
			a.start()
			if out := sh(t, "ip", "netns", "exec", a.space, "sh", "-c", "command -v nft >/dev/null && nft list tables || true"); strings.Contains(out, "netcraq\n") {
				t.Errorf("without masquerading its tables are there: %s", out)
			}
		})
	}
}

// TestTunnels6 checks a tunnel over IPv6. Only packets that the other node sends over the nodes'
// link may come out of it. A pod's forged packets may not.
func TestTunnels6(t *testing.T) {
	nodes := familiesLAN(t, "6", "6", true, "--routes", "vxlan")
	a, b := nodes[0], nodes[1]
	a.start()
	b.start()
	p, q := a.mustAdd(t), b.mustAdd(t)
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
	// This is a VXLAN frame in the tunnel, from "node2" to the pod p.
	inner := udptest.Packet{EthernetDst: tunnelMAC(t, a), EthernetSrc: tunnelMAC(t, b),
		Src: netip.AddrPortFrom(q.ip, 5000),
		Dst: netip.AddrPortFrom(p.ip, 5002), Payload: make([]byte, 64)}.Frame6()
	vxlan := append(binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, podroutes.VNI<<8), inner...)
	server, err := inside(t, p.space, func() (net.PacketConn, error) { return net.ListenPacket("udp6", "[::]:5002") })
	check(t, err)
	defer server.Close()
	send := func(space, source string) {
		t.Helper()
		_, err := inside(t, space, func() (struct{}, error) {
			c, err := net.DialUDP("udp6", &net.UDPAddr{IP: net.ParseIP(source)},
				&net.UDPAddr{IP: net.ParseIP("fd00:c:0:1::2"), Port: podroutes.VXLANPort})
			if err != nil {
				return struct{}{}, err
			}
			defer c.Close()
			_, err = c.Write(vxlan)
			return struct{}{}, err
		})
		check(t, err)
	}
	arrives := func(patience time.Duration, send func()) bool {
		t.Helper()
		for end := time.Now().Add(patience); time.Now().Before(end); {
			send()
			check(t, server.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
			if _, _, err := server.ReadFrom(make([]byte, 200)); err == nil {
				return true
			}
		}
		return false
	}
	if !arrives(10*time.Second, func() { send(b.space, "fd00:c:0:2::2") }) {
		t.Error("what the other node sends in the tunnel does not arrive: the test means nothing")
	}
	for what, try := range map[string]func(){
		"the router":       func() { send(a.lan, "fd00:c:0:1::1") },
		"a pod":            func() { send(p.space, p.ip.String()) },
		"another node's":   func() { send(q.space, q.ip.String()) },
		"the node itself":  func() { send(a.space, "fd00:c:0:1::2") },
		"a loopback route": func() { send(a.space, "::1") },
	} {
		if arrives(200*time.Millisecond, try) {
			t.Errorf("what %s sends in the tunnel comes out of it", what)
		}
	}
	a.kill()
	sh(t, "ip", "netns", "exec", a.space, filepath.Join(a.bin, "netcraq-agent"), "cleanup", "--cni-conf-dir", t.TempDir())
	for _, name := range []string{podroutes.Device, podroutes.Device6} {
		if exec.Command("ip", "-n", a.space, "link", "show", name).Run() == nil {
			t.Errorf("cleanup leaves %s", name)
		}
	}
	poll.Until(t, 5*time.Second, "cleanup leaves no route to other nodes' pods", func() bool {
		return !strings.Contains(sh(t, "ip", "-n", a.space, "-6", "route"), "fd00:244:0:2::/64")
	}, func() string { return sh(t, "ip", "-n", a.space, "-6", "route") })
}

// tunnelMAC returns the Ethernet address of a node's end of the tunnels over IPv6.
func tunnelMAC(t *testing.T, n *node) net.HardwareAddr {
	t.Helper()
	mac, err := inside(t, n.space, func() (net.HardwareAddr, error) {
		l, err := net.InterfaceByName(podroutes.Device6)
		if err != nil {
			return nil, err
		}
		return l.HardwareAddr, nil
	})
	check(t, err)
	return mac
}
