// Package forecast estimates the gain and cost of placing hot keys in the network, from a gateway's
// counts of real traffic. It needs no switches, because a gateway that only forwards requests to
// etcd counts in the same way.
//
// A forecast compares two samples of a gateway's metrics. A key's score is that of package policy
// (reads per second, less the cost of its writes), so a forecast names the keys that the controller
// would place. It does not know the sizes of values, so it may also name a key whose value does not
// fit a slot.
package forecast

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// Sample holds a gateway's counts since the gateway started.
type Sample struct {
	At      time.Time
	Gets    float64         // reads of one key
	Network float64         // reads that the network answered
	Keys    map[string]Heat // the most-read keys, by their printable names
	Etcd    Mean            // the time that etcd takes for a read
	Switch  Mean            // the time that the switches take for a read
}

// Heat counts a key's reads and writes.
type Heat struct{ Reads, Writes float64 }

// Mean holds a sum of times, in seconds, and the number of those times.
type Mean struct{ Sum, Count float64 }

// since returns the mean of the times after an earlier sample, in seconds. It returns 0 if there
// are none.
func (m Mean) since(before Mean) float64 {
	if m.Count <= before.Count {
		return 0
	}
	return (m.Sum - before.Sum) / (m.Count - before.Count)
}

// ErrNoGateway says that metrics do not come from a gateway.
var ErrNoGateway = errors.New("these are not the metrics of an etcd-monitor")

