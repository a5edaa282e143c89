package agent_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

var service = netip.MustParseAddrPort("10.0.254.3:20035")

// connectedPair starts two nodes on one link. Port 1 of each node's switch connects to the other
// node's switch.
func connectedPair(t *testing.T, engine string) []*node {
	t.Helper()
	nodes := lan(t, 2, false, "--engine", engine, "--services", "10.0.254.0/24")
	a, b := nodes[0], nodes[1]
	a.args, b.args = append(a.args, "--peer", "1@node2"), append(b.args, "--peer", "1@node1")
	a.start()
	b.start()
	return nodes
}

// TestNetCRAQ forms a chain over the switches of two nodes, and pods read and write. Forged packets
// of pods must not arrive, whether the switch runs or was killed.
func TestNetCRAQ(t *testing.T) {
	for _, engine := range []string{"ebpf", "interp"} {
		t.Run(engine, func(t *testing.T) {
			nodes := connectedPair(t, engine)
			a, b := nodes[0], nodes[1]
			p, q, r := a.mustAdd(t), b.mustAdd(t), a.mustAdd(t)
			control := startController(t, nodes, p, q)
			added, err := control.AddKey(t.Context(), "main", admin.KeySpec{Name: "/leader", Value: []byte("alice")})
			check(t, err)
			key := wire.Key(added.KeyID)
			fromP, fromQ := newClient(t, p.space), newClient(t, q.space)
			expect(t, "a pod at the head", fromP, key, "alice")
			expect(t, "a pod at the tail", fromQ, key, "alice")
			put(t, control, fromQ, key, "bob")
			expect(t, "a pod at the head", fromP, key, "bob")
			fromNode := newClient(t, a.space)
			expect(t, "a process of the node", fromNode, key, "bob")
			put(t, control, fromNode, key, "bob")
			check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80))) // pods can still reach each other

			before := untrusted(t, control, "s1")
			forged := wire.Packet{Op: wire.Ack, Key: key, Epoch: 1, Version: wire.MakeVersion(1, 1000),
				Value: []byte("mallory")}
			for _, how := range []forgery{{}, {options: true}, {fragment: true}} {
				for _, to := range []netip.AddrPort{service, netip.MustParseAddrPort("10.0.255.1:20035"), netip.MustParseAddrPort("10.0.255.2:20035")} {
					how.send(t, p, netip.AddrPortFrom(p.ip, 20035), to, forged)
				}
			}
			expect(t, "after forged acknowledgements", fromP, key, "bob")
			expect(t, "after forged acknowledgements", fromQ, key, "bob")
			if after := untrusted(t, control, "s1"); after < before+3 {
				t.Errorf("the switch of the pod has counted %d untrusted packets, not 3", after-before)
			}
			nothing(t, control, "s1", r.space, key)
			expect(t, "a pod, after one whose port is closed has tried", fromP, key, "bob")
			forgedReplies(t, p, r)
			(&way{from: a, out: "eth0", space: b.space, in: "eth0", targets: []netip.Addr{q.ip,
				netip.MustParseAddr("192.168.0.2")}}).offloaded(t, r, p)
			expect(t, "a pod, after frames that change on the way", fromP, key, "bob")
			unreachable(t, p, nodes)
			contained(t, nodes, p)
			forgedFabric(t, nodes, p, forged, map[string]*client.Client{"a pod at the head": fromP, "a pod at the tail": fromQ})

			// With the switch killed, pods cannot make the kernel forward packets that the switch
			// would have dropped.
			a.kill()
			see := func(expected bool) bool {
				return seen(t, b.space, "eth0", p.ip, wire.Port, expected, func() {
					forgery{}.send(t, p, netip.AddrPortFrom(p.ip, 20035), netip.AddrPortFrom(q.ip, 20035), forged)
				})
			}
			if see(false) {
				t.Error("without a switch a pod's NetCRAQ packets leave the node")
			}
			// The filters drop these packets. Either of the two filters is enough.
			_, err = inside(t, a.space, func() (struct{}, error) { return struct{}{}, ingressfilter.RemoveSwitch() })
			check(t, err)
			if see(false) {
				t.Error("without a switch and the stack's filter a pod's NetCRAQ packets leave the node")
			}
			_, err = inside(t, a.space, func() (struct{}, error) {
				l, err := net.InterfaceByName(hostEnd(t, a, p))
				if err != nil {
					return struct{}{}, err
				}
				return struct{}{}, ingressfilter.Detach(l.Index)
			})
			check(t, err)
			if !see(true) {
				t.Error("without switch and filters a pod's NetCRAQ packets do not leave the node: the test above means nothing")
			}
			a.start() // the agent attaches the filters again
			check(t, a.check(t, a.list(), p))
		})
	}
}

