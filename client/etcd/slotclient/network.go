package slotclient

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
)

// These are timeouts for the chains. A round trip takes a fraction of a millisecond. A client sends
// a packet again after Retransmit, so a single lost packet does not make a chain count as silent.
const (
	Retransmit = 2 * time.Millisecond
	readWait   = 5 * time.Millisecond
	casWait    = 50 * time.Millisecond
)

// A chain counts as silent when it has not answered silentReads consecutive reads. One reader asks
// it again after silentFirst, another after twice that time, and so on. All other readers ask etcd
// without waiting. Writes always ask the chain, because they have no alternative. An answer to a
// write ends the silence.
const (
	silentReads = 3
	silentFirst = 10 * time.Millisecond
	silentMost  = 200 * time.Millisecond
)

// Network implements guarded.Slots for a gateway. It has chains of switches, each with its own
// client. It is safe for concurrent use.
type Network struct {
	observe func(operation string, d time.Duration)
	mu      sync.RWMutex
	chains  map[uint8]*chainSlots
}

type chainSlots struct {
	client *client.Client
	size   int
	// quiet is true if the chain may be silent. That is so if it is silent, or if it recently
	// failed to answer a read. If quiet is set, lock mu to decide.
	quiet atomic.Bool

	mu     sync.Mutex
	missed int           // consecutive reads that were not answered
	ended  time.Duration // when the last unanswered read ended, as time since begin
	pause  time.Duration // length of the next silence
	until  time.Duration // when a reader should ask the chain again, as time since begin
}

// begin is the time from which silences are measured. Its clock does not stop while the machine
// sleeps.
var begin = clock.Now()

// answered records that the chain has answered, so that it is not silent.
func (c *chainSlots) answered() {
	if !c.quiet.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed, c.pause = 0, 0
	c.quiet.Store(false)
}

// unanswered records a read that was not answered. It began at begun and was abandoned at ended.
// Reads that were under way at the same time count as one read, because a single pause of this
// machine's CPU affects all of them.
func (c *chainSlots) unanswered(begun, ended time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missed > 0 && begun < c.ended {
		return
	}
	c.missed, c.ended = c.missed+1, ended
	if c.missed >= silentReads {
		c.pause = min(max(silentFirst, 2*c.pause), silentMost)
		c.until = ended + c.pause
	}
	c.quiet.Store(true)
}

// silentAt reports whether a reader should ask etcd instead. When the chain should be tried again,
// it returns false to one reader.
func (c *chainSlots) silentAt(now time.Duration) bool {
	if !c.quiet.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.missed < silentReads:
		return false
	case now < c.until:
		return true
	}
	// if this attempt never reports its result, the chain is tried again after silentMost
	c.until = now + silentMost
	return false
}

// errNoChain means that this gateway does not know the chain of the KEY_ID, or does not know it
// yet.
var errNoChain = errors.New("the chain is not known to this gateway")

// NewNetwork makes a network without chains. If observe is not nil, it gets each round-trip time.
func NewNetwork(observe func(operation string, d time.Duration)) *Network {
	if observe == nil {
		observe = func(string, time.Duration) {}
	}
	return &Network{observe: observe, chains: map[uint8]*chainSlots{}}
}

// Set adds a chain, or replaces the client of a chain. It returns the former client, which the
// caller must close. The client must have sessions, so that a CAS is executed only once. It should
// send packets again after Retransmit. size is the number of bytes in a slot of the chain. A nil
// client removes the chain.
func (n *Network) Set(chain uint8, c *client.Client, size int) (before *client.Client) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.chains[chain]; old != nil {
		before = old.client
	}
	if c == nil {
		delete(n.chains, chain)
	} else {
		n.chains[chain] = &chainSlots{client: c, size: size}
	}
	return before
}

func (n *Network) of(id wire.Key) *chainSlots {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.chains[id.Chain()]
}

// Size implements guarded.Slots.
func (n *Network) Size(id wire.Key) int {
	if c := n.of(id); c != nil {
		return c.size
	}
	return 0
}

// Read implements guarded.Slots.
func (n *Network) Read(ctx context.Context, id wire.Key) ([]byte, wire.Version, error) {
	c := n.of(id)
	if c == nil {
		return nil, 0, errNoChain
	}
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	started := clock.Since(begin)
	r, err := c.client.Get(ctx, id)
	switch ended := clock.Since(begin); {
	case err == nil, errors.Is(err, client.ErrNotFound):
		c.answered()
		n.observe("read", ended-started)
	case errors.Is(err, client.ErrTimeout):
		c.unanswered(started, ended)
	}
	return r.Value, r.Version, err
}

// ReadNow implements guarded.Slots.
func (n *Network) ReadNow(id wire.Key) (value []byte, version wire.Version, ok bool) {
	c := n.of(id)
	if c == nil || c.quiet.Load() { // Silent then chooses which caller asks the chain again
		return nil, 0, false
	}
	started := clock.Since(begin)
	r, ok := c.client.Now(client.Request{Op: wire.Read, Key: id})
	if !ok || r.Err != nil {
		return nil, 0, false
	}
	n.observe("read", clock.Since(begin)-started)
	return r.Value, r.Version, true
}

// Silent implements guarded.Slots.
func (n *Network) Silent(id wire.Key) bool {
	c := n.of(id)
	return c != nil && c.silentAt(clock.Since(begin))
}

// CAS implements guarded.Slots.
func (n *Network) CAS(ctx context.Context, id wire.Key, expected wire.Version, value []byte) (wire.Version, error) {
	c := n.of(id)
	if c == nil {
		return 0, errNoChain
	}
	ctx, cancel := context.WithTimeout(ctx, casWait)
	defer cancel()
	started := time.Now()
	r, err := c.client.CompareAndSwap(ctx, id, expected, value)
	if err == nil || errors.Is(err, client.ErrCASFailed) {
		n.observe("cas", time.Since(started))
	}
	return r.Version, err
}
