package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/leadership"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// placementOptions configure the placement of etcd's hot keys. Without prometheus no key is placed.
type placementOptions struct {
	prometheus string
	prefix     string
	window     time.Duration
	admitAfter time.Duration
	residency  time.Duration
	perMinute  float64
}

func (o *placementOptions) flags(f *pflag.FlagSet) {
	l := policy.DefaultLimits()
	f.StringVar(&o.prometheus, "prometheus", "", "place the most-read etcd keys in the switches; `URL` of a Prometheus that scrapes the gateways "+
		"(etcd-monitor). Needs --etcd, the etcd that holds these keys")
	f.StringVar(&o.prefix, "gateway-prefix", placement.DefaultPrefix, "prefix of the gateways' own keys in etcd; the gateways need the same")
	f.DurationVar(&o.window, "heat-window", time.Minute, "time over which rates are averaged: at least twice Prometheus' scrape interval, better four times")
	f.DurationVar(&o.admitAfter, "placement-admit-after", l.AdmitAfter, "time for which a key must be hot before it is placed")
	f.DurationVar(&o.residency, "placement-min-residency", l.MinResidency, "time for which a placed key stays and an evicted key stays out")
	f.Float64Var(&o.perMinute, "placement-moves", l.MovesPerMinute, "number of keys to place or evict in a minute because of their heat")
}

// formerFlag maps a flag's former name to its present one, so that command lines for earlier
// versions still work.
func formerFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "placement-dwell":
		name = "placement-admit-after"
	case "placement-stay":
		name = "placement-min-residency"
	}
	return pflag.NormalizedName(name)
}

// check returns an error in the options. It is called before anything starts.
func (o *placementOptions) check(etcd *leadership.Etcd) error {
	if o.prometheus == "" {
		return nil
	}
	if etcd.Endpoints == nil {
		return errors.New("--prometheus: keys of which etcd are to be placed? Give --etcd, too")
	}
	if own := etcd.KeyPrefix(); strings.HasPrefix(own, o.prefix) || strings.HasPrefix(o.prefix, own) &&
		!strings.HasPrefix(o.prefix, own+etcdstore.Gateway) {
		return fmt.Errorf("--gateway-prefix %s: the controllers' own state is under %s: give another one, or %s%s", o.prefix, own, own, etcdstore.Gateway)
	}
	if _, err := o.config().New(nil, nil, slog.Default()); err != nil {
		return fmt.Errorf("--prometheus, --heat-window, --gateway-prefix, --placement-*: %w", err)
	}
	return nil
}

// config returns the configuration that the options describe, or nil if no keys are placed.
func (o *placementOptions) config() *leadership.Placement {
	if o.prometheus == "" {
		return nil
	}
	limits := policy.DefaultLimits()
	limits.AdmitAfter, limits.MinResidency, limits.Cooldown, limits.MovesPerMinute = o.admitAfter,
		o.residency, o.residency, o.perMinute
	return &leadership.Placement{Prometheus: o.prometheus, Window: o.window, Prefix: o.prefix, Limits: limits}
}
