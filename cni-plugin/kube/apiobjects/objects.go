package apiobjects

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Key is that of an object that is in no namespace.
func Key(name string) client.ObjectKey { return client.ObjectKey{Name: name} }

// IgnoreGone: an object that was deleted or changed meanwhile is looked at again, because that is a
// change.
func IgnoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
