package keys

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/nodeapi/watch"
	"github.com/netcraq/netcraq/nodeapi/watch/watchrules"
)

// counts are the counters of watches.
type counts struct {
	registry prometheus.Registerer
	all      []prometheus.Collector
}

func newCounts(hub *watch.Hub, r prometheus.Registerer) counts {
	c := counts{registry: r}
	for by, of := range map[string]func(watchrules.Counts) uint64{
		"notification": func(n watchrules.Counts) uint64 { return n.Notified },
		"read":         func(n watchrules.Counts) uint64 { return n.Read },
		"repair":       func(n watchrules.Counts) uint64 { return n.Repaired },
		"none":         func(n watchrules.Counts) uint64 { return n.Old },
	} {
		c.all = append(c.all, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "netcraq_nodeapi_watch_news_total",
			Help: "New versions of watched keys by what they were found by: a notification; a read; or, as a repair, a " +
				"read of a key of which the network notifies. none: notifications of versions that were known, or older.",
			ConstLabels: prometheus.Labels{"by": by}}, func() float64 { return float64(of(hub.Counts())) }))
	}
	if r != nil {
		r.MustRegister(c.all...)
	}
	return c
}

func (c counts) unregister() {
	if c.registry != nil {
		for _, one := range c.all {
			c.registry.Unregister(one)
		}
	}
}
