package agent_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
	"github.com/netcraq/netcraq/internal/testutil/testcerts"
)

// rack has three top-of-rack switches. Each two of them are connected, and the first two also have
// a node each. The P4Runtime servers of the switches are on the nodes' link:
//
//	node1 ─1 tor1 2──2 tor2 1─ node2
//	            3╲    ╱3
//	             2 ╲╱ 3
//	              tor3
type rack struct {
	t       *testing.T
	command string
	certs   *testcerts.Authority
	spaces  []string
	running []*exec.Cmd
	output  []*syncbuffer.Buffer
	file    string
}

func newRack(t *testing.T, command string, nodes []*node) *rack {
	t.Helper()
	r := &rack{t: t, command: command, certs: testcerts.NewAuthority(t), running: make([]*exec.Cmd, 3),
		output: make([]*syncbuffer.Buffer, 3)}
	lan := nodes[0].lan
	for i := range 3 {
		space := namespace(t, fmt.Sprintf("tor%d-", i+1))
		r.spaces = append(r.spaces, space)
		cable := fmt.Sprintf("t%d", i+1)
		sh(t, "ip", "-n", space, "link", "add", "mgmt", "type", "veth", "peer", "name", cable, "netns", lan)
		sh(t, "ip", "-n", lan, "link", "set", cable, "master", "bridge0", "up")
		sh(t, "ip", "-n", space, "addr", "add", fmt.Sprintf("192.168.0.10%d/24", i+1), "dev", "mgmt")
		sh(t, "ip", "-n", space, "link", "set", "mgmt", "up")
	}
	join := func(a, aIface, b, bIface string) {
		sh(t, "ip", "-n", a, "link", "add", aIface, "type", "veth", "peer", "name", bIface, "netns", b)
		for space, iface := range map[string]string{a: aIface, b: bIface} {
			sh(t, "ip", "netns", "exec", space, "sysctl", "-qw", "net.ipv6.conf."+iface+".disable_ipv6=1")
			sh(t, "ip", "-n", space, "link", "set", iface, "up")
		}
	}
	join(r.spaces[0], "p2", r.spaces[1], "p2")
	join(r.spaces[0], "p3", r.spaces[2], "p2")
	join(r.spaces[1], "p3", r.spaces[2], "p3")
	_, _ = r.certs.Issue("leader", "", "leader")
	file := fmt.Sprintf("p4runtimeTLS: {ca: %s, cert: %s, key: %s}\nswitches:\n", r.certs.File,
		filepath.Join(filepath.Dir(r.certs.File), "leader.pem"), filepath.Join(filepath.Dir(r.certs.File), "leader-key.pem"))
	for i := range 3 {
		file += fmt.Sprintf("  - {name: tor%d, p4runtime: \"192.168.0.10%d:9559\", serverName: tor%d, deviceId: %d, address: 10.0.255.%d}\n", i+1, i+1, i+1, 7+i, i+1)
	}
	file += "links: [[tor1:2, tor2:2], [tor1:3, tor3:2], [tor2:3, tor3:3]]\nhosts:\n"
	for i, n := range nodes[:2] {
		mac := fmt.Sprintf("02:00:00:00:0a:0%d", i+1)
		join(n.space, "rack0", r.spaces[i], "p1")
		sh(t, "ip", "-n", n.space, "link", "set", "rack0", "address", mac)
		sh(t, "ip", "-n", n.space, "addr", "add", fmt.Sprintf("172.16.0.%d/32", i+1), "dev", "rack0")
		file += fmt.Sprintf("  - {name: node%d, ip: 172.16.0.%d, mac: \"%s\", port: \"tor%d:1\"}\n", i+1, i+1, mac, i+1)
	}
	r.file = filepath.Join(t.TempDir(), "fabric.yaml")
	check(t, os.WriteFile(r.file, []byte(file), 0o600))
	t.Cleanup(func() {
		for i := range r.running {
			r.kill(i)
			if t.Failed() {
				t.Logf("tor%d:\n%s", i+1, r.output[i])
			}
		}
	})
	for i := range 3 {
		r.start(i)
	}
	return r
}

