package observe

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/internal/buildmetric"
)

// Metrics are the controller's metrics, for Prometheus (GET /metrics of the admin API). Every step
// of a failover and a recovery is an event, and events are counted by kind.
type Metrics struct {
	Registry *prometheus.Registry
	events   *prometheus.CounterVec
	redriven prometheus.Counter
	epoch    *prometheus.GaugeVec
	members  *prometheus.GaugeVec
	missing  *prometheus.GaugeVec
	ready    *prometheus.GaugeVec
	frozen   *prometheus.GaugeVec
	shadow   *prometheus.GaugeVec
	lease    *prometheus.GaugeVec
	given    *prometheus.GaugeVec
	switches *prometheus.GaugeVec
	copied   *prometheus.CounterVec

	failover *prometheus.HistogramVec
	recovery *prometheus.HistogramVec
	pause    *prometheus.HistogramVec

	mu      sync.Mutex
	running map[string]*spans // steps that are under way, by the chain's name
}

// spans holds when each step that is under way for a chain began. The time is zero for a step that
// is not under way.
type spans struct {
	failover, recovery, frozen time.Time
	epoch                      uint16 // the last epoch that ShowChain got
}

// NewMetrics returns the metrics of a controller, all zero.
func NewMetrics() *Metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "netcraq_chain_" + name, Help: help}, []string{"chain"})
	}
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "netcraq_controller_events_total", Help: "Events of chains, switches and keys, by kind."},
			[]string{"type", "chain", "switch"}),
		redriven: prometheus.NewCounter(prometheus.CounterOpts{Name: "netcraq_controller_redriven_total", Help: "Writes that were sent down a chain again because a key was dirty."}),
		epoch:    gauge("epoch", "The epoch of the chain's configuration."),
		members:  gauge("members", "Members of the chain."),
		missing:  gauge("missing_members", "Members that the chain is to have and has not: it is short until this is 0."),
		ready:    gauge("ready", "1 where every member has the configuration and a live lease."),
		frozen:   gauge("frozen", "1 where the chain takes no writes."),
	}
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "netcraq_chain_" + name + "_seconds",
			Help: help, Buckets: buckets}, []string{"chain"})
	}
	m.running = map[string]*spans{}
	m.shadow = gauge("recovering", "1 while a switch is being brought in.")
	m.copied = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "netcraq_chain_copied_total", Help: "Slots and session records written into switches that were brought in."},
		[]string{"chain"})
	m.lease = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "netcraq_chain_member_lease", Help: "1 where the member may answer reads, by its last word; one series a member."},
		[]string{"chain", "switch"})
	m.given = gauge("lease_given_seconds", "How long the read leases are that members are given now: short ones where the chain has such and nothing is late. 0: the chain has no leases.")
	m.switches = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "netcraq_switch_ready", Help: "1 where the switch is connected, runs the program and has its routes."},
		[]string{"switch"})
	m.failover = histogram("failover", "From giving a member up to the chain without it being installed: writes wait that long, and as long as the member was missed.",
		.005, .01, .025, .05, .1, .2, .3, .5, 1, 2, 5)
	m.recovery = histogram("recovery", "From the request to bring a switch in to its being a member.", .1, .25, .5, 1, 2.5, 5, 10, 25, 60)
	m.pause = histogram("frozen", "How long a chain was frozen.", .0025, .005, .01, .02, .03, .05, .1, .2, .5, 1, 5)
	m.Registry.MustRegister(buildmetric.New("netcraq-controller"))
	m.Registry.MustRegister(m.events, m.redriven, m.epoch, m.members, m.missing, m.ready, m.frozen, m.shadow,
		m.lease, m.given,
		m.switches, m.copied, m.failover, m.recovery, m.pause)
	return m
}

// Handler serves the metrics as Prometheus reads them.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{})
}

