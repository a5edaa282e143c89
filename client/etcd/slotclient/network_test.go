package slotclient

import (
	"errors"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/refchain"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// Read distinguishes the answers of a slot, and soon stops waiting for a chain that does not
// answer.
func TestNetwork(t *testing.T) {
	chain, err := refchain.New(refchain.Config{Profile: wire.Profile1024, ChainID: 1, Members: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(chain.Close)
	cl, err := client.New(t.Context(), client.Config{Addresses: chain.Addresses(), Profile: wire.Profile1024,
		Sessions: client.StaticSessions(client.Session{ID: 1, NextRequest: 1}), Retransmit: Retransmit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	trips := map[string]int{}
	n := NewNetwork(func(operation string, _ time.Duration) { trips[operation]++ })
	ctx := t.Context()
	const key = 0x01000001
	if _, _, err := n.Read(ctx, key); !errors.Is(err, errNoChain) || n.Size(key) != 0 {
		t.Errorf("without a chain: %v, %d bytes", err, n.Size(key))
	}
	if _, err := n.CAS(ctx, key, 1, nil); !errors.Is(err, errNoChain) {
		t.Errorf("without a chain: %v", err)
	}
	if old := n.Set(1, cl, 128); old != nil || n.Size(key) != 128 {
		t.Errorf("there was %v; a slot has %d bytes", old, n.Size(key))
	}
	if _, _, err := n.Read(ctx, key); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a key without a slot: %v", err)
	}
	if _, err := n.CAS(ctx, key, 1, []byte{1}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a CAS of a key without a slot: %v", err)
	}
	chain.Place(key)
	put, err := cl.Put(ctx, key, []byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	value, version, err := n.Read(ctx, key)
	if err != nil || string(value) != "a" || version != put.Version {
		t.Errorf("%q, version %v, %v", value, version, err)
	}
	next, err := n.CAS(ctx, key, version, []byte("b"))
	if err != nil || next <= version {
		t.Errorf("version %v, %v", next, err)
	}
	if _, err := n.CAS(ctx, key, version, []byte("c")); !errors.Is(err, client.ErrCASFailed) {
		t.Errorf("a CAS on an older version: %v", err)
	}
	if trips["read"] != 2 || trips["cas"] != 2 {
		t.Errorf("round trips: %v", trips)
	}

	down := func(down bool) {
		for i := range chain.Addresses() {
			chain.SetDown(i, down)
		}
	}
	down(true)
	for range silentReads {
		if n.Silent(key) {
			t.Error("the chain is silent too soon")
		}
		if _, _, err := n.Read(ctx, key); err == nil || errors.Is(err, client.ErrNotFound) {
			t.Fatalf("a chain that is down: %v", err)
		}
	}
	c := n.of(key)
	c.mu.Lock()
	if c.until == 0 {
		t.Error("a chain that is down is not silent")
	}
	// The time is far in the future, so the test does not depend on the clock.
	c.until = clock.Since(begin) + time.Hour
	c.mu.Unlock()
	if !n.Silent(key) {
		t.Error("a chain that is down is not silent")
	}
	down(false)
	poll.Until(t, 15*time.Second, "who has nobody else to ask is answered by a chain that was silent", func() bool {
		v, _, err := n.Read(ctx, key)
		return err == nil && string(v) == "b"
	})
	if n.Silent(key) {
		t.Error("a chain that has answered is silent")
	}
	if old := n.Set(1, nil, 0); old != cl || n.Size(key) != 0 {
		t.Errorf("there was %v", old)
	}
}

// A chain is silent when several consecutive reads had no answer. Reads that are under way at the
// same time count as one read, because on a busy machine all of them wait for a CPU. Readers ask
// again soon, and then less and less often.
func TestSilence(t *testing.T) {
	const ms = time.Millisecond
	c := new(chainSlots)
	for range 8 {
		c.unanswered(0, 5*ms)
	}
	c.unanswered(4*ms, 9*ms)
	if c.silentAt(10 * ms) {
		t.Error("reads that were on their way together make a chain silent")
	}
	c.unanswered(10*ms, 15*ms)
	if c.silentAt(15 * ms) {
		t.Error("two reads make a chain silent")
	}
	c.unanswered(15*ms, 20*ms)
	now := 20 * ms
	for _, pause := range []time.Duration{10, 20, 40, 80, 160, 200, 200} {
		end := now + pause*ms
		if !c.silentAt(now) || !c.silentAt(end-1) {
			t.Errorf("after %v it is not silent for %v ms", now, int64(pause))
		}
		if c.silentAt(end) {
			t.Errorf("nobody asks after %v ms", int64(pause))
		}
		if !c.silentAt(end) {
			t.Error("two readers ask")
		}
		now = end + 5*ms
		c.unanswered(end, now)
	}
	c.answered()
	c.unanswered(now, now+5*ms)
	c.unanswered(now+5*ms, now+10*ms)
	if c.silentAt(now + 10*ms) {
		t.Error("reads that were answered are forgotten")
	}
	c.unanswered(now+10*ms, now+15*ms)
	if !c.silentAt(now+24*ms) || c.silentAt(now+25*ms) {
		t.Error("a new silence does not begin as the first one")
	}
}
