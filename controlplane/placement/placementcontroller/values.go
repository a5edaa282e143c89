package placementcontroller

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// seen is the last known state of a key in etcd.
type seen struct {
	policy.Value
	revision int64     // the key's mod revision; for an absent key, a revision at which it was absent
	at       time.Time // a time at which the key was in this state
}

func seenIn(r *clientv3.GetResponse, now time.Time) seen {
	if len(r.Kvs) == 0 {
		return seen{policy.Value{Known: true, Absent: true}, r.Header.Revision, now}
	}
	kv := r.Kvs[0]
	return seen{policy.Value{Known: true, Bytes: len(kv.Value), Lease: kv.Lease != 0}, kv.ModRevision, now}
}

// These constants limit reads from etcd of keys that may be placed.
const (
	asking      = 2 * time.Second  // time limit of one answer
	askedBefore = 30 * time.Second // how long an answer is valid
	askAtOnce   = 16
	askInRound  = 256
)

// values holds the state in etcd of placed keys and of candidates. It watches the placed keys, and
// reads the candidates. It is safe for concurrent use.
type values struct {
	client  *clientv3.Client
	changed func(key string) // called when a placed key has changed, and when the watch of a key begins

	mu      sync.Mutex
	known   map[string]seen
	watches map[string]context.CancelFunc
}

func newValues(c *clientv3.Client, changed func(string)) *values {
	return &values{client: c, changed: changed, known: map[string]seen{}, watches: map[string]context.CancelFunc{}}
}

// of returns the last known state of a key.
func (v *values) of(key string) seen {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known[key]
}

// ask reads keys that are not watched and whose last answer is too old, in the order of keys. The
// function there reports which keys are already known to exist.
func (v *values) ask(ctx context.Context, keys []string, there func(string) bool) {
	now := time.Now()
	var due []string
	v.mu.Lock()
	for _, k := range keys {
		if s, ok := v.known[k]; (!ok || now.Sub(s.at) > askedBefore || s.Absent && there(k)) &&
			v.watches[k] == nil && len(due) < askInRound {
			due = append(due, k)
		}
	}
	for k, s := range v.known {
		if now.Sub(s.at) > 10*askedBefore && v.watches[k] == nil {
			delete(v.known, k)
		}
	}
	v.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	each(due, askAtOnce, func(k string) {
		// The result may be out of date when it is used, but gateways also check each value that
		// they put into a slot.
		if r, err := v.client.Get(ctx, k, clientv3.WithSerializable()); err == nil {
			v.mu.Lock()
			v.known[k] = seenIn(r, now)
			v.mu.Unlock()
		}
	})
}

// watch makes values watch exactly these keys from now on, until ctx ends.
func (v *values) watch(ctx context.Context, keys map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for k, stop := range v.watches {
		if !keys[k] {
			stop()
			delete(v.watches, k)
		}
	}
	for k := range keys {
		if v.watches[k] == nil {
			one, stop := context.WithCancel(ctx)
			v.watches[k] = stop
			go v.follow(one, k)
		}
	}
}

// follow reads a key and watches it, and starts again after an error.
func (v *values) follow(ctx context.Context, key string) {
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		// The read is linearizable, because the network's content is compared with it.
		asked, cancel := context.WithTimeout(ctx, asking)
		r, err := v.client.Get(asked, key)
		cancel()
		if err == nil {
			v.note(ctx, key, seenIn(r, time.Now()))
			pause = 50 * time.Millisecond
			for w := range v.client.Watch(ctx, key, clientv3.WithRev(r.Header.Revision+1)) {
				if w.Err() != nil {
					break // etcd compacted the revision or was replaced, so read the key again
				}
				for _, e := range w.Events {
					s := seen{policy.Value{Known: true, Absent: e.Type == clientv3.EventTypeDelete,
						Bytes: len(e.Kv.Value), Lease: e.Kv.Lease != 0}, e.Kv.ModRevision, time.Now()}
					v.note(ctx, key, s)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// note stores an observation of a watched key, if the key is still watched.
func (v *values) note(ctx context.Context, key string, s seen) {
	v.mu.Lock()
	if ctx.Err() == nil {
		v.known[key] = s
	}
	v.mu.Unlock()
	if ctx.Err() == nil {
		v.changed(key)
	}
}

// each calls f for all elements, with at most atOnce calls at a time, and returns when all calls
// have returned.
func each[T any](all []T, atOnce int, f func(T)) {
	var wg sync.WaitGroup
	window := make(chan struct{}, atOnce)
	for _, x := range all {
		window <- struct{}{}
		wg.Go(func() {
			defer func() { <-window }()
			f(x)
		})
	}
	wg.Wait()
}
