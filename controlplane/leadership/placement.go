package leadership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/controlplane/placement/placementcontroller"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

const (
	prometheusWait = 2 * time.Second // time limit for one answer
	decideEvery    = time.Second
)

// Placement says how etcd's hot keys are found and placed.
type Placement struct {
	// Prometheus is the URL of a Prometheus that scrapes the gateways. If it is "", only pinned
	// keys are placed.
	Prometheus string
	// Window is the time over which rates are computed.
	Window time.Duration
	// Prefix begins the names of the gateways' own keys in etcd.
	Prefix string
	Limits policy.Limits
	// Leaving reports whether a chain must not hold any keys of etcd. If it is nil, all chains may
	// hold such keys.
	Leaving func(chain string) bool
}

// New makes the controller that places an etcd's keys in a network. The controller's writes must be
// conditional on this process leading, so do not run the controller without such conditions. If
// network and etcd are nil, New only checks the configuration.
func (p *Placement) New(network placementcontroller.Network, etcd *clientv3.Client, log *slog.Logger,
	conditions ...clientv3.Cmp) (*placementcontroller.Controller, error) {
	var source placementcontroller.Source = noSource{}
	if p.Prometheus != "" {
		prometheus, err := placementcontroller.NewPrometheus(p.Prometheus, p.Window, prometheusWait)
		if err != nil {
			return nil, fmt.Errorf("the hot keys' Prometheus: %w", err)
		}
		source = prometheus
	}
	c, err := placementcontroller.New(placementcontroller.Options{Network: network, Source: source, Etcd: etcd,
		Prefix: p.Prefix, Conditions: conditions, Limits: p.Limits, Interval: decideEvery,
		Leaving: p.Leaving, Log: log})
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	return c, nil
}

// noSource is the Source if there is no Prometheus.
type noSource struct{}

var errNoPrometheus = errors.New("how hot keys are is not known, because no Prometheus was given (--prometheus): only pins are placed")

// Heat implements placementcontroller.Source.
func (noSource) Heat(context.Context) (map[string]policy.Heat, error) { return nil, errNoPrometheus }

// Scalar implements placementcontroller.Source.
func (noSource) Scalar(context.Context, string) (float64, bool) { return 0, false }

// Name implements placementcontroller.Source.
func (noSource) Name() (url, window string) { return "", "" }
