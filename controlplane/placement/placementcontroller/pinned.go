package placementcontroller

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// pinnedAtMost limits how many keys of a pinned prefix are tracked. It exceeds the number of slots
// of any chain.
const pinnedAtMost = 1 << 17

// pinned tracks which keys exist under the pinned prefixes, by watching each prefix. It is safe
// for concurrent use.
type pinned struct {
	client  *clientv3.Client
	created func() // called when a key appears

	mu      sync.Mutex
	there   map[string]map[string]bool // existing keys, by prefix
	watches map[string]context.CancelFunc
}

func newPinned(c *clientv3.Client, created func()) *pinned {
	return &pinned{client: c, created: created, there: map[string]map[string]bool{},
		watches: map[string]context.CancelFunc{}}
}

// follow makes pinned watch exactly these prefixes from now on, until ctx ends.
func (p *pinned) follow(ctx context.Context, prefixes []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for prefix, stop := range p.watches {
		if !slices.Contains(prefixes, prefix) {
			stop()
			delete(p.watches, prefix)
			delete(p.there, prefix)
		}
	}
	for _, prefix := range prefixes {
		if p.watches[prefix] == nil {
			one, stop := context.WithCancel(ctx)
			p.watches[prefix] = stop
			go p.watch(one, prefix)
		}
	}
}

// keys returns the existing keys, sorted.
func (p *pinned) keys() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]bool{}
	for _, keys := range p.there {
		maps.Copy(all, keys)
	}
	return slices.Sorted(maps.Keys(all))
}

// has reports whether a key exists.
func (p *pinned) has(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, keys := range p.there {
		if keys[key] {
			return true
		}
	}
	return false
}

// watch lists a prefix's keys and watches them, and starts again after an error.
func (p *pinned) watch(ctx context.Context, prefix string) {
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		asked, cancel := context.WithTimeout(ctx, asking)
		r, err := p.client.Get(asked, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithLimit(pinnedAtMost))
		cancel()
		if err == nil {
			keys := map[string]bool{}
			for _, kv := range r.Kvs {
				keys[string(kv.Key)] = true
			}
			p.change(ctx, func() bool { p.there[prefix] = keys; return len(keys) > 0 })
			pause = 50 * time.Millisecond
			for w := range p.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(r.Header.Revision+1)) {
				if w.Err() != nil {
					break // etcd compacted the revision or was replaced, so list the keys again
				}
				p.change(ctx, func() (came bool) {
					for _, e := range w.Events {
						switch {
						case e.Type == clientv3.EventTypeDelete:
							delete(p.there[prefix], string(e.Kv.Key))
						case !p.there[prefix][string(e.Kv.Key)] && len(p.there[prefix]) < pinnedAtMost:
							p.there[prefix][string(e.Kv.Key)] = true
							came = true
						}
					}
					return came
				})
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// change applies an observation by calling f, if the prefix is still watched. f returns whether a
// key has appeared.
func (p *pinned) change(ctx context.Context, f func() bool) {
	p.mu.Lock()
	came := ctx.Err() == nil && f()
	p.mu.Unlock()
	if came {
		p.created()
	}
}
