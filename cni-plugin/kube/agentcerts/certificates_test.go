package agentcerts

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
)

// TestAuthorities checks that agents that start together share one authority. The authority is
// replaced in steps, and each step is announced before the next one. The announcement must not
// contain a key.
func TestAuthorities(t *testing.T) {
	ctx := t.Context()
	w := testutil.World(t)
	now := time.Now()
	a := &Authorities{read: w, write: w, namespace: "ns", now: func() time.Time { return now }, log: testutil.Quiet}
	testutil.Must(t, a.Maintain(ctx))
	// late saw no Secret, because it read before the other agent made the Secret
	late := &Authorities{read: &lateReader{Reader: w, missing: 1}, write: w, namespace: "ns", now: a.now,
		log: testutil.Quiet}
	if err := late.Maintain(ctx); !apierrors.IsAlreadyExists(err) {
		t.Errorf("two authorities: %v", err)
	}
	testutil.Must(t, late.Maintain(ctx))
	secret := func() (s corev1.Secret) {
		testutil.Must(t, w.Get(ctx, client.ObjectKey{Namespace: "ns", Name: AuthoritySecret}, &s))
		return s
	}
	told := func() string {
		var m corev1.ConfigMap
		testutil.Must(t, w.Get(ctx, client.ObjectKey{Namespace: "ns", Name: AuthoritiesMap}, &m))
		if strings.Contains(m.Data[BundleFile], "PRIVATE") || len(m.Data) != 1 {
			t.Errorf("the ConfigMap tells\n%v", m.Data)
		}
		return m.Data[BundleFile]
	}
	first := secret()
	if told() != string(first.Data[corev1.TLSCertKey]) {
		t.Error("it is not told")
	}
	// The operator requests a new authority with this annotation.
	first.Annotations = map[string]string{ReplaceAnnotation: "please"}
	testutil.Must(t, w.Update(ctx, &first))
	testutil.Must(t, a.Maintain(ctx))
	s := secret()
	if len(s.Annotations) != 0 || len(s.Data[nextCert]) == 0 || len(s.Data[announced]) == 0 ||
		told() != string(s.Data[corev1.TLSCertKey])+string(s.Data[nextCert]) {
		t.Errorf("announced: %v %v", s.Annotations, s.Data)
	}
	testutil.Must(t, late.Maintain(ctx))
	if again := secret(); again.ResourceVersion != s.ResourceVersion {
		t.Error("it is written, and nothing has changed")
	}
	now = now.Add(16 * time.Minute)
	testutil.Must(t, a.Maintain(ctx))
	promotedTo := secret()
	if string(promotedTo.Data[corev1.TLSPrivateKeyKey]) != string(s.Data[nextKey]) ||
		string(promotedTo.Data[previous]) != string(s.Data[corev1.TLSCertKey]) || len(promotedTo.Data[nextKey]) != 0 {
		t.Error("it is not promoted")
	}
	if told() != string(s.Data[nextCert])+string(s.Data[corev1.TLSCertKey]) {
		t.Error("the last one is not trusted any more")
	}
	if _, err := a.Signing(ctx); err != nil {
		t.Error(err)
	}
	now = now.Add(8 * 24 * time.Hour)
	testutil.Must(t, a.Maintain(ctx))
	if told() != string(s.Data[nextCert]) || len(secret().Data[previous]) != 0 {
		t.Error("the last one is trusted yet")
	}
	// An authority that was not announced must not sign.
	testutil.Must(t, a.announce(ctx, first.Data[corev1.TLSCertKey]))
	if _, err := a.Signing(ctx); err == nil || !strings.Contains(err.Error(), "does not have the authority that signs") {
		t.Error(err)
	}
	// A damaged Secret is an error, and no agent replaces it.
	s = secret()
	s.Data[corev1.TLSPrivateKeyKey] = []byte("x")
	testutil.Must(t, w.Update(ctx, &s))
	if err := a.Maintain(ctx); err == nil || !strings.Contains(err.Error(), "Secret ns/netcraq-authority") {
		t.Error(err)
	}
}

