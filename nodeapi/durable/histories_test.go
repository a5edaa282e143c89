package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestLinearizable checks that histories through two gateways are linearizable in values and
// versions. Meanwhile keys are placed in the network and removed from it, and etcd is killed.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const keys = 3
	var names []string
	for i := range keys {
		names = append(names, nameOf(key(fmt.Sprint("k", i))))
	}
	w.placeAll(names...)
	o := Options{Patience: time.Second}
	stores := []*Store{open(t, o, w.gateway()), open(t, o, w.gateway())}
	busy, stop := context.WithCancel(t.Context())
	defer stop()
	var calls atomic.Int64 // number of answered calls
	more := func(what string) {
		t.Helper()
		before := calls.Load()
		poll.Until(t, 2*soon, what, func() bool { return calls.Load() > before+80 || t.Failed() })
	}
	var mu sync.Mutex
	var history []linearizable.Call
	var work sync.WaitGroup
	for c := range 4 {
		work.Go(func() {
			mine := program(busy, t, stores[c%2], c, keys, &calls)
			mu.Lock()
			defer mu.Unlock()
			history = append(history, mine...)
		})
	}
	more("calls before etcd is killed")
	w.Kill(0)
	w.Start(0)
	more("calls when it is back")
	stop()
	work.Wait()
	var sure, unknown int
	for _, c := range history {
		if c.Unknown {
			unknown++
		} else if !c.Nothing {
			sure++
		}
	}
	t.Logf("%d calls, %d of unknown outcome; %d reads were answered by the network", sure, unknown, w.slots.Answered.Load())
	if w.slots.Answered.Load() == 0 {
		t.Error("the network has answered nothing")
	}
	switch porcupine.CheckOperationsTimeout(linearizable.Registers, linearizable.Operations(history), soon) {
	case porcupine.Illegal:
		t.Error("the history is not linearizable")
	case porcupine.Unknown:
		t.Log("the history was not searched through in time")
	}
}

// program reads and writes keys like a program until ctx ends.
func program(ctx context.Context, t *testing.T, s *Store, client, keys int,
	calls *atomic.Int64) (history []linearizable.Call) {
	random := rand.New(rand.NewPCG(17, uint64(client)))
	seen := map[string]wire.Version{}
	for n := 0; ctx.Err() == nil; n++ {
		which := random.IntN(keys)
		k := key(fmt.Sprint("k", which))
		value := fmt.Sprintf("%d.%d", client, n)
		call := linearizable.Call{Client: client, Key: uint32(which), Op: wire.Read, Begin: time.Now().UnixNano()}
		in, cancel := context.WithTimeout(t.Context(), time.Second)
		var got store.Item
		var err error
		done := true
		switch p := random.IntN(10); {
		case p < 5:
			got, err = s.Get(in, k, false)
			call.Got, call.Found = string(got.Value), got.Found
		case p < 6:
			call.Op, call.Value = wire.Write, value
			got.Version, err = s.Put(in, k, []byte(value))
		case p < 7:
			call.Op, call.Delete = wire.Write, true
			got.Version, err = s.Delete(in, k)
		case p < 9:
			call.Op, call.Value, call.Expected = wire.CAS, value, seen[k.Name]
			got, done, err = s.CompareAndSwap(in, k, call.Expected, []byte(value))
		default:
			call.Op, call.Delete, call.Expected = wire.CAS, true, seen[k.Name]
			got, done, err = s.CompareAndDelete(in, k, call.Expected)
		}
		cancel()
		call.End, call.Version = time.Now().UnixNano(), got.Version
		switch {
		case errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeOutcomeUnknown}):
			call.Unknown = true
		case err != nil && !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable}) &&
			!errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeTimeout}):
			t.Errorf("%+v: %v", call, err)
			fallthrough
		case err != nil: // the call was not executed
			call.Nothing = true
			time.Sleep(10 * time.Millisecond)
		case !done:
			call.Failed, call.Got, call.Found = true, string(got.Value), got.Found
		}
		if err == nil {
			calls.Add(1)
			seen[k.Name] = got.Version
		}
		history = append(history, call)
	}
	return history
}
