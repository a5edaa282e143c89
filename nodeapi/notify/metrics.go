package notify

import "github.com/prometheus/client_golang/prometheus"

// counts has the counters of a receiver.
type counts struct {
	registry prometheus.Registerer
	keys     prometheus.Gauge
	vec      *prometheus.CounterVec
	results  map[string]prometheus.Counter
}

func newCounts(r prometheus.Registerer) *counts {
	c := &counts{registry: r,
		keys: prometheus.NewGauge(prometheus.GaugeOpts{Name: "netcraq_nodeapi_notified_keys",
			Help: "Watched keys of which the switch tells what is committed."}),
		vec: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "netcraq_nodeapi_notifications_total",
			Help: "Datagrams at the port for the switch's notifications, by what became of them: told, lost for want of " +
				"room, or dropped for their source, length, op, content or key."}, []string{"result"}),
		results: map[string]prometheus.Counter{}}
	for _, result := range results {
		c.results[result] = c.vec.WithLabelValues(result)
	}
	if r != nil {
		r.MustRegister(c.keys, c.vec)
	}
	return c
}

func (c *counts) unregister() {
	if c.registry != nil {
		c.registry.Unregister(c.keys)
		c.registry.Unregister(c.vec)
	}
}
