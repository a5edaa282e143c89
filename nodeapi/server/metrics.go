package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// metrics are the counters of a server.
type metrics struct {
	registry    prometheus.Registerer
	connections prometheus.Gauge
	watches     prometheus.Gauge
	requests    *prometheus.CounterVec
	cutOff      *prometheus.CounterVec
	refused     prometheus.Counter
	garbage     prometheus.Counter

	// counters of successful requests, by function; they avoid looking up labels
	ok map[string]prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	const prefix = "netcraq_nodeapi_"
	m := &metrics{
		registry:    r,
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "connections", Help: "Connections that are open."}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "watches",
			Help: "Keys and prefixes that are watched."}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "requests_total",
			Help: "Requests that were answered, by function and code (ok, or of the error)."}, []string{"func", "code"}),
		cutOff: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "cut_off_total",
			Help: "Connections that the server ended, by reason."}, []string{"reason"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "connections_refused_total",
			Help: "Connections that were turned away because there were too many."}),
		garbage: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "garbage_total",
			Help: "Messages that are not valid requests."}),
		ok: map[string]prometheus.Counter{},
	}
	for name := range functions {
		m.ok[name] = m.requests.WithLabelValues(name, "ok")
	}
	if r != nil {
		r.MustRegister(m.all()...)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.connections, m.watches, m.requests, m.cutOff, m.refused, m.garbage}
}

func (m *metrics) unregister() {
	if m.registry != nil {
		for _, c := range m.all() {
			m.registry.Unregister(c)
		}
	}
}

// count counts an answer. All names that are not functions are counted together, because callers
// could send any number of names.
func (m *metrics) count(name string, code nodeapi.Code) {
	if functions[name] == nil {
		name = "unknown"
	}
	if c := m.ok[name]; code == "" && c != nil {
		c.Inc()
		return
	}
	m.requests.WithLabelValues(name, string(code)).Inc()
}
