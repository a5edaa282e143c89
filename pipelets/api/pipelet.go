// Package pipeletapi defines the Kubernetes resource Pipelet, which declares that records are
// copied from sources to destinations.
//
// "go generate" makes zz_generated.deepcopy.go and the CRD (pipelets/deploy/crd) from the types and
// comments in this file.
//
// +kubebuilder:object:generate=true
// +groupName=netcraq.io
// +versionName=v1alpha1
package pipeletapi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate env GOWORK=off go tool -modfile=../../cni-plugin/api/generate/go.mod controller-gen object crd:maxDescLen=400,allowDangerousTypes=true paths=. output:crd:dir=../deploy/crd

// These are the API version and the kind of a Pipelet.
const (
	APIVersion = "netcraq.io/v1alpha1"
	Kind       = "Pipelet"
)

// GroupVersion is the API group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "netcraq.io", Version: "v1alpha1"}

// AddToScheme adds the types in this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Pipelet{}, &PipeletList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Pipelet declares that records are copied from sources to destinations.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=pl,categories=netcraq
// +kubebuilder:printcolumn:name=State,type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name=Lag,type=string,JSONPath=`.status.lag`
// +kubebuilder:printcolumn:name=Records/s,type=string,JSONPath=`.status.rate`
// +kubebuilder:printcolumn:name=Rows,type=integer,JSONPath=`.status.rows`
// +kubebuilder:printcolumn:name=Replica,type=string,JSONPath=`.status.assigned`,priority=1
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.lastError`,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type Pipelet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec Spec `json:"spec"`
	// +optional
	Status Status `json:"status,omitempty"`
}

// PipeletList is a list of pipelets.
//
// +kubebuilder:object:root=true
type PipeletList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Pipelet `json:"items"`
}

// These are the values of Status.State.
const (
	Starting  = "Starting"
	Running   = "Running"
	Failing   = "Failing"   // a worker cannot continue at present, and tries again
	Invalid   = "Invalid"   // the specification is not valid
	Suspended = "Suspended" // the specification requests that the pipelet does not run
)

// Ready is the type of the condition that says that all workers run.
const Ready = "Ready"

// Status is a pipelet's status.
type Status struct {
	// State is Starting, Running, Failing, Invalid or Suspended.
	State string `json:"state,omitempty"`
	// Assigned is the replica of the operator that should run the pipelet.
	Assigned string `json:"assigned,omitempty"`
	// Lag is the time, in seconds, for which the slowest worker has had records that it has not
	// written. The value 0 means that all known records are written.
	Lag string `json:"lag,omitempty"`
	// Rate is the number of records per second that all workers have written, averaged over about
	// ten seconds.
	Rate string `json:"rate,omitempty"`
	// Rows is the number of rows that all workers have written since the pipelet was created.
	Rows int64 `json:"rows,omitempty"`
	// LastError is the last error, even if the pipelet has recovered.
	LastError string `json:"lastError,omitempty"`
	// ObservedGeneration is the generation of the specification that the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Workers    []Worker           `json:"workers,omitempty"`
}

// Worker is the status of one worker, which copies records from one source to one destination.
type Worker struct {
	Src int32 `json:"src"`
	Dst int32 `json:"dst"`
	// State has the same values as the state of the pipelet.
	State string `json:"state"`
	// Reason and Message say why the worker does not run.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Offset is the position up to which the source was read. It has the source's epoch and a
	// revision or an offset. If several records have the same revision, it also has the last record
	// that was read.
	Offset string `json:"offset,omitempty"`
	Rows   int64  `json:"rows"`
	Lag    string `json:"lag,omitempty"`
}

// Spec is the specification of a pipelet.
//
// +kubebuilder:validation:XValidation:rule="has(self.flow)||!has(self.state)",message="no flow"
type Spec struct {
	// Src are the sources. Each record of a source is copied to each destination.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Src []Store `json:"src"`
	// Dst are the destinations.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Dst []Store `json:"dst"`
	// Flow is a SELECT statement for DuckDB over the table src. Without a flow, records are copied
	// unchanged.
	// +kubebuilder:validation:MaxLength=16384
	Flow string `json:"flow,omitempty"`
	// State is a SELECT statement that computes the next content of the table state from the tables
	// src and state. The flow sees the new content, and the destination stores it.
	// +kubebuilder:validation:MaxLength=16384
	State string `json:"state,omitempty"`
	// Interval is the length of a window in seconds. The records of a window form one batch. The
	// value 0 means no windows.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	Interval float64 `json:"interval,omitempty"`
	// Rate is the maximum average number of records per second that a worker reads. The value 0
	// means no limit.
	// +kubebuilder:validation:Minimum=0
	Rate float64 `json:"rate,omitempty"`
	// EOIO requests that each record arrives exactly once, in order. Without it, records arrive at
	// least once.
	EOIO bool `json:"eoio,omitempty"`
	// Suspend stops the pipelet. When it is unset, the pipelet continues from its position.
	Suspend bool `json:"suspend,omitempty"`
}

// Store is a source or a destination. Exactly one of its fields is set.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type Store struct {
	// +optional
	Etcd *Etcd `json:"etcd,omitempty"`
	// +optional
	PostgreSQL *PostgreSQL `json:"postgresql,omitempty"`
	// +optional
	Parquet *Parquet `json:"parquet,omitempty"`
	// +optional
	Chain *Chain `json:"chain,omitempty"`
	// +optional
	Stream *Stream `json:"stream,omitempty"`
}

// Etcd selects the keys of an etcd that begin with a prefix.
type Etcd struct {
	// Endpoints are http:// or https:// addresses of the cluster's members.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Endpoints []string `json:"endpoints"`
	// Prefix is the prefix of the keys in etcd. The keys that the flow sees do not have it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Prefix string `json:"prefix"`
	// Secret is the name of a Secret with the credentials. Its keys are ca.crt, and tls.crt with
	// tls.key or username with password, as needed.
	Secret string `json:"secret,omitempty"`
}

// PostgreSQL selects a table of a database.
type PostgreSQL struct {
	// Address is HOST:PORT.
	Address string `json:"address"`
	// Database is the name of the database.
	Database string `json:"database"`
	// Table is the name of the table. Unless its schema is public, the schema's name and a dot
	// precede it.
	// +kubebuilder:validation:MaxLength=127
	Table string `json:"table"`
	// Append applies to destinations. With it, every row is inserted, and a deleted key becomes a
	// row with a NULL value. Without it, a row replaces the existing row with the same key.
	Append bool `json:"append,omitempty"`
	// Secret is the name of a Secret with the credentials. Its keys are username, password, and
	// ca.crt or tls.crt with tls.key, as needed.
	Secret string `json:"secret,omitempty"`
}

// Parquet selects a folder with Apache Parquet files. A destination writes one file for each batch.
type Parquet struct {
	// Path is the folder's path on the machine that runs the pipelet.
	// +kubebuilder:validation:MinLength=1
	Path string `json:"path"`
}

// Chain selects the keys of NetCRAQ's chains that begin with a prefix.
type Chain struct {
	// Namespace is the namespace of the keys.
	Namespace string `json:"namespace"`
	// Prefix is the prefix of the keys in the namespace. The keys that the flow sees do not have
	// it.
	Prefix string `json:"prefix"`
}

// Stream selects a stream of the node on which the pipelet runs.
type Stream struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}
