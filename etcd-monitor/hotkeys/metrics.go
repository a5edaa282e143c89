package hotkeys

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/client/etcd/placement"
)

// Metrics is everything that a gateway exposes at /metrics, as one [prometheus.Collector]. Its
// methods are safe for concurrent use.
//
// A label must be valid UTF-8, but a key in etcd may be any bytes. So the label key has the form of
// [placement.Printable], which [placement.ParsePrintable] can parse.
type Metrics struct {
	Keys *Keys

	requests *prometheus.CounterVec
	errors   *prometheus.CounterVec
	reads    *prometheus.CounterVec
	writes   *prometheus.CounterVec
	waits    prometheus.Counter
	forged   prometheus.Counter
	accept   prometheus.Counter
	waited   prometheus.Histogram
	network  *prometheus.HistogramVec
	etcd     *prometheus.HistogramVec
	upstream *prometheus.CounterVec

	upstreamReads *prometheus.CounterVec
	revision      func() int64
	describe      []prometheus.Collector
	keyReads      *prometheus.Desc
	keyWrites     *prometheus.Desc
	counted       *prometheus.Desc
	displaced     *prometheus.Desc
	tooLong       *prometheus.Desc
	newest        *prometheus.Desc
}

// KeyMetrics is the prefix of the names of metrics that have a label with a key.
const KeyMetrics = "etcd_monitor_key_"

// Values of the label answered of etcd_monitor_reads_total. They say whether the network answered a
// read, and otherwise why not.
const (
	hit       = "network"
	miss      = "miss"
	forwarded = "forwarded"
)

// NewMetrics makes a gateway's metrics. revision, if it is not nil, returns the newest revision
// that the gateway has seen.
func NewMetrics(bounds Bounds, revision func() int64) *Metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("etcd_monitor_"+name, help, labels, nil)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_monitor_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, first float64, count int) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: "etcd_monitor_" + name, Help: help,
			Buckets: prometheus.ExponentialBuckets(first, 2, count)}
	}
	m := &Metrics{
		Keys:     NewKeys(bounds),
		revision: revision,
		requests: counter("requests_total", "Requests, by kind: get (of one key), range, put, delete (of one key), delete_range, txn, compact, and the other methods by name.", "kind"),
		errors:   counter("request_errors_total", "Requests that ended with an error, by kind and gRPC code.", "kind", "code"),
		reads: counter("reads_total", "Gets of one key, by who answered: network; miss: the key is placed and etcd had to answer, with the reason; forwarded: the network was not asked, with the reason.",
			"answered", "reason"),
		writes: counter("guarded_writes_total", "Writes that touched placed keys, by how they ended.", "result"),
		waits:  prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_monitor_guard_waits_total", Help: "Writes that had to wait for another write's guard."}),
		forged: prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_monitor_forged_slots_total",
			Help: "Slots of placed keys that had what no gateway has written; each version once."}),
		accept: prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_monitor_accept_errors_total",
			Help: "Tries to accept a client's connection that failed for want of file descriptors or memory; they are repeated, a second apart at most."}),
		// buckets from 0.1 ms to 6.5 s
		waited: prometheus.NewHistogram(histogram("guard_wait_seconds", "How long those waited.", 100e-6, 17)),
		// buckets from 10 us to 0.3 s, and from 50 us to 13 s
		network: prometheus.NewHistogramVec(histogram("network_seconds", "Round trips to the switches, by operation (read, cas).", 10e-6, 16), []string{"operation"}),
		etcd:    prometheus.NewHistogramVec(histogram("etcd_seconds", "How long etcd took to answer, by kind of request.", 50e-6, 19), []string{"kind"}),
		upstreamReads: counter("etcd_reads_total", "Linearizable reads with answers that are taken to be small that were sent to etcd, by where they went: leader: to the member that leads, at endpoint; turn: to the members in turn.",
			"to", "endpoint"),
		upstream: counter("etcd_writes_total", "Writes that were sent to etcd, by where they went: leader: to the member that leads, at endpoint; turn: to the members in turn.",
			"to", "endpoint"),

		keyReads:  desc("key_reads_total", "Reads of a key, for the keys that are read most, since the key is counted.", "key"),
		keyWrites: desc("key_writes_total", "Writes of such a key, since the key is counted.", "key"),
		counted:   desc("keys_counted", "Keys that have a counter; a fixed number at most."),
		displaced: desc("keys_displaced_total", "Keys that lost their counter to another key."),
		tooLong:   desc("keys_too_long_total", "Reads of keys that are too long to be counted."),
		newest:    desc("revision", "The newest revision of etcd that was seen in an answer."),
	}
	m.describe = []prometheus.Collector{m.requests, m.errors, m.reads, m.writes, m.waits, m.forged, m.accept,
		m.waited, m.network, m.etcd, m.upstream, m.upstreamReads}
	return m
}

