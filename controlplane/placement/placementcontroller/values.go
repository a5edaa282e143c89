package placementcontroller

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// seen is what etcd was last seen to have for a key.
type seen struct {
	policy.Value
	revision int64     // the key's mod revision; of an absent key, one at which it was absent
	at       time.Time // when that was so, or later
}

func seenIn(r *clientv3.GetResponse, now time.Time) seen {
	if len(r.Kvs) == 0 {
		return seen{policy.Value{Known: true, Absent: true}, r.Header.Revision, now}
	}
	kv := r.Kvs[0]
	return seen{policy.Value{Known: true, Bytes: len(kv.Value), Lease: kv.Lease != 0}, kv.ModRevision, now}
}

// Parameters of reading keys that may be placed from etcd.
const (
	asking      = 2 * time.Second  // for one answer
	askedBefore = 30 * time.Second // after which it is asked again
	askAtOnce   = 16
	askInRound  = 256
)

// values knows what etcd has for the keys that matter: those that are placed, by watching each, and
// those that may be, by asking. It is safe for concurrent use.
type values struct {
	client  *clientv3.Client
	changed func(key string) // a placed key is not what it was, or is watched from now on

	mu      sync.Mutex
	known   map[string]seen
	watches map[string]context.CancelFunc
}

func newValues(c *clientv3.Client, changed func(string)) *values {
	return &values{client: c, changed: changed, known: map[string]seen{}, watches: map[string]context.CancelFunc{}}
}

// of is what is known about a key.
func (v *values) of(key string) seen {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known[key]
}

// ask asks about keys that are not watched, the first ones first, as far as that is due. there says
// about which it is known that they exist by now.
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
		// What it finds may be old by the time it is used: the gateways, too, look at what they put
		// into a slot.
		if r, err := v.client.Get(ctx, k, clientv3.WithSerializable()); err == nil {
			v.mu.Lock()
			v.known[k] = seenIn(r, now)
			v.mu.Unlock()
		}
	})
}

// watch watches exactly these keys from now on, until ctx ends.
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

// follow reads a key and watches it from then on, again and again.
func (v *values) follow(ctx context.Context, key string) {
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		// Linearizable: what the network has is compared with it.
		asked, cancel := context.WithTimeout(ctx, asking)
		r, err := v.client.Get(asked, key)
		cancel()
		if err == nil {
			v.note(ctx, key, seenIn(r, time.Now()))
			pause = 50 * time.Millisecond
			for w := range v.client.Watch(ctx, key, clientv3.WithRev(r.Header.Revision+1)) {
				if w.Err() != nil {
					break // compacted, or etcd is not what it was: ask again
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

// note takes in what was seen of a watched key, if it is still watched.
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

// each calls f for all, some at a time, and returns when all are done.
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
