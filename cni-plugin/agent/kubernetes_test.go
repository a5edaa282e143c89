package agent_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/fastpath"
	"github.com/netcraq/netcraq/internal/testutil/kubetest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// cluster has a real API server, and a network namespace for each node. All nodes are on one link,
// and their agents run as in a real cluster. There is no kubelet, so the tests create Nodes and
// call the plugin.
type cluster struct {
	*kubetest.Server
	t       *testing.T
	c       client.Client
	options kubetest.Options
	nodes   []*node
	noCIDRs bool // the API server assigns no pod prefixes to nodes, because another plugin assigns addresses
}

// newCluster makes a cluster of n nodes. The first node is a control-plane node.
func newCluster(t *testing.T, n int, args ...string) *cluster {
	t.Helper()
	nodes := lan(t, n, false)
	space := nodes[0].space // the API server is on the first node, as it is in most clusters
	o := kubetest.Options{Command: []string{"ip", "netns", "exec", space}, Address: "192.168.0.1",
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return inside(t, space, func() (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, address)
			})
		}}
	k := &cluster{Server: kubetest.Start(t, o), t: t, options: o, nodes: nodes}
	k.Kubectl(t, o, "apply", "-f", "../deploy/namespace.yaml")
	// The fast path's admission policy is left out, because the leader also enforces the fast path.
	k.Kubectl(t, o, "apply", "-f", "../deploy/crd", "-f", "../deploy/rbac.yaml")
	k.Kubectl(t, o, "wait", "--for=condition=Established", "--timeout=60s", "crd", "netcraqchains.netcraq.io", "netcraqnodes.netcraq.io")
	scheme, err := apiobjects.Scheme()
	check(t, err)
	check(t, rbac.AddToScheme(scheme))
	k.c, err = client.New(k.Config, client.Options{Scheme: scheme})
	check(t, err)
	for i, n := range nodes {
		n.args = slices.Concat([]string{"--kubernetes", "--kubeconfig", k.account(i, "netcraq-agent"), "--node",
			k.name(i), "--cni-conf-dir", filepath.Join(n.dir, "net.d"), "--cni-bin-dir", filepath.Join(n.dir, "bin"),
			"--node-api", filepath.Join(n.dir, "run-node", "node.sock")}, args)
	}
	k.mayLead(0)
	return k
}

// account returns a kubeconfig with a service account's token. The token is bound to a node, like
// that of an agent's pod.
func (k *cluster) account(i int, name string) string {
	k.t.Helper()
	return k.Kubeconfig(k.t, k.As(k.Token(k.t, "netcraq-system", name, k.name(i))))
}

// mayLead makes a node a control-plane node. From its next start on, the node's agent may lead.
func (k *cluster) mayLead(i int) {
	k.t.Helper()
	n := k.nodes[i]
	n.args[slices.Index(n.args, "--kubeconfig")+1] = k.account(i, "netcraq-agent-control-plane")
	n.args = append(n.args, "--etcd", k.Etcd, "--admin", k.socket(i)+",127.0.0.1:20036", "--admin-token", filepath.Join(n.dir, "token"), "--admin-read-token", filepath.Join(n.dir, "read"))
}

func (k *cluster) socket(i int) string {
	return "unix://" + filepath.Join(k.nodes[i].dir, "admin.sock")
}

func (k *cluster) name(i int) string { return fmt.Sprintf("node%d", i+1) }

// join does what a kubelet and the controller manager do for a new node, and starts its agent.
func (k *cluster) join(i int) {
	k.t.Helper()
	ctx := context.Background()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.name(i)},
		Spec: corev1.NodeSpec{PodCIDR: k.nodes[i].cidr.String(), PodCIDRs: []string{k.nodes[i].cidr.String()}}}
	if k.noCIDRs {
		n.Spec = corev1.NodeSpec{}
	}
	check(k.t, k.c.Create(ctx, n))
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.0.%d", i+1)}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	check(k.t, k.c.Status().Update(ctx, n))
	k.nodes[i].start()
}

// allow gives a service account the right to use the fast path.
func (k *cluster) allow(namespace, account string) {
	k.t.Helper()
	ctx := context.Background()
	check(k.t, client.IgnoreAlreadyExists(
		k.c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})))
	meta := metav1.ObjectMeta{Name: "fast-path", Namespace: namespace}
	role := &rbac.Role{ObjectMeta: meta, Rules: []rbac.PolicyRule{{APIGroups: []string{"netcraq.io"},
		Resources: []string{"fastpaths"}, Verbs: []string{"use"}}}}
	check(k.t, client.IgnoreAlreadyExists(k.c.Create(ctx, role)))
	check(k.t, k.c.Create(ctx, &rbac.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: "fast-path"},
		Subjects: []rbac.Subject{{Kind: "ServiceAccount", Name: account, Namespace: namespace}}}))
}

