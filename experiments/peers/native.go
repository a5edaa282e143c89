package peers

import (
	"context"
	"errors"
	"fmt"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/placement"
	"github.com/netcraq/netcraq/etcd-monitor/directclient"
)

// Native is etcd with the keys that are placed read from the switches, without a gateway on the
// way. Writes go to the gateway that is etcd's endpoint.
type Native struct {
	*Etcd
	etcd   *Etcd // itself
	reader *directclient.Reader
}

// NewNative connects to a gateway, to etcd itself, where the keys are that cells are sealed with,
// and to the controller's admin API (a URL). Close closes them all.
func NewNative(ctx context.Context, gateway, etcd *Etcd, controller string) (*Native, error) {
	reader, err := directclient.Open(ctx, etcd.client, api.NewClient(controller), placement.DefaultPrefix)
	if err != nil {
		return nil, err
	}
	return &Native{gateway, etcd, reader}, nil
}

// Open implements [Peer].
func (n *Native) Open(context.Context, int) (Store, error) {
	return nativeStore{etcdStore{n.client}, n.reader}, nil
}

// Close implements [Peer].
func (n *Native) Close() error {
	n.reader.Close()
	return errors.Join(n.etcd.Close(), n.Etcd.Close())
}

type nativeStore struct {
	etcdStore
	reader *directclient.Reader
}

func (s nativeStore) Get(ctx context.Context, key string) ([]byte, error) {
	kv, err := s.reader.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if kv == nil {
		return nil, fmt.Errorf("key %s is not in etcd", key)
	}
	return kv.Value, nil
}
