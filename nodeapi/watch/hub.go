// Package watch notifies watchers of the newest committed versions of keys.
// nodeapi/watch/watchrules decides about each notification, and describes and tests the guarantees.
// This package has the clock, the reads, and the goroutines that notify.
package watch

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/nodeapi/watch/watchrules"
)

// Reader reads watched keys.
type Reader interface {
	// Read is a linearizable read of a key. A key that does not exist is not found, which is not an
	// error. See [watchrules.Reading] for the rest of its result.
	Read(ctx context.Context, key store.Key) (watchrules.Reading, error)
	// List is like [store.Store]'s List.
	List(ctx context.Context, namespace, prefix string) ([]store.Key, error)
}

// Config has the hub's limits; 0 means the default at the beginning of the comment.
type Config struct {
	Round       time.Duration // 5 s: interval between reads of a key of which the network sends notifications
	Unhelped    time.Duration // 500 ms: interval between reads of any other key
	Retry       time.Duration // 50 ms: pause after a failed read; it grows
	Suspect     time.Duration // 200 ms: minimum time between two reads of all keys of a chain after gaps
	Reads       int           // 64: maximum number of reads under way
	ReadTimeout time.Duration // 2 s
	Listing     time.Duration // 500 ms: interval between lists of the names under a watched prefix
	Keys        int           // 131072: maximum number of watched keys; beyond it CodeQuotaExceeded
	AtOnce      int           // 256: maximum number of changes in one call of tell
	// Follow makes the network call Notified or SuspectID for commits of a KEY_ID, beginning soon,
	// until stop is called. It does not call them before it returns. nil: the network sends no
	// notifications.
	Follow func(id wire.Key) (stop func())
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	def(&c.Round, 5*time.Second)
	def(&c.Unhelped, 500*time.Millisecond)
	def(&c.Retry, 50*time.Millisecond)
	def(&c.Suspect, 200*time.Millisecond)
	def(&c.ReadTimeout, 2*time.Second)
	def(&c.Listing, 500*time.Millisecond)
	for n, to := range map[*int]int{&c.Reads: 64, &c.Keys: 1 << 17, &c.AtOnce: 256} {
		if *n == 0 {
			*n = to
		}
	}
	return c
}

// Hub is all watches of a node.
type Hub struct {
	config Config
	reader Reader
	start  time.Time
	ctx    context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	machine  *watchrules.Machine
	last     watchrules.Watcher
	watchers map[watchrules.Watcher]*watcher
	names    map[store.Key]*names // by namespace and prefix
	follows  map[wire.Key]func()  // functions that end what Config.Follow has begun
	until    time.Duration        // run sleeps until this time, unless it is woken
	wake     chan struct{}        // wakes run, because reads may be due earlier
}

// watcher is one Watch.
type watcher struct {
	id    watchrules.Watcher
	watch store.Watch
	ready chan struct{} // capacity one: there are changes to take
	ended chan error    // capacity one: a key cannot be read, and trying again will not help

	// For a watch with a prefix; otherwise these are empty.
	names     *names           // names under the prefix
	listing   <-chan time.Time // time of the next listing
	notBefore time.Duration    // a list that began earlier is too old
	failures  int              // failed listings in a row
}

// NewHub makes a hub without watchers. Close ends it.
func NewHub(reader Reader, config Config) *Hub {
	config = config.withDefaults()
	h := &Hub{config: config, reader: reader, start: time.Now(), watchers: map[watchrules.Watcher]*watcher{},
		names: map[store.Key]*names{}, follows: map[wire.Key]func(){},
		wake: make(chan struct{}, 1)}
	h.machine = watchrules.New(watchrules.Config{Round: config.Round, Unhelped: config.Unhelped, Retry: config.Retry,
		Suspect: config.Suspect, Reads: config.Reads})
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.work.Go(h.run)
	return h
}

// Close ends all watches with CodeDraining, and waits for reads under way.
func (h *Hub) Close() {
	h.stop()
	h.work.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, stop := range h.follows {
		stop()
		delete(h.follows, id)
	}
}

