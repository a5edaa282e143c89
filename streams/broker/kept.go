package broker

import (
	"maps"
	"slices"
	"time"

	"github.com/netcraq/netcraq/streams/segment"
)

// kept is memory that the broker has released, but that a caller still uses through a descriptor or
// a mapping. It counts as memory of its namespace until the kernel has freed it.
type kept struct {
	bytes   int64
	remains *segment.Remains
	asked   time.Time // when the broker last asked the kernel whether the memory is free
}

const (
	// reapEvery is the interval at which the broker checks whether callers still use released
	// memory. The namespace gets memory back at most this much later than the last caller drops it.
	reapEvery = 100 * time.Millisecond
	// reapPause is the minimum time between two checks for a caller that repeatedly requests memory
	// while its namespace has none. It limits the broker's effort for such a caller.
	reapPause = 5 * time.Millisecond
)

// retire returns memory to a namespace as soon as no caller uses it, which may be at once.
func (b *Broker) retire(namespace string, bytes int64, r *segment.Remains) {
	free := r.Freed()
	b.mu.Lock()
	defer b.mu.Unlock()
	if free || b.drained {
		r.Close()
		b.count(namespace, -bytes)
		return
	}
	b.kept[namespace] = append(b.kept[namespace], &kept{bytes: bytes, remains: r})
}

// reap returns to a namespace the released memory that no caller uses any longer. It reports
// whether there was any.
func (b *Broker) reap(namespace string) bool {
	b.reaping.Lock()
	defer b.reaping.Unlock()
	b.mu.Lock()
	all := slices.Clone(b.kept[namespace])
	b.mu.Unlock()
	now := time.Now()
	freed := map[*kept]bool{}
	for _, k := range all {
		if now.Sub(k.asked) < reapPause {
			continue
		}
		if k.asked = now; k.remains.Freed() {
			freed[k] = true
		}
	}
	if len(freed) == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range freed {
		b.count(namespace, -k.bytes)
	}
	b.kept[namespace] = slices.DeleteFunc(b.kept[namespace], func(k *kept) bool { return freed[k] })
	if len(b.kept[namespace]) == 0 {
		delete(b.kept, namespace)
	}
	return true
}

// reapAll calls reap for all namespaces.
func (b *Broker) reapAll() {
	b.mu.Lock()
	namespaces := slices.Collect(maps.Keys(b.kept))
	b.mu.Unlock()
	for _, n := range namespaces {
		b.reap(n)
	}
}

// forgetKept stops counting released memory, because this broker allocates no more memory.
func (b *Broker) forgetKept() {
	b.reaping.Lock()
	defer b.reaping.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drained = true
	for namespace, all := range b.kept {
		for _, k := range all {
			k.remains.Close()
			b.count(namespace, -k.bytes)
		}
	}
	b.kept = map[string][]*kept{}
}

// keptBytes returns the size of the memory that the broker has released but callers still use. The
// caller holds b.mu.
func (b *Broker) keptBytes() (n int64) {
	for _, all := range b.kept {
		for _, k := range all {
			n += k.bytes
		}
	}
	return n
}
