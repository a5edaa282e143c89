// Package apiobjects helps the agent's packages use objects of the API server. It has the kinds of
// objects (scheme.go), follows all objects of a kind without a reconciler (follow.go), and wakes
// reconcilers (waker.go). It does not interpret the objects.
package apiobjects

import (
	"errors"
	"fmt"

	apps "k8s.io/api/apps/v1"
	authorization "k8s.io/api/authorization/v1"
	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
)

// Scheme returns a scheme with the kinds of objects that the agent reads and writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(apps.AddToScheme(s), authorization.AddToScheme(s), corev1.AddToScheme(s),
		certificates.AddToScheme(s), networking.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("the kinds of objects: %w", err)
	}
	return s, nil
}
