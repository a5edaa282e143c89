// Command netcraq-peers generates load on etcd, Redis or memcached, as netcraqctl bench does on
// NetCRAQ, and prints the same figures. With a fixed rate, it can also generate load on a chain of
// switches.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/experiments/peers"
	"github.com/netcraq/netcraq/internal/helptext"
	"github.com/netcraq/netcraq/internal/zipf"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := command()
	helptext.Fit(root)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "netcraq-peers: %v\n", err)
		os.Exit(1)
	}
}

type flags struct {
	endpoints  []string
	mix        string
	fill       bool
	zipf       float64
	cacert     string
	controller string
	cfg        peers.Config
}

func command() *cobra.Command {
	var f flags
	root := &cobra.Command{
		Use: "netcraq-peers", Short: "Measure etcd, Redis, memcached or a chain of switches", SilenceUsage: true, SilenceErrors: true,
		Long: `Measure etcd, Redis, memcached or a chain of switches. A fixed number of queries is outstanding, and each answer starts the next. With --rate,
queries start at their times instead, and one that starts late counts as that much longer. The command compares every value that comes back with
what was written to its key; a wrong one ends the run with an error. The report is JSON; latencies are in microseconds.`,
	}
	p := root.PersistentFlags()
	p.StringSliceVar(&f.endpoints, "endpoints", nil, "HOST:PORT of the server, or of etcd's members")
	p.StringVar(&f.cacert, "cacert", "", "etcd: certificates that the server's must be signed by (PEM); makes the connection TLS")
	p.StringVar(&f.controller, "controller", "", "direct, native: the controller's admin API, unix:///PATH (default: where it is on this machine)")
	p.StringVar(&f.mix, "mix", "get=1", "operations and their shares: get=95,put=5")
	p.BoolVar(&f.fill, "fill", true, "write every key first")
	p.IntVarP(&f.cfg.Outstanding, "outstanding", "n", 64, "queries on their way at once")
	p.IntVar(&f.cfg.Rate, "rate", 0, "queries a second, over all that are outstanding (0: each answer starts the next)")
	p.IntVar(&f.cfg.Keys, "keys", 256, "number of keys")
	p.Float64Var(&f.zipf, "zipf", 0, "draw keys by Zipf's law with this exponent, the first key most often (0: all alike)")
	p.IntVar(&f.cfg.ValueBytes, "value-size", 16, "bytes of each value")
	p.DurationVarP(&f.cfg.Duration, "duration", "d", 3*time.Second, "length of the run")
	p.DurationVar(&f.cfg.Timeout, "timeout", time.Second, "of one query")
	p.Uint64Var(&f.cfg.Seed, "seed", 0, "of the choice of operations and keys (default: a random one)")
	for _, v := range []struct {
		name, short string
		open        func(context.Context) (peers.Peer, error)
	}{
		{"etcd", "linearizable Get and Put through etcd's client", func(ctx context.Context) (peers.Peer, error) { return peers.NewEtcd(ctx, f.endpoints, f.cacert) }},
		{"direct", "etcd through client/etcd: placed keys from the switches", func(ctx context.Context) (peers.Peer, error) {
			return peers.NewDirect(ctx, f.endpoints, f.cacert, cmp.Or(f.controller, admin.DefaultSocket()))
		}},
		{"native", "a chain of switches, by the Go client and its packets", func(context.Context) (peers.Peer, error) {
			return peers.NewNative(cmp.Or(f.controller, admin.DefaultSocket()), f.cfg.Outstanding), nil
		}},
		{"redis", "GET and SET", func(ctx context.Context) (peers.Peer, error) {
			return peers.NewRedis(ctx, f.endpoints[0], f.cfg.Outstanding)
		}},
		{"memcached", "get and set over UDP", func(context.Context) (peers.Peer, error) { return peers.NewMemcached(f.endpoints[0]), nil }},
	} {
		root.AddCommand(&cobra.Command{Use: v.name, Short: v.short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if len(f.endpoints) == 0 && v.name != "native" {
					return errors.New("--endpoints says where the server is: HOST:PORT")
				}
				return f.run(cmd.Context(), v.open)
			}})
	}
	return root
}

