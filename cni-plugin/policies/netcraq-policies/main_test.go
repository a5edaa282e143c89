package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"
	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// envNode is an environment variable that makes this binary run netcraq-policies with its own fake
// API server. Each line of stdin is a change of the API server's objects.
const envNode = "NETCRAQ_TEST_POLICIES"

// envStays makes netcraq-policies find its DaemonSet when it ends.
const envStays = "NETCRAQ_TEST_POLICIES_STAY"

func TestMain(m *testing.M) {
	if os.Getenv(envNode) == "" {
		os.Exit(m.Run())
	}
	if err := child(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// change is a change of the API server's objects. It creates, replaces or deletes an object.
type change struct {
	Delete    bool                      `json:"delete,omitempty"`
	Namespace *corev1.Namespace         `json:"namespace,omitempty"`
	Pod       *corev1.Pod               `json:"pod,omitempty"`
	Policy    *networking.NetworkPolicy `json:"policy,omitempty"`
	// Attached is the record of a pod that the node's agent reports.
	Attached *agentapi.Record `json:"attached,omitempty"`
}

func (c change) apply(client *fake.Clientset, agent *podLister) error {
	object, gvr := runtime.Object(nil), schema.GroupVersionResource{}
	switch {
	case c.Namespace != nil:
		object, gvr = c.Namespace, corev1.SchemeGroupVersion.WithResource("namespaces")
	case c.Pod != nil:
		object, gvr = c.Pod, corev1.SchemeGroupVersion.WithResource("pods")
	case c.Policy != nil:
		object, gvr = c.Policy, networking.SchemeGroupVersion.WithResource("networkpolicies")
	default:
		agent.add(*c.Attached)
		return nil
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	if c.Delete {
		return client.Tracker().Delete(gvr, m.GetNamespace(), m.GetName())
	}
	err = client.Tracker().Create(gvr, object, m.GetNamespace())
	if apierrors.IsAlreadyExists(err) {
		err = client.Tracker().Update(gvr, object, m.GetNamespace())
	}
	return err
}

// child runs in the process that TestMain makes of this binary. It prints "ok" when it listens, and
// after each change.
func child() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, agent := fake.NewClientset(), &podLister{}
	// The fake API server loses an object that is created between an informer's list and its watch.
	// A real API server does not.
	watched := make(chan struct{}, 16)
	client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		watched <- struct{}{}
		return true, w, err
	})
	ended := make(chan error, 1)
	go func() {
		err := enforce(ctx, client, agent, options{node: "n1", queue: 98, rate: 1000, interfaces: "ncq", namespace: "netcraq-system"})
		if ctx.Err() == nil { // enforce has ended, although nobody has ended ctx
			fmt.Fprintln(os.Stderr, "it has ended by itself:", err)
			os.Exit(1)
		}
		ended <- err
	}()
	for range 3 { // one watch for pods, one for namespaces, one for policies
		<-watched
	}
	fmt.Println("ok")
	for in := json.NewDecoder(os.Stdin); ; {
		var c change
		err := in.Decode(&c)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = c.apply(client, agent)
		}
		if err != nil {
			return err
		}
		fmt.Println("ok")
	}
	if os.Getenv(envStays) != "" {
		set := &apps.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "netcraq-policies", Namespace: "netcraq-system",
			Labels: map[string]string{"app.kubernetes.io/name": "netcraq-policies"}}}
		if _, err := client.AppsV1().DaemonSets(set.Namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	cancel()
	return <-ended
}

// podLister is a fake agent with a set of records.
type podLister struct {
	mu      sync.Mutex
	records []agentapi.Record
}

func (l *podLister) add(r agentapi.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
}

func (l *podLister) Attachments(context.Context) ([]agentapi.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.records), nil
}

func addresses(pod int) [2]string {
	return [2]string{fmt.Sprintf("10.%d.0.2", pod+1), fmt.Sprintf("fd00:%d::2", pod+1)}
}

// in runs f on a thread in a network namespace.
func in(space string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		goruntime.LockOSThread() // the thread ends with the goroutine
		h, err := netns.GetFromName(space)
		if err == nil {
			defer h.Close()
			err = netns.Set(h)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// changeOf returns a change that creates or replaces an object.
func changeOf(object any) (c change) {
	switch o := object.(type) {
	case *corev1.Namespace:
		c.Namespace = o
	case *corev1.Pod:
		c.Pod = o
	case *networking.NetworkPolicy:
		c.Policy = o
	case *agentapi.Record:
		c.Attached = o
	}
	return c
}

// node is a network namespace for a node, and a network namespace for each of its pods.
type node struct {
	t      *testing.T
	prefix string
	log    strings.Builder // output of all enforcers of the node
}

// newNode makes a node with pods that have these names. The pod with the index i has addresses(i).
func newNode(t *testing.T, pods ...string) *node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("skipped: needs ip (iproute2)")
	}
	n := &node{t: t, prefix: fmt.Sprintf("ncqtest-%d-", os.Getpid())}
	space := n.space("node")
	for _, s := range append([]string{"node"}, pods...) {
		s = n.space(s)
		n.sh("ip netns add " + s + "; ip -n " + s + " link set lo up")
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", s).Run() })
	}
	n.sh("ip netns exec " + space + " sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'")
	for i, pod := range pods {
		n.sh(fmt.Sprintf(`ip -n %[1]s link add ncq%[3]s type veth peer name eth0 netns %[2]s
			ip -n %[1]s addr add 10.%[4]d.0.1/24 dev ncq%[3]s; ip -n %[1]s addr add fd00:%[4]d::1/64 dev ncq%[3]s nodad; ip -n %[1]s link set ncq%[3]s up
			ip -n %[2]s addr add 10.%[4]d.0.2/24 dev eth0; ip -n %[2]s addr add fd00:%[4]d::2/64 dev eth0 nodad; ip -n %[2]s link set eth0 up
			ip -n %[2]s route add default via 10.%[4]d.0.1; ip -n %[2]s route add default via fd00:%[4]d::1`, space, n.space(pod), pod, i+1))
	}
	return n
}

