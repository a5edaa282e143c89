package broker

import (
	"maps"
	"slices"
	"time"

	"github.com/netcraq/netcraq/streams/segment"
)

// kept is memory that the broker has released but a caller keeps by a descriptor or a mapping. It
// counts for its namespace until the kernel has freed it.
type kept struct {
	bytes   int64
	remains *segment.Remains
	asked   time.Time // when the kernel was last asked whether it is free
}

const (
	// reapEvery is the interval at which the broker checks whether callers still keep memory.
	// Memory that no caller keeps becomes free up to that much later.
	reapEvery = 100 * time.Millisecond
	// reapPause limits the broker's time for a caller that requests memory repeatedly while its
	// namespace has none.
	reapPause = 5 * time.Millisecond
)

// retire returns memory to a namespace: now, or when no caller keeps it any more.
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

// reap returns the memory of a namespace that no caller keeps any more, and reports whether there
// was some.
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

// reapAll is reap of all namespaces.
func (b *Broker) reapAll() {
	b.mu.Lock()
	namespaces := slices.Collect(maps.Keys(b.kept))
	b.mu.Unlock()
	for _, n := range namespaces {
		b.reap(n)
	}
}

// forgetKept ends the accounting of kept memory, because this broker makes nothing more.
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

// keptBytes returns the size of the memory that the broker has released but callers keep. b.mu is
// held.
func (b *Broker) keptBytes() (n int64) {
	for _, all := range b.kept {
		for _, k := range all {
			n += k.bytes
		}
	}
	return n
}
