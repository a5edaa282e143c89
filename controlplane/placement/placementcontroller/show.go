package placementcontroller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// othersShown is the number of keys that the status shows although they are not placed.
const othersShown = 100

// show prepares the decision for display.
func (p *Controller) show(verdicts []policy.Verdict, chains []admin.Chain, heat map[string]policy.Heat,
	heard time.Time, underWay []policy.Move) {
	next := admin.Placement{Prefix: p.o.Prefix, Limits: limitsOf(p.planner.Limits()),
		Chains: []admin.PlacementChain{}, UnderWay: []admin.PlacementMove{}}
	next.Heat.Prometheus, next.Heat.Window = p.o.Source.Name()
	next.Heat.Keys = len(heat)
	n, reads := map[string]int{}, map[string]float64{}
	for _, e := range p.entries {
		n[e.Chain]++
	}
	for _, v := range verdicts {
		reads[v.Chain] += v.Heat.Reads
	}
	for _, ch := range chains {
		next.Chains = append(next.Chains, admin.PlacementChain{Name: ch.Name, Ready: ch.Ready &&
			!ch.Frozen, Slots: ch.Slots, Free: ch.Slots - ch.Keys, Placed: n[ch.Name],
			CellBytes: ch.ValueBytes})
		p.metrics.placed.WithLabelValues(ch.Name).Set(float64(n[ch.Name]))
		p.metrics.reads.WithLabelValues(ch.Name).Set(reads[ch.Name])
	}
	for _, m := range underWay {
		next.UnderWay = append(next.UnderWay, admin.PlacementMove{Time: time.Now().UTC(),
			Op: string(m.Op), Key: placement.Printable(string(m.Key)), Chain: m.Chain,
			Code: string(m.Code), Reason: m.Reason})
	}
	var traffic [4]*float64
	if heat != nil {
		traffic = p.traffic()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.verdicts)
	next.Placed, next.Others = []admin.PlacementKey{}, []admin.PlacementKey{}
	for _, v := range verdicts {
		p.verdicts[v.Key] = v
		k := p.describe(v)
		if k.Chain != "" {
			next.Placed = append(next.Placed, k)
		} else {
			next.Others = append(next.Others, k)
		}
	}
	hottest := func(a, b admin.PlacementKey) int {
		of := func(k admin.PlacementKey) float64 {
			if k.Reads == nil {
				return -1
			}
			return *k.Reads
		}
		return cmp.Or(cmp.Compare(of(b), of(a)), cmp.Compare(a.Key, b.Key))
	}
	slices.SortFunc(next.Placed, hottest)
	slices.SortFunc(next.Others, hottest)
	next.Others = next.Others[:min(len(next.Others), othersShown)]
	next.Recent, next.Problem, next.Heat.Error = p.shown.Recent, p.shown.Problem, p.sourceError
	if next.Heat.Heard = heard; heard.IsZero() {
		next.Heat.Heard = p.shown.Heat.Heard
	}
	next.Heat.ReadsPerSecond, next.Heat.HitRatio, next.Heat.NetworkMedianSeconds,
		next.Heat.EtcdMedianSeconds = traffic[0], traffic[1], traffic[2], traffic[3]
	p.shown = next
}

// TrafficQueries are queries for totals of all gateways: reads per second, the share that the
// network answered, and the median times in the network and at etcd. %s stands for the time window.
var TrafficQueries = [4]string{
	`sum(rate(etcd_monitor_reads_total[%s]))`,
	`sum(rate(etcd_monitor_reads_total{answered="network"}[%[1]s])) / sum(rate(etcd_monitor_reads_total[%[1]s]))`,
	`histogram_quantile(0.5, sum by (le) (rate(etcd_monitor_network_seconds_bucket{operation="read"}[%s])))`,
	`histogram_quantile(0.5, sum by (le) (rate(etcd_monitor_etcd_seconds_bucket{kind="get"}[%s])))`,
}

// traffic queries the totals of all gateways. An element is nil if its total is not known.
func (p *Controller) traffic() (out [4]*float64) {
	_, window := p.o.Source.Name()
	for i, q := range TrafficQueries {
		if x, ok := p.o.Source.Scalar(context.Background(), fmt.Sprintf(q, window)); ok {
			out[i] = &x
		}
	}
	return out
}

func limitsOf(l policy.Limits) map[string]any {
	return map[string]any{"minScore": l.MinScore, "writeCost": l.WriteCost,
		"replaceRatio": l.ReplaceRatio, "admitAfter": l.AdmitAfter.String(),
		"minResidency": l.MinResidency.String(), "gone": l.Gone.String(),
		"cooldown": l.Cooldown.String(), "idle": l.Idle.String(),
		"retry": l.Retry.String(), "movesPerMinute": l.MovesPerMinute, "burst": l.Burst, "compression": l.Compression}
}

