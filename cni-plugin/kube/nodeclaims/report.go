package nodeclaims

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reportInterval is the minimum time between two log lines about one node. It is needed because a
// node may change its statements as often as it likes.
const reportInterval = 5 * time.Second

// Report logs and counts the faults of nodes when they change. It is not safe for concurrent use.
type Report struct {
	log     *slog.Logger
	counter *prometheus.CounterVec

	counted map[Fault]bool
	logged  map[string]loggedFaults // faults that were logged, by node
}

type loggedFaults struct {
	text string
	at   time.Time
}

// NewCounter makes the counter that a Report uses.
func NewCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "netcraq_agent_left_out_total",
		Help: "Statements of nodes about themselves and their pods that the leader has left out of the network, by node and reason. " +
			"A statement counts once, and again each time that it comes back."}, []string{"node", "reason"})
}

// NewReport makes a Report that has counted nothing yet.
func NewReport(log *slog.Logger, counter *prometheus.CounterVec) Report {
	return Report{log: log, counter: counter}
}

// Update logs and counts the current faults.
func (r *Report) Update(all Faults, now time.Time) {
	counted := map[Fault]bool{}
	byNode := map[string]Faults{}
	for _, f := range all {
		counted[f] = true
		byNode[f.Node] = append(byNode[f.Node], f)
		if !r.counted[f] && r.counter != nil {
			r.counter.WithLabelValues(f.Node, f.Reason).Add(float64(f.count))
		}
	}
	r.counted = counted
	if r.logged == nil {
		r.logged = map[string]loggedFaults{}
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		was, text := r.logged[node], byNode[node].String()
		if text == was.text || !was.at.IsZero() && now.Sub(was.at) < reportInterval {
			continue
		}
		r.logged[node] = loggedFaults{text, now}
		r.log.Warn("some of what a node says is wrong and was left out of the network", "node", node,
			"statements", byNode[node].Total(), "wrong", text)
	}
	for node, was := range r.logged {
		if byNode[node] == nil && now.Sub(was.at) >= reportInterval {
			delete(r.logged, node)
			r.log.Info("all that a node says is in the network", "node", node)
		}
	}
}
