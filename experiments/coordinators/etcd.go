package coordinators

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// prefix begins the names of all keys of this measurement, in etcd and in Consul.
const prefix = "netcraq-bench/"

type etcdClient struct {
	c       *clientv3.Client
	session *concurrency.Session
}

func openEtcd(ctx context.Context, address string) (Client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(address, ","), DialTimeout: 10 * time.Second,
		Context: ctx, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(c, concurrency.WithTTL(int(TTL/time.Second)))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return etcdClient{c, session}, nil
}

func (e etcdClient) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	m := concurrency.NewMutex(e.session, prefix+name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return m.Unlock, nil
}

func (e etcdClient) Put(ctx context.Context, key, value string) error {
	_, err := e.c.Put(ctx, prefix+key, value)
	return err
}

func (e etcdClient) Watch(ctx context.Context, key string, tell func(string), failed func(error)) error {
	news := e.c.Watch(clientv3.WithRequireLeader(ctx), prefix+key, clientv3.WithCreatedNotify())
	if r, ok := <-news; !ok || r.Err() != nil {
		return errors.Join(errors.New("etcd has ended the watch"), r.Err(), ctx.Err())
	}
	go func() {
		for r := range news {
			if err := r.Err(); err != nil && ctx.Err() == nil {
				failed(err)
				return
			}
			for _, event := range r.Events {
				if event.Type == clientv3.EventTypePut {
					tell(string(event.Kv.Value))
				}
			}
		}
	}()
	return nil
}

func (etcdClient) Name() string { return "etcd client/v3 " + version.Version }

func (e etcdClient) Close() error {
	err := errors.Join(e.session.Close(), e.c.Close())
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
