// Package observe keeps what the controller shows of itself: its events, which operators follow
// and tests wait for (events.go), and what is counted and measured from them for Prometheus
// (metrics.go).
package observe
