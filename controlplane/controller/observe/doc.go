// Package observe keeps the controller's events, which operators follow and tests wait for
// (events.go), and the metrics for Prometheus that are derived from them (metrics.go).
package observe