// pod does what a scheduler and a kubelet do for a new pod. If asks is set, the pod requests the
// fast path.
func (k *cluster) pod(i int, namespace, account string, asks bool) *pod {
	k.t.Helper()
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Namespace: namespace},
		Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: k.name(i),
			Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	if asks {
		o.Annotations = map[string]string{fastpath.Annotation: "true"}
	}
	check(k.t, k.c.Create(context.Background(), o))
	p := k.nodes[i].newPod(k.t)
	p.object = o
	p.rt.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", o.Namespace}, {"K8S_POD_NAME", o.Name}, {"K8S_POD_UID", string(o.UID)}}
	_, err := k.nodes[i].add(k.t, k.nodes[i].list(), p)
	check(k.t, err)
	return p
}

// wait waits until a chain meets a condition, and returns the chain. The condition is the function
// is.
func (k *cluster) wait(name, what string, is func(*v1alpha1.NetcraqChain) bool) *v1alpha1.NetcraqChain {
	k.t.Helper()
	c := &v1alpha1.NetcraqChain{}
	poll.Until(k.t, time.Minute, "the chain "+name+" is "+what, func() bool {
		check(k.t, k.c.Get(context.Background(), client.ObjectKey{Name: name}, c))
		return is(c)
	}, func() string {
		b, _ := json.MarshalIndent(c.Status, "", " ")
		return string(b)
	})
	return c
}

func members(c *v1alpha1.NetcraqChain) string {
	var out []string
	for _, m := range c.Status.Members {
		out = append(out, m.Node)
	}
	return strings.Join(out, " ")
}

// serving returns a condition for wait: the chain serves with n members.
func serving(n int) func(*v1alpha1.NetcraqChain) bool {
	return func(c *v1alpha1.NetcraqChain) bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady) && len(c.Status.Members) == n
	}
}

// admin returns a client of the controller's API. It finds the API as a process on a node does.
func (k *cluster) admin(i int) *admin.Client {
	return admin.NewClient(k.socket(i))
}