const (
	workerName = "system:serviceaccount:ns:netcraq-agent"
	leaderName = "system:serviceaccount:ns:netcraq-agent-control-plane"
)

// csr returns a request for a certificate as the API server stores it, with its author.
func csr(t *testing.T, name, user, tokensNode string, role identity.Role,
	forNode string) *certificates.CertificateSigningRequest {
	t.Helper()
	_, request, err := identity.NewRequest(role, forNode)
	testutil.Must(t, err)
	c := &certificates.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificates.CertificateSigningRequestSpec{Request: request, SignerName: role.Signer(),
			Usages: UsagesOf(role), Username: user}}
	if tokensNode != "" {
		c.Spec.Extra = map[string]certificates.ExtraValue{nodeNameExtra: {tokensNode}}
	}
	return c
}

// TestSigner checks that agents get certificates for their own node and roles. All other requests
// must be refused.
func TestSigner(t *testing.T) {
	change := func(c *certificates.CertificateSigningRequest,
		f func(*certificates.CertificateSigningRequest)) *certificates.CertificateSigningRequest {
		f(c)
		return c
	}
	approve := func(c *certificates.CertificateSigningRequest) {
		c.Status.Conditions = []certificates.CertificateSigningRequestCondition{{Type: certificates.CertificateApproved,
			Status: corev1.ConditionTrue}}
	}
	_, leaders, err := identity.NewRequest(identity.Controller, "n1")
	testutil.Must(t, err)
	for _, c := range []struct {
		what    string
		request *certificates.CertificateSigningRequest
		refused string // part of the reason for a refusal; "" means that the request is signed
	}{
		{"a worker, for its own switch", csr(t, "a", workerName, "n1", identity.Switch, "n1"), ""},
		{"a control-plane node, for its own switch", csr(t, "a", leaderName, "n1", identity.Switch, "n1"), ""},
		{"a control-plane node, for a controller", csr(t, "a", leaderName, "n1", identity.Controller, "n1"), ""},
		{"one that somebody has approved", change(csr(t, "a", workerName, "n1", identity.Switch, "n1"), approve), ""},
		{"a worker, for another node's switch", csr(t, "a", workerName, "n1", identity.Switch, "n2"), `it is for ["n2"], and who asks is on the node "n1"`},
		{"... which somebody has approved", change(csr(t, "a", workerName, "n1", identity.Switch, "n2"), approve), "who asks is on the node"},
		{"a worker, for a controller", csr(t, "a", workerName, "n1", identity.Controller, "n1"), "agents that may not lead"},
		{"... which somebody has approved", change(csr(t, "a", workerName, "n1", identity.Controller, "n1"), approve), "agents that may not lead"},
		{"a control-plane node, for a controller on another", csr(t, "a", leaderName, "n1", identity.Controller, "n2"), "who asks is on the node"},
		{"a controller's request to the switches' signer", change(csr(t, "a", workerName, "n1", identity.Switch, "n1"), func(c *certificates.CertificateSigningRequest) {
			c.Spec.Request = leaders
		}), "its subject is"},
		{"the usages of both ends", change(csr(t, "a", workerName, "n1", identity.Switch, "n1"), func(c *certificates.CertificateSigningRequest) {
			c.Spec.Usages = append(c.Spec.Usages, certificates.UsageClientAuth)
		}), "it asks for the usages"},
		{"a controller's usages for a switch", change(csr(t, "a", workerName, "n1", identity.Switch, "n1"), func(c *certificates.CertificateSigningRequest) {
			c.Spec.Usages = UsagesOf(identity.Controller)
		}), "it asks for the usages"},
		{"a token that is bound to no pod", csr(t, "a", workerName, "", identity.Switch, "n1"), "bound to no pod"},
		{"two nodes", change(csr(t, "a", workerName, "n1", identity.Switch, "n1"), func(c *certificates.CertificateSigningRequest) {
			c.Spec.Extra[nodeNameExtra] = certificates.ExtraValue{"n1", "n2"}
		}), "bound to no pod"},
		{"another account", csr(t, "a", "system:serviceaccount:ns:default", "n1", identity.Switch, "n1"), "is no agent"},
		{"an account of this name elsewhere", csr(t, "a", "system:serviceaccount:other:netcraq-agent", "n1", identity.Switch, "n1"), "is no agent"},
		{"a kubelet", csr(t, "a", "system:node:n1", "n1", identity.Switch, "n1"), "is no agent"},
		{"the administrator", csr(t, "a", "kubernetes-admin", "", identity.Controller, "n1"), "is no agent"},
	} {
		w := testutil.World(t, c.request)
		a := &Authorities{read: w, write: w, namespace: "ns", now: time.Now, log: testutil.Quiet}
		testutil.Must(t, a.Maintain(t.Context()))
		s := &Signer{client: w, authorities: a, namespace: "ns", log: testutil.Quiet}
		r := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c.request)}
		for range 2 { // the second reconciliation changes nothing
			if _, err := s.Reconcile(t.Context(), r); err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
		}
		var got certificates.CertificateSigningRequest
		testutil.Must(t, w.Get(t.Context(), r.NamespacedName, &got))
		if len(got.Status.Conditions) > 2 {
			t.Errorf("%s: it is answered again and again: %v", c.what, got.Status.Conditions)
		}
		last := got.Status.Conditions[len(got.Status.Conditions)-1]
		if c.refused != "" {
			if len(got.Status.Certificate) > 0 || last.Type != certificates.CertificateDenied &&
				last.Type != certificates.CertificateFailed || !strings.Contains(last.Message, c.refused) {
				t.Errorf("%s: %+v, want %q", c.what, got.Status, c.refused)
			}
			continue
		}
		if len(got.Status.Certificate) == 0 || last.Type != certificates.CertificateApproved {
			t.Errorf("%s: %+v", c.what, got.Status)
		}
	}
	// A request to another signer is not answered.
	other := csr(t, "a", workerName, "n1", identity.Switch, "n1")
	other.Spec.SignerName = "kubernetes.io/kubelet-serving"
	w := testutil.World(t, other)
	s := &Signer{client: w, namespace: "ns", log: testutil.Quiet}
	if _, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(
		other)}); err != nil {
		t.Error(err)
	}
	testutil.Must(t, w.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	if len(other.Status.Conditions) != 0 {
		t.Errorf("%v", other.Status)
	}
}

