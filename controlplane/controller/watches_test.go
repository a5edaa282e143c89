package controller

import (
	"net/netip"
	"testing"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// TestWatchOfMovingKey: during a move of a key, a host that may not read the key gets no
// notifications of it. It gets none under the key's future KEY_ID, and none under the alias of its
// leftover.
func TestWatchOfMovingKey(t *testing.T) {
	top, err := topology.Parse([]byte(`
program: {profile: 128, json: n.json, p4info: n.txtpb}
switches: [{name: s1, p4runtime: "a:1", address: 10.0.255.1}]
hosts:
  - {name: h1, ip: 10.0.0.1, mac: "02:00:00:00:00:01", port: s1:1, principal: shop, access: {default: read}}
  - {name: h2, ip: 10.0.0.2, mac: "02:00:00:00:00:02", port: s1:2, principal: bank, access: {}}
realms: [{name: bank, prefixes: [/bank/]}]
chains:
  - {id: 0, name: a, address: 10.0.254.1, members: [s1]}
  - {id: 1, name: b, address: 10.0.254.2, members: [s1]}
`), "net.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n, err := newNetwork(top, tableplan.NewNumbering(nil), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spaces := []keyspace.Space{{Chain: 0, Count: 4}, {Chain: 1, First: 4, Count: 4}}
	dir, err := keyspace.New(spaces, keyspace.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{dir: dir, wake: make(chan struct{}, 1)}
	c.watching.Store(&tableplan.Watches{})
	c.current.Store(n)
	watch := func(host string, id wire.Key, want bool) {
		t.Helper()
		out := &admin.Watch{}
		err := c.watch(netip.MustParseAddr(host), admin.WatchRequest{Port: 7000, KeyIDs: []uint32{uint32(id)}}, out)
		if err != nil || len(out.Refused) == 0 != want {
			t.Errorf("%s watches %v: refused %v (%v)", host, id, out.Refused, err)
		}
	}
	k, err := dir.Add(0, "/bank/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	dir.SetState(k.ID, keyspace.Placed)
	watch("10.0.0.1", k.ID, false)
	watch("10.0.0.2", k.ID, true)
	k = dir.StartMove(k.ID)
	to, err := dir.Add(1, keyspace.MovingPrefix+k.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir.SetState(to.ID, keyspace.Placed)
	watch("10.0.0.1", to.ID, false)
	watch("10.0.0.2", to.ID, true)
	left := dir.FinishMove(k.ID, to.ID, 1)
	watch("10.0.0.1", to.ID, false)
	watch("10.0.0.2", to.ID, true)
	watch("10.0.0.1", left.ID, false)
	watch("10.0.0.2", left.ID, false)
}