// TestKubernetes runs the life of a cluster. Nodes join, a chain forms, and pods use it. Agents are
// killed, nodes leave and return, the leader changes, and the API server stops for a while. Chains
// are created and deleted. No acknowledged write may be lost.
func TestKubernetes(t *testing.T) {
	k := newCluster(t, 3)
	ctx := t.Context()
	for i := range k.nodes {
		k.join(i)
		until(t, "a node has its number, by which chains are ordered", func() error {
			return k.c.Get(ctx, client.ObjectKey{Name: k.name(i)}, &v1alpha1.NetcraqNode{})
		})
	}
	k.mayLead(1)
	check(t, k.c.Create(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "main"},
		Spec: v1alpha1.NetcraqChainSpec{Length: 3, Profile: 128, Slots: 1024, LeaseMillis: 1000}}))
	k.allow("team", "fast")
	p, q := k.pod(0, "team", "fast", true), k.pod(2, "team", "fast", true)
	c := k.wait("main", "formed", serving(3))
	service := netip.MustParseAddr(c.Status.ServiceAddress)
	control := k.admin(0)
	added, err := control.AddKey(ctx, "main", admin.KeySpec{Name: "ns/team/leader", Value: []byte("alice")})
	check(t, err)
	key := wire.Key(added.KeyID)
	fromP, fromQ := newClientAt(t, p.space, service), newClientAt(t, q.space, service)
	expect(t, "a pod of node 1", fromP, key, "alice")
	expect(t, "a pod of node 3", fromQ, key, "alice")
	put(t, control, fromQ, key, "bob")
	expect(t, "a pod of node 1", fromP, key, "bob")
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
	k.metric(0, "netcraq_agent_leading 1")
	k.metric(0, `netcraq_chain_members{chain="main"} 3`)
	k.metric(2, "netcraq_agent_attachments 1")
	k.metric(2, "netcraq_agent_leading 0")

	k.closed(p.space)
	k.closed(k.nodes[0].space) // even the nodes' own processes cannot connect

	t.Log("node 3 loses its agent, and gets it back")
	k.nodes[2].kill()
	k.wait("main", "going on without a member", func(c *v1alpha1.NetcraqChain) bool { return serving(2)(c) && members(c) == "node1 node2" })
	expect(t, "a pod of node 1, with a member dead", fromP, key, "bob")
	put(t, control, fromP, key, "carol")
	k.nodes[2].start()
	c = k.wait("main", "whole again", serving(3))
	if members(c) != "node1 node3 node2" {
		t.Errorf("members %s", members(c))
	}
	expect(t, "a pod of node 3, which was away", fromQ, key, "carol")
	k.event("NetcraqChain", "main", "ChainFailover")
	k.event("NetcraqChain", "main", "ChainRecovered")
	k.event("Node", "node3", "SwitchUnreachable")

	t.Log("node 2 is excluded, and taken back")
	k.change("main", func(s *v1alpha1.NetcraqChainSpec) { s.ExcludedNodes = []string{"node2"} })
	k.wait("main", "without the excluded node", func(c *v1alpha1.NetcraqChain) bool { return serving(2)(c) && members(c) == "node1 node3" })
	k.nodes[1].kill()
	k.nodes[1].start() // from this start on, its agent may lead
	k.change("main", func(s *v1alpha1.NetcraqChainSpec) { s.ExcludedNodes = nil })
	k.wait("main", "whole again", serving(3))

	t.Log("the API server stands still")
	check(t, k.Stop())
	time.Sleep(6 * time.Second) // longer than the duration of the leader's Lease
	expect(t, "a pod of node 1, without an API server", fromP, key, "carol")
	put(t, control, fromP, key, "dave")
	check(t, k.Continue())

	t.Log("the leader is killed, and another leads")
	// A gateway next to an agent that does not lead can still reach the leader's API.
	other := k.admin(1)
	if chains, err := other.Chains(ctx); err != nil || len(chains) != 1 || chains[0].Name != "main" {
		t.Errorf("by the agent that stands by: %v, %v", chains, err)
	}
	k.nodes[0].kill()
	k.wait("main", "led by another", func(c *v1alpha1.NetcraqChain) bool { return serving(2)(c) && members(c) == "node2 node3" })
	expect(t, "a pod of node 3, with another leader", fromQ, key, "dave")
	put(t, other, fromQ, key, "erin")
	k.nodes[0].start()
	k.wait("main", "whole again", serving(3))
	expect(t, "a pod of node 1, which was away", fromP, key, "erin")

	t.Log("node 3 is deleted, and comes back as another")
	k.nodes[2].kill()
	check(t, k.c.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node3"}}))
	k.wait("main", "without the node that was deleted", func(c *v1alpha1.NetcraqChain) bool { return serving(2)(c) && !strings.Contains(members(c), "node3") })
	until(t, "the number of a node that was deleted is taken back", func() error {
		return client.IgnoreNotFound(func() error {
			if err := k.c.Get(ctx, client.ObjectKey{Name: "node3"}, &v1alpha1.NetcraqNode{}); err != nil {
				return err
			}
			return errors.New("it is there")
		}())
	})
	k.join(2)
	c = k.wait("main", "whole again", serving(3))
	expect(t, "a pod of a node that was deleted", fromQ, key, "erin")

	t.Log("all agents are killed at once")
	for _, n := range k.nodes {
		n.kill()
	}
	for _, n := range k.nodes {
		n.start()
	}
	began := k.wait("main", "begun anew", func(c2 *v1alpha1.NetcraqChain) bool {
		return serving(3)(c2) && c2.Status.Epoch > c.Status.Epoch
	})
	lookUp, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if r, err := fromP.Get(lookUp, key); err == nil && string(r.Value) != "" || began.Status.PlacedKeys != 1 {
		t.Errorf("a pod reads %q, %v, from a chain that has lost everything; it holds %d keys", r.Value, err, began.Status.PlacedKeys)
	}
	put(t, control, fromP, key, "frank")
	expect(t, "a pod of node 3, after a power failure", fromQ, key, "frank")

	t.Log("other chains come and go")
	check(t, k.c.Create(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "wide"},
		Spec: v1alpha1.NetcraqChainSpec{ID: 1, Length: 2, Profile: 1024, Slots: 64, LeaseMillis: 1000}}))
	check(t, k.c.Create(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "second"},
		Spec: v1alpha1.NetcraqChainSpec{ID: 2, Length: 2, Profile: 128, Slots: 64, LeaseMillis: 1000}}))
	k.wait("second", "formed", serving(2))
	k.wait("wide", "refused", func(c *v1alpha1.NetcraqChain) bool {
		return meta.IsStatusConditionFalse(c.Status.Conditions, v1alpha1.ConditionAccepted)
	})
	// The chain main still holds a key.
	check(t, k.c.Delete(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "main"}}))
	check(t, k.c.Delete(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "wide"}}))
	until(t, "the chain that was deleted goes", func() error {
		chains, err := other.Chains(ctx)
		if err == nil && (len(chains) != 1 || chains[0].Name != "second") {
			err = fmt.Errorf("%v", chains)
		}
		return err
	})

	t.Log("a key of etcd's is pinned, and the last chain goes, with all that gateways would ask for")
	check(t, k.c.Delete(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "second"}}))
	// A sealed value does not fit into this chain's 16 bytes.
	check(t, k.c.Create(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "third"},
		Spec: v1alpha1.NetcraqChainSpec{ID: 3, Length: 2, Profile: 1024, Slots: 64, LeaseMillis: 1000,
			Placement: v1alpha1.Placement{Pins: []string{"/registry/pods/default/nothing"}}}}))
	k.wait("third", "formed", serving(2))
	until(t, "the pinned key is placed", func() error { return k.placed(1) })
	k.nodes[0].kill()
	k.nodes[1].kill()
	// No agent leads at this time.
	check(t, k.c.Delete(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "third"}}))
	k.nodes[0].start()
	k.nodes[1].start()
	until(t, "the last chain's keys are taken out of the network", func() error { return k.placed(0) })
	until(t, "the chain's resource goes", func() error {
		err := k.c.Get(ctx, client.ObjectKey{Name: "third"}, &v1alpha1.NetcraqChain{})
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	until(t, "the controller ends", func() error {
		if chains, err := other.Chains(ctx); err == nil {
			return fmt.Errorf("%v", chains)
		}
		return nil
	})
}

// placed requires that gateways see exactly n placed keys in etcd.
func (k *cluster) placed(n int) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{k.Etcd}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return k.options.Dial(ctx, "tcp", to)
		})}})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	entries, _, _, err := placement.Store{KV: c, Prefix: placement.DefaultPrefix}.List(ctx)
	if err == nil && len(entries) != n {
		err = fmt.Errorf("%d, not %d, keys are placed: %v", len(entries), n, entries)
	}
	return err
}

