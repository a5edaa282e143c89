package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// envSuite is an environment variable that enables the suite, which takes minutes. Its value is the
// pods' address family, 4 or 6.
const envSuite = "NETCRAQ_POLICY_SUITE"

// TestSuite runs Cyclonus, the suite from which SIG Network's policy-assistant was made. Cyclonus
// makes policies and changes labels, namespaces and pods. Each of nine pods in three namespaces
// connects to each of these pods, at two ports over TCP and UDP. Cyclonus compares the results with
// its own model of NetworkPolicy. In this test, the cluster is a node made of network namespaces,
// with the fake API server of netcraq-policies. There are no Services, so Cyclonus probes
// addresses, and not names.
func TestSuite(t *testing.T) {
	family := os.Getenv(envSuite)
	if family != "4" && family != "6" {
		t.Skipf("skipped: minutes; %s=4 or 6, or make policy-suite", envSuite)
	}
	logrus.SetLevel(logrus.ErrorLevel)
	namespaces, names := []string{"x", "y", "z"}, []string{"a", "b", "c"}
	ports, protocols := []int{80, 81}, []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}
	var spaces []string
	for _, ns := range namespaces {
		for _, name := range names {
			spaces = append(spaces, ns+name)
		}
	}
	spaces = append(spaces, "xd", "y-2a", "y-2b") // test cases create these pods
	n := newNode(t, spaces...)
	for _, s := range spaces {
		for _, port := range ports {
			serve(t, n.space(s), port)
		}
	}
	e := n.enforce()
	k := &testCluster{n: n, e: e, family: map[string]int{"4": 0, "6": 1}[family], spaces: spaces,
		namespaces: map[string]*corev1.Namespace{}, pods: map[string]*corev1.Pod{},
		policies: map[string]*networking.NetworkPolicy{}, services: map[string]*corev1.Service{}}
	resources, err := probe.NewDefaultResources(k, namespaces, names, ports, protocols, nil, 10, false, "none")
	if err != nil {
		t.Fatal(err)
	}
	c, err := resources.GetPod("z", "c")
	if err != nil {
		t.Fatal(err)
	}
	interpreter := connectivity.NewInterpreter(k, resources, &connectivity.InterpreterConfig{
		ResetClusterBeforeTestCase: true, VerifyClusterStateBeforeTestCase: true, IgnoreLoopback: true,
		KubeProbeRetries: 5, JobTimeoutSeconds: 1})
	// Cyclonus also omits the examples by default.
	without := []string{generator.TagExample}
	cases := generator.NewTestCaseGenerator(false, c.IP, namespaces, nil, without).GenerateTestCases()
	if len(cases) < 100 {
		t.Fatalf("it has only %d cases", len(cases))
	}
	passed, begin := 0, time.Now()
	for i, one := range cases {
		for _, step := range one.Steps {
			step.Probe.Mode = generator.ProbeModePodIP
		}
		result := interpreter.ExecuteTestCase(one)
		if result.Err == nil && result.Passed(true) {
			passed++
			if passed%20 == 0 {
				t.Logf("passed %d of %d, of %d in all", passed, i+1, len(cases))
			}
			continue
		}
		var out bytes.Buffer
		for _, step := range result.Steps {
			fmt.Fprintf(&out, "%s\n", step.LastComparison().RenderSuccessTable())
		}
		t.Errorf("case %d, %s (%s): %v\n%s", i+1, one.Description, strings.Join(one.Tags.Keys(), ", "), result.Err, out.String())
	}
	t.Logf("passed %d of %d, IPv%s, %.0f s", passed, len(cases), family, time.Since(begin).Seconds())
	e.end()
}

