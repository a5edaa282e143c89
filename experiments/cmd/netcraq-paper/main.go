// Command netcraq-paper runs the paper's NetCRAQ on the switches of a topology. It loads the
// program, generates load on the chain, and sends single requests. It is for measurements and for
// learning.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/experiments/paperchain"
	"github.com/netcraq/netcraq/internal/helptext"
	"github.com/netcraq/netcraq/internal/kernelload"
)

// askTime is how long the command resends a single request before it gives up.
const askTime = 2 * time.Second

type common struct{ file string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := new(common)
	root := &cobra.Command{Use: "netcraq-paper", Short: "NetCRAQ as its paper (CNSM 2022) describes it, for measurements",
		SilenceUsage: true, SilenceErrors: true}
	root.PersistentFlags().StringVar(&c.file, "topology", "out/paper/topology.json",
		"network `FILE` in the format of netcraq-controller; its first chain is used")
	root.AddCommand(c.control(), c.bench(), c.get(), c.put())
	helptext.Fit(root)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "netcraq-paper:", err)
		os.Exit(1)
	}
}

func (c *common) topology() (*topology.Topology, error) {
	t, err := topology.Load(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: name the network's file with --topology", err)
	}
	return t, err
}

// control returns a command that loads the program.
func (c *common) control() *cobra.Command {
	return &cobra.Command{Use: "control", Short: "Load the program into the switches and write their tables", Args: cobra.NoArgs,
		Long: "Loads the program into the switches, fills their tables, and prints a line that begins with \"ready:\". It runs until SIGINT or SIGTERM. It does not handle failures.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := c.topology()
			if err != nil {
				return err
			}
			if err := paperchain.Start(cmd.Context(), t, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
				return err
			}
			fmt.Printf("ready: %d switches, %d keys of %d cells\n", len(t.Switches), paperchain.Keys, paperchain.Versions)
			<-cmd.Context().Done()
			return nil
		}}
}

// place is this host's position in the chain's network.
type place struct {
	node, head, tail netip.Addr // node is the address of this host's switch
	iface            string
	source           netip.Addr
	gateway          [6]byte
}

func (c *common) place() (p place, err error) {
	t, err := c.topology()
	if err != nil {
		return p, err
	}
	if len(t.Chains) == 0 {
		return p, fmt.Errorf("%s has no chain: declare one", c.file)
	}
	members := t.Chains[0].Members
	p.head, p.tail = t.Switch(members[0]).Address, t.Switch(members[len(members)-1]).Address
	if p.iface, p.source, p.gateway, err = kernelload.Way(p.tail); err != nil {
		return p, err
	}
	host := t.HostByAddress(p.source)
	if host == nil {
		return p, fmt.Errorf("%v is not the address of a host in %s: run the command in a host of the network", p.source, c.file)
	}
	p.node = host.Switch.Address
	return p, nil
}

func key(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n >= paperchain.Keys {
		return 0, fmt.Errorf("%q is not a key: keys are numbers from 0 to %d", s, paperchain.Keys-1)
	}
	return uint32(n), nil
}

func (c *common) get() *cobra.Command {
	return &cobra.Command{Use: "get KEY", Short: "Read a key at this host's switch", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.one(cmd.Context(), args[0], paperchain.Packet{Op: paperchain.Read})
		}}
}

func (c *common) put() *cobra.Command {
	return &cobra.Command{Use: "put KEY VALUE", Short: "Write a key (16 bytes at most)", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := paperchain.Packet{Op: paperchain.Write}
			if len(args[1]) > paperchain.ValueBytes {
				return fmt.Errorf("the value has %d bytes: at most %d fit", len(args[1]), paperchain.ValueBytes)
			}
			copy(p.Value[:], args[1])
			return c.one(cmd.Context(), args[0], p)
		}}
}

func (c *common) one(ctx context.Context, name string, p paperchain.Packet) (err error) {
	if p.Key, err = key(name); err != nil {
		return err
	}
	at, err := c.place()
	if err != nil {
		return err
	}
	to := at.node
	if p.Op == paperchain.Write {
		to = at.head
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	r, from, err := paperchain.AskNode(ctx, to, p)
	if err != nil {
		return err
	}
	fmt.Printf("%v from %v, value %q\n", r.Op, from, bytes.TrimRight(r.Value[:], "\x00"))
	return nil
}
