// Command netcraq-programs measures how long a switch's program takes for one packet. It measures
// three programs: NetChain's, the paper's NetCRAQ, and the shipped NetCRAQ.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/experiments/programs"
	"github.com/netcraq/netcraq/internal/helptext"
)

func main() {
	var engines []string
	var rounds, runs int
	var variants string
	var systems, kinds []string
	root := &cobra.Command{Use: "netcraq-programs", Short: "Measure the time that each system's program takes for one packet",
		Long: "Runs each program on each kind of packet, on the eBPF engine by BPF_PROG_TEST_RUN and on the interpreter, without devices. The systems take turns. Prints all rounds as JSON, in nanoseconds.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true}
	f := root.Flags()
	f.StringSliceVar(&engines, "engines", programs.Engines, "engines, with commas")
	f.IntVar(&rounds, "rounds", 10, "number of rounds: each measures everything once")
	f.IntVar(&runs, "runs", 60_000, "number of times that a packet is processed in a round")
	f.StringVar(&variants, "variants", "", "`DIR` with more programs, variants of the shipped one: NAME.json and NAME.p4info.txtpb")
	f.StringSliceVar(&systems, "systems", nil, "only these systems, with commas (default: all)")
	f.StringSliceVar(&kinds, "kinds", nil, "only these kinds of packets, with commas (default: all)")
	root.RunE = func(*cobra.Command, []string) error {
		if rounds < 1 || runs < 1 {
			return fmt.Errorf("--rounds %d, --runs %d: both are at least 1", rounds, runs)
		}
		extra, err := read(variants)
		if err != nil {
			return err
		}
		cases, err := programs.All(extra)
		if err != nil {
			return err
		}
		among := func(wanted []string, name string) bool { return len(wanted) == 0 || slices.Contains(wanted, name) }
		cases = slices.DeleteFunc(cases, func(c programs.Case) bool {
			return !among(systems, c.System) || !among(kinds, c.Kind)
		})
		if len(cases) == 0 {
			return fmt.Errorf("no case is left: the kinds of packets are %q", programs.Kinds)
		}
		var results []programs.Result
		for _, engine := range engines {
			if !slices.Contains(programs.Engines, engine) {
				return fmt.Errorf("there is no engine %q: there are %s", engine, strings.Join(programs.Engines, ", "))
			}
			some, err := programs.Measure(cases, engine, rounds, runs, func(done, of int) {
				fmt.Fprintf(os.Stderr, "\r\033[K%s: %d of %d", engine, done, of)
			})
			fmt.Fprint(os.Stderr, "\r\033[K")
			if err != nil {
				return err
			}
			results = append(results, some...)
		}
		return json.NewEncoder(os.Stdout).Encode(results)
	}
	helptext.Fit(root)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "netcraq-programs:", err)
		os.Exit(1)
	}
}

// read reads the compiled programs in a folder.
func read(folder string) (map[string]programs.Program, error) {
	if folder == "" {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("--variants %s: there is no NAME.json (%v)", folder, err)
	}
	out := map[string]programs.Program{}
	for _, file := range files {
		base := strings.TrimSuffix(file, ".json")
		p := programs.Program{}
		if p.JSON, err = os.ReadFile(file); err != nil {
			return nil, err
		}
		if p.P4Info, err = os.ReadFile(base + ".p4info.txtpb"); err != nil {
			return nil, err
		}
		out[filepath.Base(base)] = p
	}
	return out, nil
}
