// Package v1alpha1 holds NetCRAQ's Kubernetes resources. A [NetcraqChain] is a user's request for a
// chain over some of the nodes' switches. A [NetcraqNode] has the number that the leading agent
// gives to a node, and the status of the node's switch that the node's agent reports. Both are
// cluster-scoped, as nodes are.
//
// zz_generated.deepcopy.go and the definitions (cni-plugin/deploy/crd) are made from the comments
// and markers here by `go generate`.
//
// +kubebuilder:object:generate=true
// +groupName=netcraq.io
package v1alpha1

//go:generate env GOWORK=off go tool -modfile=../generate/go.mod controller-gen object crd:maxDescLen=400 paths=. output:crd:dir=../../deploy/crd

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the resources.
var GroupVersion = schema.GroupVersion{Group: "netcraq.io", Version: "v1alpha1"}

// AddToScheme registers the resources in a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NetcraqChain{}, &NetcraqChainList{}, &NetcraqNode{}, &NetcraqNodeList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
