package leaderlink

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/kube/netplan"
)

// ServePods serves the pods of an agent, as a JSON list after each change.
func ServePods(a *agent.Agent) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		out, control := json.NewEncoder(w), http.NewResponseController(w)
		beat := time.NewTicker(podsBeat)
		defer beat.Stop()
		for {
			changes := a.Changes()
			_ = control.SetWriteDeadline(time.Now().Add(podsPatience)) // all servers here support write deadlines
			if out.Encode(netplan.PodsOf(a.Attachments())) != nil || control.Flush() != nil {
				return // the leader has gone
			}
			select {
			case <-r.Context().Done():
				return
			case <-beat.C:
			case <-changes:
				time.Sleep(podsPause)
			}
		}
	})
}
