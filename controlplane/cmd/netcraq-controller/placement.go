package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/placed"
	"github.com/netcraq/netcraq/controlplane/placement"
	"github.com/netcraq/netcraq/controlplane/placer"
)

// placementOptions say how etcd's hot keys are found and placed. Without prometheus none are.
type placementOptions struct {
	prometheus string
	prefix     string
	window     time.Duration
	dwell      time.Duration
	stay       time.Duration
	perMinute  float64
}

// prometheusWait is how long a Prometheus may take to answer, decideEvery the time between decisions.
const (
	prometheusWait = 2 * time.Second
	decideEvery    = time.Second
)

func (o *placementOptions) flags(f *pflag.FlagSet) {
	l := placement.DefaultLimits()
	f.StringVar(&o.prometheus, "prometheus", "", "the URL of a Prometheus that scrapes the gateways (etcd-monitor): place the keys of\n"+
		"etcd's that are read most in the switches; needs --etcd, which is the etcd of these keys")
	f.StringVar(&o.prefix, "gateway-prefix", placed.DefaultPrefix, "what the names of the gateways' own keys in etcd begin with; the gateways must be told the same")
	f.DurationVar(&o.window, "heat-window", time.Minute, "what rates are taken over: at least twice Prometheus' scrape interval, better four times")
	f.DurationVar(&o.dwell, "placement-dwell", l.Dwell, "how long a key must be hot before it is placed")
	f.DurationVar(&o.stay, "placement-stay", l.Stay, "how long a placed key makes no room for a hotter one, and one that made room stays away")
	f.Float64Var(&o.perMinute, "placement-moves", l.MovesPerMinute, "how many keys may be placed and removed in a minute because of their heat")
}

// check says what is wrong with the options, before anything is begun.
func (o *placementOptions) check(etcd etcdOptions) error {
	if o.prometheus == "" {
		return nil
	}
	if etcd.endpoints == nil {
		return errors.New("--prometheus: keys of which etcd are to be placed? Give --etcd, too")
	}
	if own := strings.TrimSuffix(etcd.prefix, "/") + "/"; strings.HasPrefix(own, o.prefix) || strings.HasPrefix(o.prefix, own) && !strings.HasPrefix(o.prefix, own+etcdstore.Gateway) {
		return fmt.Errorf("--gateway-prefix %s: the controllers' own state is under %s: give another one, or %s%s", o.prefix, own, own, etcdstore.Gateway)
	}
	_, err := o.placer(nil, nil, slog.Default())
	return err
}

// placer makes one that works for a controller; without conditions it must not be run.
func (o *placementOptions) placer(c *controller.Controller, etcd *clientv3.Client, log *slog.Logger, conditions ...clientv3.Cmp) (*placer.Placer, error) {
	source, err := placer.NewPrometheus(o.prometheus, o.window, prometheusWait)
	if err != nil {
		return nil, fmt.Errorf("--prometheus, --heat-window: %w", err)
	}
	limits := placement.DefaultLimits()
	limits.Dwell, limits.Stay, limits.Rest, limits.MovesPerMinute = o.dwell, o.stay, o.stay, o.perMinute
	p, err := placer.New(placer.Options{Network: c, Source: source, Etcd: etcd, Prefix: o.prefix, Conditions: conditions, Limits: limits, Interval: decideEvery, Log: log})
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	return p, nil
}
