package lab

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/nodeapi/keys"
	"github.com/netcraq/netcraq/nodeapi/notify"
)

// This file measures from which source a node API server gets events. The sources are notifications
// of its switch, and reads.

// notified connects a store to the notifications of its switch. It serves the store's metrics on a
// socket next to the server's socket.
func notified(o *keys.Options, socket string, log *slog.Logger) error {
	registry := prometheus.NewRegistry()
	o.Metrics = registry
	o.Push = notify.New(notify.Options{Admin: o.Admin, Log: log, Metrics: registry})
	path := newsSocket(socket)
	// a killed process may have left the socket
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			news, err := NewsOf(registry)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(news)
		})}
	go func() { _ = s.Serve(l) }() // this goroutine ends with the process
	return nil
}

func newsSocket(socket string) string { return socket + ".news" }

// News is the number of events of a store's watches, by their source (docs/node-api.md).
type News map[string]int

// NewsOf reads the counters of a store.
func NewsOf(registry *prometheus.Registry) (News, error) {
	out := News{}
	all, err := registry.Gather()
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == "netcraq_nodeapi_watch_news_total" {
				out[m.GetLabel()[0].GetValue()] = int(m.GetCounter().GetValue())
			}
		}
	}
	return out, err
}

// News returns the numbers of events since the server's last start.
func (s *NodeServer) News(ctx context.Context) (out News, err error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", newsSocket(s.Socket))
		}}}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/", nil)
	if err != nil {
		return nil, err
	}
	r, err := c.Do(q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	return out, json.NewDecoder(r.Body).Decode(&out)
}
