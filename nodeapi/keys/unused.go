package keys

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// The slots of unused keys are released as follows. Each node periodically checks all keys of the
// node API. If it finds a key without a value at the same version in two consecutive checks, the
// key was not written in between. The node then asks the controller to remove the key. The
// controller first makes the key unreachable and checks it once more. If the key was written, the
// controller restores it. Because every node does this, dead nodes leave no unused keys behind.

// unusedReads is the number of keys that are read concurrently. It is small, because no caller
// waits for the result.
const unusedReads = 4

// unusedTime is the time limit for one read, list or removal.
const unusedTime = 5 * time.Second

// unused is what a node knows about a key that has no value.
type unused struct {
	version wire.Version
	since   time.Time
}

// sweep removes unused keys repeatedly, until ctx ends.
func (s *Store) sweep(ctx context.Context) {
	found := map[store.Key]unused{}
	for {
		// The pause is random, so that the nodes do not all request the removal of the same key at
		// the same time.
		pause := s.o.Unused/2 + rand.N(s.o.Unused/2)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
			found = s.lookForUnused(ctx, found)
		}
	}
}

// lookForUnused removes the keys that had no value in the previous sweep and have not changed
// since. It returns the keys that have no value now. They are the input of the next sweep.
func (s *Store) lookForUnused(ctx context.Context, before map[store.Key]unused) map[store.Key]unused {
	list, cancel := context.WithTimeout(ctx, unusedTime)
	all, err := s.o.Admin.Directory(list, nodeapi.KeyPrefix, false)
	cancel()
	if err != nil {
		return before // a later sweep checks these keys again
	}
	var mu sync.Mutex
	found := map[store.Key]unused{}
	var work sync.WaitGroup
	slots := make(chan struct{}, unusedReads)
	for i := range all {
		namespace, name, ok := nodeapi.ParseKeyName(all[i].Name)
		if !ok || ctx.Err() != nil {
			continue
		}
		if _, _, known := s.names.Place(all[i].Name); !known {
			s.names.Learn(&all[i])
		}
		key := store.Key{Namespace: namespace, Name: name}
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, unusedTime)
			defer cancel()
			got, err := s.Get(ctx, key, false)
			if err != nil || got.Found {
				return
			}
			now := unused{got.Version, time.Now()}
			if was, ok := before[key]; ok && was.version == now.version {
				if now.since = was.since; time.Since(was.since) >= s.o.Unused &&
					s.o.Admin.RemoveUnused(ctx, all[i].Name, uint64(got.Version)) == nil {
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			found[key] = now
		})
	}
	work.Wait()
	return found
}
