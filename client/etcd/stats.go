package etcd

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/client/etcd/guarded"
)

// Observer receives an event for each request; see package guarded.
type Observer = guarded.Observer

// Stats counts the requests that a Client has handled.
type Stats struct {
	// Network is the number of single-key reads that the switches have answered.
	Network uint64
	// Missed counts the reads of placed keys that etcd had to answer, by reason, for example that
	// the slot was clear or guarded (docs/etcd.md, "A read").
	Missed map[string]uint64
	// Forwarded counts the reads for which the switches were not asked, by reason, for example that
	// the key is not placed.
	Forwarded map[string]uint64
	// Writes counts the writes of placed keys that have ended. The key of the map is the result:
	// done, refused, again or unknown.
	Writes map[string]uint64
}

// counts is the Observer of a Client.
type counts struct {
	next    Observer // may be nil
	network atomic.Uint64

	mu                        sync.Mutex
	missed, forwarded, writes map[string]uint64
}

func (c *counts) add(to *map[string]uint64, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *to == nil {
		*to = map[string]uint64{}
	}
	(*to)[what]++
}

func (c *counts) stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{c.network.Load(), maps.Clone(c.missed), maps.Clone(c.forwarded), maps.Clone(c.writes)}
}

// Hit implements Observer.
func (c *counts) Hit() {
	c.network.Add(1)
	if c.next != nil {
		c.next.Hit()
	}
}

// Miss implements Observer.
func (c *counts) Miss(reason string) {
	c.add(&c.missed, reason)
	if c.next != nil {
		c.next.Miss(reason)
	}
}

// Forwarded implements Observer.
func (c *counts) Forwarded(reason string) {
	c.add(&c.forwarded, reason)
	if c.next != nil {
		c.next.Forwarded(reason)
	}
}

// GuardWait implements Observer.
func (c *counts) GuardWait(d time.Duration) {
	if c.next != nil {
		c.next.GuardWait(d)
	}
}

// GuardedWrite implements Observer.
func (c *counts) GuardedWrite(result string) {
	c.add(&c.writes, result)
	if c.next != nil {
		c.next.GuardedWrite(result)
	}
}

// Forged implements Observer.
func (c *counts) Forged() {
	if c.next != nil {
		c.next.Forged()
	}
}
