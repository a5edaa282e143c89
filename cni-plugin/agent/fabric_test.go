package agent_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/controlplane/admin/api"
	"github.com/netcraq/netcraq/internal/testcerts"
	"github.com/netcraq/netcraq/wire"
)

// rack is three top-of-rack switches, each connected to each, with a node at each of the first two. Their P4Runtime servers are on the nodes' link:
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
	output  []*output
	file    string
}

func newRack(t *testing.T, command string, nodes []*node) *rack {
	t.Helper()
	r := &rack{t: t, command: command, certs: testcerts.NewAuthority(t), running: make([]*exec.Cmd, 3), output: make([]*output, 3)}
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
	file := fmt.Sprintf("p4runtimeTLS: {ca: %s, cert: %s, key: %s}\nswitches:\n", r.certs.File, filepath.Join(filepath.Dir(r.certs.File), "leader.pem"), filepath.Join(filepath.Dir(r.certs.File), "leader-key.pem"))
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
	r.output[i] = &output{}
	c := exec.Command("ip", args...)
	c.Stdout, c.Stderr = r.output[i], r.output[i]
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the signal comes when the thread ends that started it
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

// TestFabric has the switches be top-of-rack ones, which are named in a file and are on no node: a chain is formed of them, pods of the nodes use it, one dies and comes back, the leader is killed. Whatever speaks P4Runtime and runs p4c's
// output will do.
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
			// From before there was a fabric:
			check(t, k.c.Create(t.Context(), &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: "node2"}, Spec: v1alpha1.NetcraqNodeSpec{Number: 1}}))
			p, q := k.nodes[0].mustAdd(t), k.nodes[1].mustAdd(t)
			check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
			check(t, k.c.Create(t.Context(), &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Spec: v1alpha1.NetcraqChainSpec{Length: 3, Profile: 128, Slots: 64, LeaseMillis: 1000}}))
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
			added, err := control.AddKey(t.Context(), "main", api.KeySpec{Name: "/leader", Value: []byte("alice")})
			check(t, err)
			key := wire.Key(added.KeyID)
			// Two pods of one node, to which the switches cannot tell them apart, and one of another.
			p2 := k.nodes[0].mustAdd(t)
			fromP, fromP2, fromQ := newClientAt(t, p.space, service), newClientAt(t, p2.space, service), newClientAt(t, q.space, service)
			fromNode := newClientAt(t, k.nodes[1].space, service)
			expect(t, "a pod of node 1", fromP, key, "alice")
			expect(t, "another pod of node 1", fromP2, key, "alice")
			expect(t, "a pod of node 2", fromQ, key, "alice")
			expect(t, "node 2 itself", fromNode, key, "alice")
			put(t, control, fromQ, key, "bob")
			expect(t, "a pod of node 1", fromP, key, "bob")

			t.Log("a pod forges")
			before := untrusted(t, control, "tor1")
			forgery{}.send(t, p, netip.AddrPortFrom(p.ip, wire.Port), netip.AddrPortFrom(service, wire.Port), wire.Packet{Op: wire.Ack, Key: key, Epoch: 1, Version: wire.MakeVersion(1, 1000), Value: []byte("mallory")})
			until(t, "the switch drops what a pod has forged", func() error {
				if after := untrusted(t, control, "tor1"); after <= before {
					return fmt.Errorf("%d untrusted packets, as before", after)
				}
				return nil
			})
			expect(t, "a pod, after another has forged", fromQ, key, "bob")
			forgedReplies(t, p, p2)

			t.Log("the switch of node 2 is killed, and comes back")
			r.kill(1)
			k.wait("main", "going on without a member", func(c *v1alpha1.NetcraqChain) bool { return serving(2)(c) && members(c) == "tor1 tor3" })
			put(t, control, fromP, key, "carol")
			expect(t, "a pod of node 1, with a member dead", fromP2, key, "carol")
			r.start(1)
			c = k.wait("main", "whole again", serving(3))
			if members(c) != "tor1 tor3 tor2" {
				t.Errorf("members %s", members(c))
			}
			expect(t, "a pod of node 2, whose switch was away", fromQ, key, "carol")

			t.Log("the agents are killed: chain and pods go on; then they are back")
			k.nodes[0].kill()
			k.nodes[1].kill()
			expect(t, "a pod, without agents", fromQ, key, "carol")
			k.nodes[0].start()
			k.nodes[1].start()
			k.wait("main", "led again", serving(3))
			put(t, k.admin(0), fromQ, key, "dave")
			expect(t, "a pod of node 1", fromP, key, "dave")

			t.Log("a switch is excluded")
			k.change("main", func(s *v1alpha1.NetcraqChainSpec) { s.ExcludedNodes = []string{"tor3"} })
			c = k.wait("main", "without it", func(c *v1alpha1.NetcraqChain) bool { return serving(2)(c) && members(c) == "tor1 tor2" })
			if !meta.IsStatusConditionFalse(c.Status.Conditions, v1alpha1.ConditionFullLength) {
				t.Error("the chain has its full length")
			}
		})
	}
}