// space returns the name of the network namespace of the node or of a pod.
func (n *node) space(name string) string { return n.prefix + name }

func (n *node) sh(line string) {
	n.t.Helper()
	if out, err := exec.Command("sh", "-ec", line).CombinedOutput(); err != nil {
		n.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// enforcer is a netcraq-policies process on a node.
type enforcer struct {
	n     *node
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  *bufio.Scanner
}

// enforce starts an enforcer, and waits until it watches its API server.
func (n *node) enforce(env ...string) *enforcer {
	n.t.Helper()
	c := exec.Command("ip", "netns", "exec", n.space("node"), os.Args[0])
	c.Env = append(append(os.Environ(), envNode+"=1"), env...)
	c.Stderr = &n.log
	stdin, err := c.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		n.t.Fatal(err)
	}
	e := &enforcer{n, c, stdin, bufio.NewScanner(stdout)}
	if err := e.wait(); err != nil {
		n.t.Fatal(err)
	}
	return e
}

func (e *enforcer) wait() error {
	if !e.said.Scan() || e.said.Text() != "ok" {
		_ = e.cmd.Process.Kill()
		_ = e.cmd.Wait() // when Wait has returned, the log is complete
		return fmt.Errorf("the enforcer has ended:\n%s", e.n.log.String())
	}
	return nil
}

// change sends a change to the process, which makes it at the API server or at the agent.
func (e *enforcer) change(c change) error {
	if err := json.NewEncoder(e.stdin).Encode(c); err != nil {
		return fmt.Errorf("the enforcer does not listen: %w", err)
	}
	return e.wait()
}

// end ends the enforcer, and waits for its end.
func (e *enforcer) end() {
	e.n.t.Helper()
	e.stdin.Close()
	if err := e.cmd.Wait(); err != nil {
		e.n.t.Errorf("%v\n%s", err, e.n.log.String())
	}
}

// TestEnforce applies a list of policies. Three pods of two namespaces must reach each other
// exactly as each policy says, in both address families. After the process has ended, they reach
// each other freely.
func TestEnforce(t *testing.T) {
	names := []string{"a", "b", "c", "d"} // d is not a pod of the cluster
	where := map[string]string{"a": "x", "b": "x", "c": "y"}
	n := newNode(t, names...)
	for _, name := range names {
		var l net.Listener
		if err := in(n.space(name), func() (err error) { l, err = net.Listen("tcp", ":8080"); return err }); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	pods := names[:3]
	reached := func(family int) string {
		said := make([]chan string, 0, 6)
		for _, from := range pods {
			for i, to := range pods {
				if from == to {
					continue
				}
				c := make(chan string, 1)
				said = append(said, c)
				go func() {
					err := in(n.space(from), func() error {
						conn, err := net.DialTimeout("tcp", net.JoinHostPort(addresses(i)[family], "8080"), 500*time.Millisecond)
						if err == nil {
							conn.Close()
						}
						return err
					})
					c <- map[bool]string{true: from + to}[err == nil]
				}()
			}
		}
		var all []string
		for _, c := range said {
			if s := <-c; s != "" {
				all = append(all, s)
			}
		}
		return strings.Join(all, " ")
	}
	expect := func(what, want string) bool {
		t.Helper()
		for family := range 2 {
			got := ""
			for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
				if got = reached(family); got == want {
					break
				}
			}
			if got != want {
				t.Errorf("%s, family %d: there is a way for %q, not %q", what, family, got, want)
				return false
			}
		}
		return true
	}
	const all = "ab ac ba bc ca cb"
	expect("without policies", all)
	e := n.enforce(envStays + "=1")
	change := func(c change) {
		t.Helper()
		if err := e.change(c); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range pods {
		ns := where[name]
		change(changeOf(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{"name": ns}}}))
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}},
			Spec: corev1.PodSpec{NodeName: "n1"}}
		p.UID = types.UID("uid-" + name)
		attached := agentapi.Record{Pod: agentapi.Pod{Namespace: ns, Name: name, UID: string(p.UID)},
			Host: agentapi.Interface{Name: "ncq" + name}}
		for _, ip := range addresses(i) {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
			attached.Addresses = append(attached.Addresses,
				agentapi.Address{Prefix: netip.PrefixFrom(netip.MustParseAddr(ip), 24)})
		}
		if name == "a" { // the API server does not know the addresses of this pod yet
			p.Status.PodIPs = nil
		}
		change(changeOf(&attached))
		change(changeOf(p))
	}
	const a = `"podSelector":{"matchLabels":{"app":"a"}}`
	const b = `"podSelector":{"matchLabels":{"app":"b"}}`
	const y = `"namespaceSelector":{"matchLabels":{"name":"y"}}`
	blocks := `{"ipBlock":{"cidr":"10.3.0.2/32"}},{"ipBlock":{"cidr":"fd00:3::2/128"}}`
	but := `{"ipBlock":{"cidr":"0.0.0.0/0","except":["10.3.0.2/32"]}},{"ipBlock":{"cidr":"::/0","except":["fd00:3::2/128"]}}`
	passed, cases := 0, []struct{ what, spec, want string }{
		{"ingress to a denied", a + `,"policyTypes":["Ingress"]`, "ab ac bc cb"},
		{"ingress to a from b", a + `,"ingress":[{"from":[{` + b + `}]}]`, "ab ac ba bc cb"},
		{"ingress to a from namespace y", a + `,"ingress":[{"from":[{` + y + `}]}]`, "ab ac bc ca cb"},
		{"ingress to a from b in y", a + `,"ingress":[{"from":[{` + b + "," + y + `}]}]`, "ab ac bc cb"},
		{"ingress to a by its port", a + `,"ingress":[{"ports":[{"protocol":"TCP","port":8080}]}]`, all},
		{"ingress to a by another port", a + `,"ingress":[{"ports":[{"protocol":"TCP","port":81}]}]`, "ab ac bc cb"},
		{"ingress to a by a range", a + `,"ingress":[{"ports":[{"protocol":"TCP","port":8000,"endPort":8080}]}]`, all},
		{"ingress to a by UDP", a + `,"ingress":[{"ports":[{"protocol":"UDP","port":8080}]}]`, "ab ac bc cb"},
		{"ingress to a from c's addresses", a + `,"ingress":[{"from":[` + blocks + `]}]`, "ab ac bc ca cb"},
		{"ingress to a from all addresses but c's", a + `,"ingress":[{"from":[` + but + `]}]`, "ab ac ba bc cb"},
		{"ingress to x denied", `"podSelector":{},"policyTypes":["Ingress"]`, "ac bc"},
		{"egress of x denied", `"podSelector":{},"policyTypes":["Egress"]`, "ca cb"},
		{"egress of a denied", a + `,"policyTypes":["Egress"]`, "ba bc ca cb"},
		{"egress to b", `"podSelector":{},"policyTypes":["Egress"],"egress":[{"to":[{` + b + `}]}]`, "ab ca cb"},
		{"egress to namespace y", `"podSelector":{},"policyTypes":["Egress"],"egress":[{"to":[{` + y + `}]}]`, "ac bc ca cb"},
		{"egress to c's addresses", `"podSelector":{},"policyTypes":["Egress"],"egress":[{"to":[` + blocks + `]}]`, "ac bc ca cb"},
		{"both ways denied", `"podSelector":{},"policyTypes":["Ingress","Egress"]`, ""},
		{"all allowed", `"podSelector":{},"ingress":[{}],"egress":[{}],"policyTypes":["Ingress","Egress"]`, all},
	}
	for _, x := range cases {
		spec := x.spec
		if !strings.Contains(spec, "policyTypes") {
			spec += `,"policyTypes":["Ingress"]`
		}
		p := &networking.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "tried"}}
		if err := json.Unmarshal([]byte("{"+spec+"}"), &p.Spec); err != nil {
			t.Fatal(err)
		}
		change(changeOf(p))
		if expect(x.what, x.want) {
			passed++
		}
		if x.want == "" {
			if err := in(n.space("node"), func() error { // the same as "nft flush ruleset"
				conn, err := nftables.New()
				if err == nil {
					conn.FlushRuleset()
					err = conn.Flush()
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			expect(x.what+", and a firewall was loaded anew", x.want)
		}
	}
	for family := range 2 { // the addresses of c; no policy selects c
		if err := in(n.space("d"), func() error {
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(addresses(2)[family], "8080"), 10*time.Second)
			if err == nil {
				conn.Close()
			}
			return err
		}); err != nil {
			t.Errorf("who is no pod does not reach one: %v", err)
		}
	}
	t.Logf("%d of %d policies let connect whom they should, in both families", passed, len(cases))
	e.end()
	expect("while the process is replaced", "")
	e = n.enforce()
	expect("when another one runs", all)
	e.end()
	expect("when the DaemonSet is gone", all)
	if out, err := exec.Command("ip", "netns", "exec", n.space("node"), "nft", "list", "tables").Output(); err == nil && len(out) > 0 {
		t.Errorf("it leaves %s", out)
	}
}
