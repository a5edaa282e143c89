package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/buildinfo"
)

func TestFar(t *testing.T) {
	for _, c := range []struct {
		own, server string
		far         bool
	}{
		{"0.1.0", "netcraq-agent 0.1.7", false}, {"0.1.0", "netcraq-agent 0.2.0-rc1", false},
		{"0.3.0", "netcraq-sidecar 0.2.9", false}, {"0.1.0", "netcraq-sidecar 0.3.0", true},
		{"0.3.0", "netcraq-sidecar 0.1.0", true}, {"1.0.0", "netcraq-sidecar 0.9.0", true},
		{"0.1.0", "", false}, {"0.1.0", "netcraq-sidecar", false}, {"0.1.0", "mine of x.y.z", false},
	} {
		if got := far(c.own, c.server); got != c.far {
			t.Errorf("%q and %q: far apart is %v", c.own, c.server, got)
		}
	}
}

// TestVersion checks that the command prints its own version and, if a server runs, the server's
// version.
func TestVersion(t *testing.T) {
	u := newUser(t)
	if got := u.must("version"); !strings.HasPrefix(got, "netcraq "+buildinfo.Version()+" (commit ") || strings.Contains(got, "\n") {
		t.Errorf("without a server: %q", got)
	}
	u.dev("--switches", "1")
	if _, server, ok := strings.Cut(u.must("version"), "\n"); !ok || server != "server  netcraq dev "+buildinfo.Version()+", node dev" {
		t.Errorf("with one: %q", server)
	}
	var out struct{ Version, Server string }
	if err := json.Unmarshal([]byte(u.must("version", "-o", "json")), &out); err != nil || out.Version != buildinfo.Version() ||
		out.Server != "netcraq dev "+buildinfo.Version() {
		t.Errorf("%+v, %v", out, err)
	}
}
