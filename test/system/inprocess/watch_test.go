package inprocess

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
	"github.com/netcraq/netcraq/test/system/lab"
)

// server returns a channel with the notifications that a switch's host receives at a UDP port.
func (x *testbed) server(port uint16) chan *wire.Packet {
	told := make(chan *wire.Packet, 1024)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.replies[port] = told
	return told
}

// heard waits for a notification that a key has a value. It repeatedly calls the function `again`
// until the notification comes. All notifications that come meanwhile must be about the same key.
func heard(t *testing.T, told chan *wire.Packet, key uint32, value string, again func()) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		again()
		select {
		case p := <-told:
			if p.Op != wire.Notify || uint32(p.Key) != key || p.Session != 0 || p.Request != 0 {
				t.Fatalf("told %+v", p)
			}
			if string(p.Value) == value {
				return
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatalf("never told of %q", value)
}

// tableSize returns the number of entries in a table of a switch.
func (s *bedSwitch) tableSize(table string) int {
	pipe := s.Pipeline()
	if pipe == nil {
		return 0
	}
	all, err := pipe.Entries(table)
	if err != nil {
		s.bed.t.Fatal(err)
	}
	return len(all)
}

// watchEntries returns the number of watch entries in all switches.
func (x *testbed) watchEntries() (n int) {
	for _, s := range x.switches {
		for _, table := range []string{"NetcraqIngress.pipeline.chain.watched_chain",
			"NetcraqIngress.pipeline.chain.watched_key", "NetcraqEgress.egress_replication.notify.watcher"} {
			n += s.tableSize(table)
		}
	}
	return n
}

// TestObserver checks notifications to a server whose switch is not a member of the chain. The
// server must be notified of each commit of the keys that it watches, and of no other keys, until
// it ends the watch. This must hold over a failover, in a chain of one, over a recovery, and with
// another controller.
func TestObserver(t *testing.T) {
	x := newTestbed(t, lab.Layout{N: 4, Chains: []lab.Chain{{ID: 1, Name: "main", Members: []int{1, 2}, Lease: 200,
		Patience: 100}}})
	a := lab.ServiceAddrOf(1)
	c := x.controller()
	c.WaitAllReady()
	var ids []uint32
	for _, name := range []string{"/x", "/y"} {
		k, err := c.API.AddKey(t.Context(), "main", admin.KeySpec{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, k.KeyID)
	}
	told := x.server(9001)
	watch := func(c *lab.Controller, keys ...uint32) (*admin.Watch, error) {
		return c.API.Watch(t.Context(), admin.WatchRequest{Address: lab.HostAddr(4).String(), Port: 9001, KeyIDs: keys})
	}
	got, err := watch(c, ids[0], 0x01ffffff)
	if err != nil || len(got.Refused) != 1 || got.Refused[0] != 0x01ffffff || got.TTLSeconds == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	s := &c.SessionsFor(1)[0]
	n := 0
	write := func(key uint32) {
		p := &wire.Packet{Op: wire.Write, Key: wire.Key(key), Session: s.ID, Request: s.NextRequest,
			Value: []byte(fmt.Sprint("v", n))}
		s.NextRequest++
		_, _ = x.askTimes(2, 4, a, p) // a write may get no answer while the chain changes
	}
	newest := func(why string) {
		t.Helper()
		n++
		heard(t, told, ids[0], fmt.Sprint("v", n), func() {
			// this renews the watch, however long the test takes
			if _, err := watch(c, ids[0]); err != nil {
				t.Fatal(err)
			}
			write(ids[0])
		})
		t.Log(why)
	}
	newest("told")

	for range 20 { // These are writes of the other key, which must cause no notifications.
		n++
		write(ids[1])
	}
	for len(told) > 0 {
		if p := <-told; uint32(p.Key) != ids[0] {
			t.Fatalf("told of a key that it does not watch: %+v", p)
		}
	}

	x.switches[0].Kill()
	newest("with a chain of one")
	x.switches[0].start()
	c.Heal()
	newest("with its member back")

	c.Stop()
	c = x.controller()
	c.WaitAllReady()
	s = &c.SessionsFor(1)[0]
	newest("by another controller")

	other := admin.WatchRequest{Address: lab.HostAddr(4).String(), Port: 9002, KeyIDs: ids}
	_, err = c.API.Watch(t.Context(), other)
	said := &admin.Error{}
	if !errors.As(err, &said) || said.Code != admin.CodeFailedPrecondition || said.WatchedAt != 9001 {
		t.Errorf("two servers of one host: %#v", err)
	}
	other.Address = "10.9.9.9"
	if _, err := c.API.Watch(t.Context(), other); !errors.Is(err, &admin.Error{Code: admin.CodeInvalidArgument}) {
		t.Errorf("a server that is nowhere: %v", err)
	}
	if n := x.watchEntries(); n == 0 {
		t.Error("there are no entries of watches")
	}
	if _, err := watch(c); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, 30*time.Second, "the switches have nothing of it", func() bool { return x.watchEntries() == 0 })
}

// TestObserverRights checks that a server is notified only of keys that its host may read, whatever
// it requests, and only while the host may read them. A server at a closed port must get no
// notifications.
func TestObserverRights(t *testing.T) {
	x := newTestbed(t, lab.Layout{N: 3, Chains: []lab.Chain{{ID: 1, Name: "main", Members: []int{1, 2}, Lease: 200,
		Patience: 100}}})
	x.change(func(top topologytest.Object) {
		top["realms"] = []any{topologytest.Object{"name": "blue", "prefixes": []string{"/blue/"}}}
		for i, access := range []topologytest.Object{{"blue": "write", "default": "write"}, {}, {"blue": "read"}} {
			h := top["hosts"].([]any)[i].(topologytest.Object)
			h["access"], h["principal"] = access, fmt.Sprint("p", i)
		}
	})
	c := x.controller()
	c.WaitAllReady()
	var ids []uint32
	for _, name := range []string{"/blue/x", "/other"} {
		k, err := c.API.AddKey(t.Context(), "main", admin.KeySpec{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, k.KeyID)
	}
	told, closed := x.server(9001), x.server(9002)
	refused := func(host int, port uint16) []uint32 {
		t.Helper()
		w, err := c.API.Watch(t.Context(), admin.WatchRequest{Address: lab.HostAddr(host).String(), Port: port,
			KeyIDs: ids})
		if err != nil {
			t.Fatal(err)
		}
		return w.Refused
	}
	if got := refused(2, 9002); !slices.Equal(got, ids) {
		t.Errorf("a host whose port is closed is refused %v", got)
	}
	sessions, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 1, Address: lab.HostAddr(1).String()})
	if err != nil {
		t.Fatal(err)
	}
	s := &sessions.Sessions[0]
	heard(t, told, ids[0], "now", func() {
		if got := refused(3, 9001); !slices.Equal(got, ids[1:]) {
			t.Fatalf("refused %v", got)
		}
		for _, id := range []uint32{ids[1], ids[0]} {
			x.mustWrite(lab.ServiceAddrOf(1), s, id, "now")
		}
	})
	for i := range 20 {
		x.mustWrite(lab.ServiceAddrOf(1), s, ids[1], fmt.Sprint("secret", i))
	}
	x.mustWrite(lab.ServiceAddrOf(1), s, ids[0], "last")
	// this server must be notified of nothing else
	heard(t, told, ids[0], "last", func() { refused(3, 9001) })
	if len(closed) > 0 {
		t.Errorf("who may read nothing was told %+v", <-closed)
	}
}
