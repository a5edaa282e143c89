package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/internal/kernelload"
)

type kernelFlags struct {
	on      bool
	ceiling string // tc or xdp measures a reflector instead of a switch
	cpus    []int
	bits    int // value width in the reflector's frames, in bits

	fill     bool
	beginAt  int64 // start time in Unix milliseconds
	dirtyTTL int
}

const kernelHelp = `

With --kernel a program in the kernel sends the queries, at the interface towards the switch. Each answer becomes the next query. This costs a fraction of a socket, so the
result measures the switch rather than the generator. It needs root. The command first writes a full-width value of its own to each key. It compares every value that it reads,
and fails if one is wrong. Latencies exclude the socket. Their resolution is 100 ns up to 410 us and 10 us above.

--dirty-ttl N keeps the keys dirty at the first N switches during the run. Ten times a second the command writes each key with a packet whose IP time to live is N, so the
write ends before the tail. On a line of n switches, with the client at the head, n - 1 makes all switches but the tail dirty. The tail then answers reads with the old values.

--ceiling tc|xdp measures the generator itself, against a program that only swaps addresses on interfaces of its own. The result is the most that this machine can measure.`

// kernelBench generates load on a chain from within the kernel.
func (c *cli) kernelBench(ctx context.Context, b *benchFlags) error {
	mix, err := parseMix(b.mix)
	if err != nil {
		return err
	}
	if mix.CAS > 0 || b.eventual || b.count > 0 || b.workers > 1 {
		return usageError{errors.New("--kernel does gets and puts for a --duration, with one loop: no cas, --eventual, --count or --workers")}
	}
	cfg := kernelload.Config{Outstanding: b.outstanding, WritePercent: 100 * mix.Put / (mix.Get + mix.Put),
		FirstPort: 40000, Duration: b.duration,
		Resend: max(c.retransmit, 20*time.Millisecond), CPUs: b.kernel.cpus, Seed: b.seed}
	if b.serial {
		cfg.Outstanding = 1
	}
	if b.kernel.ceiling != "" {
		if b.kernel.ceiling != "tc" && b.kernel.ceiling != "xdp" {
			return usageError{fmt.Errorf("--ceiling is tc or xdp, not %q", b.kernel.ceiling)}
		}
		cfg.Profile, cfg.Reflected = wire.Profile(b.kernel.bits), true
		r, err := kernelload.Ceiling(ctx, cfg, b.kernel.ceiling == "xdp")
		if err != nil {
			return err
		}
		return c.showKernel(&cfg, r, "a reflector at "+b.kernel.ceiling)
	}
	keys, t, err := c.benchKeys(ctx, b)
	if err != nil {
		return err
	}
	if len(b.switches) > 0 {
		asked, err := c.switchAddresses(ctx, b.switches[:1])
		if err != nil {
			return err
		}
		t.toSwitches(asked)
	}
	cfg.Keys, cfg.Profile, cfg.Target = keys, t.profile, t.addresses[0]
	if b.zipf > 0 {
		for i := range keys {
			cfg.Weights = append(cfg.Weights, math.Pow(float64(i+1), -b.zipf))
		}
	}
	if b.kernel.fill {
		if err := c.fill(ctx, keys, t); err != nil {
			return err
		}
	}
	if cfg.Iface, cfg.Source, cfg.Gateway, err = kernelload.Way(cfg.Target.Addr()); err != nil {
		return err
	}
	if cfg.WritePercent > 0 {
		source, err := c.sessionSource(ctx, cfg.Outstanding, owner())
		if err != nil {
			return err
		}
		if source == nil {
			return errors.New("--kernel writes with sessions, which a controller gives: name it with --admin")
		}
		asked, cancel := context.WithTimeout(ctx, c.timeout)
		sessions, _, err := source.Acquire(asked, cfg.Source)
		cancel()
		if err != nil {
			return err
		}
		defer source.Release()
		for _, s := range sessions {
			cfg.Sessions = append(cfg.Sessions, kernelload.Session{ID: s.ID, NextRequest: s.NextRequest})
		}
	}
	if b.kernel.beginAt != 0 {
		cfg.Begin = time.UnixMilli(b.kernel.beginAt)
	}
	if b.kernel.dirtyTTL > 0 {
		stop, err := keepDirty(ctx, cfg.Target, cfg.Profile, keys, b.kernel.dirtyTTL)
		if err != nil {
			return err
		}
		defer stop()
	}
	r, err := kernelload.Run(ctx, cfg)
	if err != nil {
		return err
	}
	if err := c.showKernel(&cfg, r, cfg.Target.String()); err != nil {
		return err
	}
	return r.Err()
}

