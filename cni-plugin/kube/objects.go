package kube

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func clientKey(name string) client.ObjectKey { return client.ObjectKey{Name: name} }

// ignoreGone: an object that was deleted or changed meanwhile is looked at again, because that is a
// change.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
