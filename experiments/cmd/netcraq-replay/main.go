// Command netcraq-replay replays a real Kubernetes cluster's etcd requests at an etcd endpoint, and
// reports whether the network or etcd answered.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netcraq/netcraq/experiments/replay"
	"github.com/netcraq/netcraq/internal/helptext"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := command(os.Stdout)
	helptext.Fit(cmd)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "netcraq-replay:", err)
		os.Exit(1)
	}
}

func command(out io.Writer) *cobra.Command {
	var endpoint, trace, export, output string
	cfg := replay.Config{}
	cmd := &cobra.Command{
		Use: "netcraq-replay", Short: "Replay a real cluster's requests to its etcd", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		Long: `Replay a real cluster's requests to its etcd, at their own speed or faster, at an etcd or a gateway in front of it (etcd-monitor). Every get is compared with the written value;
a wrong value makes the command fail. A gateway says of each get who answered it: the network, or etcd and why.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Speed <= 0 {
				return errors.New("--speed is above 0: 1 is as it was recorded, 10 ten times faster")
			}
			var err error
			if cfg.Trace, err = open(trace, replay.ReadTrace); err != nil {
				return err
			}
			if cfg.Export, err = open(export, replay.ReadExport); err != nil {
				return err
			}
			if cfg.Conn, err = grpc.NewClient(endpoint, grpc.WithTransportCredentials(
				insecure.NewCredentials())); err != nil {
				return fmt.Errorf("--endpoint %s: %w", endpoint, err)
			}
			defer cfg.Conn.Close()
			r, err := replay.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if output == "json" {
				e := json.NewEncoder(out)
				e.SetIndent("", "  ")
				err = e.Encode(r)
			} else {
				show(out, r)
			}
			if len(r.Wrong) > 0 {
				return fmt.Errorf("%d gets or more had a value that nobody wrote: %s", len(r.Wrong), r.Wrong[0])
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&endpoint, "endpoint", "127.0.0.1:2379", "HOST:PORT of etcd, or of the gateway")
	f.StringVar(&trace, "trace", "experiments/data/etcd-trace.csv", "the requests")
	f.StringVar(&export, "export", "experiments/data/etcd-export.json", "keys and values, as etcdctl get --prefix / -w json prints them")
	f.Float64Var(&cfg.Speed, "speed", 1, "1: as it was recorded; 10: ten times faster")
	f.DurationVar(&cfg.Warm, "warm-up", time.Minute, "of the trace's own time; gets until then are counted apart")
	f.BoolVar(&cfg.Fill, "fill", true, "put the export's keys first")
	f.DurationVar(&cfg.Limit, "timeout", 10*time.Second, "of one request")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func open[T any](path string, read func(io.Reader) (T, error)) (T, error) {
	file, err := os.Open(path)
	if err != nil {
		var none T
		return none, err
	}
	defer file.Close()
	return read(file)
}

func show(w io.Writer, r *replay.Report) {
	fmt.Fprintf(w, "requests: %s; failed: %s%s\n", list(r.Requests), list(r.Failed), map[bool]string{true: " (" + r.First + ")"}[r.First != ""])
	fmt.Fprintf(w, "gets in the warm-up, by who answered: %s\ngets after it: %s\n", list(r.WarmUp), list(r.Gets))
	for _, could := range names(r.Eligible) {
		fmt.Fprintf(w, "  %-52s %4d gets, %4d answered by the network (%.0f %%)\n", could, r.Eligible[could],
			r.Network[could], 100*float64(r.Network[could])/float64(r.Eligible[could]))
	}
	for _, kind := range []string{replay.Get, replay.Put} {
		if l := r.Latency[kind]; len(l) > 0 {
			slices.Sort(l)
			fmt.Fprintf(w, "%s: p50 %v, p99 %v\n", kind, l[len(l)/2].Round(time.Microsecond), l[len(l)*99/100].Round(time.Microsecond))
		}
	}
	if r.Late > 100*time.Millisecond {
		fmt.Fprintf(w, "a request was sent %v late: this machine did not keep up\n", r.Late.Round(time.Millisecond))
	}
}

func names(m map[string]int) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

func list(m map[string]int) string {
	var parts []string
	for _, k := range names(m) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
