package apiobjects

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Key is the key of an object without a namespace.
func Key(name string) client.ObjectKey { return client.ObjectKey{Name: name} }

// IgnoreGone ignores errors of an object that was deleted or changed meanwhile, because that change
// triggers another reconciliation.
func IgnoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
