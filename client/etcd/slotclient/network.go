package slotclient

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/internal/boottime"
	"github.com/netcraq/netcraq/wire"
)

// How long the network is waited for. A round trip takes a fraction of a millisecond; a client that
// is made for this sends again after Retransmit, so a lost packet does not make the network silent.
const (
	Retransmit = 2 * time.Millisecond
	readWait   = 5 * time.Millisecond
	casWait    = 50 * time.Millisecond
)

// When a chain has not answered silentReads reads in a row it is not asked, for silentFor, by more
// than one read at a time: the others go to etcd without a wait.
const (
	silentReads = 3
	silentFor   = 200 * time.Millisecond
)

// Network is the guarded.Slots of a gateway: chains of switches, each with a client of its own. It
// is safe for concurrent use.
type Network struct {
	observe func(operation string, d time.Duration)
	mu      sync.RWMutex
	chains  map[uint8]*chainSlots
}

type chainSlots struct {
	client *client.Client
	size   int
	missed atomic.Int32 // reads in a row that were not answered
	silent atomic.Int64 // until when it is not asked, in nanoseconds since begin
}

// begin is the time that silent is counted from, on a clock that does not stand still.
var begin = boottime.Now()

// errNoChain: the KEY_ID's chain is not known here (yet).
var errNoChain = errors.New("the chain is not known to this gateway")

// NewNetwork makes a network without chains. observe, where it is not nil, is told of each round
// trip.
func NewNetwork(observe func(operation string, d time.Duration)) *Network {
	if observe == nil {
		observe = func(string, time.Duration) {}
	}
	return &Network{observe: observe, chains: map[uint8]*chainSlots{}}
}

// Set makes a chain known, or known by another client, and returns the client that was used before,
// which is the caller's to close. The client must have sessions, so that a CAS is executed once,
// and should send again after Retransmit. size is how many bytes a slot of the chain holds. A nil
// client makes the chain unknown.
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
	if c.missed.Load() >= silentReads {
		now, until := boottime.Since(begin), c.silent.Load()
		if int64(now) < until || !c.silent.CompareAndSwap(until, int64(now+silentFor)) {
			return nil, 0, client.ErrTimeout
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	started := time.Now()
	r, err := c.client.Get(ctx, id)
	switch {
	case err == nil, errors.Is(err, client.ErrNotFound):
		c.missed.Store(0)
		n.observe("read", time.Since(started))
	case errors.Is(err, client.ErrTimeout) && c.missed.Add(1) == silentReads:
		c.silent.Store(int64(boottime.Since(begin) + silentFor))
	}
	return r.Value, r.Version, err
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
