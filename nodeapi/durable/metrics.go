package durable

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/api/nodeapi"
)

const metricsPrefix = "netcraq_nodeapi_durable_"

// maxCounted is the maximum number of namespaces that have a metric for their number of keys. It is
// limited because each such metric is a time series.
const maxCounted = 1000

// These are the names of the calls in metrics.
const (
	callGet      = "get"
	callPut      = "put"
	callCAS      = "cas"
	callDelete   = "delete"
	callList     = "list"
	callTransact = "transact"
)

// metrics count the calls for durable keys.
type metrics struct {
	registry prometheus.Registerer
	seconds  *prometheus.HistogramVec
	calls    *prometheus.CounterVec
	keys     *prometheus.GaugeVec
	reaches  prometheus.GaugeFunc

	mu      sync.Mutex
	counted map[string]bool // namespaces that have a metric for their number of keys
}

func newMetrics(c *Connection, r prometheus.Registerer) *metrics {
	m := &metrics{registry: r, counted: map[string]bool{},
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricsPrefix + "call_seconds",
			Help:    "What calls of durable keys took at the gateways, or etcd, by call.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 15)}, []string{"call"}), // the largest bucket is 4 s
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricsPrefix + "calls_total",
			Help: "Calls of durable keys, by call and code (ok, or of the error)."}, []string{"call", "code"}),
		keys: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricsPrefix + "keys",
			Help: "Durable keys of a namespace, deleted ones that are still known included, as counted when this server last made one."},
			[]string{"namespace"}),
		reaches: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricsPrefix + "connected",
			Help: "1 while a gateway, or etcd, can be reached."}, func() float64 {
			if c.isThere() {
				return 1
			}
			return 0
		})}
	if r != nil {
		r.MustRegister(m.all()...)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.seconds, m.calls, m.keys, m.reaches}
}

func (m *metrics) unregister() {
	if m.registry != nil {
		for _, c := range m.all() {
			m.registry.Unregister(c)
		}
	}
}

// took counts a call that ends now. The argument began is the time when the call began.
func (m *metrics) took(call string, began time.Time, err *error) {
	m.seconds.WithLabelValues(call).Observe(time.Since(began).Seconds())
	m.calls.WithLabelValues(call, codeOf(*err)).Inc()
}

func codeOf(err error) string {
	var ours *nodeapi.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &ours):
		return string(ours.Code)
	case errors.Is(err, context.Canceled):
		return string(nodeapi.CodeCanceled)
	case errors.Is(err, context.DeadlineExceeded):
		return string(nodeapi.CodeTimeout)
	}
	return string(nodeapi.CodeInternal)
}

// has sets the metric for the number of keys of a namespace.
func (m *metrics) has(namespace string, keys int64) {
	m.mu.Lock()
	room := m.counted[namespace] || len(m.counted) < maxCounted
	if room {
		m.counted[namespace] = true
	}
	m.mu.Unlock()
	if room {
		m.keys.WithLabelValues(namespace).Set(float64(keys))
	}
}
