package agentcerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/netcraq/netcraq/cni-plugin/identity"
)

// Service accounts of the agents' two DaemonSets.
const (
	WorkerAccount = "netcraq-agent"
	LeaderAccount = "netcraq-agent-control-plane"
)

// nodeNameExtra is a field of a request for a certificate. It has the node of the pod to which the
// requester's token is bound. (Kubernetes 1.32 has it; in 1.30 it is a feature gate that is on by
// default.)
const nodeNameExtra = "authentication.kubernetes.io/node-name"

// Signer answers the agents' requests for certificates. Each agent that may lead runs a Signer. All
// of them answer, and the first answer counts.
type Signer struct {
	client      client.Client
	authorities *Authorities
	namespace   string
	log         *slog.Logger
}

// NewSigner makes a signer for the requests of the agents of a namespace.
func NewSigner(c client.Client, a *Authorities, namespace string, log *slog.Logger) *Signer {
	return &Signer{client: c, authorities: a, namespace: namespace, log: log}
}

// SetupSigner makes a manager maintain the authority for the agents of a namespace, and answer
// their requests.
func SetupSigner(mgr manager.Manager, namespace string, log *slog.Logger) error {
	a := NewAuthorities(mgr.GetAPIReader(), mgr.GetClient(), namespace, log)
	s := NewSigner(mgr.GetClient(), a, namespace, log)
	if err := errors.Join(mgr.Add(a), s.setup(mgr)); err != nil {
		return fmt.Errorf("signing the agents' certificates: %w", err)
	}
	return nil
}

func (s *Signer) setup(mgr manager.Manager) error {
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool {
		c, ok := o.(*certificates.CertificateSigningRequest)
		if !ok {
			return false
		}
		_, ok = identity.RoleOf(c.Spec.SignerName)
		return ok
	})
	return ctrl.NewControllerManagedBy(mgr).Named("signer").For(&certificates.CertificateSigningRequest{},
		builder.WithPredicates(ours)).Complete(s)
}

// Reconcile implements reconcile.Reconciler.
func (s *Signer) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	var c certificates.CertificateSigningRequest
	if err := s.client.Get(ctx, r.NamespacedName, &c); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	role, ok := identity.RoleOf(c.Spec.SignerName)
	if !ok || len(c.Status.Certificate) > 0 {
		return reconcile.Result{}, nil
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == certificates.CertificateDenied || condition.Type == certificates.CertificateFailed {
			return reconcile.Result{}, nil
		}
	}
	err := s.answer(ctx, role, &c)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil // another agent has answered, or the requester has withdrawn the request
	}
	return reconcile.Result{}, err
}

// answer signs a request, or denies it with a reason. It checks the request even if someone else
// has approved it, because the signature is this authority's.
func (s *Signer) answer(ctx context.Context, role identity.Role, c *certificates.CertificateSigningRequest) error {
	node, err := asker(role, s.namespace, &c.Spec)
	if err == nil {
		err = usages(role, c.Spec.Usages)
	}
	request, wrong := identity.Check(role, node, c.Spec.Request)
	approved := slices.ContainsFunc(c.Status.Conditions, func(o certificates.CertificateSigningRequestCondition) bool {
		return o.Type == certificates.CertificateApproved
	})
	condition := func(kind certificates.RequestConditionType, reason, message string) {
		now := metav1.Now()
		c.Status.Conditions = append(c.Status.Conditions,
			certificates.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue,
				Reason: reason, Message: message,
				LastUpdateTime: now, LastTransitionTime: now})
	}
	if err := errors.Join(err, wrong); err != nil {
		s.log.Warn("a request for a certificate is refused", "request", c.Name, "signer", c.Spec.SignerName, "user", c.Spec.Username, "err", err)
		if approved { // an approved request can no longer be denied
			condition(certificates.CertificateFailed, "NotForWhoAsks", err.Error())
			return s.client.Status().Update(ctx, c)
		}
		condition(certificates.CertificateDenied, "NotForWhoAsks", err.Error())
		return s.client.SubResource("approval").Update(ctx, c)
	}
	authority, err := s.authorities.Signing(ctx)
	if err != nil {
		return err
	}
	certificate, err := authority.Sign(role, node, request, time.Now())
	if err != nil {
		return err
	}
	if !approved {
		condition(certificates.CertificateApproved, "AgentOfItsNode", fmt.Sprintf("a %s's certificate for %s, asked for by its agent", role, node))
		if err := s.client.SubResource("approval").Update(ctx, c); err != nil {
			return err
		}
	}
	c.Status.Certificate = certificate
	if err := s.client.Status().Update(ctx, c); err != nil {
		return err
	}
	s.log.Info("a certificate is signed", "for", node, "role", role.String(), "request", c.Name)
	return nil
}

// asker returns the node whose agent requests a certificate for a role. The API server has
// determined this node. asker ignores all fields that the requester can write.
func asker(role identity.Role, namespace string, spec *certificates.CertificateSigningRequestSpec) (node string,
	err error) {
	prefix := "system:serviceaccount:" + namespace + ":"
	switch {
	case spec.Username == prefix+LeaderAccount:
	case spec.Username == prefix+WorkerAccount && role == identity.Switch:
	case spec.Username == prefix+WorkerAccount:
		return "", fmt.Errorf("%s is of agents that may not lead: no certificate of a %s is for them", spec.Username, role)
	default:
		return "", fmt.Errorf("%s is no agent", spec.Username)
	}
	nodes := spec.Extra[nodeNameExtra]
	if len(nodes) != 1 || nodes[0] == "" {
		return "", errors.New("the token of who asks is bound to no pod on a node (Kubernetes before 1.30 does not say to which)")
	}
	return nodes[0], nil
}

// usages returns an error if the requested key usages are wrong.
func usages(role identity.Role, asked []certificates.KeyUsage) error {
	want := UsagesOf(role)
	if len(asked) == len(want) {
		have := map[certificates.KeyUsage]bool{}
		for _, u := range asked {
			have[u] = true
		}
		if have[want[0]] && have[want[1]] {
			return nil
		}
	}
	return fmt.Errorf("it asks for the usages %q; a %s has %q", asked, role, want)
}

func UsagesOf(role identity.Role) []certificates.KeyUsage {
	return []certificates.KeyUsage{certificates.UsageDigitalSignature,
		map[identity.Role]certificates.KeyUsage{identity.Switch: certificates.UsageServerAuth,
			identity.Controller: certificates.UsageClientAuth}[role]}
}
