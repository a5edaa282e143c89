// Package keys is the node API's store in the network's chains: store.Store over the packet client
// and the controller's admin API. A key NAME of a namespace NS is the key node/NS/NAME of the
// controller's directory (api/nodeapi.KeyName), in the chain that the controller has chosen.
//
//	Store ──▶ fromadmin.Names: finds the key ──▶ client: packets to its chain
//	  │            └── creates it, with the namespace's chains and quota (POST /v1/keys)
//	  └── nodeapi/watch: periodic reads, and earlier reports of a Push
//
// Known keys keep working without a controller; looking up or creating a key needs one.
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

// Options configure a Store. Zero values mean the defaults in the fields' comments.
type Options struct {
	Admin *admin.Client
	// Node is the name of this node, which the controller and operators see as the owner of
	// sessions.
	Node string
	// Sessions is the number of sessions for each chain, which limits how many writes may be under
	// way at once. 0: 32.
	Sessions int
	// Chains returns the chains that a namespace may use. nil, or none for a namespace: all.
	Chains func(namespace string) []string
	// Quota returns the maximum number of keys of a namespace. nil, or 0 for a namespace:
	// DefaultQuota. The controller checks it when a key is created, so all nodes must use the same
	// value.
	Quota func(namespace string) int
	// Patience is the time for which requests to a controller that does not answer are retried. 0:
	// 3 s.
	Patience time.Duration
	// Interval is the interval between two reads of a watched key. 0: a second.
	Interval time.Duration
	// Round is the interval between reads of keys that Push reports. 0: five seconds, but at least
	// Interval.
	Round time.Duration
	// Unused is the time without a value after which a key is removed from the network. 0: ten
	// minutes; below 0: keys are not removed.
	Unused time.Duration
	// Push reports commits as they happen; nil: watches learn of them by their own reads.
	Push Push
	// Metrics is the registry for counters; nil: none.
	Metrics prometheus.Registerer
	// Adjust may change the options of a chain's client. nil: nothing is changed.
	Adjust func(*client.Config)
}

// DefaultQuota is the maximum number of keys of a namespace unless configured otherwise.
const DefaultQuota = 1000

// Store is the store. It is safe for concurrent use.
type Store struct {
	o     Options
	names *fromadmin.Names
	hub   *watch.Hub
	// counts are the counters of watches.
	counts counts

	sweeper sync.WaitGroup // removes unused keys
	stop    context.CancelFunc

	mu     sync.Mutex
	widths map[string]int // maximum value length in bytes, by chain
	least  int            // the minimum over all chains
}

var _ store.Store = (*Store)(nil)

// New makes a store from the controller's description of its chains; ctx bounds only the time for
// that. It fails if there are no chains yet, because the maximum length of a value is then unknown.
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

// Close ends all calls and watches, and releases sessions.
func (s *Store) Close() error {
	s.stop()
	s.sweeper.Wait()
	s.hub.Close()
	s.counts.unregister()
	return s.names.Close()
}

// measure requests the maximum value lengths of the chains from the controller.
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

// MaxValue implements [store.Store]. It returns what fits in every chain that the namespace may
// use, because the controller chooses the chain.
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

// make makes the controller create a key.
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

// fits refuses values that fit in no key, before a key is created for them.
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
		if expected == 0 { // the key was never written: there is nothing to delete
			got, err := s.names.Get(ctx, name(key), false)
			if err == nil && got.Version != 0 {
				err = client.ErrCASFailed
			}
			return got, err
		}
		return s.names.CompareAndDelete(ctx, name(key), expected)
	})
}

// swapped runs a CAS. It returns another version than the expected one as a result, and not as an
// error.
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

// Transact implements [store.Store], by refusing: all keys of this store are volatile.
func (s *Store) Transact(_ context.Context, t store.Transaction) (store.Transacted, error) {
	return store.Transacted{}, store.Volatile(store.Key{Namespace: t.Namespace, Name: t.Names()[0]})
}

// List implements [store.Store]. It asks the controller.
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

// Page implements [store.Store]. It gets names from the controller, and does not read the keys.
func (s *Store) Page(ctx context.Context, r store.Range) (store.Page, error) {
	keys, more, err := s.o.Admin.DirectoryPage(ctx, nodeapi.KeyName(r.Namespace, r.Prefix),
		nodeapi.KeyName(r.Namespace, r.After), r.Most)
	if err != nil {
		return store.Page{}, s.failure(store.Key{Namespace: r.Namespace, Name: r.Prefix}, s.silent(ctx, err))
	}
	out := store.Page{More: more}
	for i := range keys {
		if _, _, known := s.names.Place(keys[i].Name); !known {
			s.names.Learn(&keys[i]) // so that reading the key needs no lookup
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

// silent converts an error that did not come from a controller to ErrNoController.
func (s *Store) silent(ctx context.Context, err error) error {
	var said *admin.Error
	if err != nil && !errors.As(err, &said) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", fromadmin.ErrNoController, err)
	}
	return err
}
