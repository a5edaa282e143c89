package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/cmd/internal/bench"
)

const benchHelp = `Measure queries a second and latency with a closed loop: a fixed number of queries is outstanding, and each answer starts the next.

The command uses the keys in the chain, or those of --keys: KEY_IDs, ranges of them (0x01000000-0x010000ff) and names. Puts and swaps overwrite the keys' values.

"retransmitted" counts queries without an answer within --retransmit, "resent" those that a switch temporarily refused, and "lost" those without an answer
within --timeout. Latency is the time from the first transmission to the answer.`

type benchFlags struct {
	outstanding, workers, sessions int
	serial, eventual               bool
	mix, chain                     string
	keys, switches                 []string
	zipf                           float64
	valueBytes                     int
	duration                       time.Duration
	count, seed                    uint64
	kernel                         kernelFlags
}

func (c *cli) benchCommand() *cobra.Command {
	var b benchFlags
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure queries a second and latency", Long: benchHelp + kernelHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.count > 0 && !cmd.Flags().Changed("duration") {
				b.duration = 0
			}
			if b.kernel.on || b.kernel.ceiling != "" {
				return c.kernelBench(cmd.Context(), &b)
			}
			return c.bench(cmd.Context(), &b)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&b.outstanding, "outstanding", "n", 64, "number of outstanding queries")
	f.BoolVar(&b.serial, "serial", false, "send one query at a time (for each worker) with blocking system calls, to measure latency rather than throughput")
	f.IntVar(&b.workers, "workers", 1, "number of sockets, each with its own thread")
	f.StringVar(&b.mix, "mix", "get=1", "operations and their shares: get=95,put=4,cas=1")
	f.StringSliceVar(&b.keys, "keys", nil, "KEY_IDs, ranges of them and names (default: the keys of the chain)")
	f.StringVar(&b.chain, "chain", "", "chain, by name or number (default: the chain of the keys, or the only one)")
	f.StringSliceVar(&b.switches, "switch", nil, "send queries to these switches' own addresses, by their names, rather than to the service address")
	f.Float64Var(&b.zipf, "zipf", 0, "exponent of the keys' popularity (Zipf's law); 0: all alike")
	f.BoolVar(&b.eventual, "eventual", false, "let gets return the last committed value that the nearest switch knows")
	f.IntVar(&b.valueBytes, "value-size", 16, "bytes of the values of puts and swaps")
	f.DurationVarP(&b.duration, "duration", "d", 10*time.Second, "length of the run")
	f.Uint64Var(&b.count, "count", 0, "number of queries to make (instead of --duration)")
	f.IntVar(&b.sessions, "sessions", 16, "number of sessions to lease, which bounds the outstanding writes")
	f.Uint64Var(&b.seed, "seed", 0, "seed of the choice of operations and keys (default: random)")
	f.BoolVar(&b.kernel.on, "kernel", false, "send the queries from a program in the kernel")
	f.StringVar(&b.kernel.ceiling, "ceiling", "", "measure the kernel generator itself against a program at `tc|xdp` that only swaps addresses")
	f.IntSliceVar(&b.kernel.cpus, "cpu", nil, "with --kernel: CPU that sends the first queries; several with commas take turns (default: any)")
	f.BoolVar(&b.kernel.fill, "fill", true, "with --kernel: write values to the keys first (=false: use the values of an earlier run)")
	f.Int64Var(&b.kernel.beginAt, "begin-at", 0, "with --kernel: start time in `ms` since 1970, to start several loads together (default: at once)")
	f.IntVar(&b.kernel.dirtyTTL, "dirty-ttl", 0, "with --kernel: keep the keys dirty by writes with this IP time to live")
	f.IntVar(&b.kernel.bits, "frame-bits", 128, "with --ceiling: VALUE_BITS of the frames")
	return cmd
}

