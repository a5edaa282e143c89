// Command netchain runs NetChain, the baseline, on the switches of a topology. It runs the
// controller, generates load, and sends single requests.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/helptext"
	"github.com/netcraq/netcraq/internal/kernelload"
	netchain "github.com/netcraq/netcraq/netchain-baseline"
)

// common has the flags that all commands have.
type common struct {
	file    string
	seqBits int
	keys    int
	groups  int
	admin   string
}

func (c *common) topology() (*topology.Topology, error) {
	t, err := topology.Load(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: give --topology, or start `make netchain`", err)
	}
	return t, err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := new(common)
	root := &cobra.Command{Use: "netchain", Short: "NetChain (NSDI 2018), the baseline that NetCRAQ is compared with", SilenceUsage: true, SilenceErrors: true}
	f := root.PersistentFlags()
	f.StringVar(&c.file, "topology", "out/netchain/netchain.json", "network `FILE` in the format of netcraq-controller; its first chain is used (make netchain writes the default)")
	f.IntVar(&c.seqBits, "seq-bits", 128, "width of sequence numbers: 16 as published, 128 as in the CNSM comparison")
	f.IntVar(&c.keys, "keys", 256, "number of keys; their numbers begin at 0")
	f.IntVar(&c.groups, "groups", 100, "virtual groups that the keys are spread over: a recovery stops the writes of one at a time")
	f.StringVar(&c.admin, "admin", "127.0.0.1:20038", "address on which the controller accepts commands")
	root.AddCommand(c.control(), c.fail(), c.recover(), c.events(), c.bench(), c.get(), c.put())
	helptext.Fit(root)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "netchain:", err)
		os.Exit(1)
	}
}

// control returns the command that runs the controller.
func (c *common) control() *cobra.Command {
	var detect time.Duration
	cmd := &cobra.Command{Use: "control", Short: "Load NetChain into the switches, and handle their failures", Args: cobra.NoArgs,
		Long: "Loads the program into the switches, fills their tables, and prints a line that begins with \"ready:\". It runs until SIGINT or SIGTERM.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := c.topology()
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			k, err := netchain.NewController(t, netchain.Options{SeqBits: c.seqBits, Keys: c.keys,
				Groups: c.groups, Detect: detect, Log: log})
			if err != nil {
				return err
			}
			listener, err := net.Listen("tcp", c.admin)
			if err != nil {
				return fmt.Errorf("taking commands at %s: %w", c.admin, err)
			}
			if err := k.Start(cmd.Context()); err != nil {
				return err
			}
			server := &http.Server{Handler: admin(k), ReadHeaderTimeout: time.Second}
			go server.Serve(listener)
			fmt.Printf("ready: %d switches, %d keys in %d virtual groups, sequence numbers of %d bits\n", len(t.Switches), c.keys, c.groups, c.seqBits)
			<-cmd.Context().Done()
			return server.Close()
		}}
	cmd.Flags().DurationVar(&detect, "detect", 0, "take a switch for gone so long after the loss of its connection; 0: only `netchain fail` says so")
	return cmd
}

// client returns a client of the chain.
func (c *common) client() (*netchain.Client, error) {
	t, err := c.topology()
	if err != nil {
		return nil, err
	}
	return &netchain.Client{Chain: netchain.Members(t), SeqBits: c.seqBits}, nil
}

func number(s string) (n int, err error) {
	if _, err = fmt.Sscan(s, &n); err != nil || n < 0 || n >= 1<<24 {
		return 0, fmt.Errorf("%q is no key: keys are numbers from 0", s)
	}
	return n, nil
}

func (c *common) get() *cobra.Command {
	return &cobra.Command{Use: "get KEY", Short: "Read a key", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.one(cmd.Context(), args[0], netchain.Packet{Op: netchain.Read})
		}}
}

func (c *common) put() *cobra.Command {
	return &cobra.Command{Use: "put KEY VALUE", Short: "Write a key (16 bytes at most)",
		Args: cobra.ExactArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
			p := netchain.Packet{Op: netchain.Write}
			if len(args[1]) > netchain.ValueBytes {
				return fmt.Errorf("the value has %d bytes: at most %d fit", len(args[1]), netchain.ValueBytes)
			}
			copy(p.Value[:], args[1])
			return c.one(cmd.Context(), args[0], p)
		}}
}

func (c *common) one(ctx context.Context, key string, p netchain.Packet) error {
	n, err := number(key)
	if err != nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	p.Key = netchain.Key(n, c.groups)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := cl.Ask(ctx, p)
	if err != nil {
		return err
	}
	fmt.Printf("%v, number %x.%x, value %q\n", r.Status, r.Seq.High, r.Seq.Low, bytes.TrimRight(r.Value[:], "\x00"))
	return nil
}

// bench returns the command that generates load in the kernel, like `netcraqctl bench --kernel` for
// NetCRAQ.
func (c *common) bench() *cobra.Command {
	var cfg kernelload.Config
	var puts int
	var beginAt int64
	var fill bool
	cmd := &cobra.Command{Use: "bench", Short: "Measure queries a second and latency, with a load in the kernel", Args: cobra.NoArgs,
		Long: "The command first writes a different value to each key, and then compares every read value. A wrong value makes it fail. The result is printed as JSON, as `netcraqctl bench -o json` prints it."}
	f := cmd.Flags()
	f.IntVarP(&cfg.Outstanding, "outstanding", "n", 32, "queries on their way at a time")
	f.DurationVar(&cfg.Duration, "duration", time.Second, "length of the run")
	f.IntVar(&puts, "puts", 0, "percentage of queries that are writes")
	f.BoolVar(&fill, "fill", true, "give the keys values first; without, they must have those of an earlier run")
	f.Int64Var(&beginAt, "begin-at", 0, "when to begin, in `ms` since 1970, so that several loads begin together (default: at once)")
	f.IntSliceVar(&cfg.CPUs, "cpu", nil, "the CPU on which the first queries are sent, or several with commas that take turns (default: any)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		defer cl.Close()
		load := netchain.Load{Chain: cl.Chain, SeqBits: c.seqBits}
		if len(cl.Chain) > netchain.MaxChain-1 {
			return fmt.Errorf("a chain of %d switches: the load takes %d", len(cl.Chain), netchain.MaxChain-1)
		}
		for i := range c.keys {
			k := wire.Key(netchain.Key(i, c.groups))
			cfg.Keys = append(cfg.Keys, k)
			if !fill {
				continue
			}
			p := netchain.Packet{Op: netchain.Write, Key: uint32(k)}
			copy(p.Value[:], kernelload.Value(wire.Profile128, k, 0))
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
			_, err := cl.Ask(ctx, p)
			cancel()
			if err != nil {
				return fmt.Errorf("giving key %d a value that can be checked: %w", i, err)
			}
		}
		if beginAt != 0 {
			cfg.Begin = time.UnixMilli(beginAt)
		}
		var tail netip.Addr = cl.Chain[len(cl.Chain)-1]
		if cfg.Iface, cfg.Source, cfg.Gateway, err = kernelload.Way(tail); err != nil {
			return err
		}
		cfg.Protocol, cfg.WritePercent, cfg.FirstPort, cfg.Resend, cfg.Seed = load, puts, 40000, 20*time.Millisecond, 1
		return kernelload.RunAndPrint(cmd.Context(), cfg, os.Stdout)
	}
	return cmd
}
