package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/kube/agentcerts"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/fastpath"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/kube/podapi"
	"github.com/netcraq/netcraq/cni-plugin/kube/reconcilers"
	agents "github.com/netcraq/netcraq/cni-plugin/leader"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/internal/testutil/kubetest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/authority"
)

// right is a permission in the manifests: a role may use a verb on a resource.
type right struct{ role, namespace, resource, verb string }

func (r right) String() string { return r.role + "/" + r.namespace + ": " + r.verb + " " + r.resource }

// roles reads the roles of the agents' manifests.
func roles(t *testing.T) (out []client.Object) {
	t.Helper()
	b, err := os.ReadFile("../deploy/rbac.yaml")
	testutil.Must(t, err)
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(b), 4096); ; {
		var raw runtime.RawExtension
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		testutil.Must(t, yaml.Unmarshal(raw.Raw, &kind))
		switch kind.Kind {
		case "ClusterRole":
			r := &rbac.ClusterRole{}
			testutil.Must(t, yaml.UnmarshalStrict(raw.Raw, r))
			out = append(out, r)
		case "Role":
			r := &rbac.Role{}
			testutil.Must(t, yaml.UnmarshalStrict(raw.Raw, r))
			out = append(out, r)
		}
	}
}

func rulesOf(o client.Object) *[]rbac.PolicyRule {
	switch r := o.(type) {
	case *rbac.ClusterRole:
		return &r.Rules
	case *rbac.Role:
		return &r.Rules
	}
	return nil
}

// rights returns all rights that the roles grant.
func rights(t *testing.T) map[right]bool {
	out := map[right]bool{}
	for _, o := range roles(t) {
		for _, rule := range *rulesOf(o) {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out[right{o.GetName(), o.GetNamespace(), resource, verb}] = true
				}
			}
		}
	}
	return out
}

// without returns the rules of a role without one of its rights.
func without(rules []rbac.PolicyRule, r right) (out []rbac.PolicyRule) {
	for _, rule := range rules {
		if !slices.Contains(rule.Resources, r.resource) || !slices.Contains(rule.Verbs, r.verb) {
			out = append(out, rule)
			continue
		}
		others, less := *rule.DeepCopy(), *rule.DeepCopy()
		others.Resources = slices.DeleteFunc(others.Resources, func(s string) bool { return s == r.resource })
		less.Resources, less.Verbs = []string{r.resource}, slices.DeleteFunc(less.Verbs, func(s string) bool {
			return s == r.verb
		})
		if len(others.Resources) > 0 {
			out = append(out, others)
		}
		if len(less.Verbs) > 0 {
			out = append(out, less)
		}
	}
	return out
}

// TestRightsAreWrittenDown checks that docs/kubernetes.md lists exactly the rights of each role.
func TestRightsAreWrittenDown(t *testing.T) {
	b, err := os.ReadFile("../../docs/kubernetes.md")
	testutil.Must(t, err)
	row := regexp.MustCompile("(?m)^\\| `(netcraq-agent|netcraq-leader)`(?: in `([a-z-]+)`)? \\| `([a-z./]+)` \\| ([a-z, ]+) \\| .+ \\|$")
	written := map[right]bool{}
	for _, m := range row.FindAllStringSubmatch(string(b), -1) {
		for verb := range strings.SplitSeq(m[4], ", ") {
			written[right{m[1], m[2], m[3], verb}] = true
		}
	}
	given := rights(t)
	for r := range given {
		if !written[r] {
			t.Errorf("docs/kubernetes.md does not say what this right is for: %s", r)
		}
	}
	for r := range written {
		if !given[r] {
			t.Errorf("docs/kubernetes.md has a right that no role gives: %s", r)
		}
	}
}