// Request counts a request. kind names the operation. code is the name of the request's final gRPC
// code. "" and "OK" mean no error.
func (m *Metrics) Request(kind, code string) {
	m.requests.WithLabelValues(kind).Inc()
	if code != "" && code != "OK" {
		m.errors.WithLabelValues(kind, code).Inc()
	}
}

// Etcd records how long etcd took for a request.
func (m *Metrics) Etcd(kind string, d time.Duration) {
	m.etcd.WithLabelValues(kind).Observe(d.Seconds())
}

// EtcdWrite counts a write that was sent to etcd. leader is the endpoint of the leader that got it,
// or "" if the write went to the members in turn.
func (m *Metrics) EtcdWrite(leader string) { count(m.upstream, leader) }

// EtcdRead counts a linearizable read with a small answer that was sent to etcd. leader is as for
// EtcdWrite.
func (m *Metrics) EtcdRead(leader string) { count(m.upstreamReads, leader) }

func count(where *prometheus.CounterVec, leader string) {
	to := "leader"
	if leader == "" {
		to = "turn"
	}
	where.WithLabelValues(to, leader).Inc()
}

// Hit counts a read answered by the network.
func (m *Metrics) Hit() { m.reads.WithLabelValues(hit, "").Inc() }

// Miss counts a read of a placed key that etcd had to answer. reason describes why, for example
// that the slot was clear, guarded or silent.
func (m *Metrics) Miss(reason string) { m.reads.WithLabelValues(miss, reason).Inc() }

// Forwarded counts a read that was not sent to the network. reason describes why, for example that
// the key is not placed or that the network is off.
func (m *Metrics) Forwarded(reason string) { m.reads.WithLabelValues(forwarded, reason).Inc() }

// Network records how long the switches took for an operation (read or cas).
func (m *Metrics) Network(operation string, d time.Duration) {
	m.network.WithLabelValues(operation).Observe(d.Seconds())
}

// GuardWait records how long a write waited for another write's guard.
func (m *Metrics) GuardWait(d time.Duration) {
	m.waits.Inc()
	m.waited.Observe(d.Seconds())
}

// GuardedWrite counts a write of placed keys by its result.
func (m *Metrics) GuardedWrite(result string) { m.writes.WithLabelValues(result).Inc() }

// Forged counts a new version of a slot's content that no gateway has written.
func (m *Metrics) Forged() { m.forged.Inc() }

// AcceptError counts a client's connection that could not be accepted for lack of file descriptors
// or memory.
func (m *Metrics) AcceptError() { m.accept.Inc() }

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.describe {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{m.keyReads, m.keyWrites, m.counted, m.displaced, m.tooLong, m.newest} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.describe {
		c.Collect(ch)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, c := range m.Keys.Top() {
		label := placement.Printable(c.Key)
		counter(m.keyReads, c.Reads, label)
		counter(m.keyWrites, c.Writes, label)
	}
	m.Keys.mu.Lock()
	counted, displaced, tooLong := len(m.Keys.coldest), m.Keys.displaced, m.Keys.tooLong
	m.Keys.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(m.counted, prometheus.GaugeValue, float64(counted))
	counter(m.displaced, displaced)
	counter(m.tooLong, tooLong)
	if m.revision != nil {
		ch <- prometheus.MustNewConstMetric(m.newest, prometheus.GaugeValue, float64(m.revision()))
	}
}
