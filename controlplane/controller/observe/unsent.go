package observe

import "github.com/prometheus/client_golang/prometheus"

var unsentDesc = prometheus.NewDesc("netcraq_switch_unsent_packets_total",
	"Packets of the controller to the switch that the controller dropped, because too many waited or the stream ended.",
	[]string{"switch"}, nil)

// UnsentPackets exports to Prometheus how many packets the controller dropped before they reached
// a switch.
type UnsentPackets struct{ read func() map[string]uint64 }

// NewUnsentPackets returns the collector. read returns the number of dropped packets by switch.
func NewUnsentPackets(read func() map[string]uint64) *UnsentPackets {
	return &UnsentPackets{read: read}
}

// Describe implements prometheus.Collector.
func (u *UnsentPackets) Describe(out chan<- *prometheus.Desc) { out <- unsentDesc }

// Collect implements prometheus.Collector.
func (u *UnsentPackets) Collect(out chan<- prometheus.Metric) {
	for sw, n := range u.read() {
		out <- prometheus.MustNewConstMetric(unsentDesc, prometheus.CounterValue, float64(n), sw)
	}
}