func (h *Hub) now() time.Duration { return time.Since(h.start) }

// Watch implements [store.Store]'s Watch. Its stack frame is small, because there are many watches,
// and each uses its stack while it waits.
func (h *Hub) Watch(ctx context.Context, w store.Watch, tell func([]store.Change)) error {
	me, err := h.enter(&w)
	defer h.leave(me)
	for err == nil {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-h.ctx.Done():
			err = errDraining
		case err = <-me.ended:
		case <-me.listing:
			err = h.listAgain(ctx, me)
		case <-me.ready:
			h.take(ctx, me, tell)
		}
	}
	return err
}

var errDraining = &nodeapi.Error{Code: nodeapi.CodeDraining, Message: "the server of this node is shutting down",
	Do: "connect again, and watch from the versions that you have"}

// enter makes a watcher. leave must be called afterwards, even if there was an error.
func (h *Hub) enter(w *store.Watch) (*watcher, error) {
	me := &watcher{watch: *w, ready: make(chan struct{}, 1), ended: make(chan error, 1)}
	h.mu.Lock()
	h.last++
	me.id = h.last
	h.watchers[me.id] = me
	h.mu.Unlock()
	for _, name := range w.Keys {
		if err := h.follow(me.id, me, store.Key{Namespace: w.Namespace, Name: name}); err != nil {
			return me, err
		}
	}
	if w.Prefix != nil {
		me.notBefore = h.now()
		me.names = h.open(w.Namespace, *w.Prefix)
		me.listing = time.After(0)
	}
	return me, nil
}

func (h *Hub) leave(me *watcher) {
	if me.names != nil {
		h.release(me.names)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machine.Leave(me.id)
	delete(h.watchers, me.id)
	h.drive()
}

// listAgain lists the names under the watcher's prefix, and schedules the next listing.
func (h *Hub) listAgain(ctx context.Context, me *watcher) error {
	err := h.list(ctx, me.id, me, me.notBefore)
	me.notBefore = h.now() + h.config.Listing/2
	if fatal(err) {
		return err
	}
	if me.failures++; err == nil {
		me.failures = 0
	}
	me.listing = time.After(h.config.Listing << min(me.failures, 4))
	return nil
}

// take reports all pending changes to a watcher.
func (h *Hub) take(ctx context.Context, me *watcher, tell func([]store.Change)) {
	for more := true; more && ctx.Err() == nil; {
		var changes []store.Change
		h.mu.Lock()
		changes, more = h.machine.Take(me.id, h.config.AtOnce)
		h.mu.Unlock()
		if len(changes) > 0 {
			tell(changes)
		}
	}
}

func (h *Hub) follow(id watchrules.Watcher, me *watcher, key store.Key) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.machine.Keys() >= h.config.Keys {
		return &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded, Message: "this node watches as many keys as it can",
			Do: "watch fewer keys"}
	}
	after, has := me.watch.After[key.Name]
	h.machine.Follow(h.now(), id, key, after, has)
	h.drive()
	return nil
}

// names is the names under a prefix, shared by all its watchers.
type names struct {
	namespace, prefix string
	users             int // guarded by Hub.mu

	mu    sync.Mutex
	began time.Duration // start of the newest list; 0: there is none
	keys  []store.Key
}

// open returns the names under a prefix, and adds a user.
func (h *Hub) open(namespace, prefix string) *names {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := store.Key{Namespace: namespace, Name: prefix}
	n := h.names[at]
	if n == nil {
		n = &names{namespace: namespace, prefix: prefix}
		h.names[at] = n
	}
	n.users++
	return n
}

func (h *Hub) release(n *names) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(h.names, store.Key{Namespace: n.namespace, Name: n.prefix})
	}
}

// listed returns the first list that began after the given moment.
func (h *Hub) listed(ctx context.Context, n *names, notBefore time.Duration) ([]store.Key, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.began > 0 && n.began >= notBefore {
		return n.keys, nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.config.ReadTimeout)
	defer cancel()
	began := h.now()
	keys, err := h.reader.List(ctx, n.namespace, n.prefix)
	if err == nil {
		n.began, n.keys = began, keys
	}
	return keys, err
}

