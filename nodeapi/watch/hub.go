// Package watch notifies watchers of the newest committed versions of keys. Package
// nodeapi/watch/watchrules decides about each notification, and describes and tests the guarantees.
// This package has the clock, makes the reads, and runs the goroutines that notify watchers.
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
	// Read reads a key linearizably. If the key does not exist, the result says so without an
	// error. See [watchrules.Reading] for the other fields of the result.
	Read(ctx context.Context, key store.Key) (watchrules.Reading, error)
	// List does what the method List of [store.Store] does.
	List(ctx context.Context, namespace, prefix string) ([]store.Key, error)
}

// Config has the limits of a hub. If a field is 0, the default at the beginning of its comment
// applies.
type Config struct {
	Round    time.Duration // 5 s: interval between reads of a key for which the network sends notifications
	Unhelped time.Duration // 500 ms: interval between reads of a key for which the network sends no notifications
	Retry    time.Duration // 50 ms: pause after a failed read, which grows with each failure
	// 200 ms: minimum time between two reads of all keys of a chain because notifications are
	// missing
	Suspect     time.Duration
	Reads       int           // 64: maximum number of concurrent reads
	ReadTimeout time.Duration // 2 s: timeout of a read
	Listing     time.Duration // 500 ms: interval between lists of the names with a watched prefix
	// 131072: maximum number of watched keys; beyond it, watches fail with CodeQuotaExceeded
	Keys   int
	AtOnce int // 256: maximum number of changes in one call of tell
	// Follow makes the network call Notified or SuspectID when a KEY_ID is committed. The calls
	// begin soon after Follow, and continue until stop is called. Follow does not call them before
	// it returns. If Follow is nil, the network sends no notifications.
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

// Hub has all watches of a node.
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
	names    map[store.Key]*names // the names with each watched prefix, by namespace and prefix
	follows  map[wire.Key]func()  // for each followed KEY_ID, the function that Config.Follow returned
	until    time.Duration        // time until which run sleeps, unless it is woken
	wake     chan struct{}        // wakes run earlier, because a read may be due
}

// watcher is the state of one call of Watch.
type watcher struct {
	id    watchrules.Watcher
	watch store.Watch
	ready chan struct{} // has an element if there are changes to take; capacity one
	ended chan error    // has the error if a key cannot be read and trying again will not help; capacity one

	// The following fields are used only by a watch with a prefix.
	names     *names           // names with the watched prefix
	listing   <-chan time.Time // receives when the next list is due
	notBefore time.Duration    // a list that began before this time is too old
	failures  int              // number of consecutive lists that failed
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

// Close ends all watches with CodeDraining. It waits for reads under way.
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

// Watch implements the method Watch of [store.Store]. Its stack frame is small, because there are
// many watches, and each keeps its stack while it waits.
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

// enter adds a watcher. The caller must call leave afterwards, even if enter returned an error.
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

// listAgain lists the names with the watcher's prefix, and schedules the next list.
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

// names has the names with one prefix. All watchers of the prefix share it.
type names struct {
	namespace, prefix string
	users             int // number of watchers; guarded by Hub.mu

	mu    sync.Mutex
	began time.Duration // time when the newest list began; 0 if there was none
	keys  []store.Key
}

// open returns the entry for a prefix, and counts a new user of it.
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

// listed returns the result of a list that began after notBefore.
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

// list updates the names with the watcher's prefix. It releases a deleted name when the watcher has
// got the report of its deletion.
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

// fatal reports whether an error is permanent, so that trying again will not help.
func fatal(err error) bool {
	for _, code := range []nodeapi.Code{nodeapi.CodePermissionDenied, nodeapi.CodeInvalidArgument,
		nodeapi.CodeQuotaExceeded} {
		if errors.Is(err, &nodeapi.Error{Code: code}) {
			return true
		}
	}
	return false
}

// drive wakes watchers that have pending changes, and starts reads that are due. The caller holds
// h.mu.
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
			h.machine.SuspectID(h.now(), id) // a read finds commits that happened before Follow took effect
		}
	}
	if next, any := h.machine.Next(); any && next < h.until {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// never is the time of run's next check if nothing is due.
const never = math.MaxInt64

// run starts reads when they are due.
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

// Notified processes a notification that a KEY_ID was committed.
func (h *Hub) Notified(id wire.Key, version wire.Version, found bool, value []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machine.Notified(h.now(), id, version, found, slices.Clone(value))
	h.drive()
}

// Suspect makes the hub read a watched key soon. The key has changed, and its new value is not
// known.
func (h *Hub) Suspect(key store.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machine.SuspectKey(h.now(), key)
	h.drive()
}

// SuspectID does what Suspect does, for a KEY_ID.
func (h *Hub) SuspectID(id wire.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machine.SuspectID(h.now(), id)
	h.drive()
}

// SuspectAll makes the hub read all watched keys soon, because notifications may have been lost.
func (h *Hub) SuspectAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machine.SuspectAll(h.now())
	h.drive()
}

// Counts returns how many versions were found, by the way in which they were found.
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
