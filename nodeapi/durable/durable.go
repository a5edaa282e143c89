package durable

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Prefix is the prefix of all keys that the node API stores in etcd. It differs from the prefix of
// the project's internal keys, because gateways hide those from their clients.
const Prefix = "/netcraq.io/"

// KeysPrefix is the prefix of the entries that hold keys of programs.
const KeysPrefix = Prefix + "keys/"

const madePrefix = Prefix + "made/"

// MaxValue is the maximum size of a value, in bytes. It is lower than the maximum size of a
// message, 256 KiB, because a message may need six bytes for one byte of a value.
const MaxValue = 16 << 10

// epoch is the epoch in the versions of durable keys. It is higher than any epoch that chains
// reach. So if a volatile namespace becomes durable, the versions of its names still grow. This
// matters, for example, for the tokens of locks.
const epoch = 1 << 14

// Options are the options of a Store. If a field is zero, the default in its comment applies.
type Options struct {
	// Etcd is the connection to a gateway, or to etcd if no keys are placed. The caller closes it.
	Etcd *Connection
	// Quota returns the maximum number of keys of a namespace. If it is nil or returns 0,
	// DefaultQuota applies.
	Quota func(namespace string) int
	// Patience is how long a call waits for a connection before it fails. The default is 3 s.
	Patience time.Duration
	// Kept is the minimum time for which the tombstone of a deleted key is kept. The default is ten
	// minutes.
	Kept time.Duration
	// Metrics is the registry for counters. It may be nil.
	Metrics prometheus.Registerer
}

// DefaultQuota is the maximum number of keys of a namespace unless configured otherwise.
const DefaultQuota = 10_000

// Store is the store of durable keys. It is safe for concurrent use.
type Store struct {
	o      Options
	count  *metrics
	graves graves
	making store.Turns // turns for calls that create keys, see makingTurn
	// limits the reads of watches, which would otherwise all begin at once when etcd comes back
	reads *semaphore.Weighted

	ctx  context.Context // canceled by Close
	stop context.CancelFunc
	work sync.WaitGroup

	mu        sync.Mutex
	followers map[string]*follower // the followers of etcd's changes, by namespace
}

var _ store.Store = (*Store)(nil)

