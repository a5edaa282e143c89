// Package dashboards has the Grafana dashboard netcraq.json, and a test of it.
package dashboards

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/placement/placementcontroller"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
)

// exposed returns the metrics that the programs expose. The map has each metric's labels, by the
// metric's name.
func exposed(t *testing.T) map[string][]string {
	t.Helper()
	top, err := topology.Load("../../controlplane/topology/example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := controller.New(controller.Options{Topology: top, Store: saved.Memory{},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := placementcontroller.New(placementcontroller.Options{Prefix: placement.DefaultPrefix,
		Limits: policy.DefaultLimits(), Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	one := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	out := map[string][]string{}
	for _, x := range []prometheus.Collector{c.Registry(), p.Metrics(), hotkeys.NewMetrics(hotkeys.Bounds{},
		func() int64 {
			return 1
		})} {
		ch := make(chan *prometheus.Desc)
		go func() { x.Describe(ch); close(ch) }()
		for d := range ch {
			m := one.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("%v says neither its name nor its labels", d)
			}
			out[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })
		}
	}
	return out
}

// query is a Prometheus query of a dashboard or of a document.
type query struct{ where, expr, legend string }

func queries(t *testing.T) []query {
	t.Helper()
	b, err := os.ReadFile("netcraq.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Annotations struct {
			List []struct{ Name, Expr, TitleFormat string }
		}
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, LegendFormat, RefID string }
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	var out []query
	for _, a := range d.Annotations.List {
		out = append(out, query{"annotation " + a.Name, a.Expr, a.TitleFormat})
	}
	ids := map[int]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q: its id is taken, or it is too far to the right", p.Title)
		}
		ids[p.ID] = true
		for _, q := range d.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("panels %q and %q overlap", p.Title, q.Title)
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, x := range p.Targets {
			out = append(out, query{"panel " + p.Title, x.Expr, x.LegendFormat})
		}
	}
	// The test also checks the alerts that the documentation recommends.
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^- alert: (\w+).*\n  expr: (.*)$`).FindAllStringSubmatch(string(text), -1) {
		out = append(out, query{"alert " + m[1], m[2], ""})
	}
	return out
}

var (
	ours     = regexp.MustCompile(`\b((?:etcd_monitor|netcraq)_\w+)(?:\{([^}]*)\})?`)
	grouping = regexp.MustCompile(`\b(?:by|on|without|ignoring) ?\(([^)]*)\)`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	inLegend = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
)

// TestQueries checks that all metrics and labels exist that the dashboard, the alerts and the
// placement's queries use.
func TestQueries(t *testing.T) {
	metrics := exposed(t)
	all := queries(t)
	if len(all) < 20 {
		t.Errorf("only %d queries were found", len(all))
	}
	all = append(all, query{"placement", fmt.Sprintf("sum by (%s) (%s) + sum by (%[1]s) (%s)",
		placementcontroller.KeyLabel, placementcontroller.ReadsMetric, placementcontroller.WritesMetric), ""})
	for _, q := range placementcontroller.TrafficQueries {
		all = append(all, query{"the controller's page", q, ""})
	}
	for _, q := range all {
		named := ours.FindAllStringSubmatch(q.expr, -1)
		if len(named) == 0 {
			t.Errorf("%s: %s: no metric of ours", q.where, q.expr)
		}
		var labels []string
		for _, m := range named {
			has, ok := metrics[m[1]]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, cut := strings.CutSuffix(m[1], suffix); !ok && cut {
					if has, ok = metrics[base]; ok {
						has = append(slices.Clone(has), "le")
					}
				}
			}
			if !ok {
				t.Errorf("%s: %s: no program exposes %s", q.where, q.expr, m[1])
				continue
			}
			labels = append(labels, has...)
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(has, l[1]) {
					t.Errorf("%s: %s: %s has no label %s", q.where, q.expr, m[1], l[1])
				}
			}
		}
		kept := labels
		for _, g := range grouping.FindAllStringSubmatch(q.expr, -1) {
			kept = nil
			for l := range strings.SplitSeq(g[1], ",") {
				if l = strings.TrimSpace(l); !slices.Contains(labels, l) {
					t.Errorf("%s: %s: there is no label %s", q.where, q.expr, l)
				}
				kept = append(kept, strings.TrimSpace(l))
			}
		}
		for _, l := range inLegend.FindAllStringSubmatch(q.legend, -1) {
			if !slices.Contains(kept, l[1]) {
				t.Errorf("%s: %s: its legend names %s, which the answer does not have", q.where, q.expr, l[1])
			}
		}
	}
}

// TestSyntax checks that Prometheus can parse the queries.
func TestSyntax(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("skipped: promtool is not on PATH (Debian's package prometheus)")
	}
	var b strings.Builder
	b.WriteString("groups:\n- name: queries\n  rules:\n")
	for i, q := range queries(t) {
		expr, err := json.Marshal(strings.ReplaceAll(q.expr, "$__rate_interval", "1m"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "  - record: query:%d\n    expr: %s\n", i, expr)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, b.String())
	}
}
