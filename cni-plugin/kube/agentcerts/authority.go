// Package agentcerts gives agents their certificates, through objects of the API server.
// authority.go maintains the signing authority and the authorities that all agents trust. signer.go
// answers requests for certificates. keeper.go makes such requests for its own node. Package
// identity has everything that needs no API server: keys, certificates, and the schedule for
// replacing an authority.
package agentcerts

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/kube/logonce"
)

// A Secret has the authority that signs the agents' certificates. Only agents that may lead can
// read it. A ConfigMap has the authorities that all agents trust. Only agents that may lead can
// write it. The first of these agents that checks takes the next step of a replacement. The API
// server's conflict detection ensures that only one agent does so.

const (
	// AuthoritySecret is the name of the Secret with the signing authority.
	AuthoritySecret = "netcraq-authority"
	// AuthoritiesMap is the name of the ConfigMap with the certificates of the trusted authorities.
	AuthoritiesMap = "netcraq-authorities"
	// LegacySecret is the Secret with the authority of the previous version. Every agent of that
	// version could read it. Agents trust this authority while the Secret exists, so that agents
	// can be replaced one after the other.
	LegacySecret = "netcraq-ca"
	// ReplaceAnnotation is an annotation of the Secret. It requests a new authority, whatever its
	// value is.
	ReplaceAnnotation = "netcraq.io/replace"
)

// Further keys of the Secret in addition to tls.crt and tls.key, and the key of the ConfigMap.
const (
	nextCert   = "next.crt"
	nextKey    = "next.key"
	announced  = "announced" // a time in the form of RFC 3339
	previous   = "previous.crt"
	promoted   = "promoted"
	BundleFile = "ca.crt"
)

// lookForCertificates is the interval at which an agent checks which authorities to trust, and
// whether it needs a new certificate.
const lookForCertificates = 30 * time.Second

// Authorities maintains the Secret and the ConfigMap.
type Authorities struct {
	read      client.Reader // reads without the cache
	write     client.Writer
	namespace string
	now       func() time.Time
	log       *slog.Logger
}

// NewAuthorities makes an Authorities for the agents of a namespace. read must not use the cache.
func NewAuthorities(read client.Reader, write client.Writer, namespace string, log *slog.Logger) *Authorities {
	return &Authorities{read: read, write: write, namespace: namespace, now: time.Now, log: log}
}

// readState reads a State from a Secret.
func readState(s *corev1.Secret) (identity.State, error) {
	st := identity.State{Signing: identity.Pair{Certificate: s.Data[corev1.TLSCertKey],
		Key: s.Data[corev1.TLSPrivateKeyKey]}, Previous: s.Data[previous]}
	if len(s.Data[nextCert]) > 0 {
		st.Next = &identity.Pair{Certificate: s.Data[nextCert], Key: s.Data[nextKey]}
	}
	for key, into := range map[string]*time.Time{announced: &st.Announced, promoted: &st.Promoted} {
		if text := s.Data[key]; len(text) > 0 {
			t, err := time.Parse(time.RFC3339, string(text))
			if err != nil {
				return st, fmt.Errorf("the Secret %s: %s: %w", s.Name, key, err)
			}
			*into = t
		}
	}
	return st, nil
}

// writeState writes a State into a Secret.
func writeState(s *corev1.Secret, st identity.State) {
	s.Data = map[string][]byte{corev1.TLSCertKey: st.Signing.Certificate, corev1.TLSPrivateKeyKey: st.Signing.Key}
	if st.Next != nil {
		s.Data[nextCert], s.Data[nextKey] = st.Next.Certificate, st.Next.Key
	}
	if st.Previous != nil {
		s.Data[previous] = st.Previous
	}
	for key, t := range map[string]time.Time{announced: st.Announced, promoted: st.Promoted} {
		if !t.IsZero() {
			s.Data[key] = []byte(t.UTC().Format(time.RFC3339))
		}
	}
}

