package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/identity"
)

// AuthoritySecret is the Secret with the authority that signs the agents' certificates.
const AuthoritySecret = "netcraq-ca"

// authority reads the cluster's authority, which the first agent makes.
func authority(ctx context.Context, r client.Reader, w client.Writer, namespace string) (*identity.Authority, error) {
	key := client.ObjectKey{Namespace: namespace, Name: AuthoritySecret}
	var s corev1.Secret
	err := r.Get(ctx, key, &s)
	if apierrors.IsNotFound(err) {
		cert, private, err := identity.NewAuthority()
		if err != nil {
			return nil, err
		}
		immutable := true
		mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Type: corev1.SecretTypeTLS, Immutable: &immutable,
			Data: map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: private}}
		if err := w.Create(ctx, mine); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("making the Secret %s: %w", key, err)
		}
		// Another agent may have been faster. What is there counts.
		if err := r.Get(ctx, key, &s); err != nil {
			return nil, fmt.Errorf("reading the Secret %s: %w", key, err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("reading the Secret %s: %w", key, err)
	}
	a, err := identity.Load(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("the Secret %s: %w", key, err)
	}
	return a, nil
}
