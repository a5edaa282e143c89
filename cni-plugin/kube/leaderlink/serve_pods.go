package leaderlink

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/kube/netplan"
)

// ServePods serves the list of an agent's pods: JSON, a list each time that it has changed.
func ServePods(a *agent.Agent) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		out, control := json.NewEncoder(w), http.NewResponseController(w)
		beat := time.NewTicker(podsBeat)
		defer beat.Stop()
		for {
			changes := a.Changes()
			_ = control.SetWriteDeadline(time.Now().Add(podsPatience)) // every server here can do it
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
