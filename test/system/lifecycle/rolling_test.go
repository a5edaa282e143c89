package lifecycle

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
	"github.com/netcraq/netcraq/test/system/lab"
)

// These are P4 programs of earlier versions.
const (
	unguarded = "former" // has no principals, realms, session leases, rates and watches
	unwatched = "last"   // has no watches
)

// formerProgram returns a program of an earlier version.
func formerProgram(t *testing.T, which string) *p4rt.Pipeline {
	t.Helper()
	info, err := p4rt.LoadInfo("testdata/" + which + "/netcraq-128.p4info.txtpb")
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile("testdata/" + which + "/netcraq-128.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	json, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	pl, err := p4rt.NewPipeline(info, json)
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// load makes a switch run a program. It leaves the switch in the state in which an earlier
// controller would leave it.
func load(nw *lab.Network, i int, pl *p4rt.Pipeline) {
	nw.T.Helper()
	c, err := p4rt.New(p4rt.Options{Name: "before", Target: nw.Proxies[i].Addr, DeviceID: uint64(i),
		ElectionID: p4rt.ElectionID{Low: 1}, Info: pl.Info}, p4rt.Handler{})
	if err != nil {
		nw.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(nw.T.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	poll.Until(nw.T, 20*time.Second, "this is the primary client", func() bool { return c.State().Phase == p4rt.Primary })
	if _, err := c.EnsurePipeline(ctx, pl); err != nil {
		nw.T.Fatal(err)
	}
}

// ofBefore returns a network of three switches in a ring, with one chain. The switches run a
// program of an earlier version.
func ofBefore(t *testing.T, engine, which string) *lab.Network {
	t.Helper()
	l := lab.Layout{N: 3, Links: [][2]int{{1, 2}, {2, 3}, {1, 3}},
		Chains: []lab.Chain{{ID: 1, Name: "c1", Members: []int{1, 2, 3}, Lease: 500, Patience: 1500, Rejoin: 500}}}
	nw := lab.NewNetwork(t, engine, l)
	former := formerProgram(t, which)
	for i := 1; i <= l.N; i++ {
		load(nw, i, former)
	}
	return nw
}

// TestRollingTakesUp interrupts the rollout of a program. It cuts the controller off from the first
// or the last switch, just when that switch should come back into the chain. The switch must be
// brought in later, before another switch is taken out. The chain may never have only one member.
// In the end, access rights must be enforced.
func TestRollingTakesUp(t *testing.T) {
	for i, sw := range map[int]string{1: "s1", 3: "s3"} {
		t.Run(sw, func(t *testing.T) {
			if lab.InNamespace(t) {
				takesUp(t, i, sw)
			}
		})
	}
}

func takesUp(t *testing.T, i int, sw string) {
	nw := ofBefore(t, "auto", unguarded)
	c := nw.StartController("state.json")
	c.WaitEvent("chain.ready", "")
	if _, err := c.API.AddKey(t.Context(), "c1", admin.KeySpec{Name: "k"}); err != nil {
		t.Fatal(err)
	}
	c.WaitEvent("chain.recovering", sw)
	nw.Proxies[i].SetCut(true)
	c.WaitEvent("switch.program-not-replaced", sw)
	// In this time, a faulty controller would continue with the next switch.
	time.Sleep(2 * time.Second)
	nw.Proxies[i].SetCut(false)
	c.WaitEvent("network.enforces-access", "")
	c.WaitUntil(func() bool { return c.AllReady(3) }, "the chain to be whole again")
	fewest := 3
	for line := range strings.Lines(c.History()) {
		if _, members, found := strings.Cut(line, "chain.installing c1"); found {
			members, _, _ = strings.Cut(members, "(shadow")
			fewest = min(fewest, 1+strings.Count(members, "->"))
		}
	}
	if fewest < 2 {
		t.Errorf("the chain had %d member:\n%s", fewest, c.History())
	}
}

// TestRolling upgrades a live chain from the previous version's program to this one, while its keys
// are read and written. No value may be lost. A host without access in the topology has access
// until the last switch runs the new program, and must have none after that.
func TestRolling(t *testing.T) {
	for _, engine := range []string{"auto", "bmv2"} {
		t.Run(engine, func(t *testing.T) {
			if engine == "bmv2" {
				lab.MustLook(t, "simple_switch_grpc")
			}
			if !lab.InNamespace(t) {
				return
			}
			nw := ofBefore(t, engine, unguarded)
			closed := nw.Changed(func(top topologytest.Object) {
				for _, h := range top["hosts"].([]any) {
					if h.(topologytest.Object)["name"] == "h3" {
						h.(topologytest.Object)["access"] = topologytest.Object{}
					}
				}
			})
			c := nw.StartControllerWith("state.json", closed)
			c.WaitEvent("chain.ready", "")
			kept, err := c.API.AddKey(t.Context(), "c1", admin.KeySpec{Name: "kept", Value: []byte("over all of it")})
			if err != nil {
				t.Fatalf("%v\n%s", err, c.History())
			}
			if r, err := nw.Hosts[2].Read(lab.ServiceAddrOf(1), kept.KeyID); err != nil || string(r.Value) != "over all of it" {
				t.Errorf("while nothing is enforced h3 reads %v, %v", r, err)
			}
			const length = 8 * time.Second
			began := time.Now()
			histories := c.Clients(4, 1, []int{1, 2, 3}, length, func(i int) *lab.Host { return nw.Hosts[i%2] })
			c.WaitEvent("network.enforces-access", "")
			t.Logf("all switches run this program after %v", time.Since(began).Round(time.Millisecond))
			c.WaitUntil(func() bool { return c.AllReady(3) }, "the chain to be whole again")
			// The default of `access` changes just after the last switch has reported that it is
			// ready.
			c.WaitUntil(func() bool {
				_, err := nw.Hosts[2].Ask(lab.ServiceAddrOf(1), &wire.Packet{Op: wire.Read, Request: 1,
					Key: wire.Key(kept.KeyID)}, 200*time.Millisecond)
				return err != nil
			}, "h3's port to be closed")
			for i := range 2 {
				if r, err := nw.Hosts[i].Read(lab.ServiceAddrOf(1), kept.KeyID); err != nil || string(r.Value) != "over all of it" {
					t.Errorf("h%d reads %v, %v", i+1, r, err)
				}
			}
			counters, err := c.API.Counters(t.Context(), "s3")
			if err != nil || counters.Events["drop_closed_port"] == 0 {
				t.Errorf("s3 has counted %v, %v", counters, err)
			}
			h := histories()[1]
			t.Logf("the longest time without a write: %.0f ms", lab.LongestGap(lab.WritesDone(h), began, began.Add(length)))
			lab.CheckHistory(t, "the chain", h, 500, c.History)
		})
	}
}

// TestRollingToWatches upgrades a live chain from the last version's program to the present one. No
// value may be lost, and a host without access must never have access. Keys can be watched from the
// beginning, although no switch sends notifications yet.
func TestRollingToWatches(t *testing.T) {
	if !lab.InNamespace(t) {
		return
	}
	nw := ofBefore(t, "auto", unwatched)
	c := nw.StartControllerWith("state.json", nw.Changed(func(top topologytest.Object) {
		for _, h := range top["hosts"].([]any) {
			if h.(topologytest.Object)["name"] == "h3" {
				h.(topologytest.Object)["access"] = topologytest.Object{}
			}
		}
	}))
	c.WaitEvent("chain.ready", "")
	kept, err := c.API.AddKey(t.Context(), "c1", admin.KeySpec{Name: "kept", Value: []byte("over all of it")})
	if err != nil {
		t.Fatalf("%v\n%s", err, c.History())
	}
	closed := func() {
		t.Helper()
		if r, err := nw.Hosts[2].Ask(lab.ServiceAddrOf(1), &wire.Packet{Op: wire.Read, Request: 1,
			Key: wire.Key(kept.KeyID)}, 200*time.Millisecond); err == nil {
			t.Fatalf("a host without access is answered %v", r)
		}
	}
	closed()
	w, err := c.API.Watch(t.Context(), admin.WatchRequest{Address: lab.HostAddr(1).String(), Port: 9001,
		KeyIDs: []uint32{kept.KeyID}})
	if err != nil || len(w.Refused) > 0 {
		t.Errorf("watching while switches are replaced: %+v, %v", w, err)
	}
	for _, s := range []string{"s1", "s2", "s3"} {
		c.WaitEvent("switch.program-replaced", s)
	}
	c.WaitUntil(func() bool { return c.AllReady(3) }, "the chain to be whole again")
	closed()
	for i := range 2 {
		if r, err := nw.Hosts[i].Read(lab.ServiceAddrOf(1), kept.KeyID); err != nil || string(r.Value) != "over all of it" {
			t.Errorf("h%d reads %v, %v", i+1, r, err)
		}
	}
	for _, never := range []string{"network.enforces-access", "switch.not-watching"} {
		if strings.Contains(c.History(), never) {
			t.Errorf("%s:\n%s", never, c.History())
		}
	}
}

// TestUnknownProgram starts a controller with the program of another profile over a chain that has
// keys. The controller must report what it has found and what the operator can do, and must not
// destroy data. A controller with the right program must then find the same values. If a chain has
// no keys, the controller may load the other program.
func TestUnknownProgram(t *testing.T) {
	if !lab.InNamespace(t) {
		return
	}
	l := lab.Layout{N: 2, Links: [][2]int{{1, 2}},
		Chains: []lab.Chain{{ID: 1, Name: "c1", Members: []int{1, 2}, Lease: 500, Patience: 1500, Rejoin: 500}}}
	nw := lab.NewNetwork(t, "auto", l)
	other := nw.Changed(func(top topologytest.Object) {
		p := top["program"].(topologytest.Object)
		p["json"], p["p4info"] = nw.Program(1024)
		p["profile"] = "1024"
	})
	c := nw.StartController("state.json")
	c.WaitAllReady()
	kept, err := c.API.AddKey(t.Context(), "c1", admin.KeySpec{Name: "kept", Value: []byte("over all of it")})
	if err != nil {
		t.Fatal(err)
	}
	c.Stop()

	c = nw.StartControllerWith("", other)
	for _, s := range []string{"s1", "s2"} {
		c.WaitEvent("switch.not-set-up", s)
	}
	time.Sleep(time.Second) // In this time, a faulty controller would continue.
	if h := c.History(); !strings.Contains(h, "with 1 keys, whose values would be lost: nothing was changed") ||
		strings.Contains(h, "switch.program-loaded") {
		t.Errorf("a controller of another profile:\n%s", h)
	}
	c.Stop()

	c = nw.StartController("state.json")
	c.WaitAllReady()
	if r, err := nw.Hosts[0].Read(lab.ServiceAddrOf(1), kept.KeyID); err != nil || string(r.Value) != "over all of it" {
		t.Errorf("after that h1 reads %v, %v", r, err)
	}
	if err := c.API.RemoveKey(t.Context(), "c1", "kept"); err != nil {
		t.Fatal(err)
	}
	c.Stop()
	c = nw.StartControllerWith("", other)
	for _, s := range []string{"s1", "s2"} {
		c.WaitEvent("switch.program-loaded", s)
	}
}
