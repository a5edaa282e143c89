package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/internal/kubetest"
	"github.com/netcraq/netcraq/cni-plugin/kube"
	"github.com/netcraq/netcraq/controlplane/admin/api"
	"github.com/netcraq/netcraq/wire"
)

// cluster is a real API server with namespaces for nodes, on one link, where agents run as they do in a cluster. There is no kubelet: the tests make Nodes and call the plugin.
type cluster struct {
	*kubetest.Server
	t       *testing.T
	c       client.Client
	options kubetest.Options
	nodes   []*node
}

// newCluster makes one with the first node as the control plane's.
func newCluster(t *testing.T, n int, args ...string) *cluster {
	t.Helper()
	nodes := lan(t, n, false)
	space := nodes[0].space // the API server is on the first node, as it is in most clusters
	o := kubetest.Options{Command: []string{"ip", "netns", "exec", space}, Address: "192.168.0.1", Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return inside(t, space, func() (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, address) })
	}}
	k := &cluster{Server: kubetest.Start(t, o), t: t, options: o, nodes: nodes}
	k.Kubectl(t, o, "apply", "-f", "../deploy/namespace.yaml")
	k.Kubectl(t, o, "apply", "-f", "../deploy/crd", "-f", "../deploy/rbac.yaml")
	k.Kubectl(t, o, "wait", "--for=condition=Established", "--timeout=60s", "crd", "netcraqchains.netcraq.io", "netcraqnodes.netcraq.io")
	scheme, err := kube.Scheme()
	check(t, err)
	k.c, err = client.New(k.Config, client.Options{Scheme: scheme})
	check(t, err)
	kubeconfig := k.Kubeconfig(t, k.Config)
	for i, n := range nodes {
		n.args = slices.Concat([]string{"--kubernetes", "--kubeconfig", kubeconfig, "--node", k.name(i), "--cni-conf-dir", filepath.Join(n.dir, "net.d"), "--cni-bin-dir", filepath.Join(n.dir, "bin")}, args)
		if i == 0 {
			n.args = append(n.args, "--etcd", k.Etcd)
		}
	}
	return k
}

func (k *cluster) name(i int) string { return fmt.Sprintf("node%d", i+1) }

// join is what a kubelet and the controller manager do when a node comes; then its agent starts.
func (k *cluster) join(i int) {
	k.t.Helper()
	ctx := context.Background()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name(i)}, Spec: corev1.NodeSpec{PodCIDR: k.nodes[i].cidr.String(), PodCIDRs: []string{k.nodes[i].cidr.String()}}}
	check(k.t, k.c.Create(ctx, n))
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.0.%d", i+1)}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	check(k.t, k.c.Status().Update(ctx, n))
	k.nodes[i].start()
}

// wait waits until a chain is as it should be.
func (k *cluster) wait(name, what string, is func(*v1alpha1.NetcraqChain) bool) *v1alpha1.NetcraqChain {
	k.t.Helper()
	c := &v1alpha1.NetcraqChain{}
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		check(k.t, k.c.Get(context.Background(), client.ObjectKey{Name: name}, c))
		if is(c) {
			return c
		}
		if time.Now().After(end) {
			b, _ := json.MarshalIndent(c.Status, "", " ")
			k.t.Fatalf("the chain is not %s:\n%s", what, b)
		}
	}
}

func members(c *v1alpha1.NetcraqChain) string {
	var out []string
	for _, m := range c.Status.Members {
		out = append(out, m.Node)
	}
	return strings.Join(out, " ")
}

// serving says whether a chain serves with so many members.
func serving(n int) func(*v1alpha1.NetcraqChain) bool {
	return func(c *v1alpha1.NetcraqChain) bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady) && len(c.Status.Members) == n
	}
}

// admin is the controller's API, as a process on a node finds it.
func (k *cluster) admin(i int) *api.Client {
	return api.NewClient(lead(k.t, k.nodes[i].space, api.DefaultAddress))
}

// TestKubernetes is the life of a cluster: nodes come, a chain is formed, pods use it, a node dies and comes back, one is deleted, the leader is killed.
func TestKubernetes(t *testing.T) {
	k := newCluster(t, 3)
	ctx := t.Context()
	for i := range k.nodes {
		k.join(i)
	}
	check(t, k.c.Create(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Spec: v1alpha1.NetcraqChainSpec{Length: 3, Profile: 128, LeaseMillis: 1000}}))
	p, q := k.nodes[0].mustAdd(t), k.nodes[2].mustAdd(t)
	c := k.wait("main", "formed", serving(3))
	service := netip.MustParseAddr(c.Status.ServiceAddress)
	control := k.admin(0)
	added, err := control.AddKey(ctx, "main", api.KeySpec{Name: "/leader", Value: []byte("alice")})
	check(t, err)
	key := wire.Key(added.KeyID)
	fromP, fromQ := newClientAt(t, p.space, service), newClientAt(t, q.space, service)
	expect(t, "a pod at the head", fromP, key, "alice")
	expect(t, "a pod at the tail", fromQ, key, "alice")
	put(t, control, fromQ, key, "bob")
	expect(t, "a pod at the head", fromP, key, "bob")
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
}
