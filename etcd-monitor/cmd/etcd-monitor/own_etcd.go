//go:build !slim

package main

import (
	"context"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/netcraq/netcraq/client/etcd/guarded"
	"github.com/netcraq/netcraq/etcd-monitor/embedded"
)

// startEmbedded starts the etcd in this process. Its log goes to a file, because at its end it logs
// errors that are harmless.
func (o *options) startEmbedded(ctx context.Context) (ownEtcd, error) {
	if o.dataDir == "" {
		o.dataDir = defaultDataDir
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	cfg := embedded.Config{DataDir: o.dataDir, Client: o.embedded, LogOutput: filepath.Join(o.dataDir, "etcd.log")}
	if o.controller != "" { // clients get etcd's own limits, and the gateway has room for its additions
		cfg.Adjust = func(c *embed.Config) {
			c.MaxTxnOps += guarded.MoreTxnOps
			c.MaxRequestBytes = o.maxRequestBytes + guarded.MoreRequestBytes
		}
	}
	return embedded.Start(ctx, cfg)
}
