package inprocess

import (
	"net/http"
	"testing"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/test/adminclient"
	"github.com/netcraq/netcraq/test/system/lab"
)

// TestGeneratedClient checks a client that a generator has made from docs/reference/admin-api.yaml.
// It must be able to lease a session, and to add and find a key. With the data in the answers, it
// must be able to write and read the key. The controller's errors must be those in the document.
func TestGeneratedClient(t *testing.T) {
	x := newTestbed(t, lab.Layout{N: 3, Chains: []lab.Chain{{ID: 1, Name: "a", Members: []int{1, 2, 3}, Lease: 200}}})
	r := x.controller()
	r.WaitAllReady()
	c, err := adminclient.NewClientWithResponses(r.URL)
	if err != nil {
		t.Fatal(err)
	}

	address, owner := "10.0.0.1", "generated"
	opened, err := c.OpenSessionsWithResponse(t.Context(),
		adminclient.SessionsRequest{Count: 1, Address: &address, Owner: &owner})
	if err != nil || opened.JSON200 == nil || opened.JSON200.Sessions == nil || len(*opened.JSON200.Sessions) != 1 {
		t.Fatalf("leasing a session: %+v, %v", opened, err)
	}
	lease, session := opened.JSON200.Lease, (*opened.JSON200.Sessions)[0]

	const name = "shop/lock"
	added, err := c.RequestKeyWithResponse(t.Context(), adminclient.KeyRequest{Name: name})
	if err != nil || added.JSON200 == nil || !added.JSON200.Created {
		t.Fatalf("adding a key: %+v, %v", added, err)
	}
	found, err := c.FindKeyWithResponse(t.Context(), name, nil)
	if err != nil || found.JSON200 == nil || found.JSON200.KeyId != added.JSON200.KeyId || found.JSON200.Chain != "a" {
		t.Fatalf("finding the key %+v: %+v, %v", added.JSON200, found, err)
	}

	id := found.JSON200.KeyId
	x.mustWrite(lab.ServiceAddrOf(1), &admin.Session{ID: session.Id, NextRequest: session.NextRequest}, id, "held")
	p, err := x.read(lab.ServiceAddrOf(1), id)
	if err != nil || p.Status != wire.OK || string(p.Value) != "held" {
		t.Errorf("the key that was added: %+v, %v", p, err)
	}
	withState := true
	found, err = c.FindKeyWithResponse(t.Context(), name, &adminclient.FindKeyParams{State: &withState})
	if err != nil || found.JSON200 == nil || found.JSON200.State == nil || len(*found.JSON200.State) != 3 {
		t.Fatalf("what the members hold: %+v, %v", found, err)
	}
	for _, s := range *found.JSON200.State {
		if s.Value == nil || string(*s.Value) != "held" || s.Session == nil || *s.Session != session.Id {
			t.Errorf("%s holds %+v", s.Switch, s)
		}
	}

	if missing, err := c.FindKeyWithResponse(t.Context(), "shop/none", nil); err != nil || missing.JSON404 == nil ||
		missing.JSON404.Error.Code != admin.CodeNotFound {
		t.Errorf("a key that is not there: %+v, %v", missing, err)
	}
	none, err := c.OpenSessionsWithResponse(t.Context(), adminclient.SessionsRequest{})
	if err != nil || none.JSONDefault == nil || none.JSONDefault.Error.Code != admin.CodeInvalidArgument {
		t.Errorf("no sessions: %+v, %v", none, err)
	}
	if kept, err := c.KeepSessionsWithResponse(t.Context(), lease); err != nil || kept.JSON200 == nil {
		t.Errorf("keeping the lease: %+v, %v", kept, err)
	}
	closed, err := c.CloseSessionsWithResponse(t.Context(), lease)
	if err != nil || closed.StatusCode() != http.StatusNoContent {
		t.Errorf("giving the lease back: %+v, %v", closed, err)
	}
	if late, err := c.KeepSessionsWithResponse(t.Context(), lease); err != nil || late.JSON404 == nil {
		t.Errorf("keeping a lease that was given back: %+v, %v", late, err)
	}
}
