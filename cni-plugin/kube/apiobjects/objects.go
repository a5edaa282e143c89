package apiobjects

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Key returns the key of an object that has no namespace.
func Key(name string) client.ObjectKey { return client.ObjectKey{Name: name} }

// IgnoreGone returns nil for an error about an object that was deleted or changed meanwhile. Such a
// change triggers another reconciliation anyway.
func IgnoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
