// Package api has the resource Pipelet, which declares a copy of records from sources to
// destinations.
//
// go generate makes zz_generated.deepcopy.go and the CRD (pipelets/deploy/crd) from the comments
// here.
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

// APIVersion and Kind of a Pipelet.
const (
	APIVersion = "netcraq.io/v1alpha1"
	Kind       = "Pipelet"
)

// GroupVersion is the group and version of the kinds here.
var GroupVersion = schema.GroupVersion{Group: "netcraq.io", Version: "v1alpha1"}

// AddToScheme adds the kinds here to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Pipelet{}, &PipeletList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Pipelet declares copies of records from sources to destinations.
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

// Values of Status.State.
const (
	Starting  = "Starting"
	Running   = "Running"
	Failing   = "Failing"   // a worker cannot continue; it tries again
	Invalid   = "Invalid"   // the specification is wrong
	Suspended = "Suspended" // as requested
)

// Ready is the type of the condition that all workers run.
const Ready = "Ready"

// Status is a pipelet's status.
type Status struct {
	// State is Starting, Running, Failing, Invalid or Suspended.
	State string `json:"state,omitempty"`
	// Assigned is the replica of the operator that shall run the pipelet.
	Assigned string `json:"assigned,omitempty"`
	// Lag is the time, in seconds, for which there have been records that the slowest worker has
	// not written. 0: all known records are written.
	Lag string `json:"lag,omitempty"`
	// Rate is the number of records a second that all workers have written, averaged over about ten
	// seconds.
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

// Worker is the status of a worker, which copies from one source to one destination.
type Worker struct {
	Src int32 `json:"src"`
	Dst int32 `json:"dst"`
	// State has the values of the pipelet's state.
	State string `json:"state"`
	// Reason and Message say why the worker does not run.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Offset is the position up to which the source was read: the source's epoch, a revision or an
	// offset and, if several records share it, the last of these.
	Offset string `json:"offset,omitempty"`
	Rows   int64  `json:"rows"`
	Lag    string `json:"lag,omitempty"`
}

// Spec is the specification.
//
// +kubebuilder:validation:XValidation:rule="has(self.flow)||!has(self.state)",message="no flow"
type Spec struct {
	// Src are the sources. Each record goes to each destination.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Src []Store `json:"src"`
	// Dst are the destinations.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Dst []Store `json:"dst"`
	// Flow is a SELECT of DuckDB over the table src. Without one, records arrive unchanged.
	// +kubebuilder:validation:MaxLength=16384
	Flow string `json:"flow,omitempty"`
	// State is a SELECT that computes the next table state from the tables src and state. The flow
	// sees the result. The destination stores it.
	// +kubebuilder:validation:MaxLength=16384
	State string `json:"state,omitempty"`
	// Interval is the length of a window, in seconds: the records of a window are one batch. 0: no
	// windows.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	Interval float64 `json:"interval,omitempty"`
	// Rate is the maximum average number of records a second that a worker reads. 0: no limit.
	// +kubebuilder:validation:Minimum=0
	Rate float64 `json:"rate,omitempty"`
	// EOIO requests that each record arrives exactly once, in order. Without it, records arrive at
	// least once.
	EOIO bool `json:"eoio,omitempty"`
	// Suspend stops the pipelet. Later it continues from its position.
	Suspend bool `json:"suspend,omitempty"`
}

// Store is a store of exactly one kind.
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

// Etcd is the keys of an etcd that begin with a prefix.
type Etcd struct {
	// Endpoints are http:// or https:// addresses of the cluster's members.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Endpoints []string `json:"endpoints"`
	// Prefix begins the keys in the store; the flow's keys do not have it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Prefix string `json:"prefix"`
	// Secret is the name of a Secret with the keys ca.crt, and tls.crt with tls.key or username
	// with password, as needed.
	Secret string `json:"secret,omitempty"`
}

// PostgreSQL is a table of a database.
type PostgreSQL struct {
	// Address is HOST:PORT.
	Address string `json:"address"`
	// Database is the database's name.
	Database string `json:"database"`
	// Table is the table's name, preceded by its schema's name and a dot unless the schema is
	// public.
	// +kubebuilder:validation:MaxLength=127
	Table string `json:"table"`
	// Append applies to destinations: every row is inserted, and a deleted key becomes a row with a
	// NULL value. Without it, a row replaces the row with the same key.
	Append bool `json:"append,omitempty"`
	// Secret is the name of a Secret with the keys username, password, and ca.crt or tls.crt with
	// tls.key, as needed.
	Secret string `json:"secret,omitempty"`
}

// Parquet is a folder with files of Apache Parquet, one for each batch.
type Parquet struct {
	// Path is the folder's path on the machine that runs the pipelet.
	// +kubebuilder:validation:MinLength=1
	Path string `json:"path"`
}

// Chain is the keys of NetCRAQ's chains that begin with a prefix.
type Chain struct {
	// Namespace is the keys' namespace.
	Namespace string `json:"namespace"`
	// Prefix begins the keys in the store; the flow's keys do not have it.
	Prefix string `json:"prefix"`
}

// Stream is a stream of the node that runs the pipelet.
type Stream struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}
