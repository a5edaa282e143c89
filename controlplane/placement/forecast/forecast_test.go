package forecast_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/netcraq/netcraq/controlplane/placement/forecast"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
)

// gateway is a simulated gateway that exposes metrics.
type gateway struct {
	t *testing.T
	*hotkeys.Metrics
	registry *prometheus.Registry
}

func newGateway(t *testing.T) *gateway {
	g := &gateway{t, hotkeys.NewMetrics(hotkeys.Bounds{}, nil), prometheus.NewRegistry()}
	g.registry.MustRegister(g.Metrics)
	return g
}

func (g *gateway) sample(at time.Time) *forecast.Sample {
	g.t.Helper()
	families, err := g.registry.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			g.t.Fatal(err)
		}
	}
	s, err := forecast.Parse(&b, at)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// read counts reads of a key that etcd answers in a millisecond each.
func (g *gateway) read(key string, n int) {
	for range n {
		g.Keys.Read([]byte(key))
		g.Forwarded("not placed")
		g.Etcd("get", time.Millisecond)
	}
}

// TestForecast: the keys that save the most get the slots, and the forecast says how much they
// save.
func TestForecast(t *testing.T) {
	g := newGateway(t)
	g.read("/old", 1000) // these reads come before the first sample, so they do not count
	start := time.Now()
	before := g.sample(start)
	g.read("/hot", 600)
	g.read("/warm\n", 200)
	g.read("/third", 90)
	g.read("/registry/secrets/a/b", 50)
	g.read("/busy", 40)
	for range 40 {
		g.Keys.Write([]byte("/busy"))
	}
	g.read("/cold", 5)
	g.read("/rare", 15)
	for range 10 {
		g.Keys.Write([]byte("/hot"))
	}
	f, err := forecast.New(before, g.sample(start.Add(10*time.Second)), forecast.Options{Slots: 2,
		Switch: 100 * time.Microsecond, Limits: policy.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, k := range f.Keys {
		lines = append(lines, fmt.Sprintf("%s %g %g %.2f %s", k.Name, k.Reads, k.Writes, k.Share, k.Verdict))
	}
	want := `/hot 60 1 0.60 place
/warm\x0a 20 0 0.20 place
/third 9 0 0.09 no slot
/registry/secrets/a/b 5 0 0.05 secret
/busy 4 4 0.04 written
/rare 1.5 0 0.01 no slot
/cold 0.5 0 0.01 cold`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("keys:\n%s\nwant:\n%s", got, want)
	}
	about := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	about("reads", f.Reads, 100)
	about("placed", float64(f.Placed), 2)
	about("answered", f.Answered, .8)
	about("writes of placed keys", f.PlacedWrites, 1)
	about("a get at etcd", f.EtcdSeconds, .001)
	about("now", f.NowSeconds, .001)
	about("then", f.ThenSeconds, .8*.0001+.2*.001)
	about("reads that etcd still answers", f.EtcdReads, 20)
}

// TestNetwork: if the network already answers reads, the forecast uses the measured time of these
// reads.
func TestNetwork(t *testing.T) {
	g := newGateway(t)
	start := time.Now()
	before := g.sample(start)
	for range 30 {
		g.Keys.Read([]byte("/k"))
		g.Hit()
		g.Network("read", 50*time.Microsecond)
	}
	g.read("/other", 10)
	f, err := forecast.New(before, g.sample(start.Add(time.Second)), forecast.Options{Slots: 9,
		Switch: time.Second, Limits: policy.DefaultLimits()})
	if err != nil || f.Network != .75 || math.Abs(f.SwitchSeconds-50e-6) > 1e-9 || f.Answered != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestNoGateway: the forecast refuses other metrics, invalid text, and samples between which the
// gateway was restarted.
func TestNoGateway(t *testing.T) {
	for _, text := range []string{"", "up 1\n", "<html>", strings.Repeat("{", 100)} {
		if _, err := forecast.Parse(strings.NewReader(text), time.Now()); !errors.Is(err, forecast.ErrNoGateway) {
			t.Errorf("%q: %v", text, err)
		}
	}
	g := newGateway(t)
	g.read("/k", 10)
	start := time.Now()
	anew := newGateway(t).sample(start.Add(time.Second))
	if _, err := forecast.New(g.sample(start), anew, forecast.Options{}); err == nil {
		t.Error("a gateway that was restarted")
	}
}
