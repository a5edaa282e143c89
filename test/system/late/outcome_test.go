package late

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/internal/testutil/p4proxy"
	"github.com/netcraq/netcraq/test/system/lab"
)

// refused returns whether a switch has refused all late messages.
func refused(t *testing.T, late []p4proxy.Delivery) bool {
	t.Helper()
	if len(late) == 0 {
		t.Fatal("nothing came late")
	}
	return !slices.ContainsFunc(late, func(d p4proxy.Delivery) bool {
		t.Logf("%v came late, and the switch said: %v", d.Message, d.Err)
		return status.Code(d.Err) != codes.PermissionDenied
	})
}

// In TestLateConfiguration, the Write that makes a switch the only member of its chain is held, and
// its caller gets DEADLINE_EXCEEDED. The controller continues, and the other switch becomes a
// member again. When the Write then arrives, it must not make the switch answer as the only member.
func TestLateConfiguration(t *testing.T) { onEachEngine(t, lateConfiguration) }

func lateConfiguration(t *testing.T, engine string) {
	const keys, writes = 5, 200
	nw := lab.NewNetwork(t, engine, ring(2,
		lab.Chain{ID: 3, Name: "main", Members: []int{1, 2}, Lease: lease, Patience: lease / 2}))
	c := nw.StartController("state.json")
	c.WaitReady()
	placed := add(c, "main", specs("k", keys, true))
	u := user(nw, c, 1)
	newest := map[uint32]wire.Version{}
	values := map[uint32]string{}
	alone, back := 0, 0
	put := func(n int) {
		t.Helper()
		k := placed[n%keys].KeyID
		value := fmt.Sprint("w", n)
		r, err := u.Put(within(t, 20*time.Second), wire.Key(k), []byte(value), service(k))
		if err != nil {
			t.Fatalf("write %d: %v\n%s", n, err, c.History())
		}
		if r.Version <= newest[k] {
			back++
		}
		newest[k], values[k] = r.Version, value
	}
	for n := range keys {
		put(n)
	}

	held := nw.Messages[1].Add(p4proxy.Rule{Match: p4proxy.Writes("chain_config"), Most: 1, Hold: true, GiveUp: true})
	nw.KillSwitch(2)
	if err := held.Await(within(t, 30*time.Second), 1); err != nil {
		t.Fatalf("s1 is told nothing of the chain: %v\n%s", err, c.History())
	}
	c.WaitUntil(func() bool { return len(c.Chain().Members) == 1 && c.API.Ready(t.Context()) == nil },
		"the chain to go on without s2")
	for n := range keys {
		put(n)
	}
	nw.StartSwitch(2)
	c.WaitUntil(func() bool { return c.Switches()[1].Ready }, "s2 to be set up")
	c.BringIn("s2")
	for n := range keys {
		put(n)
	}
	epoch := c.Chain().Epoch
	ok := refused(t, release(t, held))
	for n := range writes {
		put(n)
		if v := newest[placed[n%keys].KeyID]; v.Epoch() < epoch {
			alone++
		}
	}
	if alone > 0 || back > 0 {
		t.Errorf("of %d writes %d were answered by a switch that was a chain of one before, and %d were given a version not above the last",
			writes, alone, back)
	}
	if !ok {
		t.Error("a Write whose caller had given up was executed after later ones")
	}
	c.WaitUntil(func() bool { return c.API.Ready(t.Context()) == nil }, "the chain to be ready")
	settled()
	state, err := c.API.Directory(t.Context(), "", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range state {
		for _, s := range k.State {
			if string(s.Value) != values[k.KeyID] || wire.Version(s.Version) != newest[k.KeyID] {
				t.Errorf("%s was last written %q at %v, and %s has %q at %v", k.Name, values[k.KeyID], newest[k.KeyID],
					s.Switch, s.Value, wire.Version(s.Version))
			}
		}
	}
}

// In TestLateProgram, the request that loads the program is held, and its caller gets
// DEADLINE_EXCEEDED. This happens when a switch is set up, and when a switch is emptied before it
// is brought into a chain. The controller loads the program again, and writes keys. When the
// request then arrives, it must not empty the switch.
func TestLateProgram(t *testing.T) { onEachEngine(t, lateProgram) }

func lateProgram(t *testing.T, engine string) {
	const keys = 5
	nw := lab.NewNetwork(t, engine, ring(3,
		lab.Chain{ID: 3, Name: "main", Members: []int{1, 2}, Lease: lease, Patience: lease / 2},
		lab.Chain{ID: 4, Name: "alone", Members: []int{3}, Lease: lease, Patience: lease / 2}))
	load := p4proxy.Rule{Match: p4proxy.Kinds(p4proxy.Program), Most: 1, Hold: true, GiveUp: true}
	first := nw.Messages[3].Add(load)
	c := nw.StartController("state.json")
	c.WaitAllReady()
	placed := append(add(c, "alone", specs("a", keys, true)), add(c, "main", specs("m", keys, true))...)
	u := user(nw, c, 1)
	// there checks for a while that all keys can be read at each member of their chains.
	there := func(when string) {
		t.Helper()
		wrong := 0
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			for _, k := range placed {
				at := []int{1, 2}
				if k.Chain == "alone" {
					at = []int{3}
				}
				for _, sw := range at {
					r, err := nw.Hosts[sw-1].Read(lab.SwitchAddr(sw), k.KeyID)
					if err != nil || r.Status == wire.NotServing {
						// the packet was lost, or the switch has no lease
						continue
					}
					if string(r.Value) != k.Name {
						if wrong++; wrong == 1 {
							t.Logf("s%d says %v of %s", sw, r, k.Name)
						}
					}
				}
			}
		}
		if wrong > 0 {
			t.Errorf("%s, %d reads had another answer than what was written", when, wrong)
		}
		for _, k := range placed {
			r, err := u.Get(within(t, 5*time.Second), wire.Key(k.KeyID), service(k.KeyID))
			var e *client.OpError
			if err != nil && !errors.As(err, &e) || string(r.Value) != k.Name {
				t.Errorf("%s, %s is %q (%v)", when, k.Name, r.Value, err)
			}
		}
	}
	there("before")
	if !refused(t, release(t, first)) {
		t.Error("a program that its caller had given up was loaded over what came later")
	}
	there("after the first program came again")
	if t.Failed() {
		return
	}

	nw.Proxies[2].SetCut(true)
	c.WaitUntil(func() bool { return len(c.Chain().Members) == 1 && c.API.Ready(t.Context()) == nil }, "the chain to go on without s2")
	nw.Proxies[2].SetCut(false)
	c.WaitUntil(func() bool { return c.Switches()[1].Ready }, "s2 to be set up")
	again := nw.Messages[2].Add(load)
	c.BringIn("s2")
	if n, _ := again.Count(); n != 1 {
		t.Fatalf("s2 was brought in, and emptied %d times\n%s", n, c.History())
	}
	there("when s2 was back")
	if !refused(t, release(t, again)) {
		t.Error("a program that its caller had given up was loaded into a member")
	}
	there("after s2's program came again")
}
