// Package service is etcd's key-value service with placed keys read from the network, put together
// as it ships: a guarded.Server and all that it works with. A gateway (etcd-monitor) serves one to
// others; a program that needs no gateway (package etcd, above this one) has one of its own.
package service

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/guarded"
	"github.com/netcraq/netcraq/client/etcd/guardedshell"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotclient"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

const (
	directoryWait     = 5 * time.Second // for one attempt to read from etcd which keys are placed
	dictionariesEvery = time.Minute     // it is looked for new dictionaries
	resealEvery       = time.Hour       // all slots are looked at for what is sealed with an old key
	resealSoon        = 5 * time.Second // it is looked whether there is a new key
	resealAgain       = time.Minute     // between two times, however many new keys there are
	pruneWait         = 5 * time.Second // for etcd to drop old keys
)

// Patience is how long a write of a placed key whose client waits longer is tried.
const Patience = 10 * time.Second

// Config says what a Service works with. What may be nil says so.
type Config struct {
	// Own is for the service's own business in etcd: its KV, Lease and Watcher are used, past any
	// guarded service. It stays the caller's to close, after the Service.
	Own *clientv3.Client
	// Nobody reads in etcd as who has no name: see [guardedshell.NewEverybody]. nil: no read is
	// answered by the network.
	Nobody clientv3.KV
	// Etcd, Newest, Observer, Prefix, Reserved, MaxTxnOps and MaxRequestBytes are
	// [guarded.Config]'s.
	Etcd                       pb.KVClient
	Newest                     guarded.Newest
	Observer                   guarded.Observer
	Prefix                     string
	Reserved                   []string
	MaxTxnOps, MaxRequestBytes int
	// Controller says where the chains are and leases their sessions, under the name Owner.
	Controller *admin.Client
	Owner      string
	// RoundTrip is told how long the switches took; nil: nobody is.
	RoundTrip func(operation string, d time.Duration)
	// Keeper is who looks after all slots alongside requests: it populates those of new placements,
	// makes a new key to seal with when the newest is SealAge old, and seals again what an old one
	// has sealed. Gateways do. Several may, and none has to.
	Keeper  bool
	SealAge time.Duration
	Log     *slog.Logger // of the service; nil: none
	Detail  *zap.Logger  // of what it has of etcd's client; nil: none
}

// Service is etcd's key-value service with placed keys read from the network, as it ships: a
// [guarded.Server], and all that it works with.
type Service struct {
	*guarded.Server
	*guardedshell.Everybody // nil where Nobody was
	follower                *placement.Follower
	chains                  *slotclient.Chains
	sessions                *guardedshell.Leases
	runtime                 *guardedshell.Goroutines
	stop                    context.CancelFunc
	work                    sync.WaitGroup
}

// Open begins one. It needs to know which keys are placed, and what their cells are sealed
// with, and fails where etcd does not say. ctx bounds only that.
func Open(ctx context.Context, cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	try, cancel := context.WithTimeout(ctx, directoryWait)
	defer cancel()
	follower, err := placement.Follow(try, cfg.Own, cfg.Prefix, cfg.Detail)
	if err != nil {
		return nil, fmt.Errorf("reading which keys are placed: %w", err)
	}
	seals := seal.NewKeys(cfg.Own, cfg.Prefix)
	if err := seals.Ensure(try); err != nil {
		follower.Close()
		return nil, err
	}
	s := &Service{follower: follower}
	working, stop := context.WithCancel(context.Background())
	s.stop = stop
	library := slotcodec.NewLibrary(cfg.Own, cfg.Prefix)
	loaded := make(chan struct{})
	s.work.Go(func() { FollowDictionaries(working, cfg.Own, library, loaded, cfg.Log) })
	<-loaded
	age := cfg.SealAge
	if !cfg.Keeper {
		age = 0
	}
	s.work.Go(func() { seals.Follow(working, cfg.Own, age, cfg.Log) })
	slots := slotclient.NewNetwork(cfg.RoundTrip)
	s.chains = slotclient.Follow(cfg.Controller, slots, cfg.Owner, cfg.Log)
	s.sessions = guardedshell.NewLeases(cfg.Own, cfg.Prefix, 0, cfg.Detail)
	s.runtime = guardedshell.NewGoroutines()
	open := func() bool { return false }
	if cfg.Nobody != nil {
		s.Everybody = guardedshell.NewEverybody(cfg.Nobody, cfg.Prefix, cfg.Newest)
		open = s.Everybody.Open
	}
	s.Server = guarded.New(guarded.Config{
		Etcd: cfg.Etcd, Slots: slots, Directory: follower, Sessions: s.sessions,
		Newest: cfg.Newest, Codec: library, Seals: seals, Runtime: s.runtime,
		Observer: cfg.Observer, Evictor: s.chains, Prefix: cfg.Prefix, Reserved: cfg.Reserved,
		Patience: Patience, Open: open, MaxTxnOps: cfg.MaxTxnOps, MaxRequestBytes: cfg.MaxRequestBytes,
	})
	if cfg.Keeper {
		s.work.Go(func() { s.Server.Warm(working) })
		s.work.Go(func() { reseal(working, s.Server, seals, cfg.Log) })
	}
	return s, nil
}

// Close ends what goes on alongside requests, which must have ended. Guards that are still held are
// broken by others.
func (s *Service) Close() {
	s.stop()
	s.work.Wait()
	s.runtime.Close()
	if s.Everybody != nil {
		s.Everybody.Close()
	}
	s.sessions.Close()
	s.chains.Close()
	s.follower.Close()
}

// FollowDictionaries reads the dictionaries for values, closes loaded when it has tried, and reads
// them again when one has come, and once a minute, until ctx ends.
func FollowDictionaries(ctx context.Context, etcd clientv3.Watcher, library *slotcodec.Library,
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

// reseal seals again what is sealed with old keys, and drops those that are no longer needed, until
// ctx ends.
func reseal(ctx context.Context, server *guarded.Server, keys *seal.Keys, log *slog.Logger) {
	var done uint32    // the key that everything was seen to be sealed with
	var last time.Time // when that was tried
	for wait(ctx, resealSoon); ctx.Err() == nil; wait(ctx, resealSoon) {
		primary, _ := keys.Ring().Primary()
		if since := time.Since(last); since < resealAgain || primary == done && since < resealEvery {
			continue
		}
		last = time.Now()
		used, whole := server.Reseal(ctx)
		if !whole {
			continue
		}
		done = primary
		try, cancel := context.WithTimeout(ctx, pruneWait)
		err := keys.Prune(try, used, time.Now())
		cancel()
		if err != nil && ctx.Err() == nil {
			log.Warn("dropping old keys that cells were sealed with", "error", err)
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