// describe converts a verdict for display, and adds where the key is placed now.
func (p *Controller) describe(v policy.Verdict) admin.PlacementKey {
	k := admin.PlacementKey{Key: placement.Printable(v.Key), Code: string(v.Code), Reason: v.Reason}
	if v.Heard {
		k.Reads, k.Writes, k.Score = &v.Heat.Reads, &v.Heat.Writes, &v.Score
	}
	if e, ok := p.where[v.Key]; ok {
		k.Chain, k.KeyID, k.Since = e.chain, e.id, e.since
	}
	return k
}

// Show returns which keys are placed and why.
func (p *Controller) Show(context.Context) (*admin.Placement, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.shown
	out.Recent = append([]admin.PlacementMove{}, out.Recent...)
	out.Rules = []admin.PlacementRule{}
	for _, r := range p.rules.All() {
		out.Rules = append(out.Rules, admin.PlacementRule{Key: placement.Printable(r.Name),
			Prefix: r.Prefix, Choice: string(r.Choice), Default: r.Default})
	}
	return &out, nil
}

// Why returns why a key is placed or not.
func (p *Controller) Why(_ context.Context, text string) (*admin.PlacementKey, error) {
	key, err := placement.ParsePrintable(text)
	if err != nil || key == "" {
		return nil, admin.Errorf(admin.CodeInvalidArgument, "the key %q: %v", text, cmp.Or(err, fmt.Errorf("it is empty")))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.verdicts[key]
	if !ok {
		v = policy.Verdict{Key: key, Code: policy.NotSampled, Reason: fmt.Sprintf("it is not among the %d keys that the gateways' metrics name as the most read, so hardly anybody reads it", Top)}
		if p.sourceError != "" || p.shown.Heat.Heard.IsZero() {
			v.Code, v.Reason = policy.Unknown, "Prometheus does not answer, so how often it is read is not known"
		}
	}
	// The rules may have been changed since the last decision.
	switch c, by, byDefault := p.rules.Of(key); {
	case c == policy.Exclude && v.Code != policy.Own && v.Code != policy.Excluded:
		v.Code, v.Reason = policy.Excluded, fmt.Sprintf("excluded by the rule for %s%s", by, map[bool]string{true: " (by default)"}[byDefault])
	case c == policy.Pin && !ok:
		v.Code, v.Reason = policy.Pinned, "pinned by an operator; it is placed with the next decision"
	}
	k := p.describe(v)
	return &k, nil
}

// SetRule records an operator's choice: pin, unpin, exclude, include, or clear, which revokes the
// earlier choice.
func (p *Controller) SetRule(ctx context.Context, r admin.PlacementRule) (*admin.PlacementKey, error) {
	name, err := placement.ParsePrintable(r.Key)
	if err != nil {
		return nil, admin.Errorf(admin.CodeInvalidArgument, "%v", err)
	}
	s := policy.Subject{Name: name, Prefix: r.Prefix}
	p.ruling.Lock()
	defer p.ruling.Unlock()
	rules, _, err := p.store.rules(ctx) // the rules of the last round may be old, or not read yet
	if err != nil {
		return nil, admin.Errorf(admin.CodeUnavailable, "%v", err)
	}
	var store policy.Choice // the rule to store; "" revokes the stored choice
	switch r.Choice {
	case "unpin":
		if rules.Chosen(s) != policy.Pin {
			return nil, admin.Errorf(admin.CodeNotFound, "%s is not pinned", s)
		}
	case "clear":
		if rules.Chosen(s) == "" {
			return nil, admin.Errorf(admin.CodeNotFound, "nothing was chosen about %s", s)
		}
	case string(policy.Include):
		// Revoking the exclusion is enough, unless a wider or a default exclusion also applies.
		rules.Clear(s)
		if c, _, _ := rules.Of(name); c == policy.Exclude {
			store = policy.Include
		}
	default:
		store = policy.Choice(r.Choice)
	}
	if store == "" {
		rules.Clear(s)
	} else if err := rules.Set(s, store); err != nil {
		return nil, admin.Errorf(admin.CodeInvalidArgument, "%v", err)
	}
	if err := p.store.setRule(ctx, s, store, time.Now()); err != nil {
		return nil, admin.Errorf(admin.CodeUnavailable, "%v", err)
	}
	p.mu.Lock()
	p.rules = rules
	p.mu.Unlock()
	p.o.Network.Announce("placement.rule", "", fmt.Sprintf("%s: %s", r.Choice, s))
	p.soon()
	if r.Prefix {
		return &admin.PlacementKey{Key: placement.Printable(name)}, nil
	}
	return p.Why(ctx, placement.Printable(name))
}
