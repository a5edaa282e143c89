package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/experiments/paperchain"
	"github.com/netcraq/netcraq/internal/kernelload"
)

// dirtyKeys is the number of keys that --dirty-ttl keeps dirty. They are the last keys, which no
// other load uses, because a key stays dirty until a later write of it is acknowledged.
const dirtyKeys = 16

// bench returns a command that generates load from the kernel, as `netcraqctl bench --kernel` does
// for the shipped program.
func (c *common) bench() *cobra.Command {
	var cfg kernelload.Config
	var keys, puts, dirtyTTL int
	var beginAt int64
	var fill bool
	cmd := &cobra.Command{Use: "bench", Short: "Measure queries a second and latency", Args: cobra.NoArgs,
		Long: "The command first writes a different value to each key, and then compares every read value. A wrong value makes it fail. The result is printed as JSON, as `netcraqctl bench -o json` prints it."}
	f := cmd.Flags()
	f.IntVarP(&cfg.Outstanding, "outstanding", "n", 32, "queries on their way at a time")
	f.DurationVar(&cfg.Duration, "duration", time.Second, "length of the run")
	f.IntVar(&keys, "keys", 256, "number of keys; their numbers begin at 0")
	f.IntVar(&puts, "puts", 0, "percentage of queries that are writes")
	f.BoolVar(&fill, "fill", true, "give the keys values first; without, they must have those of an earlier run")
	f.IntVar(&dirtyTTL, "dirty-ttl", 0, "read keys that a write made dirty which lived for so many hops, and so did not reach the tail")
	f.Int64Var(&beginAt, "begin-at", 0, "when to begin, in `ms` since 1970, so that several loads begin together (default: at once)")
	f.IntSliceVar(&cfg.CPUs, "cpu", nil, "the CPU on which the first queries are sent, or several with commas that take turns (default: any)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if keys < 1 || keys > paperchain.Keys-dirtyKeys {
			return fmt.Errorf("--keys %d: from 1 to %d", keys, paperchain.Keys-dirtyKeys)
		}
		if puts > 0 && dirtyTTL > 0 {
			return fmt.Errorf("--puts %d with --dirty-ttl: dirty keys are only read", puts)
		}
		at, err := c.place()
		if err != nil {
			return err
		}
		first := 0
		if dirtyTTL > 0 {
			first, keys = paperchain.Keys-dirtyKeys, dirtyKeys
		}
		for i := range keys {
			k := wire.Key(first + i)
			cfg.Keys = append(cfg.Keys, k)
			switch {
			case dirtyTTL > 0:
				err = at.dirty(cmd.Context(), k, dirtyTTL)
			case fill:
				err = at.fill(cmd.Context(), k)
			}
			if err != nil {
				return fmt.Errorf("cannot prepare key %d: %w", k, err)
			}
		}
		if beginAt != 0 {
			cfg.Begin = time.UnixMilli(beginAt)
		}
		cfg.Iface, cfg.Source, cfg.Gateway = at.iface, at.source, at.gateway
		cfg.Protocol, cfg.WritePercent = paperchain.Load{Node: at.node, Head: at.head}, puts
		cfg.FirstPort, cfg.Resend, cfg.Seed = 40000, 20*time.Millisecond, 1
		return kernelload.RunAndPrint(cmd.Context(), cfg, os.Stdout)
	}
	return cmd
}

// fill writes a verifiable value to a key.
func (p place) fill(ctx context.Context, k wire.Key) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, _, err := paperchain.AskNode(ctx, p.head, write(k))
	return err
}

// dirty makes a key dirty at all nodes except the tail, unless the key is dirty already. The tail
// has a value with which it answers.
func (p place) dirty(ctx context.Context, k wire.Key, ttl int) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	isDirty := func() (bool, error) {
		_, from, err := paperchain.AskNode(ctx, p.head, paperchain.Packet{Op: paperchain.Read, Key: uint32(k)})
		return from == p.tail, err
	}
	if done, err := isDirty(); done || err != nil {
		return err
	}
	if err := p.fill(ctx, k); err != nil {
		return err
	}
	if err := paperchain.SendWithTTL(p.head, write(k), ttl); err != nil {
		return err
	}
	for {
		if done, err := isDirty(); done || err != nil {
			return err
		}
	}
}

func write(k wire.Key) paperchain.Packet {
	p := paperchain.Packet{Op: paperchain.Write, Key: uint32(k)}
	copy(p.Value[:], kernelload.Value(wire.Profile128, k, 0))
	return p
}
