// Package stores opens the stores that are specified in a pipelet.
package stores

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/chainkeys"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/etcdkeys"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/parquet"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/postgresql"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/streamrecords"
)

// secretName matches valid names of Kubernetes objects.
var secretName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

// Check returns an error if a store cannot be a source or, if destination is set, a destination.
func Check(s pipeletapi.Store, destination bool) error {
	n, secret := 0, ""
	var err error
	if s.Etcd != nil {
		n, secret, err = n+1, s.Etcd.Secret, etcdkeys.Check(*s.Etcd)
	}
	if s.PostgreSQL != nil {
		n, secret, err = n+1, s.PostgreSQL.Secret, postgresql.Check(*s.PostgreSQL)
		if err == nil && s.PostgreSQL.Append && !destination {
			err = errors.New("postgresql.append: it is for destinations")
		}
	}
	if s.Parquet != nil {
		n, err = n+1, parquet.Check(*s.Parquet)
	}
	if s.Chain != nil {
		n, err = n+1, chainkeys.Check(*s.Chain)
	}
	if s.Stream != nil {
		n, err = n+1, streamrecords.Check(*s.Stream)
	}
	switch {
	case n != 1:
		return errors.New("it is to name one kind of store: chain, etcd, parquet, postgresql or stream")
	case err != nil:
		return err
	case secret != "" && !secretName.MatchString(secret):
		return fmt.Errorf("secret: %q is no name", secret)
	}
	return nil
}

// Name returns the name of a source for a destination, or the name of the part of a destination
// that is written. It does not contain addresses, because these may change.
func Name(s pipeletapi.Store) string {
	if s.PostgreSQL != nil {
		return "postgresql:" + s.PostgreSQL.Database + "/" + s.PostgreSQL.Table
	}
	if s.Parquet != nil {
		return "parquet:" + filepath.Clean(s.Parquet.Path)
	}
	if s.Chain != nil {
		return "chain:" + s.Chain.Namespace + "/" + s.Chain.Prefix
	}
	if s.Stream != nil {
		return "stream:" + s.Stream.Namespace + "/" + s.Stream.Name
	}
	// the kind of the store is left out, for compatibility with destinations of the first version
	return s.Etcd.Prefix
}

// Overlap reports whether a source contains keys or rows that a destination writes. It compares
// addresses, so it cannot detect one store that has two different addresses.
func Overlap(src, dst pipeletapi.Store) bool {
	if a, b := src.PostgreSQL, dst.PostgreSQL; a != nil && b != nil {
		return a.Address == b.Address && a.Database == b.Database && a.Table == b.Table
	}
	if a, b := src.Parquet, dst.Parquet; a != nil && b != nil {
		return parquet.Overlap(*a, *b)
	}
	if a, b := src.Chain, dst.Chain; a != nil && b != nil {
		return chainkeys.Overlap(*a, *b)
	}
	if a, b := src.Stream, dst.Stream; a != nil && b != nil {
		return *a == *b
	}
	return src.Etcd != nil && dst.Etcd != nil && etcdkeys.Overlap(*src.Etcd, *dst.Etcd)
}

// NewSource makes the source for a store.
func NewSource(s pipeletapi.Store, secrets endpoint.Secrets) (endpoint.Source, error) {
	if s.PostgreSQL != nil {
		return postgresql.NewSource(*s.PostgreSQL, secrets)
	}
	if s.Parquet != nil {
		return parquet.NewSource(*s.Parquet)
	}
	if s.Chain != nil {
		return chainkeys.NewSource(*s.Chain)
	}
	if s.Stream != nil {
		return streamrecords.NewSource(*s.Stream)
	}
	return etcdkeys.NewSource(*s.Etcd, secrets)
}

// NewSink makes the destination for a store. The argument name identifies the pipelet and its
// source. The argument hub may be nil.
func NewSink(s pipeletapi.Store, secrets endpoint.Secrets, hub *etcdkeys.Hub, name string,
	eoio bool) (endpoint.Sink, error) {
	if s.PostgreSQL != nil {
		return postgresql.NewSink(*s.PostgreSQL, secrets, name, eoio)
	}
	if s.Parquet != nil {
		return parquet.NewSink(*s.Parquet, name)
	}
	if s.Chain != nil {
		return chainkeys.NewSink(*s.Chain, name)
	}
	if s.Stream != nil {
		return streamrecords.NewSink(*s.Stream, name)
	}
	return etcdkeys.NewSink(*s.Etcd, secrets, hub, name, eoio)
}
