package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Etcd is an etcd cluster. Reads are linearizable, and etcd's own client makes the requests.
// Workers share one connection, as the goroutines of a program do.
type Etcd struct{ client *clientv3.Client }

// NewEtcd connects to a cluster's endpoints (HOST:PORT). ca is a file of CA certificates (PEM) for
// the members' certificates. If ca is "", connections use plain text.
func NewEtcd(ctx context.Context, endpoints []string, ca string) (*Etcd, error) {
	cfg := clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Context: ctx, Logger: zap.NewNop()}
	if ca != "" {
		var err error
		if cfg.TLS, err = (transport.TLSInfo{TrustedCAFile: ca}).ClientConfig(); err != nil {
			return nil, fmt.Errorf("etcd's certificates: %w", err)
		}
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd at %v: %w", endpoints, err)
	}
	return &Etcd{client: c}, nil
}

// Open implements [Peer].
func (e *Etcd) Open(context.Context, int) (Store, error) { return etcdStore{e.client}, nil }

// Close implements [Peer].
func (e *Etcd) Close() error {
	if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("closing the connection to etcd: %w", err)
	}
	return nil
}

type etcdStore struct{ client *clientv3.Client }

func (s etcdStore) Get(ctx context.Context, key string) ([]byte, error) {
	r, err := s.client.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if len(r.Kvs) != 1 {
		return nil, fmt.Errorf("key %s is not in etcd", key)
	}
	return r.Kvs[0].Value, nil
}

func (s etcdStore) Put(ctx context.Context, key string, value []byte) error {
	_, err := s.client.Put(ctx, key, string(value))
	return err
}

func (etcdStore) Close() error { return nil }