// asAgent is a client that writes like an API server: it adds the author of a request and the
// author's node.
type asAgent struct {
	client.Client
	user, node string
}

func (a asAgent) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if c, ok := o.(*certificates.CertificateSigningRequest); ok {
		c.Spec.Username, c.Spec.Extra = a.user, map[string]certificates.ExtraValue{nodeNameExtra: {a.node}}
	}
	return a.Client.Create(ctx, o, opts...)
}

// TestKeeper checks that an agent waits for the control plane and reports the reason. The agent
// makes one request, and has a certificate as soon as another agent has signed it. Its key must
// never leave its memory.
func TestKeeper(t *testing.T) {
	ctx := t.Context()
	w := testutil.World(t)
	id := identity.New("n1")
	k := &Keeper{identity: id, roles: []identity.Role{identity.Switch}, node: "n1", read: w,
		write: asAgent{w, workerName, "n1"}, namespace: "ns", log: testutil.Quiet, asked: map[identity.Role]*asked{}}
	says := func(want string) {
		t.Helper()
		err := k.Refresh(ctx)
		if want == "" && err == nil {
			return
		}
		if err == nil || want == "" || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %q", err, want)
		}
	}
	says("an agent on a control-plane node (--etcd) makes it")
	a := &Authorities{read: w, write: w, namespace: "ns", now: time.Now, log: testutil.Quiet}
	testutil.Must(t, a.Maintain(ctx))
	says("waits for an agent on a control-plane node (--etcd), which signs it")
	says("waits for an agent on a control-plane node (--etcd), which signs it")
	requests := func() []certificates.CertificateSigningRequest {
		var list certificates.CertificateSigningRequestList
		testutil.Must(t, w.List(ctx, &list))
		return list.Items
	}
	if n := len(requests()); n != 1 {
		t.Fatalf("it has asked %d times", n)
	}
	s := &Signer{client: w, authorities: a, namespace: "ns", log: testutil.Quiet}
	sign := func() {
		for _, r := range requests() {
			_, err := s.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&r)})
			testutil.Must(t, err)
		}
	}
	sign()
	says("")
	if id.Expires(identity.Switch).Before(time.Now().Add(6 * 24 * time.Hour)) {
		t.Errorf("it ends on %v", id.Expires(identity.Switch))
	}
	says("")
	if n := len(requests()); n != 1 {
		t.Errorf("it has asked %d times, with a certificate", n)
	}
	for _, r := range requests() {
		if strings.Contains(string(r.Spec.Request), "PRIVATE") {
			t.Error("its key went away with the request")
		}
	}
	// When another authority signs, the keeper makes a new request.
	var secret corev1.Secret
	testutil.Must(t, w.Get(ctx, client.ObjectKey{Namespace: "ns", Name: AuthoritySecret}, &secret))
	testutil.Must(t, w.Delete(ctx, &secret))
	testutil.Must(t, a.Maintain(ctx))
	says("waits for an agent")
	sign()
	says("")
	// A request for another node is refused with a reason. The keeper makes a new request later.
	liar := &Keeper{identity: identity.New("n2"), roles: k.roles, node: "n2", read: w, write: k.write,
		namespace: "ns", log: testutil.Quiet, asked: map[identity.Role]*asked{}}
	if err := liar.Refresh(ctx); err == nil {
		t.Error("it was not asked to wait")
	}
	sign()
	if err := liar.Refresh(ctx); err == nil || !strings.Contains(err.Error(), `who asks is on the node "n1"`) {
		t.Error(err)
	}
	liar.asked[identity.Switch].when = time.Now().Add(-time.Minute)
	if err := liar.Refresh(ctx); err == nil || liar.asked[identity.Switch] != nil {
		t.Errorf("%v, %v", err, liar.asked)
	}
}

