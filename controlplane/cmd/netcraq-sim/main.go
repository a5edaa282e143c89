// Command netcraq-sim runs the deterministic simulator. The simulator runs the compiled P4 program
// on interpreted switches, the controller's state machine and the client library in a simulated
// network with seeded faults. Every history is checked for linearizability. See package sim.
//
//	netcraq-sim --seeds 2000 [--from 1] [--mutant ID]    many seeds; prints how often everything happened, and how to replay the first failing seeds
//	netcraq-sim --seed 17 [--key 0x01000001] [--leases]    one seed, with its timeline
//	netcraq-sim --mutants [--mutant ID]                                removes every rule in turn; prints how many seeds it took to notice
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/sim"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/logbook"
	"github.com/netcraq/netcraq/controlplane/sim/mutants"
	"github.com/netcraq/netcraq/internal/helptext"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cmd := command(os.Stdout)
	helptext.Fit(cmd)
	if err := cmd.ExecuteContext(ctx); err != nil {
		if !errors.Is(err, errViolation) {
			fmt.Fprintln(os.Stderr, "netcraq-sim:", err)
		}
		os.Exit(1)
	}
}

// errViolation says that a seed has shown a violation, which has already been printed.
var errViolation = errors.New("a rule is violated")

type options struct {
	seeds, from, seed uint64
	mutant            string
	mutants, leases   bool
	key, out          string
	jobs              int
	keepGoing         uint64
	faults            []string
}

func command(out io.Writer) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:           "netcraq-sim",
		Short:         "Simulates a NetCRAQ chain under faults, deterministically, and checks what clients saw",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := clockwork.SetGroups(o.faults); err != nil {
				return err
			}
			switch {
			case o.mutants:
				return runMutants(c.Context(), out, o)
			case c.Flags().Changed("seed"):
				return runOne(out, o)
			}
			return runMany(c.Context(), out, o)
		},
	}
	f := c.Flags()
	f.Uint64Var(&o.seeds, "seeds", 1000, "number of seeds to run (with --mutants: the most for each mutant)")
	f.Uint64Var(&o.from, "from", 1, "the first of them")
	f.Uint64Var(&o.seed, "seed", 0, "run this seed alone, and print its timeline")
	f.StringVar(&o.key, "key", "", "of the timeline, print only what is about this key")
	f.BoolVar(&o.leases, "leases", false, "print the renewals of leases too")
	f.StringVar(&o.mutant, "mutant", "", "remove this rule first")
	f.BoolVar(&o.mutants, "mutants", false, "remove every rule in turn (or the one that --mutant names), and say when that is noticed")
	f.StringSliceVar(&o.faults, "faults", clockwork.Groups(), "groups of faults to cause")
	f.StringVar(&o.out, "out", "out", "directory for porcupine's pictures of histories")
	f.IntVar(&o.jobs, "jobs", runtime.GOMAXPROCS(0), "number of seeds to run at a time")
	f.Uint64Var(&o.keepGoing, "failures", 3, "stop after so many failing seeds")
	return c
}

// runOne runs one seed and prints its timeline.
func runOne(out io.Writer, o options) error {
	var key wire.Key
	if o.key != "" {
		var err error
		if key, err = wire.ParseKey(o.key); err != nil {
			return err
		}
	}
	m, err := mutants.Find(o.mutant)
	if err != nil {
		return err
	}
	s, err := sim.NewMutant(m)
	if err != nil {
		return err
	}
	var lines []logbook.Line
	r, err := s.Run(o.seed, func(l logbook.Line) {
		if o.leases || !l.Lease {
			lines = append(lines, l)
		}
	})
	if err != nil {
		return err
	}
	if err := logbook.WriteTimeline(out, lines, key); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nseed %d on %s: %d calls, %d packets in %v\n", r.Seed, r.Network, r.Calls, r.Packets, r.Took)
	return report(out, r, o)
}

// report prints a seed's violations, and writes porcupine's pictures of them.
func report(out io.Writer, r *sim.Result, o options) error {
	for _, v := range r.Violations {
		fmt.Fprintf(out, "seed %d (%s): %v\n", r.Seed, r.Network, v)
		path := filepath.Join(o.out, fmt.Sprintf("sim-%d-%v.html", r.Seed, v.Key))
		if wrote, err := v.Visualize(path); err != nil {
			return err
		} else if wrote {
			fmt.Fprintf(out, "    porcupine's picture: %s\n", path)
		}
	}
	if len(r.Violations) > 0 {
		fmt.Fprintf(out, "    %s\n", r.Replay(o.mutant))
		return errViolation
	}
	return nil
}

// runMany runs seeds until all are done, or too many have failed.
func runMany(ctx context.Context, out io.Writer, o options) error {
	m, err := mutants.Find(o.mutant)
	if err != nil {
		return err
	}
	began := time.Now()
	cover := logbook.Coverage{}
	var calls, packets, failures, seeds uint64
	err = sim.Many(ctx, m, o.from, o.seeds, o.jobs, func(r *sim.Result) bool {
		seeds++
		calls, packets = calls+uint64(r.Calls), packets+uint64(r.Packets)
		cover.Add(r.Coverage)
		if report(out, r, o) != nil {
			failures++
		}
		return failures < o.keepGoing
	})
	if err != nil {
		return err
	}
	if err := cover.Write(out); err != nil {
		return err
	}
	took := time.Since(began)
	fmt.Fprintf(out, "%d seeds, %d calls, %d packets in %v (%.0f seeds/s): %d with a violation\n", seeds, calls, packets, took.Round(time.Millisecond),
		float64(seeds)/took.Seconds(), failures)
	if failures > 0 {
		return errViolation
	}
	return nil
}

// runMutants removes every rule in turn and prints how many seeds it took to notice the removal.
func runMutants(ctx context.Context, out io.Writer, o options) error {
	if _, err := mutants.Find(o.mutant); err != nil {
		return err
	}
	missed, hunted := 0, 0
	for _, m := range mutants.All {
		if o.mutant != "" && m.ID != o.mutant {
			continue
		}
		hunted++
		began := time.Now()
		f, err := sim.Hunt(ctx, m, o.from, o.seeds, o.jobs)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-28s %-60s %s (%.1f s)\n", m.ID, m.Rule, f, time.Since(began).Seconds())
		if !f.AsExpected() {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d rules removed, and not as expected", missed, hunted)
	}
	return nil
}