func (c *cli) bench(ctx context.Context, b *benchFlags) error {
	mix, err := parseMix(b.mix)
	if err != nil {
		return err
	}
	keys, t, err := c.benchKeys(ctx, b)
	if err != nil {
		return err
	}
	if len(b.switches) > 0 {
		asked, err := c.switchAddresses(ctx, b.switches)
		if err != nil {
			return err
		}
		t.toSwitches(asked)
	}
	if b.seed == 0 {
		b.seed = rand.Uint64()
	}
	cfg := bench.Config{
		Client: calls.Config{Profile: t.profile, Addresses: t.addresses, Services: t.services,
			Retransmit: c.retransmit},
		Workers: b.workers, Outstanding: b.outstanding, Serial: b.serial, Mix: mix, Keys: keys, Zipf: b.zipf,
		Eventual: b.eventual, ValueBytes: b.valueBytes,
		Duration: b.duration, Count: b.count, Timeout: c.timeout, Seed: b.seed,
	}
	if c.output == "text" && isTerminal(c.std.Err) {
		cfg.Progress = func(d time.Duration, n uint64) {
			fmt.Fprintf(c.std.Err, "\r%s: %s queries, %s a second ", d.Round(time.Second), grouped(n), grouped(uint64(float64(n)/d.Seconds())))
		}
		defer fmt.Fprint(c.std.Err, "\r\x1b[K")
	}
	if mix.Put+mix.CAS > 0 {
		source, err := c.sessionSource(ctx, max(b.sessions, b.workers), owner())
		if err != nil {
			return err
		}
		cfg.Client.AtLeastOnce = source == nil
		if source != nil {
			asked, cancel := context.WithTimeout(ctx, c.timeout)
			sessions, lost, err := source.Acquire(asked, client.HostAddress(t.addresses[0]))
			cancel()
			if err != nil {
				return err
			}
			defer source.Release()
			cfg.Sessions = sessions
			// A run that has lost its lease must not send another packet.
			var stop context.CancelCauseFunc
			ctx, stop = context.WithCancelCause(ctx)
			defer stop(nil)
			go func() {
				select {
				case <-lost:
					stop(client.ErrLeaseGone)
				case <-ctx.Done():
				}
			}()
		}
	}
	r, err := bench.Run(ctx, cfg)
	if err != nil {
		return err
	}
	if context.Cause(ctx) == client.ErrLeaseGone {
		return fmt.Errorf("the controller did not keep the lease on the sessions: %w", client.ErrLeaseGone)
	}
	report := benchJSON(&cfg, b, r)
	err = c.show(report, func(w io.Writer) { printBench(w, &cfg, r) })
	if err == nil && t.chain != nil && report.Lost > 0 && report.Lost == report.Queries && report.Foreign == 0 {
		err = errors.New(noSwitch)
	}
	return err
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func parseMix(s string) (bench.Mix, error) {
	var m bench.Mix
	for _, part := range strings.Split(s, ",") {
		name, share, ok := strings.Cut(part, "=")
		n, err := strconv.Atoi(share)
		if !ok || err != nil || n < 0 {
			return m, usageError{fmt.Errorf("--mix: %q: want OPERATION=SHARE, as get=95,put=5", part)}
		}
		switch name {
		case "get":
			m.Get = n
		case "put":
			m.Put = n
		case "cas":
			m.CAS = n
		default:
			return m, usageError{fmt.Errorf("--mix: no operation %q: there are get, put and cas", name)}
		}
	}
	if m.Get+m.Put+m.CAS == 0 {
		return m, usageError{fmt.Errorf("--mix %s: nothing to do", s)}
	}
	return m, nil
}

// benchKeys returns the keys of a run and the target of its queries.
func (c *cli) benchKeys(ctx context.Context, b *benchFlags) ([]wire.Key, *target, error) {
	var keys []wire.Key
	for _, s := range b.keys {
		from, to, isRange := strings.Cut(s, "-")
		first, err1 := wire.ParseKey(from)
		last, err2 := wire.ParseKey(to)
		if isRange && err1 == nil && err2 == nil {
			if last < first || last-first >= 1<<24 || first.Chain() != last.Chain() {
				return nil, nil, usageError{fmt.Errorf("--keys: %s is not a range of KEY_IDs of one chain", s)}
			}
			for k := first; k <= last; k++ {
				keys = append(keys, k)
			}
			continue
		}
		k, err := c.findKey(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, k.id)
	}
	chosen := func(ch admin.Chain) bool {
		return b.chain == "" || ch.Name == b.chain || strconv.Itoa(int(ch.ID)) == b.chain
	}
	described := "chain"
	if b.chain != "" {
		described = "chain " + b.chain
	} else if len(keys) > 0 {
		chosen = func(ch admin.Chain) bool { return ch.ID == keys[0].Chain() }
		described = fmt.Sprintf("chain %d, which the KEY_ID %v belongs to", keys[0].Chain(), keys[0])
	} else {
		id, err := c.onlyChain(ctx)
		if err != nil {
			return nil, nil, err
		}
		chosen = func(ch admin.Chain) bool { return ch.ID == id }
	}
	t, err := c.findTarget(ctx, chosen, described)
	if err != nil || len(keys) > 0 {
		return keys, t, err
	}
	name := b.chain
	if t.chain != nil {
		name = t.chain.Name
	} else if name == "" {
		name, err = c.chainName(ctx, chosen)
		if err != nil {
			return nil, nil, err
		}
	}
	ask, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	placed, err := c.api.Keys(ask, name)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range placed {
		keys = append(keys, wire.Key(k.KeyID))
	}
	if len(keys) == 0 {
		return nil, nil, fmt.Errorf("no key is placed in chain %s: place some with netcraqctl chain add-key, or name KEY_IDs with --keys", name)
	}
	return keys, t, nil
}

// benchResult is a run's report as JSON. Latencies are in microseconds.
type benchResult struct {
	QueriesPerSecond float64            `json:"queriesPerSecond"`
	Seconds          float64            `json:"seconds"`
	Queries          uint64             `json:"queries"`
	Lost             uint64             `json:"lost"`
	Failed           uint64             `json:"failed"`
	Retransmitted    uint64             `json:"retransmitted"`
	Resent           uint64             `json:"resent"`
	Foreign          uint64             `json:"foreign"` // packets from addresses that were not queried
	Latency          latency            `json:"latencyMicros"`
	Ops              map[string]benchOp `json:"ops"`
	Outstanding      int                `json:"outstanding"`
	Workers          int                `json:"workers"`
	Serial           bool               `json:"serial"`
	Keys             int                `json:"keys"`
	Zipf             float64            `json:"zipf"`
	ValueBits        int                `json:"valueBits"`
	Sessions         int                `json:"sessions"`
	Seed             uint64             `json:"seed,string"`
	Addresses        []netip.AddrPort   `json:"addresses"`
}

type benchOp struct {
	Queries   uint64  `json:"queries"`
	OK        uint64  `json:"ok"`
	NotFound  uint64  `json:"notFound"`
	CASFailed uint64  `json:"casFailed"`
	Lost      uint64  `json:"lost"`
	Failed    uint64  `json:"failed"`
	Error     string  `json:"error,omitempty"`
	Latency   latency `json:"latencyMicros"`
}

type latency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func latencyOf(h *hdrhistogram.Histogram) latency {
	us := func(n int64) float64 { return float64(n) / 1000 }
	return latency{
		Min: us(h.Min()), Mean: h.Mean() / 1000, P50: us(h.ValueAtQuantile(50)), P90: us(h.ValueAtQuantile(90)),
		P99:  us(h.ValueAtQuantile(99)),
		P999: us(h.ValueAtQuantile(99.9)), Max: us(h.Max()),
	}
}

func benchJSON(cfg *bench.Config, b *benchFlags, r *bench.Report) benchResult {
	out := benchResult{
		QueriesPerSecond: r.Rate(), Seconds: r.Elapsed.Seconds(), Queries: r.Queries(),
		Retransmitted: r.Stats.Retransmits, Resent: r.Stats.Resent, Foreign: r.Stats.Foreign,
		Latency: latencyOf(r.All), Ops: map[string]benchOp{}, Outstanding: r.Outstanding, Workers: r.Workers,
		Serial: cfg.Serial, Keys: len(cfg.Keys),
		Zipf: cfg.Zipf, ValueBits: int(cfg.Client.Profile), Sessions: len(cfg.Sessions), Seed: b.seed,
		Addresses: cfg.Client.Addresses,
	}
	for op, o := range r.Ops {
		out.Lost += o.TimedOut
		out.Failed += o.Failed
		if o.Queries > 0 {
			out.Ops[bench.Op(op).String()] = benchOp{o.Queries, o.OK, o.NotFound, o.CASFailed, o.TimedOut,
				o.Failed, o.Error, latencyOf(o.Latency)}
		}
	}
	return out
}

func printBench(w io.Writer, cfg *bench.Config, r *bench.Report) {
	how := plural(r.Outstanding, "query") + " outstanding"
	how = strings.Replace(how, "querys", "queries", 1)
	if cfg.Serial {
		how += ", blocking"
	}
	fmt.Fprintf(w, "%s queries in %s, %s, to %v: %s a second\n\n", grouped(r.Queries()), short(r.Elapsed), how, cfg.Client.Addresses[0], grouped(uint64(r.Rate())))
	rows := [][]string{{"", "QUERIES", "OK", "NOT FOUND", "CAS FAILED", "LOST", "FAILED", "P50", "P90", "P99", "P99.9", "MAX"}}
	row := func(name string, o *bench.OpReport) {
		ns := func(q float64) string { return short(time.Duration(o.Latency.ValueAtQuantile(q))) }
		rows = append(rows, []string{
			name, grouped(o.Queries), grouped(o.OK), grouped(o.NotFound), grouped(o.CASFailed),
			grouped(o.TimedOut), grouped(o.Failed),
			ns(50), ns(90), ns(99), ns(99.9), short(time.Duration(o.Latency.Max())),
		})
	}
	var sum bench.OpReport
	n := 0
	for op := range r.Ops {
		o := &r.Ops[op]
		if o.Queries == 0 {
			continue
		}
		n++
		row(bench.Op(op).String(), o)
		sum.Queries += o.Queries
		sum.OK += o.OK
		sum.NotFound += o.NotFound
		sum.CASFailed += o.CASFailed
		sum.TimedOut += o.TimedOut
		sum.Failed += o.Failed
	}
	if sum.Latency = r.All; n > 1 {
		row("all", &sum)
	}
	table(w, rows)
	if sum.NotFound > 0 {
		fmt.Fprint(w, "\nNOT FOUND: the key has no value: nobody has put one yet, or it was deleted\n")
	}
	fmt.Fprintf(w, "\nretransmitted %s, resent after a refusal %s\n", grouped(r.Stats.Retransmits), grouped(r.Stats.Resent))
	if n := r.Stats.Foreign; n > 0 {
		fmt.Fprintf(w, "%s packets from addresses that were not asked; where answers come from the chain's service address, name it with --service\n", grouped(n))
	}
	for op := range r.Ops {
		if e := r.Ops[op].Error; e != "" {
			fmt.Fprintf(w, "first failure: %s\n", e)
		}
	}
}
