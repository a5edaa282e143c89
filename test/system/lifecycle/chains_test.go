package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/test/system/lab"
)

// fourChains returns a layout of four fully connected switches with four chains. Each chain has a
// different head and a different tail.
func fourChains() lab.Layout {
	l := lab.Layout{N: 4, Links: [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 1}, {1, 3}, {2, 4}}}
	for i := range 4 {
		// The lease is so long that a busy machine loses no other member.
		c := lab.Chain{ID: 1 + i, Name: fmt.Sprintf("c%d", 1+i), Lease: 1000, Patience: 300}
		for n := range 4 {
			c.Members = append(c.Members, 1+(i+n)%4)
		}
		l.Chains = append(l.Chains, c)
	}
	return l
}

// TestFourChains kills a switch that is in each of four chains, at a different position in each.
// Each chain must continue without the switch, independently of the others. Then the switch is
// brought back into each chain. Meanwhile clients read and write keys of all chains.
func TestFourChains(t *testing.T) {
	if !lab.InNamespace(t) {
		return
	}
	nw := lab.NewNetwork(t, "auto", fourChains())
	c := nw.StartController("state.json")
	c.WaitAllReady()
	const length = 7 * time.Second
	histories := c.Clients(8, 4, []int{1, 2, 3, 4}, length, func(i int) *lab.Host { return nw.Hosts[i%4] })
	time.Sleep(500 * time.Millisecond)
	killed := time.Now()
	nw.KillSwitch(2)
	c.WaitUntil(func() bool { return c.AllReady(3) }, "each chain to go on without s2")
	t.Logf("all four chains are shorter after %v", time.Since(killed).Round(time.Millisecond))
	chains, err := c.API.Chains(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, ch := range chains {
		var got, want []string
		for _, m := range ch.Members {
			got = append(got, m.Switch)
		}
		for n := range 4 {
			if s := 1 + (i+n)%4; s != 2 {
				want = append(want, fmt.Sprintf("s%d", s))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("chain %s has the members %v, not %v", ch.Name, got, want)
		}
	}
	nw.StartSwitch(2)
	c.WaitUntil(func() bool {
		all, err := c.API.Switches(t.Context())
		return err == nil && all[1].Ready
	}, "s2 to be set up")
	for _, ch := range chains {
		c.BringInto(ch.Name, "s2")
	}
	c.WaitUntil(func() bool { return c.AllReady(4) }, "each chain to have s2 again")
	// Each chain was frozen for one comparison. Writes by clients of other chains must not have
	// made the comparison longer.
	compared := 0
	c.API.Events(context.Background(), 0, false, func(e admin.Event) error {
		if e.Type == "chain.compared" {
			compared++
			rounds := 0
			if _, err := fmt.Sscanf(e.Message[strings.LastIndex(e.Message, " and "):], " and %d rounds",
				&rounds); err != nil || rounds > 5 {
				t.Errorf("%s: %s, %v", e.Chain, e.Message, err)
			}
		}
		return nil
	})
	if compared != 4 {
		t.Errorf("%d comparisons, not 4", compared)
	}
	for id, h := range histories() {
		lab.CheckHistory(t, fmt.Sprintf("chain %d", id), h, 500, c.History)
		t.Logf("chain %d: longest time without a write %.0f ms", id, lab.LongestGap(lab.WritesDone(h), killed, killed.Add(3*time.Second)))
	}
}

// TestMoveKey moves a key from chain to chain repeatedly, while clients that know its name read and
// write it, and a switch is killed. A client that gets NOT_FOUND without a version looks the name
// up again.
func TestMoveKey(t *testing.T) {
	if !lab.InNamespace(t) {
		return
	}
	nw := lab.NewNetwork(t, "auto", fourChains())
	c := nw.StartController("state.json")
	c.WaitAllReady()
	const name = "wanderer"
	if _, err := c.API.AddKey(t.Context(), "c1", admin.KeySpec{Name: name}); err != nil {
		t.Fatal(err)
	}
	// The test ends when the key was moved often enough, or after a time limit.
	busy, stop := context.WithTimeout(t.Context(), 40*time.Second)
	defer stop()
	sessions := c.SessionsFor(4)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var history []linearizable.Call
	lookedUp, missed := 0, 0
	for i := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(i)))
			session, request := sessions[i].ID, sessions[i].NextRequest
			lookup := func() uint32 {
				for {
					mu.Lock()
					lookedUp++
					mu.Unlock()
					k, err := c.API.Lookup(context.Background(), name)
					if err == nil {
						return k.KeyID
					}
					if !errors.Is(err, &admin.Error{Code: admin.CodeUnavailable}) {
						t.Errorf("lookup: %v", err)
						return 0
					}
					time.Sleep(2 * time.Millisecond)
				}
			}
			key := lookup()
			for n := 0; busy.Err() == nil && key != 0; n++ {
				x := linearizable.Call{Client: i, Op: wire.Read, Begin: time.Now().UnixNano(),
					Value: fmt.Sprintf("%d.%d", i, n)}
				write := r.IntN(2) == 0
				for sent := false; ; {
					x.Key = key
					p := &wire.Packet{Op: wire.Read, Key: wire.Key(key), Request: uint32(n + 1)}
					if write {
						x.Op = wire.Write
						p = &wire.Packet{Op: wire.Write, Key: wire.Key(key), Session: session, Request: request,
							Value: []byte(x.Value)}
					}
					reply, err := nw.Hosts[i].Ask(lab.SwitchAddr(1+r.IntN(4)), p, 40*time.Millisecond)
					x.End = time.Now().UnixNano()
					sent = sent || err != nil // the write may have been executed
					if x.Unknown = write && sent; busy.Err() != nil {
						x.Nothing = !x.Unknown
						break
					}
					x.Unknown = false
					if err != nil || reply.Status == wire.Retry || reply.Status == wire.NotServing ||
						reply.Status == wire.NoChain {
						continue
					}
					if reply.Status == wire.NotFound && reply.Version == 0 {
						mu.Lock()
						missed++
						mu.Unlock()
						next := lookup()
						if write && sent { // The outcome of this write is unknown.
							x.Unknown = true
							key = next
							break
						}
						key, request = next, request+1 // each key needs a new request number
						continue
					}
					x.Version = reply.Version
					if !write {
						x.Got, x.Found = string(reply.Value), reply.Status == wire.OK
					}
					break
				}
				request++
				mu.Lock()
				history = append(history, x)
				mu.Unlock()
				time.Sleep(time.Duration(r.Int64N(int64(3 * time.Millisecond))))
			}
		})
	}
	moves, at := 0, 1
	const before = 10 // number of moves after which a switch is killed
	killed := false
	var longest time.Duration
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return moves >= 4*before && missed > 0 && len(history) >= 200
	}
	for busy.Err() == nil && !enough() {
		to := 1 + at%4
		began := time.Now()
		k, err := c.API.MoveKey(t.Context(), fmt.Sprint("c", at), name, fmt.Sprint("c", to))
		switch {
		case err == nil:
			moves, at = moves+1, to
			if wire.Key(k.KeyID).Chain() != uint8(to) || k.Name != name {
				t.Errorf("moved to chain %d, it is %+v", to, k)
			}
		case !errors.Is(err, &admin.Error{Code: admin.CodeUnavailable}):
			t.Fatalf("moving: %v\n%s", err, c.History())
		}
		longest = max(longest, time.Since(began))
		if moves == before && !killed {
			killed = true
			go nw.KillSwitch(3)
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	wg.Wait()
	t.Logf("%d moves, the longest took %v; %d calls, %d lookups, %d times NOT_FOUND", moves, longest.Round(time.Millisecond), len(history), lookedUp, missed)
	if !killed || missed == 0 || len(history) < 200 {
		t.Error("this says little")
	}
	c.WaitUntil(func() bool {
		keys, err := c.API.Directory(t.Context(), "", false)
		return err == nil && len(keys) == 1 && keys[0].Name == name
	}, "all that is left of moved keys to be removed")
	if result := porcupine.CheckOperationsTimeout(linearizable.Moving, linearizable.Operations(history),
		time.Minute); result != porcupine.Ok {
		t.Errorf("the history is not linearizable: %v\n%s", result, c.History())
	}
}
