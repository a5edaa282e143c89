package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
	"github.com/netcraq/netcraq/test/system/lab"
)

// TestUpdateUnderLoad changes the topology of real switches while keys of two chains are read and
// written. It adds and removes 50 hosts. A switch joins both chains. A switch that is the head of
// one chain and the tail of the other leaves both. A chain is added and removed.
func TestUpdateUnderLoad(t *testing.T) {
	if !lab.InNamespace(t) {
		return
	}
	l := lab.Layout{N: 4, Links: [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 1}, {1, 3}, {2, 4}}, Chains: []lab.Chain{
		{ID: 1, Name: "c1", Members: []int{1, 2, 3}, Lease: 3000, Patience: 1500},
		{ID: 2, Name: "c2", Members: []int{3, 2, 1}, Lease: 3000, Patience: 1500}}}
	nw := lab.NewNetwork(t, "auto", l)
	without := func(sw, host string) func(topologytest.Object) {
		return func(top topologytest.Object) {
			topologytest.Drop(top, "switches", sw)
			topologytest.Drop(top, "links", sw)
			topologytest.Drop(top, "hosts", host)
			for _, c := range top["chains"].([]any) {
				c.(topologytest.Object)["members"] = slices.DeleteFunc(c.(topologytest.Object)["members"].([]any), func(m any) bool {
					return m == sw
				})
			}
		}
	}
	slots := func(top topologytest.Object) {
		for _, c := range top["chains"].([]any) {
			c.(topologytest.Object)["slots"] = 1000
		}
	}
	no4, no1 := without("s4", "h4"), without("s1", "h1")
	c := nw.StartControllerWith("state.json", nw.Changed(slots, no4))
	c.WaitAllReady()

	const length = 6 * time.Second
	// The clients are at s2 and s3, which stay in the network.
	histories := c.Clients(6, 2, []int{1, 2, 3}, length, func(i int) *lab.Host { return nw.Hosts[1+i%2] })
	began := time.Now()
	var steps []string
	var at []time.Time
	step := func(what string) {
		steps, at = append(steps, what), append(at, time.Now())
	}
	epochs := func() (out []uint16) {
		chains, err := c.API.Chains(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, ch := range chains {
			out = append(out, ch.Epoch)
		}
		return out
	}
	time.Sleep(500 * time.Millisecond)

	step("50 hosts come, and go")
	before, routes := epochs(), routesOf(nw)
	more := map[string]int{}
	for sw, n := range routes {
		more[sw] = n + 50
	}
	c.Update(nw.Changed(slots, no4, func(top topologytest.Object) {
		topologytest.Add(top, "hosts", topologytest.Pods("s2", 50)...)
	}))
	c.WaitUntil(func() bool { return maps.Equal(routesOf(nw), more) }, "50 more routes at each switch")
	c.Update(nw.Changed(slots, no4))
	c.WaitUntil(func() bool { return maps.Equal(routesOf(nw), routes) }, "the routes of before")
	if after := epochs(); !slices.Equal(after, before) {
		t.Errorf("hosts came and went, and the epochs went from %v to %v:\n%s", before, after, c.History())
	}

	step("s4 joins")
	c.Update(nw.Changed(slots))
	c.WaitUntil(func() bool {
		all := c.Switches()
		return len(all) == 4 && all[3].Ready
	}, "s4 to be set up")
	quickest := time.Hour
	for range 3 { // repeat the check, because the machine may delay any single attempt
		asked := time.Now()
		c.SessionsFor(1) // s4 also takes part in opening this session.
		quickest = min(quickest, time.Since(asked))
	}
	if quickest > 1500*time.Millisecond {
		t.Errorf("a session took %v: has s4 not answered?", quickest)
	}
	for _, name := range []string{"c1", "c2"} {
		c.BringInto(name, "s4")
	}
	c.WaitUntil(func() bool { return c.AllReady(4) }, "s4 to be in both chains")
	if r, err := nw.Hosts[3].Read(lab.ServiceAddrOf(1), uint32(wire.MakeKey(1, 7))); err != nil || r.Status != wire.OK {
		t.Errorf("h4 reads %v, %v", r, err)
	}

	step("s1 leaves")
	c.Update(nw.Changed(slots, no1))
	c.WaitUntil(func() bool { return len(c.Switches()) == 3 && c.AllReady(3) }, "both chains to be without s1, and it to be forgotten")
	nw.KillSwitch(1)

	step("a chain comes, goes, and another takes its slots")
	third := func(top topologytest.Object) {
		topologytest.Add(top, "chains", topologytest.Object{"id": 9, "name": "c9", "address": lab.ServiceAddrOf(
			9).String(), "members": []string{"s4", "s2"}, "leaseMillis": 1000, "patienceMillis": 300, "slots": 100})
	}
	c.Update(nw.Changed(slots, no1, third))
	c.WaitAllReady()
	for _, frozen := range []bool{true, false} { // freezing and unfreezing makes two more epochs
		if _, err := c.Running.ChangeChain(t.Context(), "c9", admin.ChainChange{Frozen: &frozen}); err != nil {
			t.Fatal(err)
		}
	}
	k, err := c.API.AddKey(t.Context(), "c9", admin.KeySpec{Name: "nine", Value: []byte("9")})
	if err != nil {
		t.Fatalf("%v\n%s", err, c.History())
	}
	for _, h := range []int{1, 2, 3} {
		if r, err := nw.Hosts[h].Read(lab.ServiceAddrOf(9), k.KeyID); err != nil || string(r.Value) != "9" {
			t.Errorf("h%d reads %v, %v", h+1, r, err)
		}
	}
	if err := c.Running.Update(t.Context(), nw.Changed(slots, no1)); err == nil {
		t.Error("a chain with a key was removed")
	}
	if err := c.API.RemoveKey(t.Context(), "c9", "nine"); err != nil {
		t.Fatal(err)
	}
	c.Update(nw.Changed(slots, no1))
	c.WaitAllReady()
	// tenth adds a chain. The next chain gets the same slots, which then still have this chain's
	// versions.
	tenth := func(top topologytest.Object) {
		topologytest.Add(top, "chains", topologytest.Object{"id": 10, "name": "c10",
			"address": lab.ServiceAddrOf(10).String(), "members": []string{"s2", "s4"}, "leaseMillis": 1000, "patienceMillis": 300, "slots": 100})
	}
	c.Update(nw.Changed(slots, no1, tenth))
	c.WaitAllReady()
	again, err := c.API.AddKey(t.Context(), "c10", admin.KeySpec{Name: "ten", Value: []byte("10")})
	if err != nil {
		t.Fatalf("%v\n%s", err, c.History())
	}
	if again.Slot != k.Slot {
		t.Errorf("the key has the slot %d, and that of the chain before had %d: this says nothing", again.Slot, k.Slot)
	}
	if r, err := nw.Hosts[1].Read(lab.ServiceAddrOf(10), again.KeyID); err != nil || string(r.Value) != "10" {
		t.Errorf("h2 reads %v, %v", r, err)
	}
	step("end")
	t.Logf("after %v all is done", time.Since(began).Round(time.Millisecond))
	for id, h := range histories() {
		for i := range len(steps) - 1 {
			t.Logf("  %s (%v): longest time without a write %.0f ms", steps[i], at[i+1].Sub(at[i]).Round(time.Millisecond),
				lab.LongestGap(lab.WritesDone(h), at[i], at[i+1]))
		}
		lab.CheckHistory(t, fmt.Sprintf("chain %d", id), h, 500, c.History)
	}
}

