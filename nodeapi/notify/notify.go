// Package notify makes the switch of a node report commits of the keys that are watched on the
// node. It implements keys.Push.
//
//	Receiver ── PUT /v1/watches: these KEY_IDs, this UDP port ──▶ controller ──▶ tables of switches
//	    ▲                                                                              │
//	    └── NOTIFY: key, version, value ◀── the host's switch ◀── acknowledgements ◀───┘
//
// No guarantee depends on notifications (docs/consistency.md, "What a watcher is promised").
// Periodic reads find commits whose notification was lost, and commits before the tables were set
// up. Helps says whether the switch reports a key, so that the key can be read less often.
package notify

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/keys"
)

// Options are the options of a Receiver. If a field is zero, the default in its comment applies.
type Options struct {
	Admin *admin.Client
	Log   *slog.Logger // the receiver's log; nil means no log
	// Metrics is the registry for counters. It may be nil.
	Metrics prometheus.Registerer
	// Keys is the maximum number of keys for which to request notifications from the controller.
	// The keys that were followed first are chosen. Periodic reads cover the other keys. The
	// default is DefaultKeys.
	Keys int
}

// DefaultKeys is a quarter of the number of keys that one switch can report, which is also the
// limit for all switches together.
const DefaultKeys = 4096

// pace has the intervals and timeouts of a receiver.
type pace struct {
	gather time.Duration // time for which changes of the followed keys are collected before they are sent together
	// approximate time from a controller's acceptance until the switches' tables are updated
	settle   time.Duration
	request  time.Duration // timeout of a request to the controller
	end      time.Duration // timeout of the last request to the controller
	failed   time.Duration // pause after the first failure, which doubles with each further failure
	failures time.Duration // maximum pause after a failure
	refused  time.Duration // pause after the controller has refused because another server on this host is watching
	absent   time.Duration // pause if the controller does not support watches, or does not permit them
	// minimum time between two requests for the chains because of unexpected datagrams
	chains time.Duration
	lost   time.Duration // minimum time between two reads of all keys because of lost datagrams
}

var defaultPace = pace{gather: 250 * time.Millisecond, settle: 500 * time.Millisecond,
	request: 3 * time.Second, end: time.Second, failed: 100 * time.Millisecond, failures: 2 * time.Second,
	refused: 2 * time.Second, absent: 30 * time.Second, chains: 10 * time.Second, lost: time.Second}

// Receiver receives notifications for a node's server. It is safe for concurrent use.
type Receiver struct {
	o      Options
	pace   pace
	log    *slog.Logger
	count  *counts
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	// changed has the capacity one. An element wakes run, because the followed keys have changed.
	changed chan struct{}
	// chains has the chains from which notifications may come.
	chains atomic.Pointer[sources]
	// doubted is set when a datagram does not match the chains in the field chains.
	doubted atomic.Bool

	mu     sync.RWMutex
	keys   map[wire.Key]*followed
	number uint64 // number of keys that have ever been followed
	dirty  bool   // whether the followed keys differ from the keys that the controller has
	closed bool
}

var _ keys.Push = (*Receiver)(nil)

// followed is a KEY_ID that has followers. Receiver.mu guards it.
type followed struct {
	key    wire.Key
	number uint64 // number that counts up in the order in which keys were first followed
	told   []*follower
	// accepted is the time when the controller accepted the key. It is zero if the controller has
	// not accepted the key, or has forgotten it.
	accepted time.Time
	settled  bool // whether pace.settle has passed since accepted
	helped   bool // whether the switch reports this key
}

type follower struct{ told func(keys.News) }

// New makes a receiver. The receiver sends nothing to the controller until a key is followed.
func New(o Options) *Receiver {
	r := newReceiver(o, defaultPace)
	r.work.Go(r.run)
	return r
}

func newReceiver(o Options, p pace) *Receiver {
	o.Keys = cmp.Or(o.Keys, DefaultKeys)
	r := &Receiver{o: o, pace: p, log: o.Log, count: newCounts(o.Metrics), changed: make(chan struct{}, 1),
		keys: map[wire.Key]*followed{}}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.chains.Store(&sources{})
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Close withdraws the followed keys from the controller, if it answers, and ends the Receiver.
func (r *Receiver) Close() {
	r.mu.Lock()
	was := r.closed
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.work.Wait()
	if !was {
		r.count.unregister()
	}
}

// Follow implements [keys.Push].
func (r *Receiver) Follow(key wire.Key, told func(keys.News)) (stop func()) {
	f := &follower{told}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.keys[key]
	if e == nil {
		r.number++
		e = &followed{key: key, number: r.number}
		r.keys[key] = e
		r.hasChanged()
	}
	// Replace the slice instead of changing it, because tell reads it without holding the lock.
	e.told = append(slices.Clip(e.told), f)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.Index(e.told, f)
		if i < 0 {
			return
		}
		e.told = slices.Concat(e.told[:i], e.told[i+1:])
		if len(e.told) == 0 {
			r.withdraw(e)
			delete(r.keys, key)
			r.hasChanged()
		}
	}
}

// hasChanged makes run send the changed keys to the controller. The caller holds r.mu.
func (r *Receiver) hasChanged() {
	r.dirty = true
	r.wake()
}

func (r *Receiver) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Helps implements [keys.Push].
func (r *Receiver) Helps(key wire.Key) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.keys[key]
	return e != nil && e.helped
}

// tell reports a commit to all followers of the key. It returns false if the key has no followers.
func (r *Receiver) tell(n keys.News) bool {
	r.mu.RLock()
	e := r.keys[n.Key]
	var told []*follower
	if e != nil {
		told = e.told
	}
	r.mu.RUnlock()
	for _, f := range told {
		f.told(n)
	}
	return e != nil
}

// hint makes watches read keys, because a notification of these keys may have been lost.
func (r *Receiver) hint(all []wire.Key) {
	for _, id := range all {
		r.tell(keys.News{Key: id})
	}
}

// helpedKeys returns the keys that the switch reports at present.
func (r *Receiver) helpedKeys() (all []wire.Key) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for id, e := range r.keys {
		if e.helped {
			all = append(all, id)
		}
	}
	return all
}
