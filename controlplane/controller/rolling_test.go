package controller_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"os"
	"testing"
	"time"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/internal/poll"
	"github.com/netcraq/netcraq/wire"
)

// formerProgram is the program of the version before: it knows no principals, realms, leases of sessions and rates.
func formerProgram(t *testing.T) *p4rt.Pipeline {
	t.Helper()
	info, err := p4rt.LoadInfo("testdata/former/netcraq-128.p4info.txtpb")
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.ReadFile("testdata/former/netcraq-128.json.gz")
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

// load has a switch run a program, as a controller of before has left it.
func load(nw *network, i int, pl *p4rt.Pipeline) {
	nw.t.Helper()
	c, err := p4rt.New(p4rt.Options{Name: "before", Target: nw.proxies[i].addr, DeviceID: uint64(i), ElectionID: p4rt.ElectionID{Low: 1}, Info: pl.Info}, p4rt.Handler{})
	if err != nil {
		nw.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(nw.t.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	poll.Until(nw.t, 20*time.Second, "this is the primary client", func() bool { return c.State().Phase == p4rt.Primary })
	if _, err := c.EnsurePipeline(ctx, pl); err != nil {
		nw.t.Fatal(err)
	}
}

// TestRolling takes a live chain from the program of the version before to this one, while its keys are read and written: nothing is lost, and when the last switch has it, a host that
// the topology gives no access has none. Until then it has, as before.
func TestRolling(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for _, engine := range []string{"auto", "bmv2"} {
		t.Run(engine, func(t *testing.T) {
			l := layout{n: 3, links: [][2]int{{1, 2}, {2, 3}, {1, 3}}, chains: []chainSpec{{id: 1, name: "c1", members: []int{1, 2, 3}, lease: 500, patience: 1500}}}
			nw := newNetwork(t, engine, l)
			former := formerProgram(t)
			for i := 1; i <= l.n; i++ {
				load(nw, i, former)
			}
			closed := nw.changed(func(top object) {
				for _, h := range top["hosts"].([]any) {
					if h.(object)["name"] == "h3" {
						h.(object)["access"] = object{}
					}
				}
			})
			c := nw.startControllerWith("state.json", closed)
			c.waitEvent("chain.ready", "")
			kept, err := c.api.AddKey(t.Context(), "c1", api.KeySpec{Name: "kept", Value: []byte("over all of it")})
			if err != nil {
				t.Fatalf("%v\n%s", err, c.history())
			}
			if r, err := nw.hosts[2].read(serviceAddrOf(1), kept.KeyID); err != nil || string(r.Value) != "over all of it" {
				t.Errorf("while nothing is enforced h3 reads %v, %v", r, err)
			}
			const length = 8 * time.Second
			began := time.Now()
			histories := c.clients(4, 1, []int{1, 2, 3}, length, func(i int) *host { return nw.hosts[i%2] })
			c.waitEvent("network.enforces-access", "")
			t.Logf("all switches run this program after %v", time.Since(began).Round(time.Millisecond))
			c.waitUntil(func() bool { return c.allReady(3) }, "the chain to be whole again")
			// The default of `access` is changed right after the last switch has said that it is there.
			c.waitUntil(func() bool {
				_, err := nw.hosts[2].ask(serviceAddrOf(1), &wire.Packet{Op: wire.Read, Request: 1, Key: wire.Key(kept.KeyID)}, 200*time.Millisecond)
				return err != nil
			}, "h3's port to be closed")
			for i := range 2 {
				if r, err := nw.hosts[i].read(serviceAddrOf(1), kept.KeyID); err != nil || string(r.Value) != "over all of it" {
					t.Errorf("h%d reads %v, %v", i+1, r, err)
				}
			}
			counters, err := c.api.Counters(t.Context(), "s3")
			if err != nil || counters.Events["drop_closed_port"] == 0 {
				t.Errorf("s3 has counted %v, %v", counters, err)
			}
			h := histories()[1]
			t.Logf("the longest time without a write: %.0f ms", longestGap(writesDone(h), began, began.Add(length)))
			checkHistory(t, "the chain", h, 500, c.history)
		})
	}
}
