package slotclient

import (
	"errors"
	"testing"
	"time"

	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/refchain"
	"github.com/netcraq/netcraq/internal/poll"
	"github.com/netcraq/netcraq/wire"
)

// What a slot answers is told apart, and a chain that does not answer is soon not waited for.
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
	begun := time.Now()
	const reads = 100
	for range reads {
		if _, _, err := n.Read(ctx, key); err == nil || errors.Is(err, client.ErrNotFound) {
			t.Fatalf("a chain that is down: %v", err)
		}
	}
	if d := time.Since(begun); d > reads*readWait/2 {
		t.Errorf("%d reads of a silent chain took %v", reads, d)
	}
	down(false)
	poll.Until(t, 15*time.Second, "the chain is asked again", func() bool {
		v, _, err := n.Read(ctx, key)
		return err == nil && string(v) == "b"
	})
	if old := n.Set(1, nil, 0); old != cl || n.Size(key) != 0 {
		t.Errorf("there was %v", old)
	}
}