// New makes a store. It does not wait for etcd.
func New(o Options) *Store {
	o.Patience = cmp.Or(o.Patience, 3*time.Second)
	o.Kept = cmp.Or(o.Kept, 10*time.Minute)
	s := &Store{o: o, reads: semaphore.NewWeighted(readsAtOnce), followers: map[string]*follower{}}
	s.graves = graves{kept: o.Kept}
	s.count = newMetrics(o.Etcd, o.Metrics)
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends all watches.
func (s *Store) Close() error {
	s.stop()
	s.work.Wait()
	s.count.unregister()
	return nil
}

// client returns the client for etcd if the connection is up, or comes up soon.
func (s *Store) client(ctx context.Context) (*clientv3.Client, error) {
	return s.o.Etcd.Wait(ctx, s.o.Patience)
}

func nameOf(k store.Key) string { return NamesOf(k.Namespace) + k.Name }

// NamesOf returns the prefix of the entries for the keys of a namespace.
func NamesOf(namespace string) string { return KeysPrefix + namespace + "/" }

// MadeName returns the name of the entry that is written whenever a key is created in a namespace.
func MadeName(namespace string) string { return madePrefix + namespace }

// version converts the mod revision of a key's entry to a version.
func version(revision int64) wire.Version { return epoch<<48 + wire.Version(revision) }

// revision converts a version to a mod revision. It returns false if no durable key can have such a
// version.
func revision(v wire.Version) (int64, bool) {
	r := int64(v) - epoch<<48
	return r, r > 0
}

// item converts an entry in etcd to a key's item. A nil entry means that the key does not exist.
func item(key store.Key, kv *mvccpb.KeyValue) store.Item {
	out := store.Item{Key: key}
	if kv != nil {
		out.Version = version(kv.ModRevision)
		if len(kv.Value) > 0 {
			out.Found, out.Value = true, kv.Value
		}
	}
	return out
}

// about describes an operation on a key for error messages.
func about(doing string, key store.Key) string {
	return fmt.Sprintf("%s the key %q of the namespace %s", doing, key.Name, key.Namespace)
}

func only(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}

// MaxValue implements [store.Store].
func (s *Store) MaxValue(string) int { return MaxValue }

func (s *Store) quota(namespace string) int {
	if s.o.Quota != nil {
		if n := s.o.Quota(namespace); n != 0 {
			return n
		}
	}
	return DefaultQuota
}

// Get implements [store.Store]. Every Get is linearizable, even an eventual one. The reason is that
// a placed key is always read at the nearest member of its chain, and any other key is read in
// etcd.
func (s *Store) Get(ctx context.Context, key store.Key, _ bool) (got store.Item, err error) {
	defer s.count.took(callGet, time.Now(), &err)
	return s.get(ctx, key)
}

func (s *Store) get(ctx context.Context, key store.Key) (store.Item, error) {
	etcd, err := s.client(ctx)
	if err != nil {
		return store.Item{}, err
	}
	got, err := etcd.Get(ctx, nameOf(key))
	if err != nil {
		return store.Item{}, failure(ctx, about("reading", key), err, false)
	}
	return item(key, only(got.Kvs)), nil
}

// page is the number of names in one answer from etcd.
const page = 1000

// List implements [store.Store]. It includes the names of deleted keys until their tombstones
// expire.
func (s *Store) List(ctx context.Context, namespace, prefix string) (out []store.Key, err error) {
	defer s.count.took(callList, time.Now(), &err)
	etcd, err := s.client(ctx)
	if err != nil {
		return nil, err
	}
	_, err = scan(ctx, etcd, NamesOf(namespace)+prefix, page, func(kv *mvccpb.KeyValue) {
		out = append(out, store.Key{Namespace: namespace, Name: strings.TrimPrefix(string(kv.Key), NamesOf(namespace))})
	}, clientv3.WithKeysOnly())
	if err != nil {
		return nil, failure(ctx, "listing keys of the namespace "+namespace, err, false)
	}
	return out, nil
}

// Page implements [store.Store]. All items of a page have the state at the same revision.
func (s *Store) Page(ctx context.Context, r store.Range) (out store.Page, err error) {
	defer s.count.took(callList, time.Now(), &err)
	etcd, err := s.client(ctx)
	if err != nil {
		return store.Page{}, err
	}
	names := NamesOf(r.Namespace)
	from, end := names+r.Prefix, clientv3.GetPrefixRangeEnd(names+r.Prefix)
	from = max(from, names+r.After+"\x00")
	var revision, bytes int64
	for from < end {
		got, err := etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(revision),
			clientv3.WithLimit(int64(min(valuesPage, r.Most-len(out.Names)))),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
		if err != nil {
			return store.Page{}, failure(ctx, "listing keys of the namespace "+r.Namespace, err, false)
		}
		if out.More = got.More; revision == 0 {
			revision = got.Header.Revision
		}
		for i, kv := range got.Kvs {
			key := store.Key{Namespace: r.Namespace, Name: strings.TrimPrefix(string(kv.Key), names)}
			out.Names = append(out.Names, store.Listed{Item: item(key, kv), Read: true})
			if bytes += int64(len(kv.Value)); bytes >= int64(r.Bytes) {
				out.More = out.More || i < len(got.Kvs)-1
				return out, nil
			}
			from = string(kv.Key) + "\x00"
		}
		if !got.More || len(out.Names) == r.Most || len(got.Kvs) == 0 {
			break
		}
	}
	return out, nil
}

// scan reads the entries whose names begin with a prefix, in pages. All pages have the state at the
// same revision, which scan returns. It fails if etcd compacts that revision meanwhile.
func scan(ctx context.Context, etcd *clientv3.Client, from string, most int64, each func(*mvccpb.KeyValue),
	more ...clientv3.OpOption) (revision int64, err error) {
	opts := append(slices.Clone(more), clientv3.WithRange(clientv3.GetPrefixRangeEnd(from)), clientv3.WithLimit(most),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
	for {
		got, err := etcd.Get(ctx, from, opts...)
		if err != nil {
			return 0, err
		}
		if revision == 0 {
			revision = got.Header.Revision
			opts = append(opts, clientv3.WithRev(revision))
		}
		for _, kv := range got.Kvs {
			each(kv)
		}
		if !got.More || len(got.Kvs) == 0 {
			return revision, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

// fits returns an error if a value is too long, or looks like a tombstone.
func fits(key store.Key, value []byte) error {
	switch {
	case len(value) > MaxValue:
		return nodeapi.Errorf(nodeapi.CodeTooLarge, "write less, or keep the value elsewhere and its name here",
			"the value has %d bytes; one of the durable namespace %s has at most %d", len(value), key.Namespace, MaxValue)
	case len(value) == 0:
		return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "", "an entry without a byte is a deleted key's")
	}
	return nil
}

// IsVersion reports whether a version may belong to a durable key.
func IsVersion(v wire.Version) bool { _, ok := revision(v); return ok }
