package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/test/system/lab"
)

func TestEmbedded(t *testing.T) { endToEnd(t, "auto", 1000) }

func TestInterp(t *testing.T) { endToEnd(t, "interp", 250) }

func TestBMv2(t *testing.T) {
	lab.MustLook(t, "simple_switch_grpc")
	endToEnd(t, "bmv2", 250)
}

// endToEnd plays the life of a network of four switches. The network is started and filled, and
// clients read and write it. The controller is restarted with and without its state. The topology
// is changed, and a switch is lost.
func endToEnd(t *testing.T, engine string, count int) {
	if !lab.InNamespace(t) {
		return
	}
	// The lease is so long that members on a busy machine keep their leases.
	const n, lease = 4, 3000
	start := time.Now()
	nw := lab.NewNetwork(t, engine, lab.Line(n, lease))
	t.Logf("%d switches run after %v", n, time.Since(start).Round(time.Millisecond))
	start = time.Now()
	c := nw.StartController("state.json")
	ch := c.WaitReady()
	t.Logf("the chain is up after %v: epoch %d", time.Since(start).Round(time.Millisecond), ch.Epoch)
	if ch.Epoch != 1 || len(ch.Members) != n || ch.Members[0].Role != "HEAD" || ch.Members[3].Role != "TAIL" ||
		ch.ValueBytes != 16 {
		t.Fatalf("%+v", ch)
	}

	// The test now adds all keys.
	value := func(name string) string { return "v:" + name }
	var specs []admin.KeySpec
	for i := range count {
		name := fmt.Sprintf("/registry/%04d", i)
		specs = append(specs, admin.KeySpec{Name: name, Value: []byte(value(name))})
	}
	start = time.Now()
	keys, err := c.API.AddKeys(t.Context(), "main", specs)
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range keys {
		if k.Error != nil || k.KeyID>>24 != 3 || k.Slot != i || k.Name != specs[i].Name {
			t.Fatalf("key %d: %+v", i, k)
		}
	}
	t.Logf("%d keys added in %v", count, time.Since(start).Round(time.Millisecond))

	t.Run("clean reads are answered where they are asked", func(t *testing.T) {
		for i, h := range nw.Hosts {
			before := map[string]map[string]uint64{}
			for _, s := range []string{"s1", "s2", "s3", "s4"} {
				before[s] = c.Counters(s).Events
			}
			start := time.Now()
			again := h.ReadAll(lab.SwitchAddr(i+1), keys, value)
			t.Logf("%d keys read at s%d in %v", count, i+1, time.Since(start).Round(time.Millisecond))
			asked := fmt.Sprintf("s%d", i+1)
			// On a busy machine, the ACK of a key's first write may reach switches late. Switches
			// without the ACK forward reads to the tail.
			forwarded := uint64(0)
			for _, sc := range c.Counters(asked).Slots {
				if forwarded += sc.Forwards; sc.Reads+sc.Forwards < 1 || sc.Writes != 1 || sc.Name == "" {
					t.Fatalf("%s: %+v", asked, sc)
				}
			}
			if forwarded > uint64(count)/50 {
				t.Errorf("%s sent %d of %d reads to the tail", asked, forwarded, count)
			}
			for _, s := range []string{"s1", "s2", "s3", "s4"} {
				after := c.Counters(s)
				want, most := uint64(0), forwarded
				if s == asked {
					want, most = uint64(count)-forwarded, uint64(count)+again
				}
				if got := after.Events["read_clean"] - before[s]["read_clean"]; got < want || got > most {
					t.Errorf("reads at s%d: %s answered %d, want %d", i+1, s, got, want)
				}
				if got := after.Events["transit"] - before[s]["transit"]; got > 2*forwarded {
					t.Errorf("reads at s%d: %d packets passed through %s", i+1, got, s)
				}
			}
		}
	})

	t.Run("the controller sees the same at every switch", func(t *testing.T) {
		got, err := c.API.Directory(t.Context(), "/registry/000", true)
		if err != nil || len(got) != 10 {
			t.Fatal(got, err)
		}
		for _, k := range got {
			if len(k.State) != n {
				t.Fatalf("%+v", k)
			}
			for _, s := range k.State {
				if s.Status != "OK" || string(s.Value) != value(k.Name) || s.Version != s.Newest ||
					s.Version>>48 != 1 || s.Session == 0 || s.Session > 64 {
					t.Errorf("%s at %s: %+v", k.Name, s.Switch, s)
				}
			}
		}
	})

	var session admin.Session
	var lease1 string
	t.Run("sessions and writes", func(t *testing.T) {
		s, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 2, Owner: "test"})
		if err != nil || len(s.Sessions) != 2 || s.Sessions[0].ID != 65 || s.Sessions[1].ID != 66 ||
			s.TTL() != 2*time.Second {
			t.Fatal(s, err)
		}
		session, lease1 = s.Sessions[0], s.Lease
		w := &wire.Packet{Op: wire.Write, Key: wire.Key(keys[0].KeyID), Session: session.ID,
			Request: session.NextRequest, Value: []byte("new")}
		r, err := nw.Hosts[2].Ask(lab.ServiceAddr, w, lab.ReplyTimeout)
		if err != nil || r.Status != wire.OK {
			t.Fatal(r, err)
		}
		// the switches execute the retry of a write only once
		again, err := nw.Hosts[2].Ask(lab.ServiceAddr, w, lab.ReplyTimeout)
		if err != nil || again.Status != wire.OK || again.Version != r.Version {
			t.Fatal(again, err, r)
		}
		for i, h := range nw.Hosts {
			if r, err := h.Read(lab.SwitchAddr(i+1), keys[0].KeyID); err != nil || string(r.Value) != "new" {
				t.Errorf("at s%d: %v, %v", i+1, r, err)
			}
		}
		if _, err := c.API.KeepSessions(t.Context(), lease1); err != nil {
			t.Error(err)
		}
		if _, err := c.API.KeepSessions(t.Context(), "nobody's"); !errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
			t.Error(err)
		}
		if err := c.API.CloseSessions(t.Context(), s.Lease); err != nil {
			t.Error(err)
		}
		all, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 1024, Owner: "next"})
		if err != nil {
			t.Fatal(err)
		}
		c.API.CloseSessions(t.Context(), all.Lease)
		// When the session's id is leased again, the new request numbers must be far from those of
		// the last holder. Otherwise switches could mistake new requests for old ones.
		for range 4 {
			s, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 1007})
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range s.Sessions {
				if x.ID == session.ID && session.NextRequest-x.NextRequest <= wire.RequestWindow {
					t.Errorf("session %d starts at %d, its last holder was at %d", x.ID, x.NextRequest, session.NextRequest)
				}
			}
			c.API.CloseSessions(t.Context(), s.Lease)
		}
	})
	value2 := func(name string) string {
		if name == keys[0].Name {
			return "new"
		}
		return value(name)
	}

	t.Run("what cannot be added", func(t *testing.T) {
		foreign, taken := uint32(0x04000001), keys[3].KeyID
		for _, c2 := range []struct {
			chain string
			spec  admin.KeySpec
			code  string
		}{
			{"main", admin.KeySpec{Name: keys[1].Name, Value: []byte("x")}, admin.CodeAlreadyExists},
			{"main", admin.KeySpec{Name: "long", Value: make([]byte, 17)}, admin.CodeInvalidArgument},
			{"main", admin.KeySpec{Name: ""}, admin.CodeInvalidArgument},
			{"main", admin.KeySpec{Name: "x", KeyID: &foreign}, admin.CodeInvalidArgument},
			{"main", admin.KeySpec{Name: "x", KeyID: &taken}, admin.CodeAlreadyExists},
			{"other", admin.KeySpec{Name: "x"}, admin.CodeNotFound},
		} {
			if _, err := c.API.AddKey(t.Context(), c2.chain, c2.spec); !errors.Is(err, &admin.Error{Code: c2.code}) {
				t.Errorf("%+v: %v, want %s", c2.spec, err, c2.code)
			}
		}
		if got := c.Chain().Keys; got != count {
			t.Errorf("%d keys, want %d: a refused one was counted", got, count)
		}
	})

	t.Run("remove", func(t *testing.T) {
		k := keys[5]
		if err := c.API.RemoveKey(t.Context(), "main", k.Name); err != nil {
			t.Fatal(err)
		}
		for i, h := range nw.Hosts {
			if r, err := h.Read(lab.SwitchAddr(i+1), k.KeyID); err != nil || r.Status != wire.NotFound || !r.Tombstone {
				t.Errorf("at s%d: %v, %v", i+1, r, err)
			}
		}
		if _, err := c.API.Lookup(t.Context(), k.Name); !errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
			t.Error(err)
		}
		if err := c.API.RemoveKey(t.Context(), "main", k.Name); !errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
			t.Error(err)
		}
		// If a new key gets the slot, its versions start from the deletion's version, and its
		// KEY_ID is one that no key has had.
		again, err := c.API.AddKey(t.Context(), "main", admin.KeySpec{Name: k.Name})
		if err != nil || again.Slot != k.Slot || again.KeyID == k.KeyID {
			t.Fatal(again, err)
		}
		if r, err := nw.Hosts[1].Read(lab.SwitchAddr(2), again.KeyID); err != nil ||
			r.Status != wire.NotFound || r.Version.Sequence() < 3 {
			t.Error(r, err)
		}
		if err := c.API.RemoveKey(t.Context(), "main", fmt.Sprintf("0x%08x", again.KeyID)); err != nil {
			t.Error(err)
		}
	})
	keys = slices.Delete(slices.Clone(keys), 5, 6)

	writes := func() (n uint64) {
		for _, s := range []string{"s1", "s2", "s3", "s4"} {
			for k, v := range c.Counters(s).Events {
				if strings.HasPrefix(k, "write_") {
					n += v
				}
			}
		}
		return n
	}

	t.Run("the controller is restarted", func(t *testing.T) {
		before := writes()
		c.Stop()
		c = nw.StartController("state.json")
		start := time.Now()
		ch := c.WaitReady()
		t.Logf("ready again after %v", time.Since(start).Round(time.Millisecond))
		if ch.Epoch != 1 || ch.Keys != count-1 {
			t.Errorf("%+v", ch)
		}
		if h := c.History(); strings.Contains(h, "program-loaded") || strings.Contains(h, "tidied") {
			t.Errorf("the data plane was disturbed:\n%s", h)
		}
		if after := writes(); after != before {
			t.Errorf("%d write events, %d before", after, before)
		}
		nw.Hosts[1].ReadAll(lab.SwitchAddr(2), keys, value2)
	})

	t.Run("and without its state", func(t *testing.T) {
		c.Stop()
		c = nw.StartController("")
		if ch := c.WaitReady(); ch.Epoch != 1 || ch.Keys != count-1 {
			t.Errorf("%+v", ch)
		}
		k, err := c.API.Lookup(t.Context(), fmt.Sprintf("keyid:0x%08x", keys[7].KeyID))
		if err != nil || k.Slot != keys[7].Slot {
			t.Errorf("an adopted key: %+v, %v", k, err)
		}
		if _, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 1}); !errors.Is(err,
			&admin.Error{Code: admin.CodeResourceExhausted}) {
			t.Errorf("sessions that an earlier controller may have leased were given: %v", err)
		}
		nw.Hosts[3].ReadAll(lab.SwitchAddr(4), keys, value2)
		c.Stop()
		c = nw.StartController("state.json")
		c.WaitReady()
	})

	t.Run("two controllers", func(t *testing.T) {
		second := nw.StartController("")
		second.WaitReady()
		c.WaitEvent("controller.deposed", "")
		if err := c.API.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "another controller") {
			t.Errorf("the first controller: %v", err)
		}
		if _, err := c.API.AddKey(t.Context(), "main", admin.KeySpec{Name: "x"}); !errors.Is(err,
			&admin.Error{Code: admin.CodeFailedPrecondition}) {
			t.Errorf("the first controller added a key: %v", err)
		}
		nw.Hosts[0].ReadAll(lab.ServiceAddr, keys[:50], value2)
		// When the second controller stops, the first one must not control the network again,
		// because its state may be outdated.
		second.Stop()
		time.Sleep(200 * time.Millisecond)
		if c.API.Ready(t.Context()) == nil {
			t.Error("the first controller has taken the network back")
		}
		c.Stop()
		c = nw.StartController("state.json")
		c.WaitReady()
	})

	t.Run("changes", func(t *testing.T) {
		frozen, thawed := true, false
		change := func(what string, ch admin.ChainChange, epoch uint16) {
			t.Helper()
			start := time.Now()
			got, err := c.API.ChangeChain(t.Context(), "main", ch)
			if err != nil {
				t.Fatalf("%s: %v\n%s", what, err, c.History())
			}
			if got.Epoch != epoch {
				t.Errorf("%s: epoch %d, want %d", what, got.Epoch, epoch)
			}
			t.Logf("%s in %v", what, time.Since(start).Round(time.Millisecond))
		}
		change("frozen", admin.ChainChange{Frozen: &frozen}, 2)
		w := &wire.Packet{Op: wire.Write, Key: wire.Key(keys[9].KeyID), Value: []byte("x")}
		if r, err := nw.Hosts[0].Ask(lab.ServiceAddr, w, lab.ReplyTimeout); err != nil || r.Status != wire.Retry {
			t.Errorf("a write to a frozen chain: %v, %v", r, err)
		}
		nw.Hosts[2].ReadAll(lab.SwitchAddr(3), keys[:20], value2)
		change("thawed", admin.ChainChange{Frozen: &thawed}, 3)
		change("shorter", admin.ChainChange{Members: &[]string{"s1", "s3", "s4"}}, 4)
		c.WaitReady()
		// s2 is not a member any more. It forwards packets to the service address, and answers none
		// of them itself.
		nw.Hosts[1].ReadAll(lab.ServiceAddr, keys[:20], value2)
		nw.Hosts[1].ReadAll(lab.SwitchAddr(2), keys[:20], value2)
		if s := c.Counters("s2").Events; s["read_forwarded"] < 20 {
			t.Errorf("s2 forwarded %d reads", s["read_forwarded"])
		}
		change("another order", admin.ChainChange{Members: &[]string{"s4", "s1", "s3"}}, 6)
		c.WaitReady()
		if r, err := nw.Hosts[1].Ask(lab.ServiceAddr, w, lab.ReplyTimeout); err != nil || r.Status != wire.OK ||
			r.Epoch != 6 {
			t.Errorf("a write in the new order: %v, %v", r, err)
		}
		for _, i := range []int{1, 3, 4} {
			if r, err := nw.Hosts[i-1].Read(lab.SwitchAddr(i), keys[9].KeyID); err != nil || string(r.Value) != "x" {
				t.Errorf("at s%d: %v, %v", i, r, err)
			}
		}
		_, err := c.API.ChangeChain(t.Context(), "main", admin.ChainChange{Members: &[]string{"s1", "s2"}})
		if !errors.Is(err, &admin.Error{Code: admin.CodeFailedPrecondition}) {
			t.Errorf("growing a chain with keys: %v", err)
		}
		nw.Hosts[3].ReadAll(lab.ServiceAddr, keys[10:], value2)
	})

	t.Run("a member is restarted", func(t *testing.T) {
		nw.KillSwitch(3) // s3 is the tail.
		c.WaitEvent("switch.disconnected", "s3")
		nw.StartSwitch(3)
		c.WaitEvent("chain.lost-member", "s3")
		ch := c.WaitReady()
		if len(ch.Members) != 2 || ch.Members[1].Switch != "s1" || ch.Epoch != 7 {
			t.Errorf("%+v", ch)
		}
		for i := range nw.Hosts {
			nw.Hosts[i].ReadAll(lab.ServiceAddr, keys[10:100], value2)
		}
		nw.Hosts[2].ReadAll(lab.SwitchAddr(3), keys[10:30], value2)
		w := &wire.Packet{Op: wire.Write, Key: wire.Key(keys[20].KeyID), Value: []byte(value(keys[20].Name))}
		if r, err := nw.Hosts[2].Ask(lab.ServiceAddr, w, lab.ReplyTimeout); err != nil || r.Status != wire.OK {
			t.Error(r, err)
		}
	})

	if _, err := c.API.Switches(t.Context()); err != nil {
		t.Error(err)
	}
	t.Run("events are followed", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		seen := 0
		err := c.API.Events(ctx, 0, true, func(admin.Event) error { seen++; return nil })
		if !errors.Is(err, context.DeadlineExceeded) || seen == 0 {
			t.Errorf("%d events, %v", seen, err)
		}
	})
}

