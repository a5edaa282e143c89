// Package service assembles etcd's key-value service whose placed keys are read from the switches.
// It combines a guarded.Server and everything that the server needs. A gateway (etcd-monitor)
// offers a Service to its clients. A program that needs no gateway (package etcd) has its own
// Service.
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
	// interval at which all slots are searched for cells that are sealed with an old key
	resealEvery = time.Hour
	resealSoon  = 5 * time.Second // interval between checks for a new sealing key
	// resealAgain is the minimum time between two searches of all slots, however many new keys
	// there are.
	resealAgain = time.Minute
	pruneWait   = 5 * time.Second // timeout for the deletion of old keys in etcd
)

// Patience is how long a gateway tries to write a placed key, even if its client waits longer.
const Patience = 10 * time.Second

// Config configures a Service. The comment of a field says if it may be nil.
type Config struct {
	// Own is the client for the service's own requests to etcd. Its KV, Lease and Watcher must
	// reach etcd directly and not through a guarded service. The caller closes it after the
	// Service.
	Own *clientv3.Client
	// Nobody reads from etcd without a user; see [guardedshell.NewEverybody]. If it is nil, slots
	// answer no reads.
	Nobody clientv3.KV
	// Etcd, Newest, Observer, Prefix, Reserved, MaxTxnOps and MaxRequestBytes have the same meaning
	// as in [guarded.Config].
	Etcd                       pb.KVClient
	Newest                     guarded.Newest
	Observer                   guarded.Observer
	Prefix                     string
	Reserved                   []string
	MaxTxnOps, MaxRequestBytes int
	// Controller says where the chains are. It leases their sessions under the name Owner.
	Controller *admin.Client
	Owner      string
	// RoundTrip gets each round-trip time of the switches. It may be nil.
	RoundTrip func(operation string, d time.Duration)
	// Keeper makes the service maintain all slots in the background. It populates the slots of new
	// placements, makes a new sealing key when the newest key is SealAge old, and reseals cells
	// that have an old key. Gateways set it. Any number of gateways may do so.
	Keeper  bool
	SealAge time.Duration
	Log     *slog.Logger // log of the service; may be nil
	Detail  *zap.Logger  // log of etcd's client; may be nil
}

// Service is etcd's key-value service whose placed keys are read from the switches. It has a
// [guarded.Server] and everything that the server needs.
type Service struct {
	*guarded.Server
	*guardedshell.Everybody // nil if Config.Nobody is nil
	follower                *placement.Follower
	chains                  *slotclient.Chains
	sessions                *guardedshell.Leases
	runtime                 *guardedshell.Goroutines
	stop                    context.CancelFunc
	work                    sync.WaitGroup
}

// Open starts a Service. It reads the directory of placed keys and the sealing keys from etcd, and
// fails if etcd does not answer. ctx bounds only these reads.
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

// Close ends the background work. All requests must have ended before. Other gateways break the
// guards that this gateway still holds.
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

// FollowDictionaries reads the dictionaries for values, and closes the channel `loaded` after the
// first attempt. Until ctx ends, it reads them again once a minute, and when a new dictionary
// appears.
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

// reseal seals cells with old keys again, with the current key, and drops keys that are no longer
// needed. It runs until ctx ends.
func reseal(ctx context.Context, server *guarded.Server, keys *seal.Keys, log *slog.Logger) {
	var done uint32    // the current key when all cells were last found to be sealed with it
	var last time.Time // when reseal last read all slots
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
