// Package slotclient connects a gateway to the chains that the controller names. For each chain it
// has a client, whose sessions the controller leases. When a chain's addresses change, the chain
// gets a new client.
//
// Existing clients continue while the controller does not answer. Only the lease of their sessions
// expires after a while. Slots cannot be changed without sessions, so writes of placed keys wait
// from then on.
package slotclient

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/fromadmin"
)

const (
	askEvery = time.Second // interval between questions to the controller about its chains
	// timeout for the controller's answers, including answers to requests for sessions
	askWait    = 3 * time.Second
	lingering  = time.Second // how long calls under way may continue on a client that was replaced
	evictEvery = time.Second // minimum time between two requests to evict the same placement
	// evictForget is how long the gateway remembers that it has asked the controller to end a
	// placement.
	evictForget = time.Minute
	// Sessions is the number of sessions for each chain. It limits how many of the chain's slots
	// can be changed at the same time.
	Sessions = 32
)

// Chains learns the chains from the controller. It implements guarded.Evictor.
type Chains struct {
	api     *admin.Client
	network *Network
	owner   string
	log     *slog.Logger
	ctx     context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup

	known map[uint8]known // used only by the goroutine of Follow

	mu sync.Mutex
	// placements that the controller was recently asked to end, by KEY_ID
	evicted map[uint32]evicted
}

// known describes a chain at the time when its client was created.
type known struct {
	name      string
	addresses []netip.AddrPort
	profile   wire.Profile
}

// evicted is a placement that the controller was asked to end.
type evicted struct {
	at   time.Time
	told bool // whether the forged slot was logged
}

// Follow learns the chains from a controller until Close. owner is the name of the sessions at the
// controller.
func Follow(c *admin.Client, network *Network, owner string, log *slog.Logger) *Chains {
	ch := &Chains{api: c, network: network, owner: owner, log: log, known: map[uint8]known{},
		evicted: map[uint32]evicted{}}
	ch.ctx, ch.stop = context.WithCancel(context.Background())
	ch.work.Go(ch.run)
	return ch
}

// Close stops following the controller, and releases the sessions. Afterwards the network has no
// chains.
func (c *Chains) Close() {
	c.mu.Lock() // after this, no Evict starts work
	c.stop()
	c.mu.Unlock()
	c.work.Wait()
}

func (c *Chains) run() {
	said := "" // the last error; an error is logged only when it differs from this
	for c.ctx.Err() == nil {
		problem := ""
		if err := c.look(); err != nil && c.ctx.Err() == nil {
			problem = err.Error()
		}
		if problem != said {
			if said = problem; said != "" {
				c.log.Warn("the controller's chains", "error", said)
			}
		}
		select {
		case <-c.ctx.Done():
		case <-time.After(askEvery):
		}
	}
	for id := range c.known {
		if old := c.network.Set(id, nil, 0); old != nil {
			old.Close()
		}
	}
}

// look asks the controller once for its chains.
func (c *Chains) look() error {
	ctx, cancel := context.WithTimeout(c.ctx, askWait)
	defer cancel()
	chains, err := c.api.Chains(ctx)
	if err != nil {
		return err
	}
	var trouble error
	for i := range chains {
		if err := c.connect(ctx, &chains[i]); err != nil {
			trouble = err // report this error, but continue with the other chains
		}
	}
	for id, k := range c.known {
		if !slices.ContainsFunc(chains, func(ch admin.Chain) bool { return ch.ID == id }) {
			c.log.Info("the controller has this chain no more", "chain", k.name)
			delete(c.known, id)
			c.replace(id, nil, 0)
		}
	}
	return trouble
}

// connect makes a client for a chain that is new, or whose addresses or width have changed. The
// order of the addresses also counts, because a client begins with the first address.
func (c *Chains) connect(ctx context.Context, chain *admin.Chain) error {
	addresses, err := fromadmin.Addresses(chain)
	if err != nil {
		return err
	}
	profile, err := fromadmin.Profile(chain)
	if err != nil {
		return err
	}
	if k, ok := c.known[chain.ID]; ok && k.profile == profile && slices.Equal(k.addresses, addresses) {
		return nil
	}
	if len(addresses) == 0 {
		return fmt.Errorf("chain %s has no address", chain.Name)
	}
	made, err := client.New(ctx, client.Config{Addresses: addresses, Profile: profile,
		Sessions: fromadmin.Sessions(c.api, Sessions, c.owner), Retransmit: Retransmit})
	if err != nil {
		return fmt.Errorf("chain %s: %w", chain.Name, err)
	}
	c.known[chain.ID] = known{chain.Name, addresses, profile}
	c.log.Info("reads of placed keys go to this chain", "chain", chain.Name, "addresses", addresses, "bytes", profile.ValueBytes())
	c.replace(chain.ID, made, profile.ValueBytes())
	return nil
}

// replace gives the network another client for a chain, and closes the old client when its calls
// under way have ended.
func (c *Chains) replace(id uint8, made *client.Client, size int) {
	old := c.network.Set(id, made, size)
	if old == nil {
		return
	}
	c.work.Go(func() {
		select {
		case <-c.ctx.Done():
		case <-time.After(lingering):
		}
		old.Close()
	})
}

// Evict implements guarded.Evictor. In the background, it asks the controller to remove a key from
// the switches. For each placement, it does so at most once a second. A forged slot is logged once
// for each placement.
func (c *Chains) Evict(key placement.Key, fault placement.Fault, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	was := c.evicted[key.ID]
	if c.ctx.Err() != nil || now.Sub(was.at) < evictEvery {
		return
	}
	for id, e := range c.evicted { // forget placements that have ended
		if now.Sub(e.at) >= evictForget {
			delete(c.evicted, id)
		}
	}
	if fault == placement.Forged && !was.told {
		c.log.Warn("a slot of a placed key has what no gateway has written: etcd answers, and the controller is asked to take the key out of the network", "key", key.Name, "KEY_ID", wire.Key(key.ID), "reason", reason)
		was.told = true
	}
	c.evicted[key.ID] = evicted{now, was.told}
	if fault == placement.SlotUnreachable {
		// NoFault has the same effect, and controllers of earlier versions know it
		fault = placement.NoFault
	}
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, askWait)
		defer cancel()
		if err := c.api.Evict(ctx, admin.PlacementEviction{Key: placement.Printable(key.Name), KeyID: key.ID,
			Fault: string(fault), Reason: reason}); err != nil {
			c.log.Warn("asking the controller to take a key out of the network", "key", key.Name, "reason", reason, "error", err)
		}
	})
}
