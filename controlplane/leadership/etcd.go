package leadership

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Etcd says how to reach the etcd with the state of a network's controllers.
type Etcd struct {
	Endpoints     []string // client addresses, HOST:PORT or URLs
	Prefix        string   // prefix of all keys, with or without a slash at its end
	CA, Cert, Key string   // paths of PEM files; "" for no TLS
}

// KeyPrefix returns the prefix of all keys, with a slash at its end.
func (e *Etcd) KeyPrefix() string { return strings.TrimSuffix(e.Prefix, "/") + "/" }

// Connect makes a client for etcd. The client's connections end with ctx.
func (e *Etcd) Connect(ctx context.Context) (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: e.Endpoints, DialTimeout: 5 * time.Second, Context: ctx, Logger: zap.NewNop(),
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second}
	if e.CA != "" || e.Cert != "" {
		conf, err := transport.TLSInfo{TrustedCAFile: e.CA, CertFile: e.Cert, KeyFile: e.Key}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("etcd's certificates: %w", err)
		}
		cfg.TLS = conf
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(e.Endpoints, ","), err)
	}
	return c, nil
}
