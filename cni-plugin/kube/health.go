package kube

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/guards"
	"github.com/netcraq/netcraq/internal/buildmetric"
	"github.com/netcraq/netcraq/internal/persource"
)

// health serves kubelet's probes and Prometheus metrics. While the agent leads, the metrics include
// the controller's.
type health struct {
	mux     *http.ServeMux
	own     *prometheus.Registry
	leading prometheus.Gauge

	mu    sync.Mutex
	leads prometheus.Gatherer // metrics of the controller; nil if this agent does not lead
}

func newHealth() *health {
	h := &health{mux: http.NewServeMux(), own: prometheus.NewRegistry(),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{Name: "netcraq_agent_leading", Help: "1 where this agent runs the controller."})}
	h.own.MustRegister(h.leading, buildmetric.New("netcraq-agent"))
	h.mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		all := prometheus.Gatherers{h.own, ctrlmetrics.Registry}
		h.mu.Lock()
		if h.leads != nil {
			all = append(all, h.leads)
		}
		h.mu.Unlock()
		promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
	return h
}

// watch adds metrics for an agent's number of attachments and its readiness.
func (h *health) watch(a *agent.Agent) {
	h.own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "netcraq_agent_attachments", Help: "Interfaces of pods at this node's switch."},
		func() float64 { return float64(len(a.Attachments())) }))
	h.mux.HandleFunc("GET /healthz", alive)
	h.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s := a.Status()
		if !s.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(s)
	})
}

// serveWaiting answers kubelet's probes while the agent waits for its node's address: the agent is
// alive, but not ready. Because the address is not known yet, it listens at all addresses. end
// frees the port.
func serveWaiting(port int) (end func(), err error) {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil, fmt.Errorf("serving health: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(agentapi.Status{Reason: "it waits for the API server"})
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second}
	go func() { _ = server.Serve(persource.Listen(l, connectionsOfOne)) }()
	return func() { server.Close() }, nil
}

// alive answers a probe. It succeeds as long as the process runs.
func alive(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) } // fails if the prober has gone

// restored returns a Report that counts restorations and then calls next.
func (h *health) restored(next guards.Report) guards.Report {
	count := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "netcraq_agent_restored_total", Help: "How often the agent has put back what somebody had taken away or changed: programs at interfaces, settings, tables of nftables."},
		[]string{"what"})
	for _, what := range guards.All {
		count.WithLabelValues(what)
	}
	h.own.MustRegister(count)
	return func(what, where string, err error) {
		if err == nil {
			count.WithLabelValues(what).Inc()
		}
		next(what, where, err)
	}
}

// lead adds the metrics of a controller. lead(nil) removes them.
func (h *health) lead(g prometheus.Gatherer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leads = g
	h.leading.Set(map[bool]float64{true: 1}[g != nil])
}

// ServeHTTP implements http.Handler.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }
