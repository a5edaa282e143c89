package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/client/refchain"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/wire"
)

// TestLinearizable lets clients work on a few keys through a network that loses, duplicates and
// reorders, and checks that what they saw can have happened in one order, every write at most once.
// The chain is correct, so what this finds is the client's.
func TestLinearizable(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			chain, c := start(t, refchain.Config{Members: 3, Loss: 0.1, Duplicate: 0.2,
				Delay: 4 * time.Millisecond, Seed: seed}, 4, func(cfg *Config) {
				cfg.Retransmit = 3 * time.Millisecond // sooner than answers come, so that there are many copies
			})
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

// work makes a history.
func work(t *testing.T, c *Client, chain *refchain.Chain, seed uint64) []linearizable.Call {
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
				res := c.Batch(ctx, []Request{{Op: x.Op, Key: key(x.Key), Value: []byte(x.Value),
					Delete: x.Delete, Expected: x.Expected}})[0]
				x.End = time.Since(begun).Nanoseconds()
				cancel()
				x.Version, x.Got, x.Found = res.Version, string(res.Value), res.Err == nil
				var e *OpError
				if errors.As(res.Err, &e) {
					switch {
					case e.OutcomeUnknown:
						x.Unknown, x.Version = true, 0
					case errors.Is(e, ErrNotFound):
						x.Version = e.Version
					case errors.Is(e, ErrCASFailed):
						x.Failed, x.Version, x.Got, x.Found = true, e.Version, string(e.Value), e.Found
					case errors.Is(e, ErrTimeout): // a read, or a write that was never sent: it says nothing
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
