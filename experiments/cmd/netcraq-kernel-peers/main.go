// Command netcraq-kernel-peers measures the time per packet of the switch's programs and of other
// key-value stores in the kernel, all in one run.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/experiments/kernelpeers"
	"github.com/netcraq/netcraq/experiments/programs"
	"github.com/netcraq/netcraq/internal/helptext"
)

// kinds lists the kinds of packets of NetCRAQ and NetChain that have a counterpart in another
// store. It also has answers that pass a switch.
var kinds = []string{programs.CleanRead, programs.WriteHead, programs.WriteReplica, programs.WriteTail,
	programs.WriteReply}

type options struct {
	bmc, dint, out string
	rounds, runs   int
}

func main() {
	var o options
	root := &cobra.Command{Use: "netcraq-kernel-peers", Short: "Measure the time per packet of the programs and of other stores in the kernel",
		Long: "Runs the programs of NetCRAQ and NetChain at tc and XDP, and those of BMC and DINT at XDP, by BPF_PROG_TEST_RUN. The rows take turns in each round. Prints the medians. Compiles BMC and DINT from checkouts of their repositories with clang, and names those that it leaves out.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true}
	f := root.Flags()
	f.StringVar(&o.bmc, "bmc", "", "`DIR` with a checkout of Orange-OpenSource/bmc-cache")
	f.StringVar(&o.dint, "dint", "", "`DIR` with a checkout of DINT-NSDI24/DINT")
	f.StringVar(&o.out, "out", "", "`FILE` for all rounds, as JSON")
	f.IntVar(&o.rounds, "rounds", 10, "number of rounds: each measures every row once")
	f.IntVar(&o.runs, "runs", 100_000, "number of times that a packet is processed in a round")
	root.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.OutOrStdout(), &o) }
	helptext.Fit(root)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "netcraq-kernel-peers:", err)
		os.Exit(1)
	}
}

// row is a row of the printed table.
type row struct {
	programs.Result
	Instructions int `json:"instructions"`
	MachineBytes int `json:"machineBytes"`
}

func run(w io.Writer, o *options) error {
	if o.rounds < 1 || o.runs < 1 {
		return fmt.Errorf("--rounds %d, --runs %d: both are at least 1", o.rounds, o.runs)
	}
	rows, err := open(w, o)
	defer func() { programs.Close(rows) }()
	if err != nil {
		return err
	}
	results, err := programs.InTurn(rows, o.rounds, o.runs, func(done, of int) {
		fmt.Fprintf(os.Stderr, "\r\033[K%d of %d", done, of)
	})
	fmt.Fprint(os.Stderr, "\r\033[K")
	if err != nil {
		return err
	}
	table := make([]row, len(rows))
	for i, r := range results {
		table[i].Result = r
		if sized, ok := rows[i].Bench.(interface{ Size() (int, int, error) }); ok {
			if table[i].Instructions, table[i].MachineBytes, err = sized.Size(); err != nil {
				return err
			}
		}
	}
	if o.out != "" {
		b, err := json.MarshalIndent(table, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.out, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	return show(w, table)
}

// open opens all rows. If it fails, it also returns the rows that it has opened.
func open(w io.Writer, o *options) ([]programs.Row, error) {
	cases, err := programs.All(nil)
	if err != nil {
		return nil, err
	}
	cases = slices.DeleteFunc(cases, func(c programs.Case) bool {
		return c.System == programs.Paper || !slices.Contains(kinds, c.Kind)
	})
	var rows []programs.Row
	for _, engine := range []string{"xdp", "tc"} {
		some, err := programs.Open(cases, engine)
		if err != nil {
			return rows, err
		}
		rows = append(rows, some...)
	}
	for _, peer := range []struct {
		name, checkout, flag string
		open                 func(string) ([]*kernelpeers.Peer, error)
	}{{"BMC", o.bmc, "--bmc", kernelpeers.BMC}, {"DINT", o.dint, "--dint", kernelpeers.DINT}} {
		if peer.checkout == "" {
			fmt.Fprintf(w, "%s is left out: name a checkout of it with %s DIR\n", peer.name, peer.flag)
			continue
		}
		some, err := peer.open(peer.checkout)
		for _, p := range some {
			rows = append(rows, p.Row())
		}
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// show prints the median and the range of each row over the rounds.
func show(w io.Writer, table []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "system\tpacket\tengine\tns\tfrom\tto\tinstructions\tKB")
	for _, r := range table {
		sorted := slices.Sorted(slices.Values(r.Rounds))
		fmt.Fprintf(t, "%s\t%s\t%s\t%.0f\t%.0f\t%.0f\t%d\t%.1f\n", r.System, r.Kind, r.Engine, sorted[len(sorted)/2],
			sorted[0], sorted[len(sorted)-1], r.Instructions, float64(r.MachineBytes)/1000)
	}
	return t.Flush()
}
