package lifecycle

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/topologytest"
	"github.com/netcraq/netcraq/test/system/lab"
)

// tenants gives the hosts of a network principals. h1 has the realm a, which has the names that
// begin with /a/. h2 has the realm b, and may read the keys of a. The port of h3 is closed.
func tenants(top topologytest.Object) {
	// there are only two sessions for clients, so that an id is soon leased again
	top["sessions"] = topologytest.Object{"ttlSeconds": 2, "last": 66}
	top["realms"] = []any{topologytest.Object{"name": "ra", "prefixes": []string{"/a/"}}, topologytest.Object{"name": "rb", "prefixes": []string{"/b/"}}}
	for _, h := range top["hosts"].([]any) {
		h := h.(topologytest.Object)
		switch h["name"] {
		case "h1":
			h["principal"], h["access"] = "a", topologytest.Object{"ra": "write"}
		case "h2":
			h["principal"], h["access"] = "b", topologytest.Object{"rb": "write", "ra": "read"}
		case "h3":
			h["access"] = topologytest.Object{}
		}
	}
}

// TestAuthority checks that on real switches, access rights and session leases are enforced. They
// persist over the restart of a switch, the restart of a controller, and a change of the topology.
func TestAuthority(t *testing.T) {
	for _, engine := range []string{"auto", "interp", "bmv2"} {
		t.Run(engine, func(t *testing.T) { authority(t, engine) })
	}
}

