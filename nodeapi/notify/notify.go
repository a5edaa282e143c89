// Package notify makes a node's switch report commits of keys that are watched there. It is a
// keys.Push.
//
//	Receiver ── PUT /v1/watches: these KEY_IDs, this UDP port ──▶ controller ──▶ tables of switches
//	    ▲                                                                              │
//	    └── NOTIFY: key, version, value ◀── the host's switch ◀── acknowledgements ◀───┘
//
// No guarantee depends on it (docs/consistency.md, "What a watcher is promised"): periodic reads
// find what was lost in transit, or committed before the tables were set up. Helps tells which keys
// the switch reports, so that those can be read less often.
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

// Options configure a Receiver. Zero values mean the defaults in the fields' comments.
type Options struct {
	Admin *admin.Client
	Log   *slog.Logger // nil: no log
	// Metrics is the registry for counters; nil: none.
	Metrics prometheus.Registerer
	// Keys is the largest number of keys to request from the controller; those that were followed
	// first are chosen. The periodic reads cover the others. 0: DefaultKeys.
	Keys int
}

// DefaultKeys is a quarter of the keys that one switch, or all together, can report.
const DefaultKeys = 4096

// pace holds the receiver's intervals and timeouts.
type pace struct {
	gather time.Duration // time for which changes of the followed keys are collected, to be sent together
	// approximate time between a controller's acceptance and the update of the switches' tables
	settle   time.Duration
	request  time.Duration // timeout of a request to the controller
	end      time.Duration // timeout of the last request to the controller
	failed   time.Duration // pause after a failure, doubled each time
	failures time.Duration // largest such pause
	refused  time.Duration // pause after a refusal, because another server of this host may end
	absent   time.Duration // pause if the controller does not support watches, or forbids them
	// least time between two requests for the chains that stray datagrams cause
	chains time.Duration
	lost   time.Duration // least time between two reads of all keys that lost datagrams cause
}

var defaultPace = pace{gather: 250 * time.Millisecond, settle: 500 * time.Millisecond,
	request: 3 * time.Second, end: time.Second, failed: 100 * time.Millisecond, failures: 2 * time.Second,
	refused: 2 * time.Second, absent: 30 * time.Second, chains: 10 * time.Second, lost: time.Second}

// Receiver is the server's side of notifications. It is safe for concurrent use.
type Receiver struct {
	o      Options
	pace   pace
	log    *slog.Logger
	count  *counts
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	// changed, of capacity one, wakes run when something has changed.
	changed chan struct{}
	// chains are the chains from which datagrams may come.
	chains atomic.Pointer[sources]
	// doubted is set when a datagram does not match the known chains.
	doubted atomic.Bool

	mu     sync.RWMutex
	keys   map[wire.Key]*followed
	number uint64 // number of keys that were ever followed
	dirty  bool   // the followed keys differ from those that the controller knows
	closed bool
}

var _ keys.Push = (*Receiver)(nil)

// followed is a KEY_ID with a follower. Receiver.mu guards it.
type followed struct {
	key    wire.Key
	number uint64 // order of arrival
	told   []*follower
	// accepted is when the controller accepted it; zero: it has not, or no longer does.
	accepted time.Time
	settled  bool // pace.settle has passed since accepted
	helped   bool // the switch reports this key
}

type follower struct{ told func(keys.News) }

// New makes a receiver. It sends nothing to the controller until a key is followed.
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
	// Replaced as a whole and never modified, because tell reads them without the lock.
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

// hasChanged makes run tell the controller. r.mu is held.
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

// tell reports a commit to all followers of the key; false: there are none.
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

// hint triggers reads of keys, because a notification of them may have been lost.
func (r *Receiver) hint(all []wire.Key) {
	for _, id := range all {
		r.tell(keys.News{Key: id})
	}
}

// helpedKeys returns the keys that the switch reports.
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