// Maintain creates the authority if it does not exist. It takes the next step of a replacement if
// the step is due, and updates the ConfigMap.
func (a *Authorities) Maintain(ctx context.Context) error {
	key := client.ObjectKey{Namespace: a.namespace, Name: AuthoritySecret}
	var s corev1.Secret
	err := a.read.Get(ctx, key, &s)
	there := err == nil
	if apierrors.IsNotFound(err) {
		s = corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Type: corev1.SecretTypeTLS}
	} else if err != nil {
		return fmt.Errorf("reading the authority of the agents' certificates: %w", err)
	}
	st, err := readState(&s)
	if err != nil {
		return err
	}
	_, replace := s.Annotations[ReplaceAnnotation]
	what, err := st.Step(a.now(), replace)
	if err != nil {
		return fmt.Errorf("the Secret %s: %w", key, err)
	}
	save := func() error {
		writeState(&s, st)
		if !there {
			return a.write.Create(ctx, &s)
		}
		return a.write.Update(ctx, &s)
	}
	if what != "" {
		if st.Next != nil {
			delete(s.Annotations, ReplaceAnnotation)
		}
		if err := save(); err != nil {
			return fmt.Errorf("the Secret %s: %w", key, err) // a conflict here may mean that another agent was faster
		}
		a.log.Info("the agents' authority", "step", what)
		there = true
	}
	if err := a.announce(ctx, st.Bundle()); err != nil {
		return err
	}
	if st.Next != nil && st.Announced.IsZero() { // from here on, all agents can see the next authority
		st.Announced = a.now()
		if err := save(); err != nil {
			return fmt.Errorf("the Secret %s: %w", key, err)
		}
	}
	return nil
}

// announce writes the certificates of the trusted authorities into the ConfigMap.
func (a *Authorities) announce(ctx context.Context, bundle []byte) error {
	key := client.ObjectKey{Namespace: a.namespace, Name: AuthoritiesMap}
	var m corev1.ConfigMap
	err := a.read.Get(ctx, key, &m)
	switch {
	case apierrors.IsNotFound(err):
		m = corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Data: map[string]string{BundleFile: string(bundle)}}
		err = a.write.Create(ctx, &m)
	case err == nil && m.Data[BundleFile] != string(bundle):
		m.Data = map[string]string{BundleFile: string(bundle)}
		err = a.write.Update(ctx, &m)
	}
	if err != nil {
		return fmt.Errorf("the ConfigMap %s, which says what agents trust: %w", key, err)
	}
	return nil
}

// Start implements manager.Runnable. It maintains the authorities until ctx ends.
func (a *Authorities) Start(ctx context.Context) error {
	var failed logonce.Last
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		err := a.Maintain(ctx)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			err = a.Maintain(ctx) // after a conflict, another agent has taken the step
		}
		if failed.IsNew(err) {
			a.log.Error("the authority of the agents' certificates is not kept", "err", err)
		}
	}, lookForCertificates, 0.2, true)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns false, because agents
// that do not lead run Start, too.
func (a *Authorities) NeedLeaderElection() bool { return false }

// Signing returns the signing authority. All agents already trust it.
func (a *Authorities) Signing(ctx context.Context) (*identity.Authority, error) {
	var s corev1.Secret
	if err := a.read.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: AuthoritySecret}, &s); err != nil {
		return nil, fmt.Errorf("reading the authority of the agents' certificates: %w", err)
	}
	var m corev1.ConfigMap
	if err := a.read.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: AuthoritiesMap}, &m); err != nil {
		return nil, fmt.Errorf("reading what agents trust: %w", err)
	}
	st, err := readState(&s)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains([]byte(m.Data[BundleFile]), st.Signing.Certificate) {
		return nil, fmt.Errorf("the ConfigMap %s does not have the authority that signs", AuthoritiesMap)
	}
	return identity.Load(st.Signing)
}
