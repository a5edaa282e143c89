package kube

import (
	"net/http"

	"github.com/netcraq/netcraq/controlplane/admin"
)

// byAgents serves what other agents pass on. The connection's other end has a controller's
// certificate; whose node it is goes into the context.
func byAgents(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || len(r.TLS.PeerCertificates[0].DNSNames) != 1 {
			http.Error(w, "which node's agent this is, is not known", http.StatusForbidden)
			return
		}
		c := admin.Caller{Node: r.TLS.PeerCertificates[0].DNSNames[0], ReadOnly: r.Header.Get(readOnlyHeader) != ""}
		if c.ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "who asks may only look", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r.WithContext(admin.WithCaller(r.Context(), c)))
	})
}

// adminPath is where an agent serves the admin API to other agents.
const adminPath = "/admin/"

// readOnlyHeader is set by an agent that passes on a request of somebody who may only look.
const readOnlyHeader = "Netcraq-Read-Only"
