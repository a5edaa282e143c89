package nodeview

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Changed is a predicate that ignores a kubelet's heartbeats.
var Changed = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	a, ok := e.ObjectOld.(*corev1.Node)
	b, ok2 := e.ObjectNew.(*corev1.Node)
	return !ok || !ok2 || !reflect.DeepEqual(FromNode(a), FromNode(b))
}}