// Count counts an event, and measures the durations that the event begins or ends. Events of one
// chain come in order, never concurrently.
func (m *Metrics) Count(e admin.Event) {
	m.events.WithLabelValues(e.Type, e.Chain, e.Switch).Inc()
	if e.Chain == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.spans(e.Chain)
	switch e.Type {
	case "chain.failover", "chain.lost-member":
		if s.failover.IsZero() { // a second failure during the first belongs to the same outage
			s.failover = e.Time
		}
		s.recovery = time.Time{} // a failure ends a recovery
	case "chain.installed":
		if !s.failover.IsZero() {
			m.failover.WithLabelValues(e.Chain).Observe(e.Time.Sub(s.failover).Seconds())
			s.failover = time.Time{}
		}
	case "chain.recovering":
		if s.recovery.IsZero() {
			s.recovery = e.Time
		}
	case "chain.recovered":
		if !s.recovery.IsZero() {
			m.recovery.WithLabelValues(e.Chain).Observe(e.Time.Sub(s.recovery).Seconds())
		}
		s.recovery = time.Time{}
	case "chain.not-recovered":
		s.recovery = time.Time{}
	}
}

func (m *Metrics) spans(chain string) *spans {
	s := m.running[chain]
	if s == nil {
		s = &spans{}
		m.running[chain] = s
	}
	return s
}

// ShowChain updates the metrics of a chain's state.
func (m *Metrics) ShowChain(name string, s chain.Status) {
	bit := map[bool]float64{true: 1}
	m.epoch.WithLabelValues(name).Set(float64(s.Config.Epoch))
	m.members.WithLabelValues(name).Set(float64(len(s.Config.Members)))
	m.missing.WithLabelValues(name).Set(float64(max(0, s.Length-len(s.Config.Members))))
	m.ready.WithLabelValues(name).Set(bit[s.Ready])
	m.frozen.WithLabelValues(name).Set(bit[s.Config.Freeze != chain.Thawed])
	m.given.WithLabelValues(name).Set(s.LeaseGiven.Seconds())
	m.shadow.WithLabelValues(name).Set(bit[s.Config.Shadow != ""])
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.spans(name)
	if t.epoch != s.Config.Epoch { // the configuration has changed, and members may have left
		t.epoch = s.Config.Epoch
		m.lease.DeletePartialMatch(prometheus.Labels{"chain": name})
	}
	everywhere := true
	for _, sw := range s.Members {
		m.lease.WithLabelValues(name, sw.Switch).Set(bit[sw.LeaseLive])
		everywhere = everywhere && sw.Ready
	}
	switch {
	case s.Config.Freeze != chain.Thawed && t.frozen.IsZero():
		t.frozen = time.Now()
	case s.Config.Freeze == chain.Thawed && everywhere && !t.frozen.IsZero():
		m.pause.WithLabelValues(name).Observe(time.Since(t.frozen).Seconds())
		t.frozen = time.Time{}
	}
}

// Redrove counts writes that were sent down a chain again.
func (m *Metrics) Redrove(n int) { m.redriven.Add(float64(n)) }

// CopiedInto counts slots and session records that were written into a chain's joiner.
func (m *Metrics) CopiedInto(chain string, n int) { m.copied.WithLabelValues(chain).Add(float64(n)) }

// ShowSwitch sets the metric that says whether a switch is ready.
func (m *Metrics) ShowSwitch(name string, ready bool) {
	m.switches.WithLabelValues(name).Set(map[bool]float64{true: 1}[ready])
}

// ForgetSwitch removes the metrics of a switch that has left.
func (m *Metrics) ForgetSwitch(name string) {
	m.switches.DeleteLabelValues(name)
}

// ForgetChain removes the metrics of a removed chain's state. Its counters stay.
func (m *Metrics) ForgetChain(name string) {
	for _, g := range []*prometheus.GaugeVec{m.epoch, m.members, m.missing, m.ready, m.frozen, m.shadow, m.lease,
		m.given} {
		g.DeletePartialMatch(prometheus.Labels{"chain": name})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, name)
}