// closed tries to connect to the switches and agents of all nodes without a certificate. No
// connection may succeed.
func (k *cluster) closed(space string) {
	k.t.Helper()
	for i := range k.nodes {
		for _, port := range []int{9559, 9560} {
			to := fmt.Sprintf("192.168.0.%d:%d", i+1, port)
			_, err := inside(k.t, space, func() (struct{}, error) {
				c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", to,
					&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
				if err != nil {
					return struct{}{}, err
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				_, err = c.Read(make([]byte, 1)) // with TLS 1.3, a client learns of the refusal only when it reads
				return struct{}{}, err
			})
			if err == nil || !strings.Contains(err.Error(), "certificate required") {
				k.t.Errorf("%s without a certificate: %v", to, err)
			}
		}
		_, err := inside(k.t, k.nodes[i].space, func() (struct{}, error) {
			c, err := net.DialTimeout("tcp", "127.0.0.1:9559", 10*time.Second)
			if err == nil {
				c.Close()
			}
			return struct{}{}, err
		})
		if !errors.Is(err, syscall.ECONNREFUSED) {
			k.t.Errorf("P4Runtime on the loopback of node %d: %v", i+1, err)
		}
	}
}

// change changes the spec of a chain.
func (k *cluster) change(name string, f func(*v1alpha1.NetcraqChainSpec)) {
	k.t.Helper()
	until(k.t, "the chain is changed", func() error {
		c := &v1alpha1.NetcraqChain{}
		if err := k.c.Get(context.Background(), client.ObjectKey{Name: name}, c); err != nil {
			return err
		}
		f(&c.Spec)
		return k.c.Update(context.Background(), c)
	})
}

// metric waits until the metrics of a node's agent contain a line.
func (k *cluster) metric(i int, line string) {
	k.t.Helper()
	to := lead(k.t, k.nodes[i].space, fmt.Sprintf("192.168.0.%d:9561", i+1))
	until(k.t, "an agent shows "+line, func() error {
		r, err := http.Get("http://" + to + "/metrics")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err == nil && !slices.Contains(strings.Split(string(b), "\n"), line) {
			err = errors.New(string(b))
		}
		return err
	})
}

// event waits for an event about an object.
func (k *cluster) event(kind, name, reason string) {
	k.t.Helper()
	until(k.t, fmt.Sprintf("there is an event %s about %s %s", reason, kind, name), func() error {
		var list corev1.EventList
		if err := k.c.List(context.Background(), &list); err != nil {
			return err
		}
		var all []string
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == reason {
				return nil
			}
			all = append(all, e.InvolvedObject.Kind+" "+e.InvolvedObject.Name+" "+e.Reason)
		}
		return fmt.Errorf("%v", all)
	})
}

// until waits until f returns no error.
func until(t testing.TB, what string, f func() error) {
	t.Helper()
	poll.Nil(t, time.Minute, what, f)
}