func (r *rack) start(i int) {
	r.t.Helper()
	name := fmt.Sprintf("tor%d", i+1)
	cert, _ := r.certs.Issue(name, "", name)
	args := []string{"netns", "exec", r.spaces[i], r.command, "--device-id", fmt.Sprint(7 + i), "--log-console", "--log-level", "info"}
	for port := 1; port <= 3; port++ {
		if i < 2 || port > 1 {
			args = append(args, "-i", fmt.Sprintf("%d@p%d", port, port))
		}
	}
	args = append(args, "--no-p4", "--", "--grpc-server-addr", fmt.Sprintf("192.168.0.10%d:9559", i+1), "--cpu-port", "510", "--grpc-server-ssl", "--grpc-server-with-client-auth",
		"--grpc-server-cacert", r.certs.File, "--grpc-server-cert", cert.CertFile, "--grpc-server-key", cert.KeyFile)
	r.output[i] = &syncbuffer.Buffer{}
	c := exec.Command("ip", args...)
	c.Stdout, c.Stderr = r.output[i], r.output[i]
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the kernel sends the death signal when the thread that started the process ends
	check(r.t, c.Start())
	r.running[i] = c
}

func (r *rack) kill(i int) {
	if c := r.running[i]; c != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		r.running[i] = nil
	}
}

// carriesNothing makes a pod of the first node send every kind of packet to the chain. The pod has
// the annotation for the fast path. No packet may leave the node. This includes packets to a
// Service whose address the node translates to the chain's address. Any user who may create
// Services can set up such a Service.
func (k *cluster) carriesNothing(p *pod, service netip.Addr, key wire.Key) {
	k.t.Helper()
	space := k.nodes[0].space
	sh(k.t, "ip", "netns", "exec", space, "nft", "add table ip test; add chain ip test prerouting { type nat hook prerouting priority dstnat; }; "+
		"add rule ip test prerouting ip daddr 10.96.0.99 udp dport 80 dnat to "+netip.AddrPortFrom(service, wire.Port).String())
	defer sh(k.t, "ip", "netns", "exec", space, "nft", "delete table ip test")
	read, err := (&wire.Packet{Op: wire.Read, Key: key}).Marshal(wire.Profile128)
	check(k.t, err)
	viaService := func() {
		_, err := inside(k.t, p.space, func() (struct{}, error) {
			c, err := net.Dial("udp4", "10.96.0.99:80")
			if err != nil {
				return struct{}{}, err
			}
			defer c.Close()
			_, err = c.Write(read)
			return struct{}{}, err
		})
		check(k.t, err)
	}
	own := netip.MustParseAddr("172.16.0.1") // source address of the pod's packets after masquerading
	leaves := func(expected bool, do func()) bool {
		return seen(k.t, space, "rack0", own, wire.Port, expected, do) ||
			!expected && seen(k.t, space, "rack0", p.ip, wire.Port, expected, do)
	}
	said := ""
	if leaves(false, func() {
		said = k.testpod(p, "root", "attack", "--service", service.String(), "--switches", "10.0.255.1,10.0.255.2,10.0.255.3", "--nodes", "192.168.0.1,192.168.0.2", "--victim", "172.16.0.2:7777",
			"--key", fmt.Sprint(uint32(key)), "reads", "writes", "acks", "replies", "spoofed", "tags", "options", "fragments", "vxlan")
		viaService()
	}) {
		k.t.Errorf("what a pod sends to the chain leaves its node: %s", said)
	}
	if strings.Count(said, "answers 0") != 9 {
		k.t.Errorf("a pod is answered: %s", said)
	}
	if k.nodes[0].agent == nil { // the next agent attaches the filter again
		_, err := inside(k.t, space, func() (struct{}, error) { return struct{}{}, ingressfilter.RemoveSwitch() })
		check(k.t, err)
		if !leaves(true, viaService) {
			k.t.Error("without the stack's filter it does not leave by a service either: the test means nothing")
		}
	}
}