// list updates the names under the watcher's prefix. It releases deleted names when their watcher
// was told of the deletion.
func (h *Hub) list(ctx context.Context, id watchrules.Watcher, me *watcher, notBefore time.Duration) error {
	keys, err := h.listed(ctx, me.names, notBefore)
	if err != nil {
		return err
	}
	listed := make(map[store.Key]bool, len(keys))
	for _, k := range keys {
		listed[k] = true
		if err := h.follow(id, me, k); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.machine.Following(id) {
		told, found := h.machine.Told(id, k)
		if told && !found && !listed[k] && !slices.Contains(me.watch.Keys, k.Name) {
			h.machine.Unfollow(id, k)
		}
	}
	return nil
}

// fatal reports whether trying again will not help.
func fatal(err error) bool {
	for _, code := range []nodeapi.Code{nodeapi.CodePermissionDenied, nodeapi.CodeInvalidArgument,
		nodeapi.CodeQuotaExceeded} {
		if errors.Is(err, &nodeapi.Error{Code: code}) {
			return true
		}
	}
	return false
}

// drive wakes watchers that have pending changes, and begins reads that are due. h.mu is held.
func (h *Hub) drive() {
	for _, id := range h.machine.Ready() {
		if w := h.watchers[id]; w != nil {
			select {
			case w.ready <- struct{}{}:
			default:
			}
		}
	}
	for id, follow := range h.machine.Named() {
		if stop := h.follows[id]; stop != nil {
			stop()
			delete(h.follows, id)
		}
		if follow && h.config.Follow != nil {
			h.follows[id] = h.config.Follow(id)
			h.machine.SuspectID(h.now(), id) // finds earlier commits
		}
	}
	if next, any := h.machine.Next(); any && next < h.until {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// never is the time of run's next check if there is nothing to wait for.
const never = math.MaxInt64

// run begins reads when they are due.
func (h *Hub) run() {
	for {
		h.mu.Lock()
		reads := h.machine.Begin(h.now())
		next, any := h.machine.Next()
		wait := next - h.now()
		h.until = never
		if any {
			h.until = next
		}
		h.mu.Unlock()
		for _, r := range reads {
			h.work.Go(func() { h.read(r) })
		}
		var due <-chan time.Time
		if any {
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-h.wake:
		case <-h.ctx.Done():
			return
		}
	}
}

func (h *Hub) read(r watchrules.Read) {
	ctx, cancel := context.WithTimeout(h.ctx, h.config.ReadTimeout)
	defer cancel()
	reading, err := h.reader.Read(ctx, r.Key)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.machine.Failed(h.now(), r.Ticket)
		if fatal(err) {
			for _, id := range h.machine.Followers(r.Key) {
				select {
				case h.watchers[id].ended <- err:
				default:
				}
			}
		}
	} else {
		h.machine.Ended(h.now(), r.Ticket, reading)
	}
	h.drive()
}

// Notified processes a notification of a commit under a KEY_ID.
func (h *Hub) Notified(id wire.Key, version wire.Version, found bool, value []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machine.Notified(h.now(), id, version, found, slices.Clone(value))
	h.drive()
}

// Suspect makes a watched key be read soon, because it has changed and its new value is not known.
func (h *Hub) Suspect(key store.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machine.SuspectKey(h.now(), key)
	h.drive()
}

// SuspectID is like Suspect, for a KEY_ID.
func (h *Hub) SuspectID(id wire.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machine.SuspectID(h.now(), id)
	h.drive()
}

// SuspectAll makes all keys be read soon, because notifications may have been lost.
func (h *Hub) SuspectAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machine.SuspectAll(h.now())
	h.drive()
}

// Counts returns the numbers of found versions, by how they were found.
func (h *Hub) Counts() watchrules.Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machine.Counts()
}

// Watched returns the KEY_IDs for which the network should send notifications.
func (h *Hub) Watched() []wire.Key {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := h.machine.IDs()
	slices.Sort(ids)
	return ids
}