// TestPortOfADeletedPod deletes a pod without telling the controller, so that the pod's rights stay
// in the node's switch. Then it attaches other pods. None of them may get the deleted pod's port.
func TestPortOfADeletedPod(t *testing.T) {
	for _, engine := range []string{"ebpf", "interp"} {
		t.Run(engine, func(t *testing.T) {
			nodes := connectedPair(t, engine)
			a, b := nodes[0], nodes[1]
			p, q := a.mustAdd(t), b.mustAdd(t)
			control := startController(t, nodes, p, q) // the controller's topology has p at p's port
			added, err := control.AddKey(t.Context(), "main", admin.KeySpec{Name: "/leader", Value: []byte("alice")})
			check(t, err)
			key := wire.Key(added.KeyID)
			expect(t, "the pod with rights", newClient(t, p.space), key, "alice")
			check(t, a.del(t, a.list(), p))
			for range 3 {
				nothing(t, control, "s1", a.mustAdd(t).space, key)
			}
			expect(t, "another node's pod", newClient(t, q.space), key, "alice")
		})
	}
}

// nothing makes a pod whose port is closed read and write through a switch. The switch must drop
// the packets.
func nothing(t *testing.T, control *admin.Client, sw, space string, key wire.Key) {
	t.Helper()
	before, err := control.Counters(t.Context(), sw)
	check(t, err)
	c := newClient(t, space)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if r, err := c.Get(ctx, key); err == nil {
		t.Errorf("a pod whose port is closed reads %q", r.Value)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Put(ctx, key, []byte("mallory")); err == nil {
		t.Error("a pod whose port is closed writes")
	}
	after, err := control.Counters(t.Context(), sw)
	check(t, err)
	if n := after.Events["drop_closed_port"] - before.Events["drop_closed_port"]; n < 2 {
		t.Errorf("%s has dropped %d packets at closed ports, not 2 at least", sw, n)
	}
}

// startController starts a controller with a chain over the nodes' switches. Node 1 is the head.
// P4Runtime listens on the nodes' loopback, so the controller connects through lead. The nodes and
// the pods in open have all rights, and the other pods have none.
func startController(t *testing.T, nodes []*node, open ...*pod) *admin.Client {
	t.Helper()
	type m = map[string]any
	compiled, err := filepath.Abs("../../p4src/compiled")
	check(t, err)
	var switches, hosts []m
	var members []string
	for i, n := range nodes {
		name := fmt.Sprintf("s%d", i+1)
		members = append(members, name)
		switches = append(switches, m{"name": name, "p4runtime": lead(t, n.space, "127.0.0.1:9559"), "deviceId": i + 1, "address": fmt.Sprintf("10.0.255.%d", i+1)})
		records, err := agentapi.NewClient(n.socket()).Attachments(t.Context())
		check(t, err)
		for _, r := range records {
			ip, access := r.Addresses[0].Prefix.Addr(), m{}
			if slices.ContainsFunc(open, func(p *pod) bool { return p.ip == ip }) {
				access["default"] = "write"
			}
			hosts = append(hosts, m{"name": r.Host.Name, "ip": ip.String(), "mac": r.Container.MAC,
				"port": fmt.Sprintf("%s:%d", name, r.Port), "access": access})
		}
	}
	for i := range nodes {
		if self := netip.MustParseAddr(fmt.Sprintf("192.168.0.%d", i+1)); len(nodes) > 1 {
			hosts = append(hosts, m{"name": fmt.Sprintf("node%d", i+1), "ip": self.String(),
				"mac": nodeswitch.HostMAC(self).String(), "port": fmt.Sprintf("s%d:%d", i+1, nodeswitch.HostPort), "access": m{"default": "write"}})
		}
	}
	var links [][]string
	if len(nodes) == 2 {
		links = [][]string{{"s1:1", "s2:1"}}
	}
	file, err := json.Marshal(m{
		"program":  m{"profile": 128, "json": filepath.Join(compiled, "netcraq-128.json.gz"), "p4info": filepath.Join(compiled, "netcraq-128.p4info.txtpb")},
		"switches": switches, "links": links, "hosts": hosts,
		"chains": []m{{"id": 3, "name": "main", "address": service.Addr().String(), "members": members, "leaseMillis": 1000, "patienceMillis": 60000}},
	})
	check(t, err)
	path := filepath.Join(t.TempDir(), "net.json")
	check(t, os.WriteFile(path, file, 0o600))
	top, err := topology.Load(path)
	check(t, err)
	c, err := controller.New(controller.Options{Topology: top, Store: saved.Memory{},
		Log: slog.New(slog.DiscardHandler)})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	server := httptest.NewServer(adminserver.Handler(c, nil))
	t.Cleanup(func() { cancel(); <-done; server.CloseClientConnections(); server.Close() })
	control := admin.NewClient(server.URL)
	poll.Nil(t, 30*time.Second, "the chain is ready", func() error { return control.Ready(t.Context()) })
	return control
}

// lead forwards connections from a port of this machine to an address in a network namespace. It
// returns the port's address.
func lead(t *testing.T, space, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := inside(t, space, func() (net.Conn, error) { return net.Dial("tcp", to) })
			if err != nil {
				in.Close()
				continue
			}
			go func() { _, _ = io.Copy(in, out); in.Close() }()
			go func() { _, _ = io.Copy(out, in); out.Close() }()
		}
	}()
	return l.Addr().String()
}

