package node

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// TestLeases checks that Leases joins each lease with what it holds, even if the two are on
// different pages. What belongs to a lease that is on no page is left out.
func TestLeases(t *testing.T) {
	pages := []nodeapi.ListLeasesAnswer{
		{Held: []nodeapi.Held{{Lease: "b", Kind: nodeapi.HeldKey, Name: "k"}, {Lease: "gone", Kind: nodeapi.HeldKey, Name: "x"}},
			Unread: 1, Cursor: "1"},
		{Leases: []nodeapi.LeaseState{{Lease: "a", TTLMillis: 500}}, Cursor: "2"},
		{Leases: []nodeapi.LeaseState{{Lease: "b", TTLMillis: 1000, LeftMillis: 700, Node: "n", Holder: "h"}}, Unread: 2,
			Held: []nodeapi.Held{{Lease: "b", Kind: nodeapi.HeldLock, Name: "l"}}},
	}
	f := newFake(t).start()
	f.hook = func(p *peer, r nodeapi.Request) bool {
		var d nodeapi.ListLeasesData
		_ = json.Unmarshal(r.Data, &d)
		p.answer(r.ID, pages[slices.Index([]string{"", "1", "2"}, d.Cursor)])
		return true
	}
	leases, unread, err := f.connect(Config{}).Leases(soon(t))
	if err != nil || unread != 3 || len(leases) != 2 {
		t.Fatalf("%+v, %d unread, %v", leases, unread, err)
	}
	if a := leases[0]; a.ID != "a" || len(a.Holds) > 0 {
		t.Errorf("the first is %+v", a)
	}
	b := leases[1]
	if b.ID != "b" || b.TTL != time.Second || b.Left != 700*time.Millisecond || b.Node != "n" || b.Holder != "h" ||
		!slices.Equal(b.Holds, []Holding{{"key", "k"}, {"lock", "l"}}) {
		t.Errorf("the second is %+v", b)
	}
}

// TestLeasesEnd checks that Leases ends with an error if a server's cursor never changes, and if a
// server is too old to know the function.
func TestLeasesEnd(t *testing.T) {
	f, old := newFake(t).start(), false
	f.hook = func(p *peer, r nodeapi.Request) bool {
		if old {
			p.say(`{"id":%d,"error":{"code":"invalid_argument","message":"there is no function \"listLeases\""}}`, r.ID)
		} else {
			p.answer(r.ID, nodeapi.ListLeasesAnswer{Cursor: "c"})
		}
		return true
	}
	c := f.connect(Config{})
	_, _, err := c.Leases(soon(t))
	wantCode(t, err, CodeInternal)
	old = true
	_, _, err = c.Leases(soon(t))
	wantCode(t, err, CodeInvalidArgument)
	if !strings.Contains(err.Error(), "the node's server (fake) is older than listLeases") {
		t.Error(err)
	}
}
