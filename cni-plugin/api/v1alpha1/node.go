package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxNodes is the maximum number of nodes in a fabric. Each switch has a port for each other node,
// numbered as that node. The ports after these are for pods.
const MaxNodes = 63

// NetcraqNode is a node's place in the fabric. It has the name of its Node. The leading agent makes
// it and removes it; the node's own agent writes the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ncn,categories=netcraq
// +kubebuilder:printcolumn:name=Number,type=integer,JSONPath=`.spec.number`
// +kubebuilder:printcolumn:name=P4Runtime,type=string,JSONPath=`.status.p4runtime`
// +kubebuilder:printcolumn:name=Engine,type=string,JSONPath=`.status.engine`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type NetcraqNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NetcraqNodeSpec `json:"spec"`
	// +optional
	Status NetcraqNodeStatus `json:"status,omitzero"`
}

// NetcraqNodeSpec is what the leading agent decides about a node.
type NetcraqNodeSpec struct {
	// Number identifies the node among all nodes. It is the lowest number that was free. It is also
	// the P4Runtime device id of the node's switch, the last part of the switch's address, and the
	// port by which other nodes' switches reach the switch.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a node's number cannot change"
	Number int32 `json:"number"`
}

// NetcraqNodeStatus is reported by the node's agent.
type NetcraqNodeStatus struct {
	// P4Runtime is the address of the switch's P4Runtime server (mutual TLS), HOST:PORT.
	// +kubebuilder:validation:MaxLength=64
	P4Runtime string `json:"p4runtime,omitempty"`
	// Agent is the address at which the leader asks for the node's pods (mutual TLS), HOST:PORT.
	// +kubebuilder:validation:MaxLength=64
	Agent string `json:"agent,omitempty"`
	// Engine is the engine that runs the switch's program.
	// +kubebuilder:validation:MaxLength=1024
	Engine string `json:"engine,omitempty"`
}

// NetcraqNodeList is a list of nodes.
//
// +kubebuilder:object:root=true
type NetcraqNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetcraqNode `json:"items"`
}