// keepDirty keeps keys dirty until stop is called: it writes them repeatedly, with packets whose
// TTL expires before they reach the tail. The writes get no answers. They are not committed
// meanwhile, because each is newer than the write that the controller would re-propagate.
func keepDirty(ctx context.Context, to netip.AddrPort, profile wire.Profile, keys []wire.Key, ttl int) (
	stop func(), err error) {
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, fmt.Errorf("a socket to keep keys dirty with: %w", err)
	}
	if err := ipv4.NewConn(conn).SetTTL(ttl); err != nil {
		conn.Close()
		return nil, fmt.Errorf("a time to live of %d: %w", ttl, err)
	}
	write := func() error {
		for _, k := range keys {
			p := wire.Packet{Op: wire.Write, Key: k, Value: kernelload.Value(profile, k, 0)}
			b, err := p.Marshal(profile)
			if err == nil {
				_, err = conn.Write(b)
			}
			if err != nil {
				return fmt.Errorf("keeping %v dirty: %w", k, err)
			}
		}
		return nil
	}
	if err := write(); err != nil {
		conn.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
				_ = write() // an error may stem from an earlier packet's ICMP error; the reads show the effect
			}
		}
	}()
	return func() { cancel(); <-done; conn.Close() }, nil
}

// fill writes the values that the load generator expects.
func (c *cli) fill(ctx context.Context, keys []wire.Key, t *target) error {
	source, err := c.sessionSource(ctx, 1, owner())
	if err != nil {
		return err
	}
	cl, err := client.New(ctx, client.Config{Addresses: t.addresses, Services: t.services, Profile: t.profile,
		Retransmit: c.retransmit, Sessions: source, AtLeastOnce: source == nil})
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, k := range keys {
		ask, cancel := context.WithTimeout(ctx, c.timeout)
		_, err := cl.Put(ask, k, kernelload.Value(t.profile, k, 0))
		cancel()
		if err != nil {
			return fmt.Errorf("giving key %v a value that can be checked: %w", k, err)
		}
	}
	return nil
}

func (c *cli) showKernel(cfg *kernelload.Config, r *kernelload.Report, to string) error {
	out := r.Summary(cfg)
	return c.show(out, func(w io.Writer) {
		how := strings.Replace(plural(cfg.Outstanding, "query"), "querys", "queries", 1)
		fmt.Fprintf(w, "%s queries in %s, %s outstanding, made in the kernel, to %s: %s a second\n\n", grouped(out.Queries), short(r.Elapsed), how, to, grouped(uint64(r.Rate())))
		rows := [][]string{{"", "QUERIES", "OK", "NOT FOUND", "FAILED", "P50", "P90", "P99", "P99.9"}}
		for _, name := range []string{"get", "put"} {
			if o, ok := out.Ops[name]; ok {
				d := func(us float64) string { return short(time.Duration(us * 1000)) }
				rows = append(rows, []string{name, grouped(o.Queries), grouped(o.OK), grouped(o.NotFound),
					grouped(o.Failed), d(o.Latency.P50), d(o.Latency.P90),
					d(o.Latency.P99), d(o.Latency.P999)})
			}
		}
		table(w, rows)
		fmt.Fprintf(w, "\nsent again %s, wrong values %s, answers to nothing %s\n", grouped(out.Retransmitted), grouped(out.Wrong), grouped(out.Stray))
	})
}
