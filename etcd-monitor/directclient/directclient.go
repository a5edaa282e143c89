// Package directclient reads etcd's keys without a gateway on the way: placed keys from the
// switches, by UDP, and all others from etcd.
//
//	r, err := native.Open(ctx, etcd, controller, placement.DefaultPrefix)
//	kv, err := r.Get(ctx, "/leader")        // nil: there is no such key
//
// Reads are linearizable as the gateway's are: a slot that can be read has what etcd has
// (docs/etcd.md). Writes go through a gateway, always: a writer that does not take the guards
// leaves old values in the network.
//
// What is in the switches is sealed with keys of the gateways' (package seal), which a reader reads
// in etcd: where etcd's authentication is enabled it has to be a user who may.
package directclient

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/placement"
	"github.com/netcraq/netcraq/api/slotcodec"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotclient"
	"github.com/netcraq/netcraq/wire"
)

// Reader reads keys. It is safe for concurrent use.
type Reader struct {
	etcd      clientv3.KV
	directory *placement.Follower
	network   *slotclient.Network
	chains    *slotclient.Chains
	library   *slotcodec.Library
	seals     *seal.Keys
	stop      context.CancelFunc
	following sync.WaitGroup
}

// Open begins to follow which keys are placed, in etcd, and where the chains are, at the
// controller. prefix is the gateways' (placement.DefaultPrefix). ctx bounds only the beginning.
func Open(ctx context.Context, etcd *clientv3.Client, controller *api.Client, prefix string) (*Reader, error) {
	directory, err := placement.Follow(ctx, etcd, prefix, zap.NewNop())
	if err != nil {
		return nil, fmt.Errorf("reading which keys are placed: %w", err)
	}
	r := &Reader{etcd: etcd, directory: directory, network: slotclient.NewNetwork(nil),
		library: slotcodec.NewLibrary(etcd, prefix)}
	if err := r.library.Load(ctx); err != nil {
		directory.Close()
		return nil, fmt.Errorf("reading the dictionaries of values: %w", err)
	}
	r.seals = seal.NewKeys(etcd, prefix)
	if err := r.seals.Ensure(ctx); err != nil {
		directory.Close()
		return nil, err
	}
	following, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.following.Go(func() { r.seals.Follow(following, etcd, 0, slog.New(slog.DiscardHandler)) })
	r.chains = slotclient.Follow(controller, r.network, "native reader", slog.New(slog.DiscardHandler))
	return r, nil
}

// Close ends it.
func (r *Reader) Close() {
	r.chains.Close()
	r.stop()
	r.following.Wait()
	r.directory.Close()
}

// Get reads a key; nil: it does not exist.
func (r *Reader) Get(ctx context.Context, key string) (*mvccpb.KeyValue, error) {
	if kv, ok := r.FromNetwork(ctx, key); ok {
		return kv, nil
	}
	answer, err := r.etcd.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if len(answer.Kvs) == 0 {
		return nil, nil
	}
	return answer.Kvs[0], nil
}

// FromNetwork reads a key in the switches. ok is false where they do not say: it is not placed, is
// being written, or they do not answer.
func (r *Reader) FromNetwork(ctx context.Context, key string) (kv *mvccpb.KeyValue, ok bool) {
	e, there := r.directory.Lookup(key)
	if !there {
		return nil, false
	}
	slot, version, err := r.network.Read(ctx, wire.Key(e.ID))
	if err != nil {
		return nil, false
	}
	plain, err := r.seals.Ring().Open(slot, seal.Place{Name: key, ID: wire.Key(e.ID), Version: version})
	if err != nil {
		// clear since it was made; a new key, which the watch brings; or a forger's, which a
		// gateway finds, too
		return nil, false
	}
	c, err := r.library.Codec().Decode(plain)
	if err != nil {
		return nil, false // a dictionary that came after this reader did: a gateway knows it
	}
	switch c.Kind {
	case slotcodec.Value:
		return &mvccpb.KeyValue{Key: []byte(key), CreateRevision: c.Create, ModRevision: c.Mod,
			Version: c.Version, Value: c.Value}, true
	case slotcodec.Absent:
		return nil, true
	}
	return nil, false
}
