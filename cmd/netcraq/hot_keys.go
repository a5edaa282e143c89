package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/cmd/internal/operate"
	"github.com/netcraq/netcraq/controlplane/placement/forecast"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

const hotKeysHelp = `Print the keys that a gateway's clients read most, and the gain and cost of answering them from the
network. You need no switches: run etcd-monitor in front of your etcd, point a client at it, and run
this command after a while.

A key is worth a slot if its reads a second, less 3 for each write a second, exceed --min-score.
The command does not check values; one of more than 1,024 bytes does not fit into a slot. A write of a placed key takes 1.5
to 2 times as long (docs/benchmarks/etcd.md).`

// maxMetrics limits the size of a gateway's metrics, in bytes. For example, 10,000 keys of 1,024
// bytes take 20 MB, because each key is in two metrics.
const maxMetrics = 64 << 20

// hotKeysCommand predicts how placing keys in the switches would affect the load.
func (c *cli) hotKeysCommand() *cobra.Command {
	var url string
	var over time.Duration
	var top int
	o := forecast.Options{Limits: policy.DefaultLimits()}
	cmd := &cobra.Command{
		Use: "hot-keys", Short: "Print the keys that are read most, and the gain of placing them", Long: hotKeysHelp,
		Example: `  etcd-monitor --endpoints 10.0.0.1:2379    # in one terminal
  netcraq hot-keys --over 1m    # in another, while clients use 127.0.0.1:23790`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case over < time.Second || over > time.Hour:
				return operate.UsageError(fmt.Errorf("--over %v: pass 1s to 1h", over))
			case o.Slots < 1 || top < 1:
				return operate.UsageError(fmt.Errorf("--slots %d, --top %d: pass numbers from 1", o.Slots, top))
			case o.Switch <= 0 || !(o.Limits.MinScore > 0):
				return operate.UsageError(fmt.Errorf("--switch-time %v, --min-score %v: pass numbers above 0", o.Switch, o.Limits.MinScore))
			}
			before, err := sample(cmd.Context(), url)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.std.Err, "measuring for %v\n", over)
			select {
			case <-cmd.Context().Done():
				return cmd.Context().Err()
			case <-time.After(over):
			}
			after, err := sample(cmd.Context(), url)
			if err != nil {
				return err
			}
			f, err := forecast.New(before, after, o)
			if err != nil {
				return err
			}
			if c.json() {
				return c.show(f, "")
			}
			return printForecast(c.out(), f, o.Slots, top)
		},
	}
	f := cmd.Flags()
	f.StringVar(&url, "metrics", "http://127.0.0.1:23791/metrics", "`URL` of the gateway's metrics, as its ready line says")
	f.DurationVar(&over, "over", time.Minute, "measure for this `TIME`, 1s to 1h")
	f.IntVar(&top, "top", 20, "print this `NUMBER` of keys")
	f.IntVar(&o.Slots, "slots", 16384, "assume this `NUMBER` of slots in the switches")
	f.DurationVar(&o.Switch, "switch-time", 100*time.Microsecond, "assume this `TIME` for a read at the switches, if the gateway has measured none")
	f.Float64Var(&o.Limits.MinScore, "min-score", o.Limits.MinScore, "place keys from this `SCORE` on, in reads a second")
	return cmd
}

// sample reads the metrics of a gateway. The URL may also be only HOST:PORT.
func sample(ctx context.Context, url string) (*forecast.Sample, error) {
	if !strings.Contains(url, "://") {
		url = "http://" + url + "/metrics"
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, operate.UsageError(fmt.Errorf("--metrics: %w", err))
	}
	at := time.Now()
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot read the gateway's metrics: %w. Start a gateway with etcd-monitor --endpoints ETCD, or pass --metrics URL", err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("cannot read the gateway's metrics: %s says %s. Pass the URL of its ready line", url, r.Status)
	}
	s, err := forecast.Parse(io.LimitReader(r.Body, maxMetrics), at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w. Pass the URL of its ready line", url, err)
	}
	return s, nil
}

// milliseconds formats a duration that is given in seconds.
func milliseconds(s float64) string { return fmt.Sprintf("%.2f ms", 1000*s) }

// printForecast prints the hottest keys, and the predicted effect of placing them in the switches.
func printForecast(w io.Writer, f *forecast.Forecast, slots, top int) error {
	if f.Reads == 0 {
		_, err := fmt.Fprintf(w, "No single key was read in %.0f s. Point a client at the gateway, and try again.\n", f.Seconds)
		return err
	}
	fmt.Fprintf(w, "%.1f reads/s of single keys over %.0f s; %.0f %% are answered by the network now\n\n", f.Reads, f.Seconds, 100*f.Network)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "READS/S\tSHARE\tWRITES/S\tVERDICT\tKEY")
	for _, k := range f.Keys[:min(top, len(f.Keys))] {
		fmt.Fprintf(t, "%.1f\t%.1f %%\t%.1f\t%s\t%s\n", k.Reads, 100*k.Share, k.Writes, k.Verdict, k.Name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if n := len(f.Keys) - top; n > 0 {
		fmt.Fprintf(w, "and %d more (--top)\n", n)
	}
	fmt.Fprintf(w, "\nWith %d slots, %d of these keys would be placed:\n", slots, f.Placed)
	fmt.Fprintf(w, "  %.0f %% of the reads would be answered by the network\n", 100*f.Answered)
	if f.EtcdSeconds > 0 {
		fmt.Fprintf(w, "  a read would take %s instead of %s on average (etcd %s, switches %s)\n", milliseconds(f.ThenSeconds),
			milliseconds(f.NowSeconds), milliseconds(f.EtcdSeconds), milliseconds(f.SwitchSeconds))
	}
	fmt.Fprintf(w, "  etcd would have %.1f reads/s instead of %.1f\n", f.EtcdReads, f.Reads*(1-f.Network))
	if f.PlacedWrites < 0.05 {
		return nil
	}
	_, err := fmt.Fprintf(w, "  %.1f writes/s would take 1.5 to 2 times as long\n", f.PlacedWrites)
	return err
}
