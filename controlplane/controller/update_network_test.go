package controller_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/wire"
)

// changed is the network's file with changes.
func (nw *network) changed(changes ...func(object)) *topology.Topology {
	nw.t.Helper()
	top := topologyFile(nw.t, nw.file, func(object) {})
	for _, change := range changes {
		change(top)
	}
	b, err := json.Marshal(top)
	if err != nil {
		nw.t.Fatal(err)
	}
	t, err := topology.Parse(b, "changed.json")
	if err != nil {
		nw.t.Fatal(err)
	}
	return t
}

// TestUpdateUnderLoad changes the topology of real switches while keys of two chains are read and written: 50 hosts come and go, a switch joins and is taken into both chains, one that is
// in both (head of one, tail of the other) leaves, and a chain comes and goes.
func TestUpdateUnderLoad(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	l := layout{n: 4, links: [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 1}, {1, 3}, {2, 4}}, chains: []chainSpec{
		{id: 1, name: "c1", members: []int{1, 2, 3}, lease: 3000, patience: 1500}, {id: 2, name: "c2", members: []int{3, 2, 1}, lease: 3000, patience: 1500}}}
	nw := newNetwork(t, "auto", l)
	without := func(sw, host string) func(object) {
		return func(top object) {
			drop(top, "switches", sw)
			drop(top, "links", sw)
			drop(top, "hosts", host)
			for _, c := range top["chains"].([]any) {
				c.(object)["members"] = slices.DeleteFunc(c.(object)["members"].([]any), func(m any) bool { return m == sw })
			}
		}
	}
	slots := func(top object) {
		for _, c := range top["chains"].([]any) {
			c.(object)["slots"] = 1000
		}
	}
	no4, no1 := without("s4", "h4"), without("s1", "h1")
	c := nw.startControllerWith("state.json", nw.changed(slots, no4))
	c.waitAllReady()

	const length = 6 * time.Second
	histories := c.clients(6, 2, []int{1, 2, 3}, length, func(i int) *host { return nw.hosts[1+i%2] }) // at s2 and s3, which stay
	began := time.Now()
	var steps []string
	var at []time.Time
	step := func(what string) {
		steps, at = append(steps, what), append(at, time.Now())
	}
	epochs := func() (out []uint16) {
		chains, err := c.api.Chains(t.Context())
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
	c.update(nw.changed(slots, no4, func(top object) { add(top, "hosts", pods("s2", 50)...) }))
	c.waitUntil(func() bool { return maps.Equal(routesOf(nw), more) }, "50 more routes at each switch")
	c.update(nw.changed(slots, no4))
	c.waitUntil(func() bool { return maps.Equal(routesOf(nw), routes) }, "the routes of before")
	if after := epochs(); !slices.Equal(after, before) {
		t.Errorf("hosts came and went, and the epochs went from %v to %v:\n%s", before, after, c.history())
	}

	step("s4 joins")
	c.update(nw.changed(slots))
	c.waitUntil(func() bool {
		all := c.switches()
		return len(all) == 4 && all[3].Ready
	}, "s4 to be set up")
	asked := time.Now()
	c.sessionsFor(1) // s4 is asked, too
	if took := time.Since(asked); took > 1500*time.Millisecond {
		t.Errorf("a session took %v: has s4 not answered?", took)
	}
	for _, name := range []string{"c1", "c2"} {
		if _, err := c.api.Recover(t.Context(), name, "s4"); err != nil {
			t.Fatalf("%v\n%s", err, c.history())
		}
	}
	c.waitUntil(func() bool { return c.allReady(4) }, "s4 to be in both chains")
	if r, err := nw.hosts[3].read(serviceAddrOf(1), uint32(wire.MakeKey(1, 7))); err != nil || r.Status != wire.OK {
		t.Errorf("h4 reads %v, %v", r, err)
	}

	step("s1 leaves")
	c.update(nw.changed(slots, no1))
	c.waitUntil(func() bool { return len(c.switches()) == 3 && c.allReady(3) }, "both chains to be without s1, and it to be forgotten")
	nw.killSwitch(1)

	step("a chain comes, goes, and another takes its slots")
	third := func(top object) {
		add(top, "chains", object{"id": 9, "name": "c9", "address": serviceAddrOf(9).String(), "members": []string{"s4", "s2"}, "leaseMillis": 1000, "patienceMillis": 300, "slots": 100})
	}
	c.update(nw.changed(slots, no1, third))
	c.waitAllReady()
	for _, frozen := range []bool{true, false} { // two epochs more
		if _, err := c.c.ChangeChain(t.Context(), "c9", api.ChainChange{Frozen: &frozen}); err != nil {
			t.Fatal(err)
		}
	}
	k, err := c.api.AddKey(t.Context(), "c9", api.KeySpec{Name: "nine", Value: []byte("9")})
	if err != nil {
		t.Fatalf("%v\n%s", err, c.history())
	}
	for _, h := range []int{1, 2, 3} {
		if r, err := nw.hosts[h].read(serviceAddrOf(9), k.KeyID); err != nil || string(r.Value) != "9" {
			t.Errorf("h%d reads %v, %v", h+1, r, err)
		}
	}
	if err := c.c.Update(t.Context(), nw.changed(slots, no1)); err == nil {
		t.Error("a chain with a key was removed")
	}
	if err := c.api.RemoveKey(t.Context(), "c9", "nine"); err != nil {
		t.Fatal(err)
	}
	c.update(nw.changed(slots, no1))
	c.waitAllReady()
	// The next chain has the same slots, in which there are versions of that one.
	tenth := func(top object) {
		add(top, "chains", object{"id": 10, "name": "c10", "address": serviceAddrOf(10).String(), "members": []string{"s2", "s4"}, "leaseMillis": 1000, "patienceMillis": 300, "slots": 100})
	}
	c.update(nw.changed(slots, no1, tenth))
	c.waitAllReady()
	again, err := c.api.AddKey(t.Context(), "c10", api.KeySpec{Name: "ten", Value: []byte("10")})
	if err != nil {
		t.Fatalf("%v\n%s", err, c.history())
	}
	if again.Slot != k.Slot {
		t.Errorf("the key has the slot %d, and that of the chain before had %d: this says nothing", again.Slot, k.Slot)
	}
	if r, err := nw.hosts[1].read(serviceAddrOf(10), again.KeyID); err != nil || string(r.Value) != "10" {
		t.Errorf("h2 reads %v, %v", r, err)
	}
	step("end")
	t.Logf("after %v all is done", time.Since(began).Round(time.Millisecond))
	for id, h := range histories() {
		for i := range len(steps) - 1 {
			t.Logf("  %s (%v): longest time without a write %.0f ms", steps[i], at[i+1].Sub(at[i]).Round(time.Millisecond),
				longestGap(writesDone(h), at[i], at[i+1]))
		}
		checkHistory(t, fmt.Sprintf("chain %d", id), h, 500, c.history)
	}
}

