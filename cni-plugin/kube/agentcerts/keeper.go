package agentcerts

import (
	"context"
	"crypto"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/kube/logonce"
)

const (
	// waitForCertificate is how often the keeper checks for an answer while it waits for a
	// certificate.
	waitForCertificate = time.Second
	// requestLife is how long a request may stay unanswered before the keeper replaces it.
	requestLife = time.Hour
)

// Keeper maintains an agent's identity. It requests new certificates before the current ones
// expire, and follows changes of the trusted authorities. Private keys never leave this process's
// memory.
type Keeper struct {
	identity  *identity.Identity
	roles     []identity.Role
	node      string
	read      client.Reader // reads without the cache
	write     client.Writer
	namespace string
	log       *slog.Logger

	asked  map[identity.Role]*asked
	legacy *identity.Legacy
}

// asked is a request for a certificate that was not answered yet.
type asked struct {
	name string
	key  crypto.Signer
	when time.Time
}

// NewKeeper makes the keeper of a node's identity, for all roles of the node's agent.
func NewKeeper(id *identity.Identity, node, namespace string, roles []identity.Role, read client.Reader,
	write client.Writer, log *slog.Logger) *Keeper {
	return &Keeper{identity: id, roles: roles, node: node, read: read, write: write, namespace: namespace, log: log,
		asked: map[identity.Role]*asked{}}
}

// Run maintains the identity until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var failed logonce.Last
	for {
		err := k.Refresh(ctx)
		if ctx.Err() == nil && failed.IsNew(err) {
			k.log.Warn("this agent's certificates: pods go on, and controllers cannot connect to this node's switch without one", "err", err)
		}
		pause := lookForCertificates
		if err != nil {
			pause = waitForCertificate
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Refresh updates the trusted authorities and renews certificates that are due. It returns an error
// if something is missing or not ready yet.
func (k *Keeper) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := k.believe(ctx); err != nil {
		return err
	}
	var m corev1.ConfigMap
	if err := k.read.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: AuthoritiesMap},
		&m); apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no ConfigMap %s yet, which says whom to trust: an agent on a control-plane node (--etcd) makes it", AuthoritiesMap)
	} else if err != nil {
		return fmt.Errorf("reading whom to trust: %w", err)
	}
	if err := k.identity.Trust([]byte(m.Data[BundleFile])); err != nil {
		return fmt.Errorf("the ConfigMap %s: %w", AuthoritiesMap, err)
	}
	for _, role := range k.roles {
		if k.asked[role] == nil && !k.identity.Due(role) {
			continue
		}
		if err := k.obtain(ctx, role); err != nil {
			return fmt.Errorf("a %s's certificate: %w", role, err)
		}
	}
	return nil
}

// believe trusts the previous version's authority while its Secret exists and the agent may read
// it.
func (k *Keeper) believe(ctx context.Context) error {
	var s corev1.Secret
	err := k.read.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: LegacySecret}, &s)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		if k.legacy != nil {
			k.log.Info("the authority of the version before is not believed any more")
		}
		k.legacy = nil
		k.identity.Believe(nil)
		return nil
	case err != nil:
		return fmt.Errorf("whether there is an authority of the version before: %w", err)
	case k.legacy != nil && k.legacy.Same(s.Data[corev1.TLSCertKey]):
		return nil
	}
	l, err := identity.LoadLegacy(identity.Pair{Certificate: s.Data[corev1.TLSCertKey],
		Key: s.Data[corev1.TLSPrivateKeyKey]})
	if err != nil {
		return fmt.Errorf("the Secret %s: %w", LegacySecret, err)
	}
	k.log.Warn("the authority of the version before is believed until its Secret is deleted, which is to be done when all agents are of this version (docs/kubernetes.md)", "secret", LegacySecret)
	k.legacy = l
	k.identity.Believe(l)
	return nil
}

// obtain requests a certificate for a role. If there is already a request, it checks whether the
// request was answered.
func (k *Keeper) obtain(ctx context.Context, role identity.Role) error {
	a := k.asked[role]
	if a == nil || time.Since(a.when) > requestLife {
		key, request, err := identity.NewRequest(role, k.node)
		if err != nil {
			return err
		}
		c := &certificates.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "netcraq-" +
			role.String() + "-"},
			Spec: certificates.CertificateSigningRequestSpec{Request: request, SignerName: role.Signer(),
				Usages: UsagesOf(role)}}
		if err := k.write.Create(ctx, c); err != nil {
			return fmt.Errorf("asking for it: %w", err)
		}
		a = &asked{c.Name, key, time.Now()}
		k.asked[role] = a
	}
	var c certificates.CertificateSigningRequest
	if err := k.read.Get(ctx, client.ObjectKey{Name: a.name}, &c); err != nil {
		if apierrors.IsNotFound(err) {
			delete(k.asked, role)
		}
		return fmt.Errorf("the request %s: %w", a.name, err)
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == certificates.CertificateDenied || condition.Type == certificates.CertificateFailed {
			if time.Since(a.when) > lookForCertificates { // the keeper will make a new request
				delete(k.asked, role)
			}
			return fmt.Errorf("the request %s was refused: %s", a.name, condition.Message)
		}
	}
	if len(c.Status.Certificate) == 0 {
		return fmt.Errorf("the request %s waits for an agent on a control-plane node (--etcd), which signs it", a.name)
	}
	delete(k.asked, role)
	if err := k.identity.Install(role, a.key, c.Status.Certificate); err != nil {
		return err
	}
	k.log.Info("this agent has a certificate", "role", role.String(), "until", k.identity.Expires(role).Format(time.RFC3339))
	return nil
}

// Metrics returns collectors for the expiry times of the certificates.
func (k *Keeper) Metrics() []prometheus.Collector {
	var out []prometheus.Collector
	for _, role := range k.roles {
		out = append(out, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "netcraq_agent_certificate_expiry_timestamp_seconds",
			Help: "When this agent's certificate ends (Unix time); 0: it has none.", ConstLabels: prometheus.Labels{"role": role.String()}}, func() float64 {
			if t := k.identity.Expires(role); !t.IsZero() {
				return float64(t.Unix())
			}
			return 0
		}))
	}
	return out
}
