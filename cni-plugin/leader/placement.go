package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/placement"
	"github.com/netcraq/netcraq/controlplane/placer"
)

const (
	prometheusWait = 2 * time.Second // for an answer
	decideEvery    = time.Second
)

// placement places keys for a controller.
func (r *Term) placement(c *controller.Controller) (*placer.Placer, error) {
	var source placer.Source = noHeat{}
	if r.o.Prometheus != "" {
		p, err := placer.NewPrometheus(r.o.Prometheus, r.o.HeatWindow, prometheusWait)
		if err != nil {
			return nil, fmt.Errorf("the hot keys' Prometheus: %w", err)
		}
		source = p
	}
	p, err := placer.New(placer.Options{Network: c, Source: source, Etcd: r.etcd, Prefix: r.o.GatewayPrefix, Conditions: []clientv3.Cmp{r.term.Leads()}, Limits: placement.DefaultLimits(), Interval: decideEvery, Leaving: r.IsLeaving, Log: r.o.Log})
	if err != nil {
		return nil, err
	}
	if err := c.Registry().Register(p.Metrics()); err != nil {
		return nil, fmt.Errorf("the placement's metrics: %w", err)
	}
	return p, nil
}

// noHeat is the source where no Prometheus was given: only pins are placed.
type noHeat struct{}

var errNoPrometheus = errors.New("how hot keys are is not known, because the agent was given no Prometheus (--prometheus): only pins are placed")

// Heat implements placer.Source.
func (noHeat) Heat(context.Context) (map[string]placement.Heat, error) { return nil, errNoPrometheus }

// Scalar implements placer.Source.
func (noHeat) Scalar(context.Context, string) (float64, bool) { return 0, false }

// Name implements placer.Source.
func (noHeat) Name() (url, window string) { return "", "" }
