package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/placement"
	"github.com/netcraq/netcraq/api/slotcodec"
	"github.com/netcraq/netcraq/etcd-monitor/gateway"
	"github.com/netcraq/netcraq/etcd-monitor/guarded"
	"github.com/netcraq/netcraq/etcd-monitor/guardedshell"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/etcd-monitor/seal"
	"github.com/netcraq/netcraq/etcd-monitor/slotclient"
)

const (
	directoryWait     = 5 * time.Second  // for one attempt to read from etcd which keys are placed
	dictionariesEvery = time.Minute      // it is looked for new dictionaries
	patience          = 10 * time.Second // for a write of a placed key whose client waits longer

	etcdTxnOps = 128 // embed.DefaultMaxTxnOps, without etcd's server
)

// network is the key-value service with placed keys read from the network, and what it works with.
type network struct {
	server    *guarded.Server
	etcd      *clientv3.Client // under the gateway's own name, if it has one
	nobody    *clientv3.Client // under none
	follower  *placement.Follower
	chains    *slotclient.Chains
	sessions  *guardedshell.Leases
	everybody *guardedshell.Everybody
	runtime   *guardedshell.Goroutines
	stop      context.CancelFunc
	work      sync.WaitGroup
}

// openNetwork makes the key-value service. It waits for etcd: without knowing which keys are placed
// it could neither read nor write any.
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
	n := &network{nobody: nobody}
	var seals *seal.Keys
	for said := false; ; said = true {
		if err = n.directory(ctx, upstream, o.user, o.secret, o.prefix, detail); err == nil {
			if seals, err = ensureSeals(ctx, n.etcd, o.prefix); err == nil {
				break
			}
			n.follower.Close()
			n.etcd.Close()
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
	library := slotcodec.NewLibrary(n.etcd, o.prefix)
	ctx, n.stop = context.WithCancel(ctx)
	loaded := make(chan struct{})
	n.work.Go(func() { readDictionaries(ctx, n.etcd, library, loaded, log) })
	<-loaded
	n.work.Go(func() { seals.Follow(ctx, n.etcd, o.sealAge, log) })
	host, err := os.Hostname()
	if err != nil {
		host = "unnamed"
	}
	slots := slotclient.NewNetwork(metrics.Network)
	n.chains = slotclient.Follow(api.NewClient(o.controller, api.TokenFile(o.token)), slots,
		fmt.Sprintf("etcd-monitor %s %d", host, os.Getpid()), log)
	n.sessions = guardedshell.NewLeases(n.etcd, o.prefix, 0, detail)
	n.everybody = guardedshell.NewEverybody(nobody, o.prefix, newest)
	n.runtime = guardedshell.NewGoroutines()
	cfg := guarded.Config{
		Etcd: gateway.Forward(upstream, metrics), Slots: slots, Directory: n.follower, Sessions: n.sessions,
		Newest: newest, Codec: library, Seals: seals, Runtime: n.runtime,
		Observer: metrics, Evictor: n.chains, Prefix: o.prefix, Reserved: o.controllers, Patience: patience,
		Open: n.everybody.Open,
	}
	if o.ownEtcd { // which takes more
		cfg.MaxTxnOps, cfg.MaxRequestBytes = etcdTxnOps, int(o.maxRequestBytes)
	}
	n.server = guarded.New(cfg)
	n.work.Go(func() { n.server.Warm(ctx) })
	n.work.Go(func() { reseal(ctx, n.server, seals, log) })
	return n, nil
}

// readDictionaries reads the dictionaries, says that it has tried, and reads them again when one
// has come, and from time to time.
func readDictionaries(ctx context.Context, etcd clientv3.Watcher, library *slotcodec.Library,
	loaded chan<- struct{}, log *slog.Logger) {
	var news clientv3.WatchChan
	for said := ""; ctx.Err() == nil; {
		if news == nil {
			news = etcd.Watch(ctx, library.Prefix(), clientv3.WithPrefix())
		}
		try, cancel := context.WithTimeout(ctx, directoryWait)
		err := library.Load(try)
		cancel()
		if loaded != nil {
			close(loaded)
			loaded = nil
		}
		if now := fmt.Sprint(err); err != nil && ctx.Err() == nil && now != said {
			log.Warn("dictionaries for values: those that were read before are used", "error", err)
			said = now
		}
		again := time.After(dictionariesEvery)
		select {
		case <-ctx.Done():
		case <-again:
		case _, open := <-news:
			if !open { // etcd has ended it
				news = nil
				select {
				case <-ctx.Done():
				case <-again:
				}
			}
		}
	}
	if loaded != nil {
		close(loaded)
	}
}

// directory reads which keys are placed, and follows it.
func (n *network) directory(ctx context.Context, upstream *gateway.Upstream, user, password, prefix string,
	log *zap.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, directoryWait)
	defer cancel()
	etcd, err := upstream.NewClient(ctx, user, password)
	if err != nil {
		return err
	}
	if n.follower, err = placement.Follow(ctx, etcd, prefix, log); err != nil {
		etcd.Close()
		return err
	}
	n.etcd = etcd
	return nil
}

// Close ends what goes on beside requests, which must have ended. Guards that are still held are
// broken by others.
func (n *network) Close() {
	n.stop()
	n.work.Wait()
	n.runtime.Close()
	n.everybody.Close()
	n.sessions.Close()
	n.chains.Close()
	n.follower.Close()
	n.etcd.Close()
	n.nobody.Close()
}