// In TestCutOff, a member loses the controller, but not its clients. The member must stop answering
// by itself before the other members may continue without it.
func TestCutOff(t *testing.T) {
	if !lab.InNamespace(t) {
		return
	}
	const lease = 500
	nw := lab.NewNetwork(t, "auto", lab.Line(3, lease))
	c := nw.StartController("state.json")
	c.WaitReady()
	k, err := c.API.AddKey(t.Context(), "main", admin.KeySpec{Name: "k", Value: []byte("old")})
	if err != nil {
		t.Fatal(err)
	}
	h := nw.Hosts[1]
	clean := func() uint64 { return c.Counters("s2").Events["read_clean"] }
	if r, err := h.Read(lab.SwitchAddr(2), k.KeyID); err != nil || string(r.Value) != "old" || clean() != 1 {
		t.Fatal(r, err, clean())
	}
	nw.Proxies[2].SetCut(true)
	cut := time.Now()
	c.WaitEvent("switch.disconnected", "s2")
	// Until its lease expires, the member may answer reads. So the change that removes the member
	// must wait.
	start := time.Now()
	if _, err := c.API.ChangeChain(t.Context(), "main", admin.ChainChange{Members: &[]string{"s1", "s3"}}); err != nil {
		t.Fatalf("%v\n%s", err, c.History())
	}
	// When the member was cut off, at least a quarter of its last lease had passed, and more on a
	// busy machine.
	if waited := time.Since(cut); waited < lease*time.Millisecond/4 {
		t.Errorf("it was removed %v after it was cut off, but could hold a lease of %d ms", waited, lease)
	}
	t.Logf("removed after %v", time.Since(start).Round(time.Millisecond))
	// A write that the member does not receive ...
	w := &wire.Packet{Op: wire.Write, Key: wire.Key(k.KeyID), Value: []byte("new")}
	if r, err := nw.Hosts[0].Ask(lab.SwitchAddr(1), w, lab.ReplyTimeout); err != nil || r.Status != wire.OK {
		t.Fatal(r, err)
	}
	// ... must be visible to clients that ask the member. The ACK and the reply pass through the
	// member, so it may know the value. But it must not answer with the value.
	if r, err := h.Read(lab.SwitchAddr(2), k.KeyID); err != nil || r.Status != wire.OK ||
		string(r.Value) != "new" || r.Epoch != 2 {
		t.Errorf("asked at the switch that was cut off: %v, %v", r, err)
	}
	nw.Proxies[2].SetCut(false)
	c.WaitEvent("switch.connected", "s2")
	poll.Until(t, 10*time.Second, "s2 is set up again", func() bool {
		all, err := c.API.Switches(t.Context())
		return err == nil && all[1].Ready
	}, c.History)
	if n := clean(); n != 1 {
		t.Errorf("the switch that was cut off answered %d reads by itself, 1 of them before", n)
	}
	if r, err := h.Read(lab.ServiceAddr, k.KeyID); err != nil || string(r.Value) != "new" {
		t.Error(r, err)
	}
	// Without a controller, no switch answers after the leases have expired. When the controller is
	// back, the switches must answer again, and no value may be lost.
	c.Stop()
	time.Sleep(lease * time.Millisecond * 5 / 4)
	for i := range nw.Hosts {
		if r, err := nw.Hosts[i].Read(lab.ServiceAddr, k.KeyID); err != nil || r.Status != wire.NotServing {
			t.Errorf("without a controller, at h%d: %v, %v", i+1, r, err)
		}
	}
	eventual := &wire.Packet{Op: wire.Read, Flags: wire.Eventual, Key: wire.Key(k.KeyID)}
	if r, err := nw.Hosts[0].Ask(lab.ServiceAddr, eventual, lab.ReplyTimeout); err != nil || string(r.Value) != "new" {
		t.Errorf("an eventual read asks for no lease: %v, %v", r, err)
	}
	c = nw.StartController("state.json")
	if ch := c.WaitReady(); ch.Epoch != 2 {
		t.Errorf("%+v", ch)
	}
	if r, err := h.Read(lab.ServiceAddr, k.KeyID); err != nil || string(r.Value) != "new" {
		t.Error(r, err)
	}
}

