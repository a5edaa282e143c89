package leaderlink

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/kube/adminrights"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/controlplane/adminserver"
)

// TestAgentPort checks that only controllers may use an agent's port. With certificates that were
// stolen from another node, an attacker can neither list the node's pods nor reach the leader's
// admin API.
func TestAgentPort(t *testing.T) {
	ca := testutil.NewAuthority(t)
	victim := ca.Identity(t, "n1", identity.Switch)
	leader := ca.Identity(t, "n2", identity.Switch, identity.Controller)
	_, stolen := ca.Stolen(t, "n3", identity.Switch)
	l, err := tls.Listen("tcp", "127.0.0.1:0", victim.Server())
	testutil.Must(t, err)
	mux := http.NewServeMux()
	mux.Handle("GET "+PodsPath, ServePods(&agent.Agent{}))
	mux.Handle(adminrights.Path, adminrights.ByAgents(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := adminserver.CallerFrom(r.Context())
		_, _ = io.WriteString(w, c.String()+map[bool]string{true: ", who only looks"}[c.ReadOnly]) // the test reads the answer
	})))
	s := &http.Server{Handler: mux, ErrorLog: slog.NewLogLogger(testutil.Quiet.Handler(), slog.LevelDebug)}
	go func() { _ = s.Serve(l) }() // the server ends with the test
	defer s.Close()
	ask := func(conf *tls.Config, method, path string, headers ...string) (string, error) {
		conf = conf.Clone()
		conf.ServerName = "n1"
		transport := &http.Transport{TLSClientConfig: conf}
		defer transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, "https://"+l.Addr().String()+path, nil)
		testutil.Must(t, err)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b := make([]byte, 200)
		n, _ := resp.Body.Read(b) // one Read suffices, because the list of pods does not end
		return resp.Status[:3] + " " + string(b[:n]), nil
	}
	for _, path := range []string{PodsPath, adminrights.Path + "v1/chains"} {
		if got, err := ask(leader.Client(), "GET", path); err != nil || !strings.HasPrefix(got, "200") {
			t.Errorf("the leader, %s: %q, %v", path, got, err)
		}
		if got, err := ask(stolen, "GET", path); err == nil { // the server's reason may be lost with the connection
			t.Errorf("with what was stolen on another node, %s: %q, %v", path, got, err)
		}
		if got, err := ask(&tls.Config{InsecureSkipVerify: true}, "GET", path); err == nil {
			t.Errorf("without a certificate, %s: %q, %v", path, got, err)
		}
	}
	if got, err := ask(leader.Client(), "PUT", adminrights.Path); err != nil || got != "200 the agent of n2" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := ask(leader.Client(), "GET", adminrights.Path, adminrights.ReadOnlyHeader, "1"); err != nil || got != "200 the agent of n2, who only looks" {
		t.Errorf("%q, %v", got, err)
	}
	got, err := ask(leader.Client(), "PUT", adminrights.Path, adminrights.ReadOnlyHeader, "1")
	if err != nil || !strings.HasPrefix(got, "403") {
		t.Errorf("a change in the name of somebody who may only look: %q, %v", got, err)
	}
}