// Parse reads a gateway's metrics in Prometheus' text format.
func Parse(r io.Reader, at time.Time) (*Sample, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoGateway, err)
	}
	if families["etcd_monitor_keys_counted"] == nil {
		return nil, ErrNoGateway
	}
	s := &Sample{At: at, Keys: map[string]Heat{}}
	for _, m := range families["etcd_monitor_reads_total"].GetMetric() {
		n := m.GetCounter().GetValue()
		s.Gets += n
		if label(m, "answered") == "network" {
			s.Network += n
		}
	}
	for _, m := range families["etcd_monitor_key_reads_total"].GetMetric() {
		h := s.Keys[label(m, "key")]
		h.Reads = m.GetCounter().GetValue()
		s.Keys[label(m, "key")] = h
	}
	for _, m := range families["etcd_monitor_key_writes_total"].GetMetric() {
		h := s.Keys[label(m, "key")]
		h.Writes = m.GetCounter().GetValue()
		s.Keys[label(m, "key")] = h
	}
	s.Etcd = mean(families["etcd_monitor_etcd_seconds"], "kind", "get")
	s.Switch = mean(families["etcd_monitor_network_seconds"], "operation", "read")
	return s, nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func mean(f *dto.MetricFamily, name, value string) (out Mean) {
	for _, m := range f.GetMetric() {
		if label(m, name) == value {
			out.Sum += m.GetHistogram().GetSampleSum()
			out.Count += float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// Verdict is a forecast for a key.
type Verdict string

// These are the verdicts.
const (
	Place   Verdict = "place"   // the key is worth a slot, and a slot is free
	NoSlot  Verdict = "no slot" // keys that are hotter take all slots
	Cold    Verdict = "cold"    // the key is read too seldom
	Written Verdict = "written" // the key's writes would cost more than its reads save
	Secret  Verdict = "secret"  // the key gives access, and is placed only if an operator says so
)

// Key is a key of the forecast. Rates are per second.
type Key struct {
	Name    string  `json:"key"` // the printable form of the key
	Reads   float64 `json:"reads"`
	Writes  float64 `json:"writes"`
	Share   float64 `json:"share"` // the key's share of all reads of single keys, 0 to 1
	Verdict Verdict `json:"verdict"`
}

// Forecast is the effect of placement on the traffic between two samples. Rates are per second,
// times are in seconds.
type Forecast struct {
	Seconds float64 `json:"seconds"`
	Reads   float64 `json:"reads"` // reads of single keys
	// share of Reads that the network answers now, 0 to 1
	Network  float64 `json:"network"`
	Keys     []Key   `json:"keys"`     // sorted, the hottest key first
	Placed   int     `json:"placed"`   // number of keys that would be placed
	Answered float64 `json:"answered"` // share of reads that the network would answer, 0 to 1
	// PlacedWrites is the rate of writes of the keys that would be placed. Each of these writes
	// takes longer than before.
	PlacedWrites  float64 `json:"placedWrites"`
	EtcdSeconds   float64 `json:"etcdSeconds"`   // present mean time of a read at etcd; 0: none was measured
	SwitchSeconds float64 `json:"switchSeconds"` // mean time of a read at the switches
	NowSeconds    float64 `json:"nowSeconds"`    // present mean time of a read through the gateway
	ThenSeconds   float64 `json:"thenSeconds"`   // mean time of a read through the gateway with placement
	EtcdReads     float64 `json:"etcdReads"`     // reads per second that etcd would still answer
}

// Options are the assumptions of a forecast.
type Options struct {
	Slots  int           // total number of slots of the chains
	Switch time.Duration // assumed time of a read at the switches, if the gateway has not measured it
	Limits policy.Limits
}

// New compares two samples of one gateway.
func New(before, after *Sample, o Options) (*Forecast, error) {
	f := &Forecast{Seconds: after.At.Sub(before.At).Seconds()}
	reads := after.Gets - before.Gets
	if f.Seconds <= 0 || reads < 0 {
		return nil, errors.New("the gateway was started anew between the two samples: try again")
	}
	f.Reads = reads / f.Seconds
	if reads > 0 {
		f.Network = (after.Network - before.Network) / reads
	}
	for name, h := range after.Keys {
		was := before.Keys[name]
		if was.Reads > h.Reads || was.Writes > h.Writes { // the gateway has started a new counter for the key
			was = Heat{}
		}
		k := Key{Name: name, Reads: (h.Reads - was.Reads) / f.Seconds, Writes: (h.Writes - was.Writes) / f.Seconds}
		if k.Reads == 0 && k.Writes == 0 {
			continue
		}
		if f.Reads > 0 {
			k.Share = min(1, k.Reads/f.Reads)
		}
		f.Keys = append(f.Keys, k)
	}
	slices.SortFunc(f.Keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Reads, a.Reads), cmp.Compare(a.Name, b.Name))
	})
	f.judge(o)
	f.EtcdSeconds, f.SwitchSeconds = after.Etcd.since(before.Etcd), after.Switch.since(before.Switch)
	if f.SwitchSeconds == 0 {
		f.SwitchSeconds = o.Switch.Seconds()
	}
	f.EtcdReads = f.Reads * (1 - f.Answered)
	f.NowSeconds = f.Network*f.SwitchSeconds + (1-f.Network)*f.EtcdSeconds
	f.ThenSeconds = f.Answered*f.SwitchSeconds + (1-f.Answered)*f.EtcdSeconds
	return f, nil
}

// judge gives every key a verdict. The keys with the highest scores get the slots.
func (f *Forecast) judge(o Options) {
	score := func(i int) float64 {
		return o.Limits.Score(policy.Heat{Reads: f.Keys[i].Reads, Writes: f.Keys[i].Writes})
	}
	order := make([]int, len(f.Keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(score(b), score(a)) })
	for _, i := range order {
		k := &f.Keys[i]
		name, err := placement.ParsePrintable(k.Name)
		switch {
		case err == nil && placement.Credential(name):
			k.Verdict = Secret
		case score(i) < 0:
			k.Verdict = Written
		case score(i) < o.Limits.MinScore:
			k.Verdict = Cold
		case f.Placed >= o.Slots:
			k.Verdict = NoSlot
		default:
			k.Verdict = Place
			f.Placed++
			f.Answered += k.Share
			f.PlacedWrites += k.Writes
		}
	}
	f.Answered = min(1, f.Answered)
}