// routesOf is how many routes s1 to s3 have, by their own word.
func routesOf(nw *network) map[string]int {
	nw.t.Helper()
	compiled := filepath.Join("..", "..", "..", "p4src", "compiled", "netcraq-128.p4info.txtpb")
	info, err := p4rt.LoadInfo(compiled)
	if err != nil {
		nw.t.Fatal(err)
	}
	out := map[string]int{}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("s%d", i)
		// One who only reads needs no stream, and is in nobody's way.
		reader, err := p4rt.New(p4rt.Options{Name: name, Target: fmt.Sprintf("127.0.0.1:%d", basePort+i-1), DeviceID: uint64(i), ElectionID: p4rt.ElectionID{Low: 1}, Info: info}, p4rt.Handler{})
		if err != nil {
			nw.t.Fatal(err)
		}
		entries, err := reader.ReadTable(nw.t.Context(), "ipv4_lpm")
		if err != nil {
			nw.t.Fatal(err)
		}
		out[name] = len(entries)
		ended, cancel := context.WithCancel(nw.t.Context())
		cancel()
		reader.Run(ended) // closes it
	}
	return out
}

// update gives the controller another topology.
func (r *running) update(top *topology.Topology) {
	r.t.Helper()
	if err := r.c.Update(r.t.Context(), top); err != nil {
		r.t.Fatalf("%v\n%s", err, r.history())
	}
}

func (r *running) switches() []api.Switch {
	r.t.Helper()
	all, err := r.api.Switches(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// TestUpdateChurn has two switches of four leave and join at random, some while the controller is away, for NETCRAQ_TEST_CHURN (by default a few seconds), while keys of two chains that
// they are in are read and written.
func TestUpdateChurn(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	length, err := time.ParseDuration(cmp.Or(os.Getenv("NETCRAQ_TEST_CHURN"), "5s"))
	if err != nil {
		t.Fatal(err)
	}
	l := layout{n: 4, links: [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 1}, {1, 3}, {2, 4}}, chains: []chainSpec{
		{id: 1, name: "c1", members: []int{1, 2, 3, 4}, lease: 3000, patience: 1500}, {id: 2, name: "c2", members: []int{4, 3, 2, 1}, lease: 3000, patience: 1500}}}
	nw := newNetwork(t, "auto", l)
	there := map[int]bool{1: true, 4: true}
	now := func() *topology.Topology {
		return nw.changed(func(top object) {
			for i := range there {
				if there[i] {
					continue
				}
				name := fmt.Sprintf("s%d", i)
				drop(top, "switches", name)
				drop(top, "links", name)
				drop(top, "hosts", fmt.Sprintf("h%d", i))
				for _, c := range top["chains"].([]any) {
					c.(object)["members"] = slices.DeleteFunc(c.(object)["members"].([]any), func(m any) bool { return m == name })
				}
			}
		})
	}
	c := nw.startControllerWith("state.json", now())
	c.waitAllReady()
	histories := c.clients(4, 2, []int{2, 3}, length, func(i int) *host { return nw.hosts[1+i/2] })
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
			c.stop()
			c = nw.startControllerWith("state.json", now())
		} else {
			c.update(now())
		}
		counts[what]++
		has := func(want bool) func() bool {
			return func() bool {
				for _, ch := range []string{"c1", "c2"} {
					is, err := c.api.Chain(t.Context(), ch)
					if err != nil || !is.Ready || slices.ContainsFunc(is.Members, func(m api.Member) bool { return m.Switch == name }) != want {
						return false
					}
				}
				known := slices.ContainsFunc(c.switches(), func(s api.Switch) bool { return s.Name == name && (s.Ready || !want) })
				return known == want
			}
		}
		if there[i] {
			for _, ch := range []string{"c1", "c2"} {
				c.waitUntil(func() bool {
					_, err := c.api.Recover(t.Context(), ch, name)
					is, err2 := c.api.Chain(t.Context(), ch)
					return err == nil || err2 == nil && slices.ContainsFunc(is.Members, func(m api.Member) bool { return m.Switch == name })
				}, name+" to be brought into "+ch)
			}
		}
		c.waitUntil(has(there[i]), name+" to "+what)
	}
	t.Logf("%v", counts)
	for id, h := range histories() {
		checkHistory(t, fmt.Sprintf("chain %d", id), h, 200, c.history)
	}
}
