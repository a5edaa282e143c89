// Package pipelet has the resource Pipelet, by which an operator declares what is to be copied from
// where to where. The definition for a cluster is made of it when there is an operator for it.
package pipelet

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// APIVersion and Kind are what a Pipelet says that it is.
const (
	APIVersion = "netcraq.io/v1alpha1"
	Kind       = "Pipelet"
)

// Pipelet says what is to be copied.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=pl,categories=netcraq
type Pipelet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec Spec `json:"spec"`
}

// Spec is what is asked for.
type Spec struct {
	// Src is where records come from. Each goes to each destination.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Src []Store `json:"src"`
	// Dst is where they go.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Dst []Store `json:"dst"`
	// Flow is a SELECT of DuckDB over the table src. Without one, records arrive as they are.
	// +kubebuilder:validation:MaxLength=16384
	Flow string `json:"flow,omitempty"`
	// Interval is from one batch to the next, in seconds. 0: as records come.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	Interval float64 `json:"interval,omitempty"`
	// EOIO: each record arrives exactly once, in order. Without it, at least once.
	EOIO bool `json:"eoio,omitempty"`
	// Suspend stops it. It goes on where it was.
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
	// Prefix is what the keys begin with, and the flow's do not.
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
	// Prefix is what the keys begin with, and the flow's do not.
	Prefix string `json:"prefix"`
}

// Stream is a stream of the node that runs the pipelet.
type Stream struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}
