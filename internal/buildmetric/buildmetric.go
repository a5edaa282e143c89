// Package buildmetric adds a program's version and build to its metrics.
package buildmetric

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/api/buildinfo"
)

// New returns a program's gauge netcraq_build_info, which is always 1. Its labels describe the
// build.
func New(program string) prometheus.Collector {
	i := buildinfo.Get()
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "netcraq_build_info",
		Help: "Always 1. The labels are the program, its version and commit, and the Go version of its build."},
		[]string{"program", "version", "commit", "go"})
	info.WithLabelValues(program, i.Version, i.Short(), i.Go).Set(1)
	return info
}