// routesOf returns the number of routes in each of s1 to s3, read from the switches.
func routesOf(nw *lab.Network) map[string]int {
	nw.T.Helper()
	compiled := filepath.Join("..", "..", "..", "p4src", "compiled", "netcraq-128.p4info.txtpb")
	info, err := p4rt.LoadInfo(compiled)
	if err != nil {
		nw.T.Fatal(err)
	}
	out := map[string]int{}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("s%d", i)
		// This P4Runtime client only reads. It needs no stream, and does not disturb the
		// controller.
		reader, err := p4rt.New(p4rt.Options{Name: name, Target: fmt.Sprintf("127.0.0.1:%d", lab.BasePort+i-1),
			DeviceID: uint64(i), ElectionID: p4rt.ElectionID{Low: 1}, Info: info}, p4rt.Handler{})
		if err != nil {
			nw.T.Fatal(err)
		}
		entries, err := reader.ReadTable(nw.T.Context(), "ipv4_lpm")
		if err != nil {
			nw.T.Fatal(err)
		}
		out[name] = len(entries)
		ended, cancel := context.WithCancel(nw.T.Context())
		cancel()
		reader.Run(ended) // Run with an ended context closes the connection
	}
	return out
}

// TestUpdateChurn makes two of four switches leave and join at random. Sometimes no controller runs
// meanwhile. NETCRAQ_TEST_CHURN sets the duration, which is a few seconds by default. Clients read
// and write keys of two chains that contain these switches.
func TestUpdateChurn(t *testing.T) {
	if !lab.InNamespace(t) {
		return
	}
	length, err := time.ParseDuration(cmp.Or(os.Getenv("NETCRAQ_TEST_CHURN"), "5s"))
	if err != nil {
		t.Fatal(err)
	}
	l := lab.Layout{N: 4, Links: [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 1}, {1, 3}, {2, 4}}, Chains: []lab.Chain{
		{ID: 1, Name: "c1", Members: []int{1, 2, 3, 4}, Lease: 3000, Patience: 1500},
		{ID: 2, Name: "c2", Members: []int{4, 3, 2, 1}, Lease: 3000, Patience: 1500}}}
	nw := lab.NewNetwork(t, "auto", l)
	there := map[int]bool{1: true, 4: true}
	now := func() *topology.Topology {
		return nw.Changed(func(top topologytest.Object) {
			for i := range there {
				if there[i] {
					continue
				}
				name := fmt.Sprintf("s%d", i)
				topologytest.Drop(top, "switches", name)
				topologytest.Drop(top, "links", name)
				topologytest.Drop(top, "hosts", fmt.Sprintf("h%d", i))
				for _, c := range top["chains"].([]any) {
					c.(topologytest.Object)["members"] = slices.DeleteFunc(c.(topologytest.Object)["members"].([]any), func(m any) bool {
						return m == name
					})
				}
			}
		})
	}
	c := nw.StartControllerWith("state.json", now())
	c.WaitAllReady()
	histories := c.Clients(4, 2, []int{2, 3}, length, func(i int) *lab.Host { return nw.Hosts[1+i/2] })
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	counts := map[string]int{}
	for end := time.Now().Add(length - 500*time.Millisecond); time.Now().Before(end); {
		i := []int{1, 4}[r.IntN(2)]
		name := fmt.Sprintf("s%d", i)
		there[i] = !there[i]
		what := map[bool]string{true: "join", false: "leave"}[there[i]]
		if r.IntN(3) == 0 {
			what += " while no controller runs"
			c.Stop()
			c = nw.StartControllerWith("state.json", now())
		} else {
			c.Update(now())
		}
		counts[what]++
		has := func(want bool) func() bool {
			return func() bool {
				for _, ch := range []string{"c1", "c2"} {
					is, err := c.API.Chain(t.Context(), ch)
					if err != nil || !is.Ready || slices.ContainsFunc(is.Members, func(m admin.Member) bool {
						return m.Switch == name
					}) != want {
						return false
					}
				}
				known := slices.ContainsFunc(c.Switches(), func(s admin.Switch) bool {
					return s.Name == name && (s.Ready || !want)
				})
				return known == want
			}
		}
		if there[i] {
			for _, ch := range []string{"c1", "c2"} {
				c.WaitUntil(func() bool {
					_, err := c.API.Recover(t.Context(), ch, name)
					is, err2 := c.API.Chain(t.Context(), ch)
					return err == nil || err2 == nil && slices.ContainsFunc(is.Members, func(m admin.Member) bool {
						return m.Switch == name
					})
				}, name+" to be brought into "+ch)
			}
		}
		c.WaitUntil(has(there[i]), name+" to "+what)
	}
	t.Logf("%v", counts)
	for id, h := range histories() {
		lab.CheckHistory(t, fmt.Sprintf("chain %d", id), h, 200, c.History)
	}
}
