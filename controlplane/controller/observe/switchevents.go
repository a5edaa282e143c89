package observe

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A scrape needs no token, so anybody may scrape often. So each switch is read at most once in
// countersAge, however many scrapes come.
const (
	countersAge  = 5 * time.Second
	countersWait = 2 * time.Second // how long a scrape waits for the slowest switch
)

var switchEventsDesc = prometheus.NewDesc("netcraq_switch_events_total",
	"What became of the packets that came to a switch, by its P4 counter events.", []string{"switch", "event"}, nil)

// SwitchEvents exports the switches' counters `events` to Prometheus. It reads them at each
// scrape.
type SwitchEvents struct {
	read func(context.Context) map[string]map[string]uint64

	mu      sync.Mutex
	readAt  time.Time
	packets map[string]map[string]uint64 // number of packets by switch and event
}

// NewSwitchEvents returns the collector. read returns each switch's number of packets by event, and
// omits switches that do not answer.
func NewSwitchEvents(read func(context.Context) map[string]map[string]uint64) *SwitchEvents {
	return &SwitchEvents{read: read}
}

// Describe implements prometheus.Collector.
func (s *SwitchEvents) Describe(out chan<- *prometheus.Desc) { out <- switchEventsDesc }

// Collect implements prometheus.Collector.
func (s *SwitchEvents) Collect(out chan<- prometheus.Metric) {
	for sw, events := range s.recent() {
		for event, n := range events {
			out <- prometheus.MustNewConstMetric(switchEventsDesc, prometheus.CounterValue, float64(n), sw, event)
		}
	}
}

// recent returns the switches' counters, read at most countersAge ago. Callers must not change it.
func (s *SwitchEvents) recent() map[string]map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.packets == nil || time.Since(s.readAt) >= countersAge {
		ctx, cancel := context.WithTimeout(context.Background(), countersWait)
		defer cancel()
		s.packets, s.readAt = s.read(ctx), time.Now()
	}
	return s.packets
}