// serve answers at a port of a network namespace, over TCP and UDP.
func serve(t *testing.T, space string, port int) {
	t.Helper()
	var l net.Listener
	var p net.PacketConn
	if err := in(space, func() (err error) {
		at := fmt.Sprintf(":%d", port)
		if l, err = net.Listen("tcp", at); err == nil {
			p, err = net.ListenPacket("udp", at)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); p.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	go func() {
		var b [64]byte
		for {
			n, from, err := p.ReadFrom(b[:])
			if err != nil {
				return
			}
			_, _ = p.WriteTo(b[:n], from)
		}
	}()
}

// testCluster implements the cluster interface of Cyclonus.
type testCluster struct {
	n      *node
	e      *enforcer
	family int
	spaces []string // the index of an element is the pod's number

	mu         sync.Mutex
	asked      map[string]int // number of attempts since the last change, by command
	namespaces map[string]*corev1.Namespace
	pods       map[string]*corev1.Pod
	policies   map[string]*networking.NetworkPolicy
	services   map[string]*corev1.Service
}

var errNone = errors.New("there is none")

// put stores an object. If there is an enforcer, it also sends the change to the enforcer.
func put[T any](k *testCluster, all map[string]*T, key string, object *T, c *change) (*T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all[key] = object
	if c == nil {
		return object, nil
	}
	return object, k.change(*c)
}

// change sends a change to the enforcer process. The caller holds k.mu.
func (k *testCluster) change(c change) error {
	k.asked = map[string]int{}
	return k.e.change(c)
}

func get[T any](k *testCluster, all map[string]*T, key string) (*T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o, ok := all[key]; ok {
		return o, nil
	}
	return nil, fmt.Errorf("%s: %w", key, errNone)
}

func (k *testCluster) remove(key string, c *change) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c == nil {
		delete(k.services, key)
		return nil
	}
	switch {
	case c.Namespace != nil:
		delete(k.namespaces, key)
	case c.Pod != nil:
		delete(k.pods, key)
	default:
		delete(k.policies, key)
	}
	c.Delete = true
	return k.change(*c)
}

// within returns the objects in a namespace.
func within[T any](k *testCluster, all map[string]*T, namespace string) (list []T, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, o := range all {
		if strings.HasPrefix(key, namespace+"/") {
			list = append(list, *o)
		}
	}
	return list, nil
}

func (k *testCluster) CreateNamespace(ns *corev1.Namespace) (*corev1.Namespace, error) {
	ns = ns.DeepCopy()
	labels := map[string]string{"kubernetes.io/metadata.name": ns.Name}
	for key, value := range ns.Labels {
		labels[key] = value
	}
	ns.Labels = labels
	return put(k, k.namespaces, ns.Name, ns, &change{Namespace: ns})
}

func (k *testCluster) GetNamespace(name string) (*corev1.Namespace, error) {
	return get(k, k.namespaces, name)
}

func (k *testCluster) SetNamespaceLabels(name string, labels map[string]string) (*corev1.Namespace, error) {
	return k.CreateNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

func (k *testCluster) DeleteNamespace(name string) error {
	return k.remove(name, &change{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}})
}

func (k *testCluster) GetAllNamespaces() (*corev1.NamespaceList, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list corev1.NamespaceList
	for _, ns := range k.namespaces {
		list.Items = append(list.Items, *ns)
	}
	return &list, nil
}

func (k *testCluster) CreateNetworkPolicy(p *networking.NetworkPolicy) (*networking.NetworkPolicy, error) {
	p = p.DeepCopy()
	tcp := corev1.ProtocolTCP
	fill := func(ports []networking.NetworkPolicyPort) { // fill sets the default values, as an API server does
		for i := range ports {
			if ports[i].Protocol == nil {
				ports[i].Protocol = &tcp
			}
		}
	}
	for _, rule := range p.Spec.Ingress {
		fill(rule.Ports)
	}
	for _, rule := range p.Spec.Egress {
		fill(rule.Ports)
	}
	return put(k, k.policies, p.Namespace+"/"+p.Name, p, &change{Policy: p})
}

func (k *testCluster) UpdateNetworkPolicy(p *networking.NetworkPolicy) (*networking.NetworkPolicy, error) {
	return k.CreateNetworkPolicy(p)
}

func (k *testCluster) GetNetworkPoliciesInNamespace(ns string) ([]networking.NetworkPolicy, error) {
	return within(k, k.policies, ns)
}

func (k *testCluster) DeleteNetworkPolicy(ns, name string) error {
	p := &networking.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	return k.remove(ns+"/"+name, &change{Policy: p})
}

func (k *testCluster) DeleteAllNetworkPoliciesInNamespace(ns string) error {
	all, _ := k.GetNetworkPoliciesInNamespace(ns)
	for _, p := range all {
		if err := k.DeleteNetworkPolicy(ns, p.Name); err != nil {
			return err
		}
	}
	return nil
}

func (k *testCluster) CreateService(s *corev1.Service) (*corev1.Service, error) {
	return put(k, k.services, s.Namespace+"/"+s.Name, s.DeepCopy(), nil)
}

func (k *testCluster) GetService(ns, name string) (*corev1.Service, error) {
	return get(k, k.services, ns+"/"+name)
}

func (k *testCluster) DeleteService(ns, name string) error { return k.remove(ns+"/"+name, nil) }

func (k *testCluster) GetServicesInNamespace(ns string) ([]corev1.Service, error) {
	return within(k, k.services, ns)
}

func (k *testCluster) CreatePod(p *corev1.Pod) (*corev1.Pod, error) {
	p = p.DeepCopy()
	number := slices.Index(k.spaces, p.Namespace+p.Name)
	if number < 0 {
		return nil, fmt.Errorf("there is no network namespace for the pod %s/%s", p.Namespace, p.Name)
	}
	ip := addresses(number)[k.family]
	p.Spec.NodeName = "n1"
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
	if err := k.change(changeOf(&agentapi.Record{Pod: agentapi.Pod{Namespace: p.Namespace, Name: p.Name},
		Addresses: []agentapi.Address{{Prefix: netip.PrefixFrom(netip.MustParseAddr(ip), 24)}}})); err != nil {
		return nil, err
	}
	return put(k, k.pods, p.Namespace+"/"+p.Name, p, &change{Pod: p})
}

func (k *testCluster) GetPod(ns, name string) (*corev1.Pod, error) {
	return get(k, k.pods, ns+"/"+name)
}

func (k *testCluster) DeletePod(ns, name string) error {
	return k.remove(ns+"/"+name, &change{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}})
}

