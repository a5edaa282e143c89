package controller

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/netcraq/netcraq/controlplane/admin/api"
	"github.com/netcraq/netcraq/controlplane/chain"
)

// metrics is what the controller counts, for Prometheus (GET /metrics of the admin API). Every step of a failover and a recovery is an event, and every
// event is counted by its kind.
type metrics struct {
	registry *prometheus.Registry
	events   *prometheus.CounterVec
	redriven prometheus.Counter
	epoch    *prometheus.GaugeVec
	members  *prometheus.GaugeVec
	ready    *prometheus.GaugeVec
	frozen   *prometheus.GaugeVec
}

func newMetrics() *metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "netcraq_chain_" + name, Help: help}, []string{"chain"})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "netcraq_controller_events_total", Help: "Events of chains, switches and keys, by kind."},
			[]string{"type", "chain", "switch"}),
		redriven: prometheus.NewCounter(prometheus.CounterOpts{Name: "netcraq_controller_redriven_total", Help: "Writes that were sent down a chain again because a key was dirty."}),
		epoch:    gauge("epoch", "The epoch of the chain's configuration."),
		members:  gauge("members", "Members of the chain."),
		ready:    gauge("ready", "1 where every member has the configuration and a live lease."),
		frozen:   gauge("frozen", "1 where the chain takes no writes."),
	}
	m.registry.MustRegister(m.events, m.redriven, m.epoch, m.members, m.ready, m.frozen)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) count(e api.Event) { m.events.WithLabelValues(e.Type, e.Chain, e.Switch).Inc() }

// chain shows a chain's state.
func (m *metrics) chain(name string, s chain.Status) {
	bit := map[bool]float64{true: 1}
	m.epoch.WithLabelValues(name).Set(float64(s.Config.Epoch))
	m.members.WithLabelValues(name).Set(float64(len(s.Config.Members)))
	m.ready.WithLabelValues(name).Set(bit[s.Ready])
	m.frozen.WithLabelValues(name).Set(bit[s.Config.Freeze != chain.Thawed])
}