// refusing is a reader that is not permitted to read a certain Secret.
type refusing struct {
	client.Reader
	forbid *bool
}

func (r refusing) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*corev1.Secret); ok && *r.forbid {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, k.Name, errors.New("no"))
	}
	return r.Reader.Get(ctx, k, o, opts...)
}

// TestLegacySecret checks that agents trust the previous version's authority only while its Secret
// exists and they may read it.
func TestLegacySecret(t *testing.T) {
	ctx := t.Context()
	old, err := identity.NewAuthority(time.Now())
	testutil.Must(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: LegacySecret},
		Data: map[string][]byte{corev1.TLSCertKey: old.Certificate, corev1.TLSPrivateKeyKey: old.Key}}
	w := testutil.World(t, secret)
	forbid := false
	k := &Keeper{identity: identity.New("n1"), node: "n1", read: refusing{w, &forbid}, write: w, namespace: "ns",
		log: testutil.Quiet}
	believed := func(want bool) {
		t.Helper()
		testutil.Must(t, k.believe(ctx))
		if (k.legacy != nil) != want {
			t.Errorf("%v, want %v", k.legacy, want)
		}
	}
	believed(true)
	first := k.legacy
	believed(true)
	if k.legacy != first {
		t.Error("it is read anew, and has not changed")
	}
	forbid = true
	believed(false)
	forbid = false
	believed(true)
	testutil.Must(t, w.Delete(ctx, secret))
	believed(false)
}

type lateReader struct {
	client.Reader
	missing int
}

func (l *lateReader) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if l.missing > 0 {
		l.missing--
		k.Name += "-not-yet"
	}
	return l.Reader.Get(ctx, k, o, opts...)
}
