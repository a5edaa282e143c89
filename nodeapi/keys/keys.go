// Package keys implements the node API's store for volatile keys, which the network's chains store.
// It is a store.Store that uses the packet client and the controller's admin API. The key NAME of a
// namespace NS is the key node/NS/NAME in the controller's directory (api/nodeapi.KeyName). The
// controller chooses its chain.
//
//	Store ──▶ fromadmin.Names: finds the key ──▶ client: packets to its chain
//	  │            └── creates it, with the namespace's chains and quota (POST /v1/keys)
//	  └── nodeapi/watch: periodic reads, and earlier reports of a Push
//
// Known keys also work without a controller. To look up or create a key, the store needs a
// controller.
package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/fromadmin"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/nodeapi/watch"
)

// Options are the options of a Store. If a field is zero, the default in its comment applies.
type Options struct {
	Admin *admin.Client
	// Node is the name of this node. The controller and operators see it as the owner of sessions.
	Node string
	// Sessions is the number of sessions for each chain. It limits the number of writes under way.
	// The default is 32.
	Sessions int
	// Chains returns the chains that a namespace may use. If Chains is nil or returns none, the
	// namespace may use all chains.
	Chains func(namespace string) []string
	// Quota returns the maximum number of keys of a namespace. If it is nil or returns 0,
	// DefaultQuota applies. The controller checks the quota when a key is created, so all nodes
	// must use the same quota.
	Quota func(namespace string) int
	// Patience is how long requests are repeated if the controller does not answer. The default is
	// 3 s.
	Patience time.Duration
	// Interval is the interval between two reads of a watched key. The default is one second.
	Interval time.Duration
	// Round is the interval between two reads of a key whose commits Push reports. The default is
	// five seconds, but at least Interval.
	Round time.Duration
	// Unused is the time after which a key without a value is removed from the network. The default
	// is ten minutes. With a negative value, keys are not removed.
	Unused time.Duration
	// Push reports commits when they happen. If it is nil, watches learn of commits only by their
	// own reads.
	Push Push
	// Metrics is the registry for counters. It may be nil.
	Metrics prometheus.Registerer
	// Adjust may change the options of a chain's client. It may be nil.
	Adjust func(*client.Config)
}

// DefaultQuota is the maximum number of keys of a namespace unless configured otherwise.
const DefaultQuota = 1000

// Store is the store. It is safe for concurrent use.
type Store struct {
	o     Options
	names *fromadmin.Names
	hub   *watch.Hub
	// counts has the counters of watches.
	counts counts

	sweeper sync.WaitGroup // waits for the goroutine that removes unused keys
	stop    context.CancelFunc

	mu     sync.Mutex
	widths map[string]int // maximum length of a value in bytes, by chain
	least  int            // the smallest length in widths
}

var _ store.Store = (*Store)(nil)

// New makes a store. It gets the description of the chains from the controller, and ctx limits only
// the time for that. New fails if there are no chains yet, because then the maximum length of a
// value is not known.
func New(ctx context.Context, o Options) (*Store, error) {
	o.Sessions = cmp.Or(o.Sessions, 32)
	o.Interval = cmp.Or(o.Interval, time.Second)
	o.Round = max(cmp.Or(o.Round, 5*time.Second), o.Interval)
	o.Unused = cmp.Or(o.Unused, 10*time.Minute)
	s := &Store{o: o}
	if err := s.measure(ctx); err != nil {
		return nil, fmt.Errorf("the node API's store: %w", err)
	}
	s.names = fromadmin.NewNames(fromadmin.NamesOptions{Admin: o.Admin, Sessions: o.Sessions,
		Owner: strings.TrimSpace("node API " + o.Node), Make: s.make, Adjust: o.Adjust,
		Patience: o.Patience})
	s.hub = newHub(s)
	s.counts = newCounts(s.hub, o.Metrics)
	sweeping, stop := context.WithCancel(context.Background())
	s.stop = stop
	if o.Unused > 0 {
		s.sweeper.Go(func() { s.sweep(sweeping) })
	}
	return s, nil
}

