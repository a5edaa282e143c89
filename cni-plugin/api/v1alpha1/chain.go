package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NetcraqChain is a chain of nodes' switches that holds keys. Its members are chosen from the nodes
// whose agents run. A member that fails leaves the chain, and another switch joins before the tail.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ncc,categories=netcraq
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Length,type=integer,JSONPath=`.status.length`
// +kubebuilder:printcolumn:name=Wanted,type=integer,JSONPath=`.spec.length`
// +kubebuilder:printcolumn:name=Members,type=string,JSONPath=`.status.order`
// +kubebuilder:printcolumn:name=Epoch,type=integer,JSONPath=`.status.epoch`
// +kubebuilder:printcolumn:name=Keys,type=integer,JSONPath=`.status.placedKeys`
// +kubebuilder:printcolumn:name=Address,type=string,JSONPath=`.status.serviceAddress`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.matches('^[0-9]+$')",message="a chain's name may not be a number: it would be mistaken for an id"
type NetcraqChain struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NetcraqChainSpec `json:"spec"`
	// +optional
	Status NetcraqChainStatus `json:"status,omitzero"`
}

// NetcraqChainSpec is the wanted chain.
//
// +kubebuilder:validation:XValidation:rule="(has(self.slots) ? self.slots : 0) == (has(oldSelf.slots) ? oldSelf.slots : 0)",message="a chain keeps its slots: make another chain"
type NetcraqChainSpec struct {
	// ID is the top byte of the KEY_IDs of the chain's keys. It is chosen once and never changes,
	// because clients and the keys' directory know the chain by it.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a chain's id cannot change: make another chain"
	// +kubebuilder:default=0
	ID int32 `json:"id"`
	// Length is the number of switches in the healthy chain. The chain forms with at least two.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=8
	// +kubebuilder:default=3
	Length int32 `json:"length,omitempty"`
	// Profile is the width of a value in bits. All switches run one program, so all chains have the
	// profile of the oldest one.
	// +kubebuilder:validation:Enum=128;1024;4096;8192
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a chain's profile cannot change, because values would be lost: delete the chains and make them again"
	// +kubebuilder:default=8192
	Profile int32 `json:"profile,omitempty"`
	// Slots is the number of keys the chain may hold. 0 gives it an equal share of the program's
	// slots. The first chain's share is all of them, so set Slots if there will be several chains.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=131072
	// +optional
	Slots int32 `json:"slots,omitempty"`
	// LeaseMillis is the read lease in milliseconds. A switch that is cut off from the controller
	// stops answering reads within this time. 0 means no lease: the paper's fail-stop assumption.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60000
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 20",message="a lease is 0 (none) or 20 to 60000 ms"
	// +kubebuilder:default=200
	LeaseMillis int32 `json:"leaseMillis"`
	// NodeSelector has labels. Only nodes with all these labels may be members. Without labels, all
	// nodes may be members.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// ExcludedNodes are nodes that may not be members, whatever labels they have. A member that is
	// excluded later leaves the chain.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	ExcludedNodes []string `json:"excludedNodes,omitempty"`
	// Placement says which keys of the cluster's etcd the chain serves.
	// +kubebuilder:default={policy: Hot}
	// +optional
	Placement Placement `json:"placement,omitzero"`
}

// Placement says which etcd keys a chain serves.
//
// +kubebuilder:validation:XValidation:rule="self.policy != 'None' || !has(self.pins) || size(self.pins) == 0",message="with the policy None nothing is placed, so there can be no pins"
type Placement struct {
	// Policy is Hot (the keys that are read most, and the pinned keys), Pinned (only the pinned
	// keys) or None.
	// +kubebuilder:validation:Enum=Hot;Pinned;None
	// +kubebuilder:default=Hot
	Policy PlacementPolicy `json:"policy,omitempty"`
	// Pins are etcd keys that are placed even if they are read seldom. A trailing * pins all keys
	// with a prefix, for example /registry/leases/kube-system/*.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	// +optional
	Pins []string `json:"pins,omitempty"`
	// Exclusions are etcd keys, or prefixes with a trailing *, that are never placed.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	// +optional
	Exclusions []string `json:"exclusions,omitempty"`
}

// PlacementPolicy says which keys a chain serves.
type PlacementPolicy string

// DefaultProfile is the width of a value in bits for chains without a profile.
const DefaultProfile = 8192

// The placement policies.
const (
	PlaceHot    PlacementPolicy = "Hot"
	PlacePinned PlacementPolicy = "Pinned"
	PlaceNone   PlacementPolicy = "None"
)

// Lease is the read lease.
func (s *NetcraqChainSpec) Lease() time.Duration {
	return time.Duration(s.LeaseMillis) * time.Millisecond
}

// NetcraqChainStatus is a chain's state.
type NetcraqChainStatus struct {
	// ObservedGeneration is the generation of the spec that this status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ServiceAddress is the IPv4 address that clients send to.
	ServiceAddress string `json:"serviceAddress,omitempty"`
	// Epoch is the epoch of the chain's configuration, 16 bits.
	Epoch int32 `json:"epoch,omitempty"`
	// Length is the number of members.
	Length int32 `json:"length,omitempty"`
	// Members are the chain's members in order, head first.
	// +listType=map
	// +listMapKey=node
	Members []Member `json:"members,omitempty"`
	// Order has the names of the members in one line, for kubectl's tables.
	Order string `json:"order,omitempty"`
	// PlacedKeys is the number of keys the chain holds.
	PlacedKeys int32 `json:"placedKeys"`
	// Slots is the number of keys the chain can hold.
	Slots int32 `json:"slots,omitempty"`
	// Conditions are Accepted (the spec is possible), Ready (every member has the configuration and
	// a live lease), and FullLength (the chain has as many members as its spec wants).
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Member is a node's switch in a chain.
type Member struct {
	Node string `json:"node"`
	// Role is HEAD, REPLICA, TAIL, HEAD_TAIL, SHADOW or NONE.
	Role string `json:"role"`
	// Ready reports whether the member has the chain's configuration and may answer reads.
	Ready bool `json:"ready"`
}

// The types of conditions in a chain's status.
const (
	ConditionAccepted   = "Accepted"
	ConditionReady      = "Ready"
	ConditionFullLength = "FullLength"
)

// NetcraqChainList is a list of chains.
//
// +kubebuilder:object:root=true
type NetcraqChainList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetcraqChain `json:"items"`
}