func (k *testCluster) SetPodLabels(ns, name string, labels map[string]string) (*corev1.Pod, error) {
	p, err := k.GetPod(ns, name)
	if err != nil {
		return nil, err
	}
	p = p.DeepCopy()
	p.Labels = labels
	return put(k, k.pods, ns+"/"+name, p, &change{Pod: p})
}

func (k *testCluster) GetPodsInNamespace(ns string) ([]corev1.Pod, error) {
	return within(k, k.pods, ns)
}

// ExecuteRemoteCommand makes the same connection that this command would make in the pod: /agnhost
// connect ADDRESS --timeout=... --protocol=...
func (k *testCluster) ExecuteRemoteCommand(ns, pod, _ string, command []string) (string, string, error, error) {
	protocol := strings.TrimPrefix(command[len(command)-1], "--protocol=")
	if len(command) != 5 || command[1] != "connect" || (protocol != "tcp" && protocol != "udp") {
		return "", "", nil, fmt.Errorf("this is no pod for %v", command)
	}
	// A connection without an answer counts as blocked. Cyclonus repeats a command if its result is
	// unexpected. The timeout grows with each repetition, so that a busy machine has time to resend
	// a SYN.
	key := ns + "/" + pod + " " + strings.Join(command, " ")
	k.mu.Lock()
	patience := 400*time.Millisecond + time.Duration(k.asked[key])*time.Second
	k.asked[key]++
	k.mu.Unlock()
	return "", "", in(k.n.space(ns+pod), func() error {
		conn, err := net.DialTimeout(protocol, command[2], patience)
		if err != nil || protocol == "tcp" {
			if err == nil {
				conn.Close()
			}
			return err
		}
		defer conn.Close()
		b := []byte("hello")
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := conn.Write(b); err != nil {
			return err
		}
		_, err = conn.Read(b)
		return err
	}), nil
}
