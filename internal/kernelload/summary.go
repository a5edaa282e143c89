package kernelload

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/netcraq/netcraq/api/wire"
)

// Summary is a run's report as JSON, which `netcraqctl bench -o json` prints. A field that is also
// in the report of a load from a socket means the same there.
type Summary struct {
	QueriesPerSecond float64 `json:"queriesPerSecond"`
	Seconds          float64 `json:"seconds"`
	Queries          uint64  `json:"queries"`
	// Lost is the number of queries without an answer at the end of the run. Until then no query
	// counts as lost, because queries are resent until they are answered.
	Lost          uint64        `json:"lost"`
	Failed        uint64        `json:"failed"`
	Wrong         uint64        `json:"wrong"`
	Stray         uint64        `json:"stray"`
	Retransmitted uint64        `json:"retransmitted"`
	Latency       Latency       `json:"latencyMicros"`
	Ops           map[string]Op `json:"ops"` // results by operation, "get" or "put"
	Outstanding   int           `json:"outstanding"`
	Keys          int           `json:"keys"`
	ValueBits     int           `json:"valueBits"`
	Generator     string        `json:"generator"`
	CPUs          []int         `json:"cpus"`
}

// Op is the result of one operation.
type Op struct {
	Queries  uint64  `json:"queries"`
	OK       uint64  `json:"ok"`
	NotFound uint64  `json:"notFound"`
	Failed   uint64  `json:"failed"`
	Latency  Latency `json:"latencyMicros"`
}

// Latency holds latencies in microseconds.
type Latency struct {
	Min  float64 `json:"min"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func latencyOf(o *OpReport) Latency {
	us := func(q float64) float64 { return float64(o.Quantile(q)) / 1000 }
	return Latency{Min: us(0), P50: us(0.5), P90: us(0.9), P99: us(0.99), P999: us(0.999),
		Max: us(1)}
}

// Summary computes the summary of a run.
func (r *Report) Summary(cfg *Config) Summary {
	all := OpReport{Histogram: make([]uint64, len(r.Read.Histogram))}
	for i := range all.Histogram {
		all.Histogram[i] = r.Read.Histogram[i] + r.Write.Histogram[i]
	}
	out := Summary{QueriesPerSecond: r.Rate(), Seconds: r.Elapsed.Seconds(),
		Queries: r.Read.Answered + r.Write.Answered, Wrong: r.Wrong, Stray: r.Stray,
		Retransmitted: r.Resent, Latency: latencyOf(&all), Ops: map[string]Op{},
		Outstanding: cfg.Outstanding, Keys: len(cfg.Keys),
		ValueBits: 8 * cfg.protocol().Shape().ValueBytes, Generator: "kernel", CPUs: cfg.CPUs}
	for name, o := range map[string]*OpReport{"get": &r.Read, "put": &r.Write} {
		if o.Answered == 0 {
			continue
		}
		x := Op{Queries: o.Answered, OK: o.Status[wire.OK] + o.Status[wire.Superseded],
			NotFound: o.Status[wire.NotFound], Latency: latencyOf(o)}
		if cfg.Reflected {
			x.OK = o.Answered
		}
		x.Failed = x.Queries - min(x.Queries, x.OK+x.NotFound)
		out.Failed += x.Failed
		out.Ops[name] = x
	}
	return out
}

// Err returns an error if an answer was wrong.
func (r *Report) Err() error {
	if r.Wrong > 0 {
		return fmt.Errorf("%d answers had a value or a key that is not what was asked for", r.Wrong)
	}
	return nil
}

// RunAndPrint calls Run, writes the summary as JSON to w, and returns an error if an answer was
// wrong.
func RunAndPrint(ctx context.Context, cfg Config, w io.Writer) error {
	r, err := Run(ctx, cfg)
	if err != nil {
		return err
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	if err := out.Encode(r.Summary(&cfg)); err != nil {
		return err
	}
	return r.Err()
}
