package bench

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/client/refchain"
	"github.com/netcraq/netcraq/internal/zipf"
)

func setUp(t *testing.T, chain refchain.Config) (*refchain.Chain, Config) {
	t.Helper()
	c, err := refchain.New(chain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cfg := Config{
		Client:  calls.Config{Profile: wire.Profile128, Addresses: c.Addresses(), Retransmit: 20 * time.Millisecond},
		Workers: 2, Outstanding: 16, Mix: Mix{Get: 6, Put: 3, CAS: 1}, ValueBytes: 9, Count: 2000,
		Timeout: 2 * time.Second, Seed: 1,
	}
	for id := range uint16(4) {
		cfg.Sessions = append(cfg.Sessions, calls.Session{ID: id + 1, NextRequest: 1})
	}
	for n := range uint32(5) {
		cfg.Keys = append(cfg.Keys, wire.Key(n))
		c.Place(wire.Key(n))
	}
	return c, cfg
}

func TestRun(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"batched":           func(*Config) {},
		"serial":            func(c *Config) { c.Serial = true },
		"serial, one":       func(c *Config) { c.Serial, c.Workers = true, 1 },
		"without a session": func(c *Config) { c.Sessions, c.Client.AtLeastOnce = nil, true },
		"zipf, eventual":    func(c *Config) { c.Zipf, c.Eventual = 0.99, true },
	} {
		t.Run(name, func(t *testing.T) {
			chain, cfg := setUp(t, refchain.Config{})
			change(&cfg)
			r, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if r.Queries() != cfg.Count {
				t.Errorf("%d queries, want %d", r.Queries(), cfg.Count)
			}
			var answered int64
			for op, o := range r.Ops {
				if o.Queries != o.OK+o.NotFound+o.CASFailed+o.TimedOut+o.Failed || o.Failed != 0 ||
					o.TimedOut != 0 || o.OK == 0 {
					t.Errorf("%v: %+v", Op(op), o)
				}
				answered += o.Latency.TotalCount()
			}
			if answered != int64(cfg.Count) || r.All.TotalCount() != answered || r.All.Max() <= 0 {
				t.Errorf("%d latencies, %d in all, the longest %d ns", answered, r.All.TotalCount(), r.All.Max())
			}
			share := float64(r.Ops[Get].Queries) / float64(cfg.Count)
			if share < 0.55 || share > 0.65 {
				t.Errorf("gets are %.2f of all, want 0.6", share)
			}
			// The chain may have executed a write twice if the write had no session and a busy
			// machine caused a retransmission.
			done := r.Ops[Put].OK + r.Ops[CAS].OK
			if n := uint64(chain.Counts().Executed); n != done && (n < done || !cfg.Client.AtLeastOnce) {
				t.Errorf("the chain has executed %d writes, the report says %d", n, done)
			}
			if v := chain.Violations(); v != nil {
				t.Error(v)
			}
		})
	}
}

func TestLossIsReported(t *testing.T) {
	_, cfg := setUp(t, refchain.Config{Loss: 0.2})
	cfg.Client.Retransmit = 3 * time.Millisecond
	cfg.Count, cfg.Duration = 0, 300*time.Millisecond
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Stats.Retransmits == 0 || r.Stats.Sent != r.Stats.Started+r.Stats.Retransmits+r.Stats.Resent {
		t.Errorf("%+v", r.Stats)
	}
	if r.Elapsed < 300*time.Millisecond || r.Elapsed > 3*time.Second {
		t.Errorf("took %v", r.Elapsed)
	}

	_, cfg = setUp(t, refchain.Config{Loss: 1})
	cfg.Count, cfg.Timeout, cfg.Serial = 4, 30*time.Millisecond, true
	if r, err = Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if lost := r.Ops[Get].TimedOut + r.Ops[Put].TimedOut + r.Ops[CAS].TimedOut; lost != 4 || r.Rate() != 0 {
		t.Errorf("%d of 4 timed out, rate %f", lost, r.Rate())
	}
}

func TestProgressAndEnd(t *testing.T) {
	_, cfg := setUp(t, refchain.Config{})
	cfg.Count, cfg.Duration = 0, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Progress = func(d time.Duration, n uint64) {
		if d < 900*time.Millisecond || n == 0 {
			t.Errorf("after %v: %d queries", d, n)
		}
		cancel()
	}
	if _, err := Run(ctx, cfg); err != nil {
		t.Fatal(err)
	}
}

func TestRefuses(t *testing.T) {
	_, good := setUp(t, refchain.Config{})
	for name, spoil := range map[string]func(*Config){
		"no key":            func(c *Config) { c.Keys = nil },
		"no worker":         func(c *Config) { c.Workers = 0 },
		"no mix":            func(c *Config) { c.Mix = Mix{} },
		"a negative share":  func(c *Config) { c.Mix = Mix{Get: -1, Put: 2} },
		"no end":            func(c *Config) { c.Count = 0 },
		"no timeout":        func(c *Config) { c.Timeout = 0 },
		"too large a value": func(c *Config) { c.ValueBytes = 17 },
		"a negative zipf":   func(c *Config) { c.Zipf = -1 },
		"too few sessions":  func(c *Config) { c.Workers = 5 },
		"no address":        func(c *Config) { c.Client.Addresses = nil },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := Run(t.Context(), cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestZipf(t *testing.T) {
	pick := zipf.Keys(1, 4)(rand.New(rand.NewPCG(1, 1)))
	var seen [4]float64
	const n = 100000
	for range n {
		seen[pick()]++
	}
	// The weights 1, 1/2, 1/3, 1/4 have the sum 25/12.
	for i, want := range []float64{0.48, 0.24, 0.16, 0.12} {
		if got := seen[i] / n; got < want-0.01 || got > want+0.01 {
			t.Errorf("index %d: %.3f, want %.2f", i, got, want)
		}
	}
}