func newClient(t *testing.T, space string) *client.Client {
	t.Helper()
	return newClientAt(t, space, service.Addr())
}

func newClientAt(t *testing.T, space string, service netip.Addr) *client.Client {
	t.Helper()
	c, err := inside(t, space, func() (*client.Client, error) {
		return client.New(t.Context(), client.Config{Addresses: []netip.AddrPort{netip.AddrPortFrom(service,
			wire.Port)}, AtLeastOnce: true})
	})
	check(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func expect(t *testing.T, who string, c *client.Client, key wire.Key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := c.Get(ctx, key)
	if err != nil || string(r.Value) != value {
		t.Errorf("%s reads %q (%v), not %q", who, r.Value, err, value)
	}
}

// put writes a key. If it fails it reports the switches' counters.
func put(t *testing.T, control *admin.Client, c *client.Client, key wire.Key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := c.Put(ctx, key, []byte(value)); err != nil {
		for _, s := range []string{"s1", "s2"} {
			counters, _ := control.Counters(t.Context(), s)
			t.Logf("%s: %+v", s, counters)
		}
		t.Fatal(err)
	}
}

func untrusted(t *testing.T, control *admin.Client, sw string) uint64 {
	t.Helper()
	c, err := control.Counters(t.Context(), sw)
	check(t, err)
	return c.Events["drop_untrusted"]
}

// forgery is a variant of a forged packet: with an IP option, as the first of two fragments, or
// neither.
type forgery struct{ options, fragment bool }

// send sends a packet from a pod through a raw socket. The source address may be any address.
func (f forgery) send(t *testing.T, p *pod, from, to netip.AddrPort, packet wire.Packet) {
	t.Helper()
	payload, err := packet.Marshal(wire.Profile128)
	check(t, err)
	frame, err := (&wire.Frame{Src: from, Dst: to}).AppendTo(nil, payload)
	check(t, err)
	ip := frame[14:]
	if f.options { // the IP option "no operation", four times
		ip = append(append(append([]byte{}, ip[:20]...), 1, 1, 1, 1), ip[20:]...)
		ip[0]++
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	}
	pieces := [][]byte{ip}
	if f.fragment {
		const first = 20 + 32
		head, rest := append([]byte{}, ip[:first]...), append(append([]byte{}, ip[:20]...), ip[first:]...)
		binary.BigEndian.PutUint16(head[2:], uint16(len(head)))
		binary.BigEndian.PutUint16(head[6:], 0x2000)
		binary.BigEndian.PutUint16(rest[2:], uint16(len(rest)))
		binary.BigEndian.PutUint16(rest[6:], 32/8)
		pieces = [][]byte{head, rest}
	}
	_, err = inside(t, p.space, func() (struct{}, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return struct{}{}, err
		}
		defer unix.Close(fd)
		for _, piece := range pieces {
			binary.BigEndian.PutUint16(piece[4:], 4711) // both fragments have the same identification
			err = errors.Join(err, unix.Sendto(fd, piece, 0, &unix.SockaddrInet4{Addr: to.Addr().As4()}))
		}
		return struct{}{}, err
	})
	check(t, err)
}

// forgedReplies makes a pod answer another pod's read as if it were the chain.
func forgedReplies(t *testing.T, from, to *pod) {
	t.Helper()
	s, err := inside(t, to.space, func() (net.PacketConn, error) { return net.ListenPacket("udp4", "0.0.0.0:5000") })
	check(t, err)
	defer s.Close()
	reply := wire.Packet{Op: wire.ReadReply, Key: 3 << 24, Version: wire.MakeVersion(1, 1000), Value: []byte("mallory")}
	for _, how := range []forgery{{}, {options: true}, {fragment: true}} {
		how.send(t, from, service, netip.AddrPortFrom(to.ip, 5000), reply)
	}
	check(t, s.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	if n, who, err := s.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("a forged reply of %d bytes from %v came through", n, who)
	}
	// Other UDP packets arrive, also with options and in fragments. This shows that the test can
	// send such packets.
	for _, how := range []forgery{{}, {options: true}, {fragment: true}} {
		how.send(t, from, netip.AddrPortFrom(from.ip, 5001), netip.AddrPortFrom(to.ip, 5000), reply)
		check(t, s.SetReadDeadline(time.Now().Add(3*time.Second)))
		if _, _, err := s.ReadFrom(make([]byte, 100)); err != nil {
			t.Errorf("other UDP (%+v) does not come through: %v", how, err)
		}
	}
}

// unreachable makes a pod try to reach the nodes' P4Runtime servers and tunnels.
func unreachable(t *testing.T, p *pod, nodes []*node) {
	t.Helper()
	for _, addr := range []string{"127.0.0.1", "10.244.1.1", "192.168.0.1", "192.168.0.2"} {
		if err := say(t, p.space, netip.MustParseAddrPort(addr+":9559")); err == nil {
			t.Errorf("a pod reaches P4Runtime at %s", addr)
		}
	}
	for _, c := range []struct {
		port  uint16
		comes bool
	}{{podroutes.VXLANPort, false}, {4789, true}} {
		got := seen(t, nodes[1].space, "eth0", p.ip, c.port, c.comes, func() {
			_, err := inside(t, p.space, func() (struct{}, error) {
				conn, err := net.Dial("udp4", fmt.Sprintf("192.168.0.2:%d", c.port))
				if err != nil {
					return struct{}{}, err
				}
				defer conn.Close()
				_, err = conn.Write(make([]byte, 64))
				return struct{}{}, err
			})
			check(t, err)
		})
		if got != c.comes {
			t.Errorf("a pod's packet to another node's UDP port %d gets there: %v", c.port, got)
		}
	}
}

// seen calls do, and reports whether an interface of a namespace then sees UDP from an address to a
// port. It waits longer for an expected packet, because the machine may be busy.
func seen(t *testing.T, space, iface string, from netip.Addr, port uint16, expected bool, do func()) bool {
	t.Helper()
	fd, err := inside(t, space, func() (int, error) {
		l, err := net.InterfaceByName(iface)
		if err != nil {
			return 0, err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.ETH_P_ALL<<8)
		if err != nil {
			return 0, err
		}
		return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL << 8, Ifindex: l.Index})
	})
	check(t, err)
	defer unix.Close(fd)
	check(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50000}))
	do()
	b := make([]byte, 2048)
	patience := 300 * time.Millisecond
	if expected {
		patience = 5 * time.Second
	}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			continue
		}
		if f, _, err := wire.ParseFrame(b[:n]); err == nil && f.Src.Addr() == from && f.Dst.Port() == port {
			return true
		}
	}
	return false
}

// hostEnd returns the name of the node's end of a pod's interface pair.
func hostEnd(t *testing.T, n *node, p *pod) string {
	t.Helper()
	records, err := os.ReadDir(n.state())
	check(t, err)
	for _, f := range records {
		b, err := os.ReadFile(filepath.Join(n.state(), f.Name()))
		check(t, err)
		r := agentapi.Record{}
		check(t, json.Unmarshal(b, &r))
		if r.ContainerID == p.rt.ContainerID {
			return r.Host.Name
		}
	}
	t.Fatal("the pod has no record")
	return ""
}