// TestRights removes each right in a running API server. Something must fail without the right and
// work with it. So no right is superfluous.
func TestRights(t *testing.T) {
	s := kubetest.Start(t, kubetest.Options{})
	s.Kubectl(t, kubetest.Options{}, "apply", "-f", "../deploy/namespace.yaml")
	s.Kubectl(t, kubetest.Options{}, "apply", "-f", "../deploy/crd", "-f", "../deploy/rbac.yaml")
	s.Kubectl(t, kubetest.Options{}, "wait", "--for=condition=Established", "--timeout=60s", "crd", "netcraqchains.netcraq.io", "netcraqnodes.netcraq.io")
	ctx := t.Context()
	const ns = "netcraq-system"
	scheme, err := apiobjects.Scheme()
	testutil.Must(t, err)
	testutil.Must(t, errors.Join(coordination.AddToScheme(scheme), rbac.AddToScheme(scheme)))
	as := func(token string) client.WithWatch {
		c, err := client.NewWithWatch(s.As(token), client.Options{Scheme: scheme})
		testutil.Must(t, err)
		return c
	}
	admin := as(s.Config.BearerToken)
	testutil.Must(t, admin.Create(ctx, testutil.Node(1)))
	testutil.Must(t, admin.Create(ctx, testutil.Numbered("n01", 1, 0)))
	testutil.Must(t, admin.Create(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "main"},
		Spec: v1alpha1.NetcraqChainSpec{Length: 3, Profile: 128, LeaseMillis: 200,
			Placement: v1alpha1.Placement{Policy: v1alpha1.PlaceHot}}}))
	workerToken, leaderToken := s.Token(t, ns, agentcerts.WorkerAccount, "n01"), s.Token(t, ns, agentcerts.LeaderAccount, "n01")
	worker, leader := as(workerToken), as(leaderToken)
	gone := func(objects ...client.Object) {
		for _, o := range objects {
			testutil.Must(t, client.IgnoreNotFound(admin.Delete(ctx, o)))
		}
	}
	secret := func() *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: agentcerts.AuthoritySecret}}
	}
	configMap := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: agentcerts.AuthoritiesMap}}
	}
	keep := func(c client.Client) *agentcerts.Authorities {
		return agentcerts.NewAuthorities(c, c, ns, testutil.Quiet)
	}
	testutil.Must(t, keep(admin).Maintain(ctx))
	anew := func() *agentcerts.Keeper {
		return agentcerts.NewKeeper(identity.New("n01"), "n01", ns, []identity.Role{identity.Switch}, worker, worker,
			testutil.Quiet)
	}
	// asks makes an agent request a certificate. The agent's error that it waits for an answer is
	// expected.
	asks := func() error {
		if err := anew().Refresh(ctx); err != nil && !strings.Contains(err.Error(), "waits for an agent") {
			return err
		}
		return nil
	}
	// signs makes the signer answer a new request. If good is false, the request is for another
	// node.
	signs := func(good bool) error {
		node := map[bool]string{true: "n01", false: "n02"}[good]
		_, request, err := identity.NewRequest(identity.Switch, node)
		testutil.Must(t, err)
		c := &certificates.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
			Spec: certificates.CertificateSigningRequestSpec{Request: request,
				SignerName: identity.Switch.Signer(), Usages: agentcerts.UsagesOf(identity.Switch)}}
		// The worker's own rights are being changed concurrently.
		poll.Nil(t, 10*time.Second, "the worker may ask", func() error { return worker.Create(ctx, c) })
		_, err = agentcerts.NewSigner(leader, keep(leader), ns, testutil.Quiet).Reconcile(ctx,
			reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		if err == nil {
			testutil.Must(t, admin.Get(ctx, client.ObjectKeyFromObject(c), c))
			if good == (len(c.Status.Certificate) == 0) {
				err = fmt.Errorf("%+v", c.Status)
			}
		}
		return err
	}
	leases, err := coordinationclient.NewForConfig(s.As(leaderToken))
	testutil.Must(t, err)
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: ns, Name: agents.LeaseName},
		Client: leases, LockConfig: resourcelock.ResourceLockConfig{Identity: "n01"}}
	holding := resourcelock.LeaderElectionRecord{HolderIdentity: "n01", LeaseDurationSeconds: 5,
		AcquireTime: metav1.Now(), RenewTime: metav1.Now()}
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: agents.LeaseName}}
	kube, err := kubernetes.NewForConfig(s.As(leaderToken))
	testutil.Must(t, err)
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "main.1", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "NetcraqChain", Name: "main"}}
	watch := func(c client.WithWatch, list client.ObjectList) error {
		w, err := c.Watch(ctx, list)
		if err == nil {
			w.Stop()
		}
		return err
	}
	member := func() error { // member publishes the address of the node's switch
		var n v1alpha1.NetcraqNode
		testutil.Must(t, admin.Get(ctx, client.ObjectKey{Name: "n01"}, &n))
		m := &member{client: worker, self: nodeview.FromNode(testutil.Node(1)).Node, claims: &nodeclaims.Claims{},
			log:             testutil.Quiet,
			route:           func(podroutes.Node, []podroutes.Node) error { return nil },
			connect:         func(podroutes.Node, map[uint32]podroutes.Node) error { return nil },
			connectNumbered: func(int32) error { return nil },
			status: v1alpha1.NetcraqNodeStatus{Agent: fmt.Sprintf("192.0.2.1:%d", 1+len(n.ResourceVersion)+int(
				time.Now().UnixNano()%50000))}}
		_, err := m.Reconcile(ctx, reconcile.Request{})
		return err
	}
	chain := func(change func(*v1alpha1.NetcraqChain), update func(*v1alpha1.NetcraqChain) error) error {
		var c v1alpha1.NetcraqChain
		testutil.Must(t, admin.Get(ctx, client.ObjectKey{Name: "main"}, &c))
		change(&c)
		return update(&c)
	}
	asking := testutil.Pod(ns, "asks", "", agentcerts.WorkerAccount, "n01", "true")
	asking.Spec.Containers = []corev1.Container{{Name: "c", Image: "none"}}
	testutil.Must(t, admin.Create(ctx, asking))
	// review makes the leader check whether the pod's account may use the fast path.
	review := func() error {
		f := fastpath.New(leader, testutil.Quiet, func() bool { return true }, func() {})
		_, err := f.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: ns,
			Name: agentcerts.WorkerAccount}})
		return err
	}
	// index makes the leader reconcile the index of a node.
	index := func(node string) error {
		r := reconcilers.NewNodeIndexes(leader, leader, false, func(context.Context) (func(string) bool, error) {
			return func(string) bool { return false }, nil
		})
		_, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: node}})
		return err
	}
	table := map[right]struct {
		what string
		do   func() error
	}{
		{"netcraq-agent", "", "nodes", "get"}: {"an agent waits for its own node", func() error {
			return worker.Get(ctx, client.ObjectKey{Name: "n01"}, &corev1.Node{})
		}},
		{"netcraq-agent", "", "nodes", "list"}:                        {"an agent makes routes to the other nodes", func() error { _, err := nodeview.List(ctx, worker); return err }},
		{"netcraq-agent", "", "nodes", "watch"}:                       {"an agent follows nodes that come and go", func() error { return watch(worker, &corev1.NodeList{}) }},
		{"netcraq-agent", "", "netcraqnodes", "get"}:                  {"an agent says where its switch is", member},
		{"netcraq-agent", "", "netcraqnodes", "list"}:                 {"an agent learns the nodes' numbers", func() error { _, err := nodeview.List(ctx, worker); return err }},
		{"netcraq-agent", "", "netcraqnodes", "watch"}:                {"an agent follows the nodes' numbers", func() error { return watch(worker, &v1alpha1.NetcraqNodeList{}) }},
		{"netcraq-agent", "", "netcraqnodes/status", "update"}:        {"an agent says where its switch is", member},
		{"netcraq-agent", "", "certificatesigningrequests", "create"}: {"an agent asks for a certificate", asks},
		{"netcraq-agent", "", "certificatesigningrequests", "get"}:    {"an agent fetches its certificate", asks},
		{"netcraq-agent", ns, "configmaps", "get"}:                    {"an agent learns whom to trust", asks},
		{"netcraq-agent", ns, "daemonsets", "list"}: {"an agent behind another plugin sees that it is removed", func() error {
			return worker.List(ctx, &apps.DaemonSetList{}, client.InNamespace(ns))
		}},
		{"netcraq-agent", "", "pods", "list"}: {"the leader learns which pods ask for the fast path", review},
		{"netcraq-agent", "", "pods", "watch"}: {"an agent follows its node's pods", func() error {
			return watch(worker, &corev1.PodList{})
		}},
		{"netcraq-agent", "", "namespaces", "list"}: {"an agent learns which namespaces' keys are durable", func() error {
			return worker.List(ctx, &corev1.NamespaceList{})
		}},
		{"netcraq-agent", "", "servicecidrs", "list"}: {"an agent compares its prefixes with the Services'", func() error {
			_, err := serviceRanges(ctx, worker)
			return err
		}},
		{"netcraq-agent", "", "namespaces", "watch"}: {"an agent follows which namespaces' keys are durable", func() error {
			return watch(worker, &corev1.NamespaceList{})
		}},
		{"netcraq-agent", "", "subjectaccessreviews", "create"}: {"the node API asks what a service account may", func() error {
			_, err := podapi.NewKeyReviews(worker).Review(ctx, authority.Review{AccountNamespace: ns,
				Account: agentcerts.WorkerAccount, Verb: "get", Namespace: "default"})
			return err
		}},

		{"netcraq-leader", "", "netcraqchains", "get"}: {"the leader looks at a chain", func() error {
			return leader.Get(ctx, client.ObjectKey{Name: "main"}, &v1alpha1.NetcraqChain{})
		}},
		{"netcraq-leader", "", "netcraqchains", "list"}:  {"the leader learns of chains", func() error { return leader.List(ctx, &v1alpha1.NetcraqChainList{}) }},
		{"netcraq-leader", "", "netcraqchains", "watch"}: {"the leader follows chains", func() error { return watch(leader, &v1alpha1.NetcraqChainList{}) }},
		{"netcraq-leader", "", "netcraqchains", "patch"}: {"the leader holds a chain until its keys are out (finalizer)", func() error {
			return chain(func(*v1alpha1.NetcraqChain) {}, func(c *v1alpha1.NetcraqChain) error {
				return reconcilers.Hold(ctx, client.NewDryRunClient(leader), c, true)
			})
		}},
		{"netcraq-leader", "", "netcraqchains/status", "update"}: {"the leader says how a chain is", func() error {
			return chain(func(c *v1alpha1.NetcraqChain) {
				c.Status.Epoch++
			}, func(c *v1alpha1.NetcraqChain) error { return leader.Status().Update(ctx, c) })
		}},
		{"netcraq-leader", "", "networkpolicies", "list"}: {"the leader learns whom policies let send to chains", func() error {
			return leader.List(ctx, &networking.NetworkPolicyList{})
		}},
		{"netcraq-leader", "", "networkpolicies", "watch"}: {"the leader follows policies", func() error {
			return watch(leader, &networking.NetworkPolicyList{})
		}},
		{"netcraq-leader", "", "netcraqnodes", "create"}: {"the leader gives a node its number", func() error {
			gone(testutil.Numbered("n01", 1, 0))
			err := index("n01")
			if err != nil { // other test cases need this right
				testutil.Must(t, client.IgnoreAlreadyExists(
					admin.Create(ctx, &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: "n01"},
						Spec: v1alpha1.NetcraqNodeSpec{Number: 1}})))
			}
			return err
		}},
		{"netcraq-leader", "", "netcraqnodes", "delete"}: {"the leader takes the number of a node back that has gone", func() error {
			testutil.Must(t, client.IgnoreAlreadyExists(
				admin.Create(ctx, &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: "n09"},
					Spec: v1alpha1.NetcraqNodeSpec{Number: 9}})))
			return index("n09")
		}},
		{"netcraq-leader", "", "certificatesigningrequests", "list"}: {"the signer learns of requests", func() error {
			return leader.List(ctx, &certificates.CertificateSigningRequestList{})
		}},
		{"netcraq-leader", "", "certificatesigningrequests", "watch"}: {"the signer follows requests", func() error {
			return watch(leader, &certificates.CertificateSigningRequestList{})
		}},
		{"netcraq-leader", "", "certificatesigningrequests/approval", "update"}: {"the signer denies what is not for who asks", func() error { return signs(false) }},
		{"netcraq-leader", "", "certificatesigningrequests/status", "update"}:   {"the signer hands a certificate out", func() error { return signs(true) }},
		{"netcraq-leader", "", "signers", "approve"}:                            {"the signer denies what is not for who asks", func() error { return signs(false) }},
		{"netcraq-leader", "", "signers", "sign"}:                               {"the signer hands a certificate out", func() error { return signs(true) }},

		{"netcraq-leader", ns, "leases", "get"}: {"agents learn who leads", func() error {
			_, _, err := lock.Get(ctx)
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return err
		}},
		{"netcraq-leader", ns, "leases", "create"}: {"the first leader leads", func() error {
			gone(lease)
			return lock.Create(ctx, holding)
		}},
		{"netcraq-leader", ns, "leases", "update"}: {"a leader goes on leading", func() error {
			testutil.Must(t, client.IgnoreAlreadyExists(admin.Create(ctx, lease.DeepCopy())))
			if _, _, err := lock.Get(ctx); err != nil {
				return err
			}
			return lock.Update(ctx, holding)
		}},
		{"netcraq-leader", ns, "secrets", "get"}: {"the signer reads the authority", func() error { _, err := keep(leader).Signing(ctx); return err }},
		{"netcraq-leader", ns, "secrets", "create"}: {"the first agent makes the authority", func() error {
			gone(secret())
			defer func() { testutil.Must(t, keep(admin).Maintain(ctx)) }()
			return keep(leader).Maintain(ctx)
		}},
		{"netcraq-leader", ns, "secrets", "update"}: {"the authority is replaced", func() error {
			gone(secret())
			testutil.Must(t, keep(admin).Maintain(ctx))
			s := secret()
			testutil.Must(t, admin.Get(ctx, client.ObjectKeyFromObject(s), s))
			s.Annotations = map[string]string{agentcerts.ReplaceAnnotation: ""}
			testutil.Must(t, admin.Update(ctx, s))
			return keep(leader).Maintain(ctx)
		}},
		{"netcraq-leader", ns, "configmaps", "create"}: {"the first agent says whom to trust", func() error {
			gone(configMap())
			defer func() { testutil.Must(t, keep(admin).Maintain(ctx)) }()
			return keep(leader).Maintain(ctx)
		}},
		{"netcraq-leader", ns, "configmaps", "update"}: {"another authority is told to all", func() error {
			m := configMap()
			testutil.Must(t, admin.Get(ctx, client.ObjectKeyFromObject(m), m))
			m.Data = map[string]string{agentcerts.BundleFile: "old"}
			testutil.Must(t, admin.Update(ctx, m))
			defer func() { testutil.Must(t, keep(admin).Maintain(ctx)) }()
			return keep(leader).Maintain(ctx)
		}},
		{"netcraq-leader", "default", "events", "create"}: {"the leader tells of chains", func() error {
			gone(event)
			_, err := kube.CoreV1().Events("default").CreateWithEventNamespaceWithContext(ctx, event.DeepCopy())
			return err
		}},
		{"netcraq-leader", "default", "events", "patch"}: {"the leader counts what it tells again", func() error {
			testutil.Must(t, client.IgnoreAlreadyExists(admin.Create(ctx, event.DeepCopy())))
			_, err := kube.CoreV1().Events("default").PatchWithEventNamespaceWithContext(ctx, event, []byte(`{"count":2}`))
			return err
		}},
	}
	given := rights(t)
	for r := range table {
		if !given[r] {
			t.Errorf("no role gives %s", r)
		}
	}
	for r := range given {
		if _, ok := table[r]; !ok {
			t.Errorf("nothing shows what this right is for: %s", r)
		}
	}
	set := func(r right, rules func(rules []rbac.PolicyRule) []rbac.PolicyRule) {
		var o client.Object = &rbac.ClusterRole{}
		if r.namespace != "" {
			o = &rbac.Role{}
		}
		testutil.Must(t, admin.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: r.role}, o))
		*rulesOf(o) = rules(*rulesOf(o))
		testutil.Must(t, admin.Update(ctx, o))
	}
	// until repeats c until the API server has learned of the change.
	until := func(c func() error, is func(error) bool) (err error) {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			if err = c(); is(err) || time.Now().After(end) {
				return err
			}
		}
	}
	forbidden := func(err error) bool {
		return err != nil && (apierrors.IsForbidden(err) || strings.Contains(err.Error(), "forbidden"))
	}
	for _, r := range slices.SortedFunc(maps.Keys(table), func(a, b right) int {
		return strings.Compare(a.String(), b.String())
	}) {
		c := table[r]
		if err := until(c.do, func(err error) bool { return err == nil }); err != nil {
			t.Errorf("%s: %s: %v", r, c.what, err)
			continue
		}
		var before []rbac.PolicyRule
		set(r, func(rules []rbac.PolicyRule) []rbac.PolicyRule { before = rules; return without(rules, r) })
		err := until(c.do, forbidden)
		if !forbidden(err) {
			t.Errorf("%s: %s without it, too: %v", r, c.what, err)
		} else {
			t.Logf("without %s: %s: not any more: %v", r, c.what, err)
		}
		set(r, func([]rbac.PolicyRule) []rbac.PolicyRule { return before })
		if err := until(c.do, func(err error) bool { return err == nil }); err != nil {
			t.Errorf("%s, given back: %s: %v", r, c.what, err)
		}
	}
}