// TestFabric uses top-of-rack switches that run on no node and are listed in a file. They form a
// chain. The nodes can use the chain, and their pods cannot. One switch dies and comes back, and
// the leader is killed. Any switch that speaks P4Runtime and runs p4c's output will do.
func TestFabric(t *testing.T) {
	for _, target := range []string{"netcraq-switch", "simple_switch_grpc"} {
		t.Run(target, func(t *testing.T) {
			command := filepath.Join(needs(t), "netcraq-switch")
			if target != "netcraq-switch" {
				var err error
				if command, err = exec.LookPath(target); err != nil {
					t.Skipf("skipped: %s is not installed", target)
				}
			}
			k := newCluster(t, 2)
			r := newRack(t, command, k.nodes)
			for i := range k.nodes {
				k.nodes[i].args = append(k.nodes[i].args, "--fabric", r.file)
				k.join(i)
			}
			// This NetcraqNode is left from a time before the fabric was configured.
			check(t, k.c.Create(t.Context(), &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: "node2"},
				Spec: v1alpha1.NetcraqNodeSpec{Number: 1}}))
			k.allow("team", "fast")
			p, q := k.pod(0, "team", "fast", true), k.nodes[1].mustAdd(t)
			check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
			check(t, k.c.Create(t.Context(), &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "main"},
				Spec: v1alpha1.NetcraqChainSpec{Length: 3, Profile: 128, Slots: 64, LeaseMillis: 3000}}))
			c := k.wait("main", "formed", serving(3))
			if members(c) != "tor1 tor2 tor3" {
				t.Errorf("members %s", members(c))
			}
			until(t, "nodes have no numbers any more", func() error {
				var all v1alpha1.NetcraqNodeList
				if err := k.c.List(t.Context(), &all); err != nil || len(all.Items) == 0 {
					return err
				}
				return fmt.Errorf("%v", all.Items)
			})
			service := netip.MustParseAddr(c.Status.ServiceAddress)
			control := k.admin(0)
			added, err := control.AddKey(t.Context(), "main", admin.KeySpec{Name: "/leader", Value: []byte("alice")})
			check(t, err)
			key := wire.Key(added.KeyID)
			from1, from2 := newClientAt(t, k.nodes[0].space, service), newClientAt(t, k.nodes[1].space, service)
			expect(t, "node 1", from1, key, "alice")
			expect(t, "node 2", from2, key, "alice")
			put(t, control, from2, key, "bob")
			expect(t, "node 1", from1, key, "bob")

			t.Log("a node forges")
			before := untrusted(t, control, "tor1")
			node1 := &pod{space: k.nodes[0].space, ip: netip.MustParseAddr("172.16.0.1")}
			ack := wire.Packet{Op: wire.Ack, Key: key, Epoch: 1, Version: wire.MakeVersion(1, 1000), Value: []byte("mallory")}
			forgery{}.send(t, node1, netip.AddrPortFrom(node1.ip, wire.Port), netip.AddrPortFrom(service,
				wire.Port), ack)
			until(t, "the switch drops what a node has forged", func() error {
				if after := untrusted(t, control, "tor1"); after <= before {
					return fmt.Errorf("%d untrusted packets, as before", after)
				}
				return nil
			})
			expect(t, "node 2, after node 1 has forged", from2, key, "bob")

			t.Log("pods reach no switch, under whatever address")
			k.carriesNothing(p, service, key)
			(&way{from: k.nodes[0], out: "rack0", space: r.spaces[0], in: "p1", targets: []netip.Addr{service},
				masquerade: netip.MustParseAddr("172.16.0.1")}).offloaded(t, p)
			expect(t, "node 2, after a pod has tried", from2, key, "bob")

			t.Log("the switch of node 2 is killed, and comes back")
			r.kill(1)
			k.wait("main", "going on without a member", func(c *v1alpha1.NetcraqChain) bool { return serving(2)(c) && members(c) == "tor1 tor3" })
			put(t, control, from1, key, "carol")
			expect(t, "node 1, with a member dead", from1, key, "carol")
			r.start(1)
			c = k.wait("main", "whole again", serving(3))
			if members(c) != "tor1 tor2 tor3" {
				t.Errorf("members %s", members(c))
			}
			expect(t, "node 2, whose switch was away", from2, key, "carol")

			t.Log("the agents are killed: chain and pods go on; then they are back")
			k.nodes[0].kill()
			k.nodes[1].kill()
			expect(t, "node 2, without agents", from2, key, "carol")
			k.carriesNothing(p, service, key)
			k.nodes[0].start()
			k.nodes[1].start()
			k.wait("main", "led again", serving(3))
			put(t, k.admin(0), from2, key, "dave")
			expect(t, "node 1", from1, key, "dave")

			t.Log("a switch is excluded")
			k.change("main", func(s *v1alpha1.NetcraqChainSpec) { s.ExcludedNodes = []string{"tor3"} })
			c = k.wait("main", "without it", func(c *v1alpha1.NetcraqChain) bool { return serving(2)(c) && members(c) == "tor1 tor2" })
			if !meta.IsStatusConditionFalse(c.Status.Conditions, v1alpha1.ConditionFullLength) {
				t.Error("the chain has its full length")
			}
		})
	}
}
