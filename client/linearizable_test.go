package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/client/refchain"
	"github.com/netcraq/netcraq/wire"
)

// TestLinearizable lets clients work on a few keys through a network that loses, duplicates and reorders, and checks that what they saw can have happened in one
// order, every write at most once. The chain is correct, so what this finds is the client's.
func TestLinearizable(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			chain, c := start(t, refchain.Config{Members: 3, Loss: 0.1, Duplicate: 0.2, Delay: 4 * time.Millisecond, Seed: seed}, 4, func(cfg *Config) {
				cfg.Retransmit = 3 * time.Millisecond // sooner than answers come, so that there are many copies
			})
			h := work(t, c, chain, seed)
			if result, info := porcupine.CheckOperationsVerbose(registers, h, 30*time.Second); result != porcupine.Ok {
				path := t.TempDir() + "/history.html"
				_ = porcupine.VisualizePath(registers, info, path)
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
func work(t *testing.T, c *Client, chain *refchain.Chain, seed uint64) []porcupine.Operation {
	const workers, each, keys = 6, 150, 2
	var (
		mu      sync.Mutex
		history []porcupine.Operation
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
				in := input{key: k, op: wire.Read}
				if n := r.IntN(10); n < 3 {
					in.op, in.value = wire.Write, fmt.Sprintf("%d.%d", w, i)
				} else if n < 4 {
					in.op, in.del = wire.Write, true
				} else if n < 7 {
					in.op, in.value, in.expected = wire.CAS, fmt.Sprintf("%d.%d", w, i), seen[k]
				}
				limit := time.Second
				if r.IntN(10) == 0 {
					limit = time.Duration(r.Int64N(int64(6 * time.Millisecond)))
				}
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				call := time.Since(begun).Nanoseconds()
				results := c.Batch(ctx, []Request{{Op: in.op, Key: key(uint32(k)), Value: []byte(in.value), Delete: in.del, Expected: in.expected}})
				end := time.Since(begun).Nanoseconds()
				cancel()
				out := output{version: results[0].Version, value: string(results[0].Value), found: results[0].Err == nil}
				var e *OpError
				if errors.As(results[0].Err, &e) {
					switch {
					case e.OutcomeUnknown:
						out, end = output{unknown: true}, math.MaxInt64
					case errors.Is(e, ErrNotFound):
						out.version = e.Version
					case errors.Is(e, ErrCASFailed):
						out = output{failed: true, version: e.Version, value: string(e.Value), found: e.Found}
					case errors.Is(e, ErrTimeout): // a read, or a write that was never sent: it says nothing
						continue
					default:
						t.Errorf("worker %d: %v", w, e)
						return
					}
				}
				if out.version != 0 {
					seen[k] = out.version
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: w, Input: in, Call: call, Output: out, Return: end})
				mu.Unlock()
				if out.unknown { // a client of the checker has one operation at a time: this one is never over
					mu.Lock()
					history[len(history)-1].ClientId = workers + len(history)
					mu.Unlock()
				}
			}
		})
	}
	working.Wait()
	close(stopFreezing)
	wg.Wait()
	chain.SetFrozen(false)
	return history
}

type input struct {
	key      int
	op       wire.Op
	value    string
	del      bool
	expected wire.Version
}

type output struct {
	unknown bool // the outcome of this write is not known
	failed  bool // CAS
	found   bool
	version wire.Version
	value   string
}

// register is a key's state: its version, where somebody has seen it, or else a bound that it is above.
type register struct {
	version wire.Version
	above   bool // the version is greater than this one, by how much nobody has seen
	value   string
	found   bool
}

// is says whether the register's version may be v, and if so it is from then on.
func (r register) is(v wire.Version) (register, bool) {
	if r.above {
		ok := v > r.version
		r.version, r.above = v, false
		return r, ok
	}
	return r, v == r.version
}

var registers = porcupine.Model{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[int][]porcupine.Operation{}
		for _, o := range h {
			k := o.Input.(input).key
			byKey[k] = append(byKey[k], o)
		}
		var out [][]porcupine.Operation
		for _, p := range byKey {
			out = append(out, p)
		}
		return out
	},
	Init: func() any { return register{} },
	Step: func(state, in, out any) (bool, any) {
		s, i, o := state.(register), in.(input), out.(output)
		written := register{version: o.version, value: i.value, found: !i.del}
		switch {
		case i.op == wire.Read, o.failed:
			s, ok := s.is(o.version)
			if o.failed && s.version == i.expected {
				ok = false
			}
			return ok && s.found == o.found && s.value == o.value, s
		case o.unknown && i.op == wire.CAS && !s.above && s.version != i.expected:
			return true, s // it fails
		case o.unknown:
			return true, register{version: s.version, above: true, value: i.value, found: !i.del}
		case i.op == wire.CAS:
			s, ok := s.is(i.expected)
			return ok && o.version > s.version, written
		}
		return o.version > s.version, written
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(in, out any) string {
		return fmt.Sprintf("%+v -> %+v", in, out)
	},
}
