package peers

import (
	"context"
	"fmt"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/fromadmin"
)

// nativePrefix begins the names of keys that [Native] makes, so that they differ from the names of
// placed etcd keys.
const nativePrefix = "native"

// Native is a chain of switches. The Go client sends NetCRAQ's packets to it. A key is created by
// its first write.
type Native struct {
	controller *admin.Client
	names      *fromadmin.Names
}

// NewNative connects to a network. It reads the network's data from the controller's admin API (a
// URL). writers is the number of concurrent writes.
func NewNative(controller string, writers int) *Native {
	c := admin.NewClient(controller)
	return &Native{c, fromadmin.NewNames(fromadmin.NamesOptions{Admin: c, Sessions: writers, Owner: "netcraq-peers",
		Make: func(ctx context.Context, name string) (*admin.Key, error) {
			made, err := c.RequestKey(ctx, admin.KeyRequest{Name: name})
			if err != nil {
				return nil, err
			}
			return &made.Key, nil
		}})}
}

// Open implements [Peer].
func (n *Native) Open(context.Context, int) (Store, error) { return nativeStore{n.names}, nil }

// Close implements [Peer].
func (n *Native) Close() error {
	defer n.controller.Close()
	return n.names.Close()
}

type nativeStore struct{ names *fromadmin.Names }

func (s nativeStore) Get(ctx context.Context, key string) ([]byte, error) {
	found, err := s.names.Get(ctx, nativePrefix+key, false)
	if err != nil {
		return nil, err
	}
	if !found.Found {
		return nil, fmt.Errorf("key %s is not in the chain", key)
	}
	return found.Value, nil
}

func (s nativeStore) Put(ctx context.Context, key string, value []byte) error {
	_, err := s.names.Put(ctx, nativePrefix+key, value)
	return err
}

func (nativeStore) Close() error { return nil }
