package guarded

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/etcd/slotclient"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/client/refchain"
)

// udpChain provides the slots of a chain behind an unreliable network, with real clients.
type udpChain struct {
	t        testing.TB
	chain    *refchain.Chain
	admin    *client.Client
	sessions atomic.Uint32
}

func newUDPChain(t testing.TB) *udpChain {
	t.Helper()
	c := &udpChain{t: t}
	var err error
	c.chain, err = refchain.New(refchain.Config{Profile: wire.Profile1024, ChainID: 1, Members: 3, Loss: 0.01,
		Duplicate: 0.01, Delay: 300 * time.Microsecond, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.chain.Close()
		for _, v := range c.chain.Violations() {
			t.Error(v)
		}
	})
	c.admin = c.client(t)
	return c
}

// client makes a client with its own sessions.
func (c *udpChain) client(t testing.TB) *client.Client {
	t.Helper()
	var sessions []client.Session
	for range 16 {
		sessions = append(sessions, client.Session{ID: uint16(c.sessions.Add(1)), NextRequest: 1})
	}
	cl, err := client.New(context.Background(), client.Config{
		Addresses: c.chain.Addresses(), Profile: wire.Profile1024, Sessions: client.StaticSessions(sessions...),
		Retransmit: slotclient.Retransmit,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return cl
}

func (c *udpChain) network(t *testing.T) Slots {
	n := slotclient.NewNetwork(nil)
	n.Set(1, c.client(t), wire.Profile1024.ValueBytes())
	return n
}

// until repeats an operation on the chain until it succeeds.
func (c *udpChain) until(what string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := do(ctx); err != nil {
		c.t.Errorf("%s: %v", what, err)
	}
}

func (c *udpChain) add(id wire.Key) (version wire.Version) {
	c.chain.Place(id)
	c.until("adding a slot", func(ctx context.Context) error {
		r, err := c.admin.Put(ctx, id, []byte(slotcodec.Unsealed))
		version = r.Version
		return err
	})
	return version
}

func (c *udpChain) remove(id wire.Key) {
	c.until("removing a slot", func(ctx context.Context) error {
		_, err := c.admin.Delete(ctx, id)
		return err
	})
}
