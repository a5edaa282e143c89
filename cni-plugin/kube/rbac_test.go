package kube_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorization "k8s.io/api/authorization/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/reconcilers"
	"github.com/netcraq/netcraq/internal/testutil/kubetest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

const namespace = "netcraq-system"

// apply applies the project's own manifests, except for the DaemonSets.
func apply(t *testing.T, s *kubetest.Server) {
	t.Helper()
	s.Kubectl(t, kubetest.Options{}, "apply", "-f", "../deploy/namespace.yaml")
	s.Kubectl(t, kubetest.Options{}, "apply", "-f", "../deploy/crd", "-f", "../deploy/rbac.yaml", "-f", "../deploy/fast-path.yaml")
	s.Kubectl(t, kubetest.Options{}, "wait", "--for=condition=Established", "--timeout=60s", "crd", "netcraqchains.netcraq.io", "netcraqnodes.netcraq.io")
}

// as returns a client with a token of a service account. The token is bound to a pod on a node,
// like the token that kubelet gives to an agent.
func as(t *testing.T, s *kubetest.Server, account, node string) client.Client {
	t.Helper()
	return clientOf(t, s, s.Token(t, namespace, account, node))
}

func clientOf(t *testing.T, s *kubetest.Server, token string) client.Client {
	t.Helper()
	scheme, err := apiobjects.Scheme()
	must(t, err)
	must(t, coordination.AddToScheme(scheme))
	c, err := client.New(s.As(token), client.Options{Scheme: scheme})
	must(t, err)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRBAC checks the agents' rights and, above all, their limits.
func TestRBAC(t *testing.T) {
	s := kubetest.Start(t, kubetest.Options{})
	apply(t, s)
	ctx := t.Context()
	admin := clientOf(t, s, s.Config.BearerToken)
	for i, name := range []string{"node1", "node2"} {
		must(t, admin.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		must(t, admin.Create(ctx, &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.NetcraqNodeSpec{Number: int32(i + 1)}}))
	}
	must(t, admin.Create(ctx, chain("main", 0)))
	// The resource still has a list that an operator has emptied, but Go's type omits the list.
	must(t, admin.Patch(ctx, chain("main", 0), client.RawPatch(types.MergePatchType,
		[]byte(`{"spec": {"excludedNodes": [], "nodeSelector": {}, "slots": 0}}`))))
	must(t, admin.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: namespace}}))
	worker, leader := as(t, s, "netcraq-agent", "node1"), as(t, s, "netcraq-agent-control-plane", "node1")

	status := func(c client.Client, node string) func() error {
		return func() error {
			var n v1alpha1.NetcraqNode
			if err := c.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
				return err
			}
			n.Status.P4Runtime = fmt.Sprintf("192.0.2.1:%d", len(n.Status.P4Runtime)+1)
			return c.Status().Update(ctx, &n)
		}
	}
	get := func(c client.Client, o client.Object, namespace, name string) func() error {
		return func() error { return c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o) }
	}
	create := func(c client.Client, o client.Object) func() error {
		return func() error {
			err := c.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll)
			if apierrors.IsAlreadyExists(err) { // the API server checks this after all rules
				err = nil
			}
			return err
		}
	}
	secret := func(namespace, name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	lease := func(name string) *coordination.Lease {
		return &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	configMap := func(namespace, name, bundle string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Data: map[string]string{"ca.crt": bundle}}
	}
	_, asks, err := identity.NewRequest(identity.Switch, "node1")
	must(t, err)
	request := func(signer string) *certificates.CertificateSigningRequest {
		usages := []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageServerAuth}
		if signer != "netcraq.io/switch" {
			usages[1] = certificates.UsageClientAuth
		}
		return &certificates.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "mine-"},
			Spec: certificates.CertificateSigningRequestSpec{Request: asks, SignerName: signer, Usages: usages}}
	}
	there, other := request("netcraq.io/switch"), request("example.com/other")
	there.Name, other.Name = "there", "other"
	must(t, admin.Create(ctx, there))
	must(t, admin.Create(ctx, other))
	must(t, admin.Create(ctx, configMap(namespace, "netcraq-authorities", "x")))
	must(t, admin.Create(ctx, secret(namespace, "netcraq-authority")))
	must(t, admin.Create(ctx, secret(namespace, "netcraq-ca")))
	update := func(c client.Client, o client.Object) func() error {
		return func() error { return c.Update(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll) }
	}
	change := func(name string, change func(*certificates.CertificateSigningRequest)) (
		*certificates.CertificateSigningRequest, error) {
		r := &certificates.CertificateSigningRequest{}
		err := admin.Get(ctx, client.ObjectKey{Name: name}, r)
		change(r)
		return r, err
	}
	approve := func(c client.Client, name string) func() error {
		return func() error {
			r, err := change(name, func(r *certificates.CertificateSigningRequest) {
				r.Status.Conditions = append(r.Status.Conditions,
					certificates.CertificateSigningRequestCondition{Type: certificates.CertificateApproved,
						Status: corev1.ConditionTrue, Reason: "Test"})
			})
			if err != nil {
				return err
			}
			return c.SubResource("approval").Update(ctx, r, client.DryRunAll)
		}
	}
	sign := func(c client.Client, name string) func() error {
		return func() error {
			r, err := change(name, func(r *certificates.CertificateSigningRequest) {
				r.Status.Conditions = append(r.Status.Conditions,
					certificates.CertificateSigningRequestCondition{Type: certificates.CertificateFailed,
						Status: corev1.ConditionTrue, Reason: "Test"})
			})
			if err != nil {
				return err
			}
			return c.Status().Update(ctx, r, client.DryRunAll)
		}
	}
	number := &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: "node3"}, Spec: v1alpha1.NetcraqNodeSpec{Number: 3}}
	poll.Until(t, 30*time.Second, "the policy is in force", func() bool { return isPolicy(create(leader, secret(namespace, "mine"))()) })
	for _, c := range []struct {
		what           string
		worker, leader bool // whether the worker and the leader may make this request
		f              func(client.Client) func() error
	}{
		{"read a node", true, true, func(c client.Client) func() error { return get(c, &corev1.Node{}, "", "node2") }},
		{"list nodes", true, true, func(c client.Client) func() error {
			return func() error { return c.List(ctx, &corev1.NodeList{}) }
		}},
		{"say where its switch is", true, true, func(c client.Client) func() error { return status(c, "node1") }},
		{"read whom to trust", true, true, func(c client.Client) func() error {
			return get(c, &corev1.ConfigMap{}, namespace, "netcraq-authorities")
		}},
		{"ask for a switch's certificate", true, true, func(c client.Client) func() error { return create(c, request("netcraq.io/switch")) }},
		{"look at a request", true, true, func(c client.Client) func() error {
			return get(c, &certificates.CertificateSigningRequest{}, "", "there")
		}},
		{"ask for a controller's certificate", false, true, func(c client.Client) func() error { return create(c, request("netcraq.io/controller")) }},
		{"list requests", false, true, func(c client.Client) func() error {
			return func() error { return c.List(ctx, &certificates.CertificateSigningRequestList{}) }
		}},
		{"approve a request", false, true, func(c client.Client) func() error { return approve(c, "there") }},
		{"sign a request", false, true, func(c client.Client) func() error { return sign(c, "there") }},
		{"make the authority", false, true, func(c client.Client) func() error { return create(c, secret(namespace, "netcraq-authority")) }},
		{"read the authority", false, true, func(c client.Client) func() error { return get(c, &corev1.Secret{}, namespace, "netcraq-authority") }},
		{"replace the authority", false, true, func(c client.Client) func() error { return update(c, secret(namespace, "netcraq-authority")) }},
		{"make the list of whom to trust", false, true, func(c client.Client) func() error {
			return create(c, configMap(namespace, "netcraq-authorities", "new"))
		}},
		{"change whom to trust", false, true, func(c client.Client) func() error {
			return update(c, configMap(namespace, "netcraq-authorities", "new"))
		}},
		{"read a chain", false, true, func(c client.Client) func() error { return get(c, &v1alpha1.NetcraqChain{}, "", "main") }},
		{"give a number", false, true, func(c client.Client) func() error { return create(c, number) }},
		{"take a number back", false, true, func(c client.Client) func() error {
			return func() error {
				return c.Delete(ctx, &v1alpha1.NetcraqNode{ObjectMeta: metav1.ObjectMeta{Name: "node2"}}, client.DryRunAll)
			}
		}},
		{"say how a chain is", false, true, func(c client.Client) func() error {
			return func() error {
				n := chain("main", 0)
				if err := admin.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
					return err
				}
				n.Status.Epoch++
				return c.Status().Update(ctx, n)
			}
		}},
		{"hold a chain until it is empty", false, true, func(c client.Client) func() error {
			return func() error {
				n := chain("main", 0)
				if err := admin.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
					return err
				}
				return reconcilers.Hold(ctx, client.NewDryRunClient(c), n, true)
			}
		}},
		{"list pods", true, true, func(c client.Client) func() error {
			return func() error { return c.List(ctx, &corev1.PodList{}) }
		}},
		{"ask what somebody may", true, true, func(c client.Client) func() error {
			return create(c, &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{User: "somebody",
				ResourceAttributes: &authorization.ResourceAttributes{Verb: "get", Resource: "pods"}}})
		}},
		{"lead", false, true, func(c client.Client) func() error { return create(c, lease("netcraq-leader")) }},
		{"tell of a chain", false, true, func(c client.Client) func() error {
			return create(c, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"},
				InvolvedObject: corev1.ObjectReference{Kind: "NetcraqChain", Name: "main"}})
		}},

		{"say where another's switch is", false, false, func(c client.Client) func() error { return status(c, "node2") }},
		{"change a number", false, false, func(c client.Client) func() error {
			return func() error {
				n := number.DeepCopy()
				if err := admin.Get(ctx, client.ObjectKey{Name: "node1"}, n); err != nil {
					return err
				}
				n.Labels = map[string]string{"a": "b"}
				return c.Update(ctx, n)
			}
		}},
		{"make another Secret", false, false, func(c client.Client) func() error { return create(c, secret(namespace, "mine")) }},
		{"make a Secret elsewhere", false, false, func(c client.Client) func() error { return create(c, secret("kube-system", "netcraq-authority")) }},
		{"read the authority of the version before", false, false, func(c client.Client) func() error { return get(c, &corev1.Secret{}, namespace, "netcraq-ca") }},
		{"make another ConfigMap", false, false, func(c client.Client) func() error { return create(c, configMap(namespace, "mine", "")) }},
		{"ask for a client's certificate of the cluster", false, false, func(c client.Client) func() error { return create(c, request("kubernetes.io/kube-apiserver-client")) }},
		{"approve a request to another signer", false, false, func(c client.Client) func() error { return approve(c, "other") }},
		{"sign a request to another signer", false, false, func(c client.Client) func() error { return sign(c, "other") }},
		{"delete a request", false, false, func(c client.Client) func() error {
			return func() error {
				return c.Delete(ctx, &certificates.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "there"}})
			}
		}},
		{"read another Secret", false, false, func(c client.Client) func() error { return get(c, &corev1.Secret{}, namespace, "other") }},
		{"list Secrets", false, false, func(c client.Client) func() error {
			return func() error { return c.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace)) }
		}},
		{"change another Secret", false, false, func(c client.Client) func() error { return update(c, secret(namespace, "other")) }},
		{"make another Lease", false, false, func(c client.Client) func() error { return create(c, lease("mine")) }},
		{"make a Lease elsewhere", false, false, func(c client.Client) func() error {
			return create(c, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "netcraq-leader"}})
		}},
		{"change a node", false, false, func(c client.Client) func() error {
			return func() error {
				return c.Update(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"},
					Spec: corev1.NodeSpec{Unschedulable: true}})
			}
		}},
		{"change a chain", false, false, func(c client.Client) func() error {
			return func() error {
				n := chain("main", 0)
				if err := admin.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
					return err
				}
				n.Spec.Length = 5
				return c.Update(ctx, n)
			}
		}},
		{"make a chain", false, false, func(c client.Client) func() error { return create(c, chain("mine", 1)) }},
		{"read a pod", false, false, func(c client.Client) func() error { return get(c, &corev1.Pod{}, namespace, "some") }},
		{"change a pod", false, false, func(c client.Client) func() error {
			return func() error {
				return c.Patch(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "some",
					Namespace: namespace}}, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": {"a": "b"}}}`)))
			}
		}},
		{"read another ConfigMap", false, false, func(c client.Client) func() error { return get(c, &corev1.ConfigMap{}, namespace, "kube-root-ca.crt") }},
	} {
		for _, who := range []struct {
			name string
			c    client.Client
			may  bool
		}{{"a worker's agent", worker, c.worker}, {"a control-plane node's agent", leader, c.leader}} {
			err := c.f(who.c)()
			switch {
			case who.may && err != nil:
				t.Errorf("%s may not %s: %v", who.name, c.what, err)
			case !who.may && !apierrors.IsForbidden(err) && !isPolicy(err):
				t.Errorf("%s may %s: %v", who.name, c.what, err)
			}
		}
	}
}

