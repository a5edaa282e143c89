package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/service"
	"github.com/netcraq/netcraq/etcd-monitor/gateway"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
)

const etcdTxnOps = 128 // equals embed.DefaultMaxTxnOps; importing embed would add etcd's server to the program

// network is the key-value service that reads placed keys from the switches. It also has the
// service's connections.
type network struct {
	*service.Service
	etcd   *clientv3.Client // client with the gateway's own user, if one is configured
	nobody *clientv3.Client // client that sends no user
}

// openNetwork makes the key-value service. It waits for etcd, because the service needs the list of
// placed keys for every read and write.
func (o *options) openNetwork(ctx context.Context, upstream *gateway.Upstream, newest *gateway.Newest,
	metrics *hotkeys.Metrics, log *slog.Logger, stderr io.Writer) (*network, error) {
	level := zap.WarnLevel
	if log.Enabled(ctx, slog.LevelDebug) {
		level = zap.DebugLevel
	}
	detail := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig()),
		zapcore.AddSync(stderr), level))
	nobody, err := upstream.NewClient(ctx, "", "")
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unnamed"
	}
	cfg := service.Config{
		Nobody: nobody, Etcd: gateway.Forward(upstream, metrics), Newest: newest, Observer: metrics,
		Prefix: o.prefix, Reserved: o.controllers,
		Controller: admin.NewClient(o.controller, admin.TokenFile(o.token)),
		Owner:      fmt.Sprintf("etcd-monitor %s %d", host, os.Getpid()),
		RoundTrip:  metrics.Network, Keeper: true, SealAge: o.sealAge, Log: log, Detail: detail,
	}
	if o.ownEtcd { // the gateway's own etcd has a higher limit
		cfg.MaxTxnOps, cfg.MaxRequestBytes = etcdTxnOps, int(o.maxRequestBytes)
	}
	for said := false; ; said = true {
		n, err := o.tryNetwork(ctx, upstream, cfg)
		if err == nil {
			n.nobody = nobody
			return n, nil
		}
		if ctx.Err() != nil {
			nobody.Close()
			return nil, fmt.Errorf("waiting for etcd: %w", context.Cause(ctx))
		}
		if !said {
			log.Warn("waiting for etcd, to read which keys are placed, and what their cells are sealed with (where its authentication is enabled the gateway needs --user)", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// tryNetwork tries once to read from etcd what the service needs.
func (o *options) tryNetwork(ctx context.Context, upstream *gateway.Upstream, cfg service.Config) (
	*network, error) {
	connecting, cancel := context.WithTimeout(ctx, etcdWait)
	defer cancel()
	etcd, err := upstream.NewClient(connecting, o.user, o.secret)
	if err != nil {
		return nil, err
	}
	cfg.Own = etcd
	s, err := service.Open(ctx, cfg)
	if err != nil {
		etcd.Close()
		return nil, err
	}
	return &network{Service: s, etcd: etcd}, nil
}

// Close ends the background work. The caller must first wait for the end of all requests.
func (n *network) Close() {
	n.Service.Close()
	n.etcd.Close()
	n.nobody.Close()
}