func (f *flags) run(ctx context.Context, open func(context.Context) (peers.Peer, error)) (err error) {
	if f.cfg.Gets, f.cfg.Puts, err = parseMix(f.mix); err != nil {
		return err
	}
	if f.zipf < 0 {
		return fmt.Errorf("--zipf %v: want 0 or more", f.zipf)
	}
	if f.zipf > 0 {
		f.cfg.Zipf = zipf.Keys(f.zipf, f.cfg.Keys)
	}
	if f.cfg.Seed == 0 {
		f.cfg.Seed = rand.Uint64()
	}
	p, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if f.fill {
		if err := peers.Fill(ctx, p, f.cfg); err != nil {
			return err
		}
	}
	hits := func() uint64 { return 0 }
	if d, ok := p.(*peers.Direct); ok {
		hits = d.Network
	}
	before, hitsBefore := processor(), hits()
	r, err := peers.Run(ctx, p, f.cfg)
	if err != nil {
		return err
	}
	said := report(f.cfg, r)
	said["cpuMicrosPerQuery"] = float64((processor() - before).Microseconds()) / float64(max(r.Get.Queries+r.Put.Queries, 1))
	if _, ok := p.(*peers.Direct); ok {
		said["network"] = hits() - hitsBefore
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(said)
}

// processor returns the processor time of this process, including its system calls.
func processor() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func parseMix(s string) (gets, puts int, err error) {
	for _, part := range strings.Split(s, ",") {
		var n int
		name, share, _ := strings.Cut(part, "=")
		if _, err := fmt.Sscanf(share, "%d", &n); err != nil || n < 0 {
			return 0, 0, fmt.Errorf("--mix: %q: want OPERATION=SHARE, as get=95,put=5", part)
		}
		switch name {
		case "get":
			gets = n
		case "put":
			puts = n
		default:
			return 0, 0, fmt.Errorf("--mix: no operation %q: there are get and put", name)
		}
	}
	return gets, puts, nil
}

// over returns the number of latencies that are longer than d.
func over(h *hdrhistogram.Histogram, d time.Duration) (n int64) {
	for _, bar := range h.Distribution() {
		if bar.From > d.Nanoseconds() {
			n += bar.Count
		}
	}
	return n
}

// report returns a report in the form of netcraqctl bench's report.
func report(cfg peers.Config, r *peers.Report) map[string]any {
	latency := func(h *hdrhistogram.Histogram) map[string]float64 {
		us := func(n int64) float64 { return float64(n) / 1000 }
		return map[string]float64{"min": us(h.Min()), "mean": h.Mean() / 1000, "p50": us(h.ValueAtQuantile(50)),
			"p90": us(h.ValueAtQuantile(90)),
			"p99": us(h.ValueAtQuantile(99)), "p999": us(h.ValueAtQuantile(99.9)), "max": us(h.Max())}
	}
	all := hdrhistogram.New(1, int64(time.Minute), 3)
	ops := map[string]any{}
	for name, o := range map[string]peers.OpReport{"get": r.Get, "put": r.Put} {
		all.Merge(o.Latency)
		if o.Queries > 0 {
			ops[name] = map[string]any{"queries": o.Queries, "ok": o.Queries - o.Lost - o.Failed,
				"lost": o.Lost, "failed": o.Failed, "over10ms": over(o.Latency, 10*time.Millisecond), "latencyMicros": latency(o.Latency)}
		}
	}
	return map[string]any{"queriesPerSecond": r.Rate(), "seconds": r.Elapsed.Seconds(),
		"queries": r.Get.Queries + r.Put.Queries, "lost": r.Get.Lost + r.Put.Lost,
		"failed": r.Get.Failed + r.Put.Failed, "error": r.FirstError, "latencyMicros": latency(all), "ops": ops, "outstanding": cfg.Outstanding, "keys": cfg.Keys,
		"valueBytes": cfg.ValueBytes, "seed": fmt.Sprint(cfg.Seed)}
}
