package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/internal/testutil/topologytest"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/p4rt/p4rttest"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// topology returns the fakes' topology after a change.
func (f *fakes) topology(change func(topologytest.Object)) *topology.Topology {
	f.t.Helper()
	b, err := os.ReadFile(f.file)
	if err != nil {
		f.t.Fatal(err)
	}
	var top topologytest.Object
	if err := json.Unmarshal(b, &top); err != nil {
		f.t.Fatal(err)
	}
	change(top)
	if b, err = json.Marshal(top); err != nil {
		f.t.Fatal(err)
	}
	t, err := topology.Parse(b, "changed.json")
	if err != nil {
		f.t.Fatal(err)
	}
	return t
}

// until waits until the function ok returns true.
func until(t *testing.T, c *controller.Controller, what string, ok func() bool) {
	t.Helper()
	poll.Until(t, 60*time.Second, what, ok, func() string { return eventText(c) })
}

func update(t *testing.T, c *controller.Controller, top *topology.Topology) {
	t.Helper()
	if err := c.Update(t.Context(), top); err != nil {
		t.Fatalf("%v\n%s", err, eventText(c))
	}
}

func members(t *testing.T, c *controller.Controller, chain string) (names []string, epoch uint16) {
	t.Helper()
	ch, err := c.Chain(t.Context(), chain)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ch.Members {
		names = append(names, m.Switch)
	}
	return names, ch.Epoch
}

// TestUpdateHosts: adding hosts writes only the entries that differ, and does not touch the chain.
func TestUpdateHosts(t *testing.T) {
	f := newFakes(t, nil)
	c, _ := f.start()
	ready(t, c)
	before := [][]string{f.tables(0), f.tables(1), f.tables(2)}
	entries := func() int { return len(f.tables(0)) + len(f.tables(1)) + len(f.tables(2)) }
	writes, had := f.writes(), entries()
	const n = 50
	update(t, c, f.topology(func(top topologytest.Object) { topologytest.Add(top, "hosts", topologytest.Pods("s2", n)...) }))
	// Each host has a port and a route at s2, and a route at s1 and at s3.
	until(t, c, "the entries of the new hosts", func() bool { return entries() == had+4*n })
	// s2 forwards the tail's acknowledgements, so each port also has a multicast group for replies.
	until(t, c, "the groups", func() bool { return f.writes() >= writes+5*n })
	if got := f.writes() - writes; got != 5*n {
		t.Errorf("%d updates for %d hosts, not %d", got, n, 5*n)
	}
	writes = f.writes()
	update(t, c, f.topology(func(top topologytest.Object) { topologytest.Add(top, "hosts", topologytest.Pods("s2", n-1)...) }))
	until(t, c, "the last host's entries to go", func() bool { return f.writes() >= writes+5 })
	if got := f.writes() - writes; got != 5 {
		t.Errorf("%d updates for one host, not 5", got)
	}
	update(t, c, f.topology(func(topologytest.Object) {}))
	until(t, c, "what there was before", func() bool { return entries() == had })
	until(t, c, "the groups to go", func() bool { return f.writes() >= writes+5*n })
	for i := range before {
		if after := f.tables(i); !slices.Equal(after, before[i]) {
			t.Errorf("s%d has\n%s\nbefore\n%s", i+1, strings.Join(after, "\n"), strings.Join(before[i], "\n"))
		}
	}
	writes = f.writes()
	update(t, c, f.topology(func(topologytest.Object) {}))
	// Hosts in a prefix of their switch need no entries at other switches.
	at := []int{len(f.tables(0)), len(f.tables(1)), len(f.tables(2))}
	update(t, c, f.topology(func(top topologytest.Object) {
		top["switches"].([]any)[1].(topologytest.Object)["prefixes"] = []string{"10.7.2.0/24"}
		topologytest.Add(top, "hosts", topologytest.Pods("s2", n)...)
	}))
	until(t, c, "one route elsewhere, and all of them at s2", func() bool {
		return len(f.tables(0)) == at[0]+1 && len(f.tables(1)) == at[1]+2*n && len(f.tables(2)) == at[2]+1
	})
	if want := "ipv4_lpm ipv4_dst=10.7.2.0/24 -> forward(dst_mac=02:4e:0a:00:ff:02, port=0x02)"; !slices.Contains(f.tables(0), want) {
		t.Errorf("s1 has not %s:\n%s", want, strings.Join(f.tables(0), "\n"))
	}
	if m, epoch := members(t, c, "main"); !slices.Equal(m, []string{"s1", "s2", "s3"}) || epoch != 1 {
		t.Errorf("the chain is %v, epoch %d\n%s", m, epoch, eventText(c))
	}
}

