//go:build !slim

package main

import (
	"context"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/netcraq/netcraq/client/etcd/guarded"
	"github.com/netcraq/netcraq/etcd-monitor/embedded"
)

// startEmbedded starts the etcd in this process. The etcd's log goes to a file, because etcd logs
// harmless errors when it ends.
func (o *options) startEmbedded(ctx context.Context) (ownEtcd, error) {
	if o.dataDir == "" {
		o.dataDir = defaultDataDir
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	cfg := embedded.Config{DataDir: o.dataDir, Client: o.embedded, LogOutput: filepath.Join(o.dataDir, "etcd.log")}
	if o.controller != "" { // the gateway adds operations to clients' requests, so etcd's limits are raised for it
		cfg.Adjust = func(c *embed.Config) {
			c.MaxTxnOps += guarded.MoreTxnOps
			c.MaxRequestBytes = o.maxRequestBytes + guarded.MoreRequestBytes
		}
	}
	return embedded.Start(ctx, cfg)
}
