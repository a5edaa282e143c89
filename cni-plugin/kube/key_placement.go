package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/controlplane/admin/api"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/placement"
	"github.com/netcraq/netcraq/controlplane/placer"
)

const (
	prometheusWait = 2 * time.Second // for an answer
	decideEvery    = time.Second
	rulesWait      = 5 * time.Second // for a choice to be taken
)

// rules keeps the choices of placement those of the chains' specs. They are about keys, and hold for all chains; choices that were made otherwise are taken back.
type rules struct {
	placer *placer.Placer
	always []string // PREFIX*: excluded whatever the specs say
	log    *slog.Logger
	failed complaint
}

// placement places keys for a controller.
func (r *reign) placement(c *controller.Controller) (*rules, error) {
	o := r.l.o.Lead
	var source placer.Source = noHeat{}
	if o.Prometheus != "" {
		p, err := placer.NewPrometheus(o.Prometheus, o.HeatWindow, prometheusWait)
		if err != nil {
			return nil, fmt.Errorf("the hot keys' Prometheus: %w", err)
		}
		source = p
	}
	p, err := placer.New(placer.Options{Network: c, Source: source, Etcd: r.etcd, Prefix: o.GatewayPrefix, Conditions: []clientv3.Cmp{r.term.Leads()}, Limits: placement.DefaultLimits(), Interval: decideEvery, Leaving: r.isLeaving, Log: r.l.log})
	if err != nil {
		return nil, err
	}
	if err := c.Registry().Register(p.Metrics()); err != nil {
		return nil, fmt.Errorf("the placement's metrics: %w", err)
	}
	return &rules{placer: p, always: neverPlaced(r.l.o.Namespace), log: r.l.log}, nil
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

// everyKey is an exclusion of all keys that an API server has; pins and narrower rules are exceptions from it.
const everyKey = "/"

// neverPlaced are the keys of objects that Kubernetes writes to bring an agent back: a placed key cannot be written while the network does not answer and nobody controls it, and then nobody ever would. An agent that is replaced is deleted,
// counted, made anew and bound to its node, and asks for a certificate; controllers and the leader of the agents hold Leases for that.
func neverPlaced(namespace string) []string {
	out := []string{"/registry/leases/*", "/registry/netcraq.io/*", "/registry/certificatesigningrequests/*"}
	for _, kind := range []string{"pods", "daemonsets", "controllerrevisions", "configmaps", "secrets", "serviceaccounts"} {
		out = append(out, "/registry/"+kind+"/"+namespace+"/*")
	}
	return out
}

// wanted are the choices of some chains' specs, and what is excluded always.
func wanted(chains []*v1alpha1.NetcraqChain, always []string) map[placement.Subject]placement.Choice {
	out := map[placement.Subject]placement.Choice{}
	hot := false
	for _, c := range chains {
		p := c.Spec.Placement
		hot = hot || p.Policy == v1alpha1.PlaceHot || p.Policy == ""
		if p.Policy == v1alpha1.PlaceNone {
			continue
		}
		for _, k := range p.Pins {
			out[subject(k)] = placement.Pin
		}
	}
	if !hot {
		out[placement.Subject{Name: everyKey, Prefix: true}] = placement.Exclude
	}
	exclusions := slices.Clone(always)
	for _, c := range chains {
		exclusions = append(exclusions, c.Spec.Placement.Exclusions...)
	}
	for _, k := range exclusions { // an exclusion is the safer choice of two
		out[subject(k)] = placement.Exclude
	}
	return out
}

// subject reads KEY or PREFIX*.
func subject(text string) placement.Subject {
	name, prefix := strings.CutSuffix(text, "*")
	return placement.Subject{Name: name, Prefix: prefix}
}

// follow makes the rules those of the specs.
func (r *rules) follow(chains []*v1alpha1.NetcraqChain) {
	ctx, cancel := context.WithTimeout(context.Background(), rulesWait)
	defer cancel()
	shown, err := r.placer.Show(ctx)
	if err == nil {
		for _, c := range changes(shown.Rules, wanted(chains, r.always)) {
			if _, err = r.placer.SetRule(ctx, c); err != nil {
				err = fmt.Errorf("%s %s: %w", c.Choice, c.Key, err)
				break
			}
		}
	}
	if r.failed.isNew(err) {
		r.log.Warn("the choice of keys is not yet as the chains say", "err", err)
	}
}

// changes are what makes the rules that there are those that are wanted.
func changes(have []api.PlacementRule, want map[placement.Subject]placement.Choice) []api.PlacementRule {
	left := maps.Clone(want)
	var out []api.PlacementRule
	for _, h := range have {
		key, err := placement.ParsePrintable(h.Key)
		if err != nil || h.Default {
			continue
		}
		s := placement.Subject{Name: key, Prefix: h.Prefix}
		if w, ok := left[s]; !ok {
			out = append(out, api.PlacementRule{Key: h.Key, Prefix: h.Prefix, Choice: "clear"})
		} else if string(w) == h.Choice {
			delete(left, s)
		}
	}
	for _, s := range slices.SortedFunc(maps.Keys(left), func(a, b placement.Subject) int { return strings.Compare(a.String(), b.String()) }) {
		out = append(out, api.PlacementRule{Key: placement.Printable(s.Name), Prefix: s.Prefix, Choice: string(left[s])})
	}
	return out
}
