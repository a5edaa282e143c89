// Package adminrights decides which requests to the controller's admin API other machines may make.
// Both kinds of callers authenticate by a certificate:
//
//   - An agent that may lead forwards requests of its node's gateway and of netcraqctl
//     (by_agents.go).
//   - A node's agent makes requests for its pods (by_node.go). It may list chains, create keys of
//     the node API, and lease sessions for its own address. It uses at most its share of the
//     leader's time (share.go).
package adminrights

import (
	"net/http"

	"github.com/netcraq/netcraq/controlplane/adminserver"
)

// ByAgents serves requests that other agents forward. TLS has checked that the caller has a
// controller's certificate. ByAgents puts the caller's node into the request's context.
func ByAgents(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || len(r.TLS.PeerCertificates[0].DNSNames) != 1 {
			http.Error(w, "which node's agent this is, is not known", http.StatusForbidden)
			return
		}
		c := adminserver.Caller{Node: r.TLS.PeerCertificates[0].DNSNames[0], ReadOnly: r.Header.Get(ReadOnlyHeader) != ""}
		if c.ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "who asks may only look", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r.WithContext(adminserver.WithCaller(r.Context(), c)))
	})
}

// Path is the URL path at which an agent serves the admin API to other agents.
const Path = "/admin/"

// ReadOnlyHeader is the header of a forwarded request whose original caller may only read.
const ReadOnlyHeader = "Netcraq-Read-Only"
