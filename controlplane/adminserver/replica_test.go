package adminserver

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/admin"
)

// TestReplica: a standby controller forwards requests to the leader, including their bodies.
// Without a known leader it returns an error.
func TestReplica(t *testing.T) {
	leading, standing := &Replica{}, &Replica{}
	leader, standby := httptest.NewServer(leading), httptest.NewServer(standing)
	defer leader.Close()
	defer standby.Close()
	b := &backend{}
	leading.Lead(b, nil)
	c := admin.NewClient(standby.URL)
	if _, err := c.Chains(context.Background()); err == nil || !strings.Contains(err.Error(), "this controller stands by") {
		t.Errorf("with no leader known: %v", err)
	}
	standing.StandBy(strings.TrimPrefix(leader.URL, "http://"))
	if _, err := c.Chains(context.Background()); err != nil {
		t.Errorf("chains: %v", err)
	}
	lease := 50
	if _, err := c.ChangeChain(context.Background(), "main", admin.ChainChange{LeaseMillis: &lease}); err != nil {
		t.Errorf("a change: %v", err)
	}
	r, err := standby.Client().Get(standby.URL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != 503 {
		t.Errorf("readyz of one that stands by: %s", r.Status)
	}
	standing.Lead(b, nil)
	if _, err := c.Chains(context.Background()); err != nil {
		t.Errorf("chains, leading: %v", err)
	}
}
