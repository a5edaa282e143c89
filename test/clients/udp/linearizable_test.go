package udp_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/refchain"
	"github.com/netcraq/netcraq/internal/linearizable"
)

// TestLinearizable lets clients work on a few keys through a network that loses, duplicates and
// reorders packets. It checks that some order of the operations, with each write at most once,
// explains all answers. The chain is correct, so a failure shows a defect of the client.
func TestLinearizable(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			chain, c := start(t, seed)
			h := work(t, c, chain, seed)
			if result, info := porcupine.CheckOperationsVerbose(linearizable.Registers, linearizable.Operations(
				h), 30*time.Second); result != porcupine.Ok {
				path := t.TempDir() + "/history.html"
				_ = porcupine.VisualizePath(linearizable.Registers, info, path)
				t.Errorf("the history is not linearizable: %v", result)
			}
			s := c.Stats()
			if s.Retransmits == 0 || s.Strays == 0 || chain.Counts().Retries == 0 {
				t.Errorf("nothing was lost or came twice: %+v, %+v", s, chain.Counts())
			}
		})
	}
}

const chainID = 3

func key(n uint32) wire.Key { return wire.MakeKey(chainID, n) }

// start starts a chain with keys 0 to 9, and a client with four sessions. The client retransmits
// before answers can arrive, so there are many copies of each packet.
func start(t *testing.T, seed uint64) (*refchain.Chain, *client.Client) {
	t.Helper()
	chain, err := refchain.New(refchain.Config{ChainID: chainID, Members: 3, Loss: 0.1, Duplicate: 0.2,
		Delay: 4 * time.Millisecond, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(chain.Close)
	for n := range uint32(10) {
		chain.Place(key(n))
	}
	var ids []client.Session
	for n := range uint16(4) {
		ids = append(ids, client.Session{ID: n + 1, NextRequest: 1})
	}
	c, err := client.New(t.Context(), client.Config{Addresses: chain.Addresses(),
		Sessions: client.StaticSessions(ids...), Retransmit: 3 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, v := range chain.Violations() {
			t.Errorf("the client broke the protocol: %s", v)
		}
	})
	return chain, c
}

// work makes a history of concurrent calls.
func work(t *testing.T, c *client.Client, chain *refchain.Chain, seed uint64) []linearizable.Call {
	const workers, each, keys = 6, 150, 2
	var (
		mu      sync.Mutex
		history []linearizable.Call
		wg      sync.WaitGroup
		begun   = time.Now()
	)
	stopFreezing := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stopFreezing:
				return
			case <-time.After(20 * time.Millisecond):
				chain.SetFrozen(true)
			}
			time.Sleep(3 * time.Millisecond)
			chain.SetFrozen(false)
		}
	})
	var working sync.WaitGroup
	for w := range workers {
		working.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			var seen [keys]wire.Version
			for i := range each {
				k := r.IntN(keys)
				x := linearizable.Call{Client: w, Key: uint32(k), Op: wire.Read}
				if n := r.IntN(10); n < 3 {
					x.Op, x.Value = wire.Write, fmt.Sprintf("%d.%d", w, i)
				} else if n < 4 {
					x.Op, x.Delete = wire.Write, true
				} else if n < 7 {
					x.Op, x.Value, x.Expected = wire.CAS, fmt.Sprintf("%d.%d", w, i), seen[k]
				}
				limit := time.Second
				if r.IntN(10) == 0 {
					limit = time.Duration(r.Int64N(int64(6 * time.Millisecond)))
				}
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				x.Begin = time.Since(begun).Nanoseconds()
				res := c.Batch(ctx, []client.Request{{Op: x.Op, Key: key(x.Key), Value: []byte(x.Value),
					Delete: x.Delete, Expected: x.Expected}})[0]
				x.End = time.Since(begun).Nanoseconds()
				cancel()
				x.Version, x.Got, x.Found = res.Version, string(res.Value), res.Err == nil
				var e *client.OpError
				if errors.As(res.Err, &e) {
					switch {
					case e.OutcomeUnknown:
						x.Unknown, x.Version = true, 0
					case errors.Is(e, client.ErrNotFound):
						x.Version = e.Version
					case errors.Is(e, client.ErrCASFailed):
						x.Failed, x.Version, x.Got, x.Found = true, e.Version, string(e.Value), e.Found
					case errors.Is(e, client.ErrTimeout):
						// This is a read, or a write that was never sent, so there is nothing to
						// check.
						continue
					default:
						t.Errorf("worker %d: %v", w, e)
						return
					}
				}
				if x.Version != 0 {
					seen[k] = x.Version
				}
				mu.Lock()
				history = append(history, x)
				mu.Unlock()
			}
		})
	}
	working.Wait()
	close(stopFreezing)
	wg.Wait()
	chain.SetFrozen(false)
	return history
}
