package agent_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
)

// agents returns a DaemonSet that owns the agents' pods.
func (k *cluster) agents() *apps.DaemonSet {
	k.t.Helper()
	labels := map[string]string{"app.kubernetes.io/name": "netcraq-agent"}
	d := &apps.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "netcraq-agent", Namespace: "netcraq-system", Labels: labels},
		Spec: apps.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "none"}}}}}}
	check(k.t, k.c.Create(k.t.Context(), d))
	return d
}

// TestChainedInCluster runs agents that chain themselves after the bridge plugin, on nodes that
// have no pod prefixes in the API server. Pods use a chain over both nodes. When an agent is
// replaced, its entry stays in the plugin list. When their DaemonSet is deleted, the agents remove
// themselves, and leave files and interfaces as they were before.
func TestChainedInCluster(t *testing.T) {
	k := newCluster(t, 2, "--chained")
	k.noCIDRs = true
	ctx := t.Context()
	underlay(t, k.nodes)
	daemons := k.agents()
	theirs := map[*node]string{}
	for i, n := range k.nodes {
		n.withoutIPv6()
		l := n.list(n.bridgePlugin())
		theirs[n] = strings.Replace(string(l.Bytes), `,"plugins":[`, ", \"plugins\" : [\n  ", 1)
		n.file = filepath.Join(n.dir, "net.d", "10-theirs.conflist")
		check(t, os.MkdirAll(filepath.Dir(n.file), 0o755))
		check(t, os.WriteFile(n.file, []byte(theirs[n]), 0o600))
		k.join(i)
	}
	in := func(n *node) bool {
		b, err := os.ReadFile(n.file)
		check(t, err)
		return strings.Count(string(b), `{"type":"netcraq-cni","chained":true,`) == 1
	}
	for _, n := range k.nodes {
		until(t, "netcraq-cni is in the list", func() error {
			if !in(n) {
				return fmt.Errorf("it is not in %s", n.file)
			}
			return nil
		})
	}
	a := k.nodes[0]
	mtime, err := os.Stat(a.file)
	check(t, err)
	check(t, k.c.Create(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "main"},
		Spec: v1alpha1.NetcraqChainSpec{Length: 2, Profile: 128, Slots: 1024, LeaseMillis: 1000}}))
	k.allow("team", "fast")
	p, q := k.pod(0, "team", "fast", true), k.pod(1, "team", "fast", true)
	c := k.wait("main", "formed", serving(2))
	service := netip.MustParseAddr(c.Status.ServiceAddress)
	added, err := k.admin(0).AddKey(ctx, "main", admin.KeySpec{Name: "ns/team/leader", Value: []byte("alice")})
	check(t, err)
	key := wire.Key(added.KeyID)
	fromP, fromQ := newClientAt(t, p.space, service), newClientAt(t, q.space, service)
	expect(t, "a pod of node 1", fromP, key, "alice")
	put(t, k.admin(0), fromQ, key, "bob")
	expect(t, "a pod of node 1", fromP, key, "bob")
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
	for _, no := range []string{"proto 78", "ncqvx"} {
		if r := sh(t, "ip", "-n", a.space, "route"); strings.Contains(r, no) {
			t.Errorf("the node has routes of NetCRAQ's to pods: %s", r)
		}
	}
	if r := tables(t, a); strings.Contains(r, "table ip netcraq\n") {
		t.Errorf("the node masquerades: %s", r)
	}

	t.Log("an agent is replaced")
	b := k.nodes[1]
	check(t, b.agent.Process.Signal(syscall.SIGTERM))
	b.died()
	if !in(b) {
		t.Error("an agent that is replaced has taken itself out of the list")
	}
	b.start()
	k.wait("main", "whole again", serving(2))
	expect(t, "a pod of the node whose agent was replaced", fromQ, key, "bob")

	t.Log("the other plugin writes its file again")
	check(t, os.WriteFile(a.file, []byte(theirs[a]), 0o600))
	until(t, "netcraq-cni is in the list again", func() error {
		if !in(a) {
			return fmt.Errorf("it is not in %s", a.file)
		}
		return nil
	})
	if now, err := os.Stat(a.file); err != nil || now.Mode() != mtime.Mode() {
		t.Errorf("the file's permissions are %v, %v", now.Mode(), err)
	}

	t.Log("NetCRAQ is removed")
	check(t, k.c.Delete(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "main"}}))
	check(t, k.c.Delete(ctx, daemons))
	for _, n := range []*node{b, a} {
		check(t, n.agent.Process.Signal(syscall.SIGTERM))
		n.died()
		got, err := os.ReadFile(n.file)
		check(t, err)
		if string(got) != theirs[n] {
			t.Errorf("the list is\n%s\nand was\n%s", got, theirs[n])
		}
		if files := filesIn(t, filepath.Dir(n.file)); len(files) != 1 {
			t.Errorf("files: %v", files)
		}
		now := picture(t, n)
		for _, left := range []string{"program", "netcraq", "ncq", "bpf", "10.0.254", "20037"} {
			if strings.Contains(strings.ReplaceAll(now, "ncqtest", ""), left) {
				t.Errorf("after removal the node has %q:\n%s", left, now)
			}
		}
	}
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
	check(t, a.del(t, a.list(), p)) // this DEL uses the bridge plugin's list
	check(t, b.del(t, b.list(), q))
	a.expectOnlyTheirs(t)
}
