package placementcontroller

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are placement's metrics. They are one collector, so that they can be registered and
// unregistered with a leader's term.
type metrics struct {
	sourceUp prometheus.Gauge
	moves    *prometheus.CounterVec
	faults   *prometheus.CounterVec
	placed   *prometheus.GaugeVec
	reads    *prometheus.GaugeVec

	all []prometheus.Collector
}

func newMetrics() *metrics {
	m := &metrics{
		sourceUp: prometheus.NewGauge(prometheus.GaugeOpts{Name: "netcraq_placement_heat_known", Help: "1 where Prometheus has answered the last time it was asked."}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "netcraq_placement_moves_total", Help: "Placings and removals, by reason and by what became of them (done, failed)."},
			[]string{"op", "code", "result"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "netcraq_placement_faults_total", Help: "Placed keys that had to go because of what was found in their slots."}, []string{"fault"}),
		placed: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "netcraq_placement_keys", Help: "Keys of etcd that are placed."}, []string{"chain"}),
		reads:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "netcraq_placement_reads_per_second", Help: "Reads of the placed keys together, by the switches' counters and the gateways."}, []string{"chain"}),
	}
	m.all = []prometheus.Collector{m.sourceUp, m.moves, m.faults, m.placed, m.reads}
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(ch)
	}
}
