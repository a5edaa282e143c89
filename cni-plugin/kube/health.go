package kube

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/netcraq/netcraq/cni-plugin/agent"
)

// health serves what a kubelet and a Prometheus ask an agent. While it leads, its metrics are the
// controller's as well.
type health struct {
	mux     *http.ServeMux
	own     *prometheus.Registry
	leading prometheus.Gauge

	mu    sync.Mutex
	leads prometheus.Gatherer // the controller's; nil: this agent does not lead
}

func newHealth() *health {
	h := &health{mux: http.NewServeMux(), own: prometheus.NewRegistry(),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{Name: "netcraq_agent_leading", Help: "1 where this agent runs the controller."})}
	h.own.MustRegister(h.leading)
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

// watch shows an agent's attachments and whether it is ready. It is alive as long as it answers.
func (h *health) watch(a *agent.Agent) {
	h.own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "netcraq_agent_attachments", Help: "Interfaces of pods at this node's switch."},
		func() float64 { return float64(len(a.Attachments())) }))
	// the prober has gone
	h.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	h.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s := a.Status()
		if !s.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(s)
	})
}

// lead shows a controller's metrics; nil: none any more.
func (h *health) lead(g prometheus.Gatherer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leads = g
	h.leading.Set(map[bool]float64{true: 1}[g != nil])
}

// ServeHTTP implements http.Handler.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }
