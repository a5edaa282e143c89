// Package api has the resource Pipelet, by which an operator declares what to copy from where to
// where.
//
// zz_generated.deepcopy.go and the definition (pipelets/deploy/crd) are made from the comments here
// by go generate.
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

// APIVersion and Kind are a Pipelet's.
const (
	APIVersion = "netcraq.io/v1alpha1"
	Kind       = "Pipelet"
)

// GroupVersion is that of the kinds here.
var GroupVersion = schema.GroupVersion{Group: "netcraq.io", Version: "v1alpha1"}

// AddToScheme has a scheme know the kinds here.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Pipelet{}, &PipeletList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Pipelet declares one copy from a source to a destination.
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

// PipeletList is several of them.
//
// +kubebuilder:object:root=true
type PipeletList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Pipelet `json:"items"`
}

// What Status.State says.
const (
	Starting  = "Starting"
	Running   = "Running"
	Failing   = "Failing"   // a worker cannot continue; it tries again
	Invalid   = "Invalid"   // the specification is wrong
	Suspended = "Suspended" // as requested
)

// Ready is the condition's type: all workers run.
const Ready = "Ready"

// Status is a pipelet's status.
type Status struct {
	// State is Starting, Running, Failing, Invalid or Suspended.
	State string `json:"state,omitempty"`
	// Assigned is the replica of the operator that is to run it.
	Assigned string `json:"assigned,omitempty"`
	// Lag is how long there have been records that the slowest worker has not written, in seconds.
	// 0: all known records are written.
	Lag string `json:"lag,omitempty"`
	// Rate is how many records all workers have written, of each second of the last ten or so.
	Rate string `json:"rate,omitempty"`
	// Rows were written by all workers, since the pipelet is there.
	Rows int64 `json:"rows,omitempty"`
	// LastError is the last error, also if it is over.
	LastError string `json:"lastError,omitempty"`
	// ObservedGeneration is the generation of the specification that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Workers    []Worker           `json:"workers,omitempty"`
}

// Worker is from one source to one destination.
type Worker struct {
	Src int32 `json:"src"`
	Dst int32 `json:"dst"`
	// State is as the pipelet's.
	State string `json:"state"`
	// Reason and Message say why it does not run.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Offset is how far the source was read: its life, a revision or an offset, and the last record
	// of those that have it.
	Offset string `json:"offset,omitempty"`
	Rows   int64  `json:"rows"`
	Lag    string `json:"lag,omitempty"`
}

// Spec is the specification.
//
// +kubebuilder:validation:XValidation:rule="has(self.flow)||!has(self.state)",message="no flow"
type Spec struct {
	// Src is where records come from. Each goes to each destination.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Src []Store `json:"src"`
	// Dst is the destination of the records.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Dst []Store `json:"dst"`
	// Flow is a SELECT of DuckDB over the table src. Without one, records arrive as they are.
	// +kubebuilder:validation:MaxLength=16384
	Flow string `json:"flow,omitempty"`
	// State is a SELECT that computes from the tables src and state the next table state, which the
	// flow sees. It is kept in the destination.
	// +kubebuilder:validation:MaxLength=16384
	State string `json:"state,omitempty"`
	// Interval is the length of a window, in seconds: the records in it are one batch. 0: as they
	// come.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	Interval float64 `json:"interval,omitempty"`
	// Rate bounds how many records a second a worker reads, over a while. 0: nothing does.
	// +kubebuilder:validation:Minimum=0
	Rate float64 `json:"rate,omitempty"`
	// EOIO: each record arrives exactly once, in order. Without it, at least once.
	EOIO bool `json:"eoio,omitempty"`
	// Suspend stops it. Afterwards it continues where it was.
	Suspend bool `json:"suspend,omitempty"`
}

// Store is one of the kinds of stores.
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
	// Secret has ca.crt, and tls.crt with tls.key or username with password, as far as they are
	// needed.
	Secret string `json:"secret,omitempty"`
}

// PostgreSQL is a table of a database.
type PostgreSQL struct {
	// Address is HOST:PORT.
	Address string `json:"address"`
	// Database is its name.
	Database string `json:"database"`
	// Table is its name, with its schema's and a dot before it if that is not public.
	// +kubebuilder:validation:MaxLength=127
	Table string `json:"table"`
	// Append: of a destination: each row is inserted, that of a deleted key with a NULL value.
	// Without it, a row takes the place of the one with its key.
	Append bool `json:"append,omitempty"`
	// Secret has username, password, and ca.crt or tls.crt with tls.key, as far as they are needed.
	Secret string `json:"secret,omitempty"`
}

// Parquet is a folder with files of Apache Parquet, one for each batch.
type Parquet struct {
	// Path is the folder's, on the machine that runs the pipelet.
	// +kubebuilder:validation:MinLength=1
	Path string `json:"path"`
}

// Chain is the keys of NetCRAQ's chains that begin with a prefix.
type Chain struct {
	// Namespace is that of the keys.
	Namespace string `json:"namespace"`
	// Prefix begins the keys in the store; the flow's keys do not have it.
	Prefix string `json:"prefix"`
}

// Stream is a stream of the node that runs the pipelet.
type Stream struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}