// TestUpdateMistakes: an impossible change is refused as a whole, with advice, and everything stays
// unchanged.
func TestUpdateMistakes(t *testing.T) {
	f := newFakes(t, func(top map[string]any) { top["chains"].([]map[string]any)[0]["slots"] = 100 })
	c, _ := f.start()
	ready(t, c)
	writes, sw := f.writes(), func(top topologytest.Object, i int) topologytest.Object {
		return top["switches"].([]any)[i].(topologytest.Object)
	}
	chain := func(top topologytest.Object) topologytest.Object {
		return top["chains"].([]any)[0].(topologytest.Object)
	}
	// No switch answers the first write. So the addition fails, and undoing it cannot complete
	// either.
	adding, stop := context.WithCancel(t.Context())
	defer stop()
	go c.AddKeys(adding, "main", []admin.KeySpec{{Name: "k"}})
	until(t, c, "its hidden entries, which stay hidden when its first write fails", func() bool { return f.writes() == writes+3 })
	writes = f.writes()
	for want, change := range map[string]func(topologytest.Object){
		"the program cannot change":        func(top topologytest.Object) { top["program"].(topologytest.Object)["profile"] = "128" },
		"the sessions cannot change":       func(top topologytest.Object) { top["sessions"] = topologytest.Object{"ttlSeconds": 9} },
		"controller's address cannot":      func(top topologytest.Object) { top["controller"] = topologytest.Object{"address": "169.254.1.1"} },
		"p4runtimeTLS cannot change":       func(top topologytest.Object) { top["p4runtimeTLS"] = topologytest.Object{"ca": "ca.pem"} },
		"of switch s2 cannot become":       func(top topologytest.Object) { sw(top, 1)["address"] = "10.0.255.9" },
		"(02:4e:0a:00:ff:02) of switch s2": func(top topologytest.Object) { sw(top, 1)["mac"] = "02:00:00:00:02:02" },
		"has the id 0 and the address":     func(top topologytest.Object) { chain(top)["address"] = "10.0.254.7" },
		"and keeps them: make another":     func(top topologytest.Object) { chain(top)["id"] = 7 },
		"has 100 slots, and keeps them":    func(top topologytest.Object) { chain(top)["slots"] = 200 },
		"main holds 1 keys: remove them first": func(top topologytest.Object) {
			chain(top)["name"], chain(top)["id"] = "other", 1
		},
		"asks for 65500 slots": func(top topologytest.Object) {
			topologytest.Add(top, "chains", topologytest.Object{"name": "c2", "id": 2, "address": "10.0.254.2",
				"members": []string{"s1"}, "slots": 65436}, topologytest.Object{"name": "c3", "id": 3, "address": "10.0.254.3", "members": []string{"s1"}, "slots": 65500})
		},
		"routes: compile it with a larger one, or give switches prefixes": func(top topologytest.Object) {
			for i := range 17 {
				topologytest.Add(top, "switches", topologytest.Object{"name": fmt.Sprintf("s%d", i+10),
					"p4runtime": "127.0.0.1:1", "deviceId": i + 10, "address": fmt.Sprintf("10.0.255.%d", i+10)})
				topologytest.Add(top, "links", []string{fmt.Sprintf("s%d:1", i+10), fmt.Sprintf("s1:%d", i+10)})
				topologytest.Add(top, "hosts", topologytest.Pods(fmt.Sprintf("s%d", i+10), 250)...)
			}
		},
	} {
		if want == "asks for 65500 slots" {
			want = "the chains ask for"
		}
		err := c.Update(t.Context(), f.topology(change))
		if err == nil || !strings.Contains(err.Error(), want) ||
			!errors.Is(err, &admin.Error{Code: admin.CodeFailedPrecondition}) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if f.writes() != writes {
		t.Errorf("%d updates were written", f.writes()-writes)
	}
	if all, err := c.Switches(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestUpdateSwitches: a switch joins, gets its routes, and becomes a member of the chain. Another
// switch leaves, the chain continues without it, and its connection is closed.
func TestUpdateSwitches(t *testing.T) {
	f := newFakes(t, nil)
	c, stop := f.start()
	ready(t, c)
	s4 := &p4rttest.Server{DeviceID: 4}
	answering(s4, records)
	if err := s4.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s4.Stop)
	f.servers = append(f.servers, s4)
	four := func(top topologytest.Object) {
		topologytest.Add(top, "switches", topologytest.Object{"name": "s4", "p4runtime": s4.Addr, "deviceId": 4, "address": "10.0.255.4"})
		topologytest.Add(top, "links", []any{"s3:3", "s4:2"}, []any{"s1:4", "s4:3"}, []any{"s1:5", "s3:5"})
		topologytest.Add(top, "hosts", topologytest.Pods("s4", 1)...)
	}
	update(t, c, f.topology(four))
	until(t, c, "s4 to be set up", func() bool {
		all, err := c.Switches(t.Context())
		return err == nil && len(all) == 4 && all[3].Ready
	})
	if _, err := c.Recover(t.Context(), "main", "s4"); err != nil {
		t.Fatalf("%v\n%s", err, eventText(c))
	}
	ready(t, c)
	if m, _ := members(t, c, "main"); !slices.Equal(m, []string{"s1", "s2", "s3", "s4"}) {
		t.Errorf("the chain is %v", m)
	}
	three := func(top topologytest.Object) {
		four(top)
		topologytest.Drop(top, "switches", "s2")
		topologytest.Drop(top, "links", "s2")
		top["chains"].([]any)[0].(topologytest.Object)["members"] = []string{"s1", "s3"}
	}
	update(t, c, f.topology(three))
	until(t, c, "s2 to be forgotten", func() bool {
		all, err := c.Switches(t.Context())
		return err == nil && len(all) == 3 && strings.Contains(eventText(c), "switch.left s2")
	})
	ready(t, c)
	if m, _ := members(t, c, "main"); !slices.Equal(m, []string{"s1", "s3", "s4"}) {
		t.Errorf("the chain is %v\n%s", m, eventText(c))
	}
	// Before the connection was closed, s2 got the role NONE.
	if got := f.tables(1, "chain_config"); len(got) != 1 || !strings.Contains(got[0], "role=0x00") {
		t.Errorf("s2 has %v", got)
	}
	for i := range f.servers { // the switches' workers finish at different times
		until(t, c, fmt.Sprintf("s%d to have no way to s2", i+1), func() bool {
			return i == 1 || !slices.ContainsFunc(f.tables(i), func(e string) bool { return strings.Contains(e, "10.0.255.2") })
		})
	}
	// A restarted controller finds the same state.
	stop()
	b, err := json.Marshal(topologytest.Read(t, f.file, three))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	writes := f.writes()
	c, stop = f.start()
	ready(t, c)
	if got := f.writes() - writes; got != 0 {
		t.Errorf("%d updates were written by the next controller:\n%s", got, eventText(c))
	}
	// The tail leaves while no controller runs. The next controller knows the tail from the saved
	// state, fences it, and continues without it.
	stop()
	if b, err = json.Marshal(topologytest.Read(t, f.file, func(top topologytest.Object) {
		topologytest.Drop(top, "switches", "s4")
		topologytest.Drop(top, "links", "s4")
		topologytest.Drop(top, "hosts", "s4-pod0")
	})); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ = f.start()
	until(t, c, "s4 to be forgotten", func() bool { return strings.Contains(eventText(c), "switch.left s4") })
	ready(t, c)
	if m, _ := members(t, c, "main"); !slices.Equal(m, []string{"s1", "s3"}) {
		t.Errorf("the chain is %v\n%s", m, eventText(c))
	}
	if got := f.tables(3, "chain_config"); len(got) != 1 || !strings.Contains(got[0], "role=0x00") {
		t.Errorf("s4 has %v", got)
	}
}

// TestUpdateReplaced: if the P4Runtime server of a switch changes, the controller connects to the
// new server.
func TestUpdateReplaced(t *testing.T) {
	f := newFakes(t, nil)
	c, _ := f.start()
	ready(t, c)
	elsewhere := &p4rttest.Server{DeviceID: 2}
	answering(elsewhere, records)
	if err := elsewhere.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(elsewhere.Stop)
	update(t, c, f.topology(func(top topologytest.Object) {
		top["switches"].([]any)[1].(topologytest.Object)["p4runtime"] = elsewhere.Addr
	}))
	until(t, c, "it to be set up at its new place", func() bool {
		all, err := c.Switches(t.Context())
		return err == nil && all[1].Ready && all[1].P4Runtime == elsewhere.Addr
	})
	ready(t, c)
	if len(elsewhere.Entries()) == 0 {
		t.Error("nothing was written there")
	}
}

// TestUpdateChains: chains come and go. Each has slots and epochs that cannot conflict with another
// chain's values. Leases can change.
func TestUpdateChains(t *testing.T) {
	f := newFakes(t, func(top map[string]any) { top["chains"].([]map[string]any)[0]["slots"] = 100 })
	c, stop := f.start()
	ready(t, c)
	second := func(id int) func(topologytest.Object) {
		return func(top topologytest.Object) {
			topologytest.Add(top, "chains", topologytest.Object{"name": "second", "id": id, "address": "10.0.254.2", "members": []string{"s3", "s1"}, "leaseMillis": 0, "slots": 50})
		}
	}
	frozen := true
	// this change begins epoch 2
	if _, err := c.ChangeChain(t.Context(), "main", admin.ChainChange{Frozen: &frozen}); err != nil {
		t.Fatal(err)
	}
	update(t, c, f.topology(second(5)))
	ready(t, c)
	if m, epoch := members(t, c, "second"); !slices.Equal(m, []string{"s3", "s1"}) || epoch != 3 {
		t.Errorf("the chain is %v, epoch %d", m, epoch)
	}
	if _, epoch := members(t, c, "main"); epoch != 2 {
		t.Errorf("the other chain has epoch %d", epoch)
	}
	if got := f.tables(2, "chain_config", "local_address"); len(got) != 5 {
		t.Errorf("s3 has\n%s", strings.Join(got, "\n"))
	}
	update(t, c, f.topology(func(topologytest.Object) {}))
	until(t, c, "nothing of the chain to be left", func() bool {
		return len(f.tables(0, "chain_config"))+len(f.tables(1, "chain_config"))+len(f.tables(2, "chain_config")) == 3 && len(f.tables(2, "local_address")) == 2
	})
	if _, err := c.Chain(t.Context(), "second"); !errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
		t.Errorf("%v", err)
	}
	// Later chains have higher epochs, even under another controller.
	stop()
	c, _ = f.start()
	ready(t, c)
	update(t, c, f.topology(second(6)))
	ready(t, c)
	if _, epoch := members(t, c, "second"); epoch != 4 {
		t.Errorf("the next chain has epoch %d", epoch)
	}
	update(t, c, f.topology(func(top topologytest.Object) {
		second(6)(top)
		top["chains"].([]any)[1].(topologytest.Object)["leaseMillis"] = 60000
	}))
	until(t, c, "the lease to be changed", func() bool {
		ch, err := c.Chain(t.Context(), "second")
		return err == nil && ch.LeaseMillis == 60000
	})
}

// TestUpdateRejoin: a switch that has left comes back, and a running switch gets another P4Runtime
// address. A switch remembers the highest election id that it has seen, so the controller must not
// use a lower one. Otherwise the controller would conclude that another controller has taken over.
func TestUpdateRejoin(t *testing.T) {
	f := newFakes(t, nil)
	c, _ := f.start()
	ready(t, c)
	s3 := func() admin.Switch {
		all, err := c.Switches(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all[len(all)-1]
	}
	for range 3 { // each stream raises the election id
		f.servers[2].BreakStreams()
		until(t, c, "s3 to be lost", func() bool { return !s3().Ready })
		until(t, c, "s3 to be back", func() bool { return s3().Ready })
	}
	without := f.topology(func(top topologytest.Object) {
		topologytest.Drop(top, "switches", "s3")
		topologytest.Drop(top, "links", "s3")
		top["chains"].([]any)[0].(topologytest.Object)["members"] = []string{"s1", "s2"}
	})
	update(t, c, without)
	until(t, c, "s3 to be gone", func() bool { return s3().Name == "s2" })
	update(t, c, f.topology(func(topologytest.Object) {}))
	until(t, c, "s3 to be there again", func() bool { return s3().Name == "s3" && s3().Ready })
	_, port, _ := strings.Cut(f.servers[2].Addr, ":")
	update(t, c, f.topology(func(top topologytest.Object) {
		top["switches"].([]any)[2].(topologytest.Object)["p4runtime"] = "localhost:" + port
	}))
	until(t, c, "s3 to be reached by another name", func() bool { return s3().Ready && s3().P4Runtime == "localhost:"+port })
	ready(t, c)
}

// TestUpdateLastMember: if the last member of a chain leaves, it is kept, and shown as having left,
// until another switch has taken its place.
func TestUpdateLastMember(t *testing.T) {
	f := newFakes(t, func(top map[string]any) { top["chains"].([]map[string]any)[0]["members"] = []string{"s3"} })
	c, _ := f.start()
	ready(t, c)
	until(t, c, "all switches to be set up", func() bool {
		all, err := c.Switches(t.Context())
		return err == nil && !slices.ContainsFunc(all, func(s admin.Switch) bool { return !s.Ready })
	})
	update(t, c, f.topology(func(top topologytest.Object) {
		topologytest.Drop(top, "switches", "s3")
		topologytest.Drop(top, "links", "s3")
		top["chains"].([]any)[0].(topologytest.Object)["members"] = []string{"s1"}
	}))
	all, err := c.Switches(t.Context())
	if err != nil || len(all) != 3 || all[2].Name != "s3" || !strings.Contains(all[2].LastError, "it has left the topology") {
		t.Fatalf("%+v, %v", all, err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Errorf("the chain does not serve: %v", err)
	}
	if _, err := c.ChangeChain(t.Context(), "main", admin.ChainChange{Members: &[]string{"s3", "s1"}}); err == nil {
		t.Error("a switch that leaves was made a member")
	}
	if _, err := c.ChangeChain(t.Context(), "main", admin.ChainChange{Members: &[]string{"s2"}}); err != nil {
		t.Fatalf("%v\n%s", err, eventText(c))
	}
	until(t, c, "s3 to be forgotten", func() bool {
		all, err := c.Switches(t.Context())
		return err == nil && len(all) == 2
	})
	ready(t, c)
	if m, _ := members(t, c, "main"); !slices.Equal(m, []string{"s2"}) {
		t.Errorf("the chain is %v", m)
	}
	if got := f.tables(2, "chain_config"); len(got) != 1 || !strings.Contains(got[0], "role=0x00") {
		t.Errorf("s3 has %v", got)
	}
}

// TestUpdateRename: a topology replaces a chain without keys by another chain with the same id. The
// controller refuses that, because leases of the first chain may still be valid.
func TestUpdateRename(t *testing.T) {
	f := newFakes(t, nil)
	c, _ := f.start()
	ready(t, c)
	err := c.Update(t.Context(), f.topology(func(top topologytest.Object) {
		top["chains"].([]any)[0].(topologytest.Object)["name"] = "second"
	}))
	if !errors.Is(err, &admin.Error{Code: admin.CodeFailedPrecondition}) || !strings.Contains(err.Error(), "main") {
		t.Errorf("%v", err)
	}
	ready(t, c)
}