// Close ends all calls and watches, and releases the sessions.
func (s *Store) Close() error {
	s.stop()
	s.sweeper.Wait()
	s.hub.Close()
	s.counts.unregister()
	return s.names.Close()
}

// measure gets the maximum length of values for each chain from the controller.
func (s *Store) measure(ctx context.Context) error {
	chains, err := s.o.Admin.Chains(ctx)
	if err != nil {
		return err
	}
	if len(chains) == 0 {
		return errors.New("the controller has no chains")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.widths, s.least = map[string]int{}, 0
	for _, c := range chains {
		s.widths[c.Name] = c.ValueBytes
		if s.least == 0 || c.ValueBytes < s.least {
			s.least = c.ValueBytes
		}
	}
	return nil
}

func (s *Store) chains(namespace string) []string {
	if s.o.Chains == nil {
		return nil
	}
	return s.o.Chains(namespace)
}

// quota returns the maximum number of keys of a namespace.
func (s *Store) quota(namespace string) int {
	if s.o.Quota != nil {
		if n := s.o.Quota(namespace); n != 0 {
			return n
		}
	}
	return DefaultQuota
}

// MaxValue implements [store.Store]. It returns the length that fits in every chain that the
// namespace may use, because the controller chooses the chain.
func (s *Store) MaxValue(namespace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := 0
	for _, c := range s.chains(namespace) {
		if w := s.widths[c]; w != 0 && (least == 0 || w < least) {
			least = w
		}
	}
	return cmp.Or(least, s.least)
}

// make asks the controller to create a key.
func (s *Store) make(ctx context.Context, name string) (*admin.Key, error) {
	namespace, _, ok := nodeapi.ParseKeyName(name)
	if !ok {
		return nil, fmt.Errorf("%q is no key of the node API", name)
	}
	if err := store.MayCreate(ctx); err != nil {
		return nil, err
	}
	k, err := s.o.Admin.RequestKey(ctx, admin.KeyRequest{Name: name, Chains: s.chains(namespace),
		Quota: &admin.KeyQuota{Prefix: nodeapi.NamespacePrefix(namespace), Keys: s.quota(namespace)}})
	if err != nil {
		return nil, err
	}
	return &k.Key, nil
}

func name(k store.Key) string { return nodeapi.KeyName(k.Namespace, k.Name) }

func item(k store.Key, n fromadmin.Named) store.Item {
	return store.Item{Key: k, Found: n.Found, Value: n.Value, Version: n.Version}
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key store.Key, eventual bool) (store.Item, error) {
	got, err := s.names.Get(ctx, name(key), eventual)
	return item(key, got), s.failure(key, err)
}

// fits returns an error if a value is too long for every key. It is called before a key is created
// for the value.
func (s *Store) fits(key store.Key, value []byte) error {
	if most := s.MaxValue(key.Namespace); len(value) > most {
		return &nodeapi.Error{Code: nodeapi.CodeTooLarge,
			Message: fmt.Sprintf("the value has %d bytes; one of the namespace %s has at most %d, which is what the switches' program holds",
				len(value), key.Namespace, most),
			Do: "write less, or keep the value elsewhere and its name here"}
	}
	return nil
}

// Put implements [store.Store].
func (s *Store) Put(ctx context.Context, key store.Key, value []byte) (wire.Version, error) {
	if err := s.fits(key, value); err != nil {
		return 0, err
	}
	v, err := s.names.Put(ctx, name(key), value)
	return v, s.failure(key, err)
}

// CompareAndSwap implements [store.Store].
func (s *Store) CompareAndSwap(ctx context.Context, key store.Key, expected wire.Version, value []byte) (store.Item,
	bool, error) {
	if err := s.fits(key, value); err != nil {
		return store.Item{}, false, err
	}
	return s.swapped(key, func() (fromadmin.Named, error) {
		return s.names.CompareAndSwap(ctx, name(key), expected, value)
	})
}

// CompareAndDelete implements [store.Store].
func (s *Store) CompareAndDelete(ctx context.Context, key store.Key, expected wire.Version) (store.Item, bool, error) {
	return s.swapped(key, func() (fromadmin.Named, error) {
		if expected == 0 { // the key was never written, so there is nothing to delete
			got, err := s.names.Get(ctx, name(key), false)
			if err == nil && got.Version != 0 {
				err = client.ErrCASFailed
			}
			return got, err
		}
		return s.names.CompareAndDelete(ctx, name(key), expected)
	})
}

// swapped executes a compare-and-swap. If the key has another version than expected, this is a
// result, not an error.
func (s *Store) swapped(key store.Key, do func() (fromadmin.Named, error)) (store.Item, bool, error) {
	got, err := do()
	var e *fromadmin.NameError
	if errors.Is(err, client.ErrCASFailed) && !(errors.As(err, &e) && e.OutcomeUnknown) {
		return item(key, got), false, nil
	}
	if err != nil {
		return store.Item{}, false, s.failure(key, err)
	}
	return item(key, got), true, nil
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, key store.Key) (wire.Version, error) {
	v, err := s.names.Delete(ctx, name(key))
	return v, s.failure(key, err)
}

// Transacts implements [store.Store].
func (s *Store) Transacts(string, wire.Version) bool { return false }

// Transact implements [store.Store]. It always refuses, because all keys of this store are
// volatile.
func (s *Store) Transact(_ context.Context, t store.Transaction) (store.Transacted, error) {
	return store.Transacted{}, store.Volatile(store.Key{Namespace: t.Namespace, Name: t.Names()[0]})
}

// List implements [store.Store]. It gets the names from the controller.
func (s *Store) List(ctx context.Context, namespace, prefix string) ([]store.Key, error) {
	keys, err := s.list(ctx, namespace, prefix)
	if err != nil {
		return nil, s.failure(store.Key{Namespace: namespace, Name: prefix}, err)
	}
	out := make([]store.Key, 0, len(keys))
	for _, k := range keys {
		if ns, key, ok := nodeapi.ParseKeyName(k.Name); ok && ns == namespace {
			out = append(out, store.Key{Namespace: ns, Name: key})
		}
	}
	slices.SortFunc(out, func(a, b store.Key) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Page implements [store.Store]. It gets the names from the controller, and does not read the keys.
func (s *Store) Page(ctx context.Context, r store.Range) (store.Page, error) {
	keys, more, err := s.o.Admin.DirectoryPage(ctx, nodeapi.KeyName(r.Namespace, r.Prefix),
		nodeapi.KeyName(r.Namespace, r.After), r.Most)
	if err != nil {
		return store.Page{}, s.failure(store.Key{Namespace: r.Namespace, Name: r.Prefix}, s.silent(ctx, err))
	}
	out := store.Page{More: more}
	for i := range keys {
		if _, _, known := s.names.Place(keys[i].Name); !known {
			s.names.Learn(&keys[i]) // learn the key's place, so that a read of the key needs no lookup
		}
		key := store.Key{Namespace: r.Namespace}
		key.Name = strings.TrimPrefix(keys[i].Name, nodeapi.NamespacePrefix(r.Namespace))
		out.Names = append(out.Names, store.Listed{Item: store.Item{Key: key}})
	}
	return out, nil
}

func (s *Store) list(ctx context.Context, namespace, prefix string) ([]admin.Key, error) {
	keys, err := s.o.Admin.Directory(ctx, nodeapi.KeyName(namespace, prefix), false)
	return keys, s.silent(ctx, err)
}

// silent converts an error to ErrNoController, if the error did not come from a controller.
func (s *Store) silent(ctx context.Context, err error) error {
	var said *admin.Error
	if err != nil && !errors.As(err, &said) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", fromadmin.ErrNoController, err)
	}
	return err
}
