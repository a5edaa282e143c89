// Package service is etcd's key-value service with placed keys read from the network, assembled for
// production: a guarded.Server and everything it needs. A gateway (etcd-monitor) serves one to
// clients; a program that needs no gateway (package etcd, above this one) has its own.
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
	directoryWait     = 5 * time.Second // timeout of one attempt to read the directory of placed keys from etcd
	dictionariesEvery = time.Minute     // interval between checks for new dictionaries
	resealEvery       = time.Hour       // interval at which all slots are searched for cells with an old key
	resealSoon        = 5 * time.Second // interval between checks for a new key
	// least time between two such searches, regardless of the number of new keys
	resealAgain = time.Minute
	pruneWait   = 5 * time.Second // timeout for dropping old keys in etcd
)

// Patience is how long a gateway tries to execute a write of a placed key, even if its client waits
// longer.
const Patience = 10 * time.Second

// Config configures a Service. Fields that may be nil say so.
type Config struct {
	// Own is the client for the service's own requests to etcd: its KV, Lease and Watcher are used
	// directly, not through a guarded service. The caller closes it, after the Service.
	Own *clientv3.Client
	// Nobody reads in etcd without a user: see [guardedshell.NewEverybody]. nil: the network
	// answers no reads.
	Nobody clientv3.KV
	// Etcd, Newest, Observer, Prefix, Reserved, MaxTxnOps and MaxRequestBytes are as in
	// [guarded.Config].
	Etcd                       pb.KVClient
	Newest                     guarded.Newest
	Observer                   guarded.Observer
	Prefix                     string
	Reserved                   []string
	MaxTxnOps, MaxRequestBytes int
	// Controller says where the chains are, and leases their sessions under the name Owner.
	Controller *admin.Client
	Owner      string
	// RoundTrip gets the round trip times of the switches; nil: none.
	RoundTrip func(operation string, d time.Duration)
	// Keeper makes the service maintain all slots in the background. It populates the slots of new
	// placements, makes a new sealing key when the newest is SealAge old, and reseals cells with an
	// old key. Gateways set it; any number of them may.
	Keeper  bool
	SealAge time.Duration
	Log     *slog.Logger // log of the service; nil: no log
	Detail  *zap.Logger  // log of etcd's client; nil: no log
}

// Service is etcd's key-value service with placed keys read from the network, assembled for
// production: a [guarded.Server] and everything it needs.
type Service struct {
	*guarded.Server
	*guardedshell.Everybody // nil if Config.Nobody was nil
	follower                *placement.Follower
	chains                  *slotclient.Chains
	sessions                *guardedshell.Leases
	runtime                 *guardedshell.Goroutines
	stop                    context.CancelFunc
	work                    sync.WaitGroup
}

// Open starts a Service. It must learn from etcd which keys are placed and with which keys their
// cells are sealed, and fails if etcd does not answer. ctx bounds only that.
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

// Close ends the background work; requests must have ended. Other gateways break guards that this
// one still holds.
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

// FollowDictionaries reads the dictionaries for values and closes loaded after the first attempt.
// It reads them again when a new one appears and once a minute, until ctx ends.
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
			if !open { // etcd has ended the watch
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

// reseal reseals cells that are sealed with old keys, and drops keys that are no longer needed,
// until ctx ends.
func reseal(ctx context.Context, server *guarded.Server, keys *seal.Keys, log *slog.Logger) {
	var done uint32    // the key with which all cells were found to be sealed
	var last time.Time // when resealing was last tried
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