func authority(t *testing.T, engine string) {
	if engine == "bmv2" {
		lab.MustLook(t, "simple_switch_grpc")
	}
	if !lab.InNamespace(t) {
		return
	}
	l := lab.Layout{N: 3, Links: [][2]int{{1, 2}, {2, 3}, {1, 3}},
		Chains: []lab.Chain{{ID: 1, Name: "c1", Members: []int{1, 2, 3}, Lease: 500, Patience: 1500}}}
	nw := lab.NewNetwork(t, engine, l)
	c := nw.StartControllerWith("state.json", nw.Changed(tenants))
	c.WaitAllReady()
	add := func(name string) uint32 {
		k, err := c.API.AddKey(t.Context(), "c1", admin.KeySpec{Name: name, Value: []byte(name)})
		if err != nil {
			t.Fatalf("%v\n%s", err, c.History())
		}
		return k.KeyID
	}
	a, b, other := add("/a/1"), add("/b/1"), add("/c/1")
	h1, h2, h3 := nw.Hosts[0], nw.Hosts[1], nw.Hosts[2]
	service := lab.ServiceAddrOf(1)

	// status returns the status of a host's answer, or "" if there is none.
	status := func(h *lab.Host, p wire.Packet) string {
		t.Helper()
		var r *wire.Packet
		var err error
		for range 3 { // try again, because BMv2 may drop packets
			if r, err = h.Ask(service, &p, 400*time.Millisecond); err == nil && r.Status != wire.Retry &&
				r.Status != wire.NotServing {
				return r.Status.String()
			}
		}
		return ""
	}
	read := func(key uint32) wire.Packet { return wire.Packet{Op: wire.Read, Request: 5, Key: wire.Key(key)} }
	write := func(key uint32, session uint16, request uint32) wire.Packet {
		return wire.Packet{Op: wire.Write, Key: wire.Key(key), Session: session, Request: request, Value: []byte("x")}
	}
	expect := func(what string, want, got string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, not %q", what, got, want)
		}
	}
	rights := func() {
		t.Helper()
		expect("h1 reads its own", "OK", status(h1, read(a)))
		expect("h1 reads h2's", "DENIED", status(h1, read(b)))
		expect("h1 reads what nobody has given it", "DENIED", status(h1, read(other)))
		expect("h1 writes h2's", "DENIED", status(h1, write(b, 0, 9)))
		expect("h2 reads h1's", "OK", status(h2, read(a)))
		expect("h2 writes h1's", "DENIED", status(h2, write(a, 0, 9)))
		expect("h2 swaps h1's", "DENIED", status(h2, wire.Packet{Op: wire.CAS, Key: wire.Key(a), Request: 8, Value: []byte("x")}))
		expect("h3 reads", "", status(h3, read(a)))
	}
	rights()

	// Only the host to which a session is leased can use it.
	lease := func(h int) admin.Sessions {
		t.Helper()
		s, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 1, Address: lab.HostAddr(h).String()})
		if err != nil {
			t.Fatalf("%v\n%s", err, c.History())
		}
		return *s
	}
	for address, code := range map[string]string{"": admin.CodeInvalidArgument,
		"10.9.9.9": admin.CodeInvalidArgument, "h1": admin.CodeInvalidArgument, lab.HostAddr(3).
				String(): admin.CodeFailedPrecondition} {
		if s, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 1,
			Address: address}); !errors.Is(err, &admin.Error{Code: code}) {
			t.Errorf("a session for %q: %v, %v", address, s, err)
		}
	}
	mine := lease(1)
	id, first := mine.Sessions[0].ID, mine.Sessions[0].NextRequest
	keep := func() {
		if _, err := c.API.KeepSessions(t.Context(), mine.Lease); err != nil {
			t.Error(err)
		}
	}
	expect("h2 with h1's session", "BAD_SESSION", status(h2, write(b, id, first)))
	expect("h1 with the controller's session", "BAD_SESSION", status(h1, write(a, 1, 0xFFFFFFFF)))
	expect("h1 with nobody's session", "BAD_SESSION", status(h1, write(a, id+1, 1)))
	expect("h1 with a number of another lease", "BAD_SESSION", status(h1, write(a, id, first+2*wire.RequestWindow)))
	expect("h1 with its session", "OK", status(h1, write(a, id, first)))
	keep()

	// After a restart of the head, its entries and its hosts' sessions are as before.
	nw.KillSwitch(1)
	nw.StartSwitch(1)
	poll.Until(t, 20*time.Second, "s1 comes back", func() bool { keep(); return c.Switches()[0].Ready }, c.History)
	c.WaitUntil(func() bool { keep(); return status(h1, write(a, id, first+1)) == "OK" }, "h1's session to be taken at the switch that was started again")
	rights()
	c.Stop()
	c = nw.StartControllerWith("state.json", nw.Changed(tenants))
	c.WaitUntil(func() bool { all := c.Switches(); return all[0].Ready && all[1].Ready }, "the next controller")
	keep()
	expect("h1 with its session, under another controller", "OK", status(h1, write(a, id, first+2)))
	expect("h2 with h1's session, under another controller", "BAD_SESSION", status(h2, write(b, id, first+3)))

	// When a lease expires, the switch also ends it. Whatever the holder has done to the session's
	// record, the next lease starts with a new record.
	expect("h1 sets its record as high as it can", "OK", status(h1, write(a, id, first+2+wire.RequestWindow)))
	c.WaitUntil(func() bool { return status(h1, write(a, id, first+3+wire.RequestWindow)) == "BAD_SESSION" }, "the lease to run out")
	c.WaitUntil(func() bool {
		next := lease(2)
		s := next.Sessions[0]
		expect(fmt.Sprintf("h2 with session %d, from %d on", s.ID, s.NextRequest), "OK", status(h2, write(b, s.ID, s.NextRequest)))
		if err := c.API.CloseSessions(t.Context(), next.Lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		return s.ID == id
	}, "the session to be leased again")

	// The topology changes: h2 loses its rights in a, and the prefix /c/ goes to h1.
	c.Update(nw.Changed(tenants, func(top topologytest.Object) {
		top["realms"].([]any)[0].(topologytest.Object)["prefixes"] = []string{"/a/", "/c/"}
		for _, h := range top["hosts"].([]any) {
			if h := h.(topologytest.Object); h["name"] == "h2" {
				h["access"] = topologytest.Object{"rb": "write"}
			}
		}
	}))
	c.WaitUntil(func() bool { return status(h2, read(a)) == "DENIED" && status(h1, read(other)) == "OK" }, "the change of access and of a key's realm")
	expect("h1 reads its own", "OK", status(h1, read(a)))
}