// isPolicy reports whether a ValidatingAdmissionPolicy has refused a request as invalid.
func isPolicy(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

func chain(name string, id int32) *v1alpha1.NetcraqChain {
	return &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NetcraqChainSpec{ID: id, Length: 3, Profile: 128, LeaseMillis: 200,
			Placement: v1alpha1.Placement{Policy: v1alpha1.PlaceHot}}}
}

// TestValidation checks which chains the CRD accepts, and its errors for other chains.
func TestValidation(t *testing.T) {
	s := kubetest.Start(t, kubetest.Options{})
	apply(t, s)
	admin := clientOf(t, s, s.Config.BearerToken)
	ctx := context.Background()
	for _, c := range []struct {
		change func(*v1alpha1.NetcraqChain)
		want   string // part of the expected error; "" means that the chain is accepted
	}{
		{func(*v1alpha1.NetcraqChain) {}, ""},
		{func(c *v1alpha1.NetcraqChain) { c.Spec.LeaseMillis = 0 }, ""},
		{func(c *v1alpha1.NetcraqChain) { c.Spec.Placement.Pins = []string{"/registry/leases/*", "/a"} }, ""},
		{func(c *v1alpha1.NetcraqChain) { c.Spec.Length = 1 }, "spec.length"},
		{func(c *v1alpha1.NetcraqChain) { c.Spec.Length = 9 }, "spec.length"},
		{func(c *v1alpha1.NetcraqChain) { c.Spec.Profile = 256 }, "spec.profile"},
		{func(c *v1alpha1.NetcraqChain) { c.Spec.LeaseMillis = 10 }, "20 to 60000 ms"},
		{func(c *v1alpha1.NetcraqChain) { c.Spec.ID = 254 }, "spec.id"},
		{func(c *v1alpha1.NetcraqChain) { c.Spec.Slots = -1 }, "spec.slots"},
		{func(c *v1alpha1.NetcraqChain) { c.Spec.Placement.Policy = "Warm" }, "spec.placement.policy"},
		{func(c *v1alpha1.NetcraqChain) {
			c.Spec.Placement = v1alpha1.Placement{Policy: v1alpha1.PlaceNone, Pins: []string{"/a"}}
		}, "there can be no pins"},
		{func(c *v1alpha1.NetcraqChain) { c.Spec.Placement.Exclusions = []string{""} }, "exclusions"},
		{func(c *v1alpha1.NetcraqChain) { c.Name = "17" }, "may not be a number"},
	} {
		n := chain("some", 1)
		c.change(n)
		err := admin.Create(ctx, n, client.DryRunAll)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", n.Spec, err, c.want)
		}
	}
	kept := chain("kept", 2)
	must(t, admin.Create(ctx, kept))
	for what, change := range map[string]func(*v1alpha1.NetcraqChain){
		"id cannot change":      func(c *v1alpha1.NetcraqChain) { c.Spec.ID = 3 },
		"keeps its slots":       func(c *v1alpha1.NetcraqChain) { c.Spec.Slots = 7 },
		"profile cannot change": func(c *v1alpha1.NetcraqChain) { c.Spec.Profile = 1024 },
	} {
		n := kept.DeepCopy()
		change(n)
		if err := admin.Update(ctx, n); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	// This client does not know the types, so the API server sets the defaults.
	s.Kubectl(t, kubetest.Options{}, "create", "-f", "testdata/least.yaml")
	var least v1alpha1.NetcraqChain
	must(t, admin.Get(ctx, client.ObjectKey{Name: "least"}, &least))
	if want := (v1alpha1.NetcraqChainSpec{Length: 3, Profile: 8192, LeaseMillis: 200,
		Placement: v1alpha1.Placement{Policy: v1alpha1.PlaceHot}}); fmt.Sprint(least.Spec) != fmt.Sprint(want) {
		t.Errorf("defaults: %+v", least.Spec)
	}
	table := s.Kubectl(t, kubetest.Options{}, "get", "ncc", "least")
	if fields := strings.Fields(strings.SplitN(table, "\n", 2)[0]); !slices.Contains(fields, "MEMBERS") ||
		!slices.Contains(fields, "EPOCH") {
		t.Errorf("%s", table)
	}
}