// TestRing tests two chains in a ring of five switches with a chord. Neither chain has all switches
// as members. ACKs pass through switches that are not members, and ACK trees branch.
//
//	s1 ─── s2 ─── s3
//	 │ ╲           │
//	s5 ──── s4 ────┘
func TestRing(t *testing.T) {
	for _, engine := range []string{"auto", "bmv2"} {
		t.Run(engine, func(t *testing.T) {
			if engine == "bmv2" {
				lab.MustLook(t, "simple_switch_grpc")
			}
			if !lab.InNamespace(t) {
				return
			}
			nw := lab.NewNetwork(t, engine, lab.Layout{N: 5, Links: [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 5},
				{5, 1}, {1, 4}}, Chains: []lab.Chain{
				{ID: 3, Name: "main", Members: []int{2, 5, 4}, Lease: 1000},
				{ID: 9, Name: "other", Members: []int{4, 3, 1}},
			}})
			c := nw.StartController("state.json")
			c.WaitAllReady()
			for _, spec := range nw.Layout.Chains {
				var specs []admin.KeySpec
				for i := range 50 {
					specs = append(specs, admin.KeySpec{Name: fmt.Sprintf("%s/%d", spec.Name, i),
						Value: fmt.Appendf(nil, "%d", i)})
				}
				keys, err := c.API.AddKeys(t.Context(), spec.Name, specs)
				if err != nil {
					t.Fatal(err)
				}
				value := func(name string) string { return name[strings.Index(name, "/")+1:] }
				for i := range nw.Hosts {
					nw.Hosts[i].ReadAll(lab.ServiceAddrOf(spec.ID), keys, value)
					for at := 1; at <= 5; at++ { // These are members and other switches.
						nw.Hosts[i].ReadAll(lab.SwitchAddr(at), keys[:5], value)
					}
					// After a write from each host, all members must have the value. This shows
					// that the ACKs arrive.
					w := &wire.Packet{Op: wire.Write, Key: wire.Key(keys[0].KeyID), Value: []byte("0")}
					if r, err := nw.Hosts[i].Ask(lab.ServiceAddrOf(spec.ID), w, lab.ReplyTimeout); err != nil ||
						r.Status != wire.OK {
						t.Errorf("h%d: %v, %v", i+1, r, err)
					}
				}
				var got []admin.Key
				poll.Until(t, 5*time.Second, "all members are clean", func() bool {
					if got, err = c.API.Directory(t.Context(), spec.Name+"/0", true); err != nil ||
						len(got[0].State) != 3 {
						t.Fatal(got, err)
					}
					return !slices.ContainsFunc(got[0].State, func(s admin.KeyState) bool {
						return s.Status != "OK" || s.Version != got[0].State[0].Version
					})
				}, func() string { return fmt.Sprintf("%+v", got[0].State) })
			}
			ch, err := c.API.Chains(t.Context())
			if err != nil || len(ch) != 2 || ch[0].Keys != 50 || ch[1].Keys != 50 || ch[1].Name != "other" ||
				!ch[1].Members[0].LeaseLive {
				t.Errorf("%+v %v", ch, err)
			}
		})
	}
}
