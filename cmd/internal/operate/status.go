package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/admin"
)

// status is the output of the status command, as JSON.
type status struct {
	Chains    []chainStatus    `json:"chains"`
	Switches  []admin.Switch   `json:"switches"`
	Placement *admin.Placement `json:"placement,omitempty"` // omitted if the controller places no etcd keys
	Problems  []string         `json:"problems"`
}

// chainStatus is a chain with its rates of reads and writes. A packet that passes several switches
// counts once: a read at the switch that answers it, a write at the tail.
type chainStatus struct {
	admin.Chain
	ReadsPerSecond  float64 `json:"readsPerSecond"`
	WritesPerSecond float64 `json:"writesPerSecond"`
}

func (c *cli) statusCommand() *cobra.Command {
	var over time.Duration
	cmd := &cobra.Command{
		Use: "status", Short: "Show chains, switches, keys and problems on one screen",
		Long: "Show chains, switches, keys and problems on one screen. Rates are measured over --over.\n" +
			"The exit code is 5 if there is a problem, otherwise 0.",
		Example: `  netcraqctl status
  netcraqctl status -o json --over 5s`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if over < 100*time.Millisecond || over > time.Minute {
				return usageError{fmt.Errorf("--over %v: pass 100ms to 1m", over)}
			}
			s, err := c.status(cmd, over)
			if err != nil {
				return err
			}
			if err := c.show(s, func(w io.Writer) { printStatus(w, s) }); err != nil {
				return err
			}
			if len(s.Problems) > 0 {
				return unwell{len(s.Problems)}
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&over, "over", time.Second, "measure rates over this `TIME`, 100ms to 1m")
	return cmd
}

// counted has the numbers of reads and writes that a chain's members have counted.
type counted struct{ reads, writes uint64 }

// status reads the controller's whole state. It reads the counters twice, to compute rates.
func (c *cli) status(cmd *cobra.Command, over time.Duration) (*status, error) {
	s := &status{}
	var chains []admin.Chain
	var before, after map[uint8]counted
	err := c.ask(cmd, func(ctx context.Context) (err error) {
		if chains, err = c.api.Chains(ctx); err != nil {
			return err
		}
		if s.Switches, err = c.api.Switches(ctx); err != nil {
			return err
		}
		s.Placement, err = c.api.Placement(ctx)
		if errors.Is(err, &admin.Error{Code: admin.CodeFailedPrecondition}) {
			err = nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	count := func(into *map[uint8]counted) error {
		return c.ask(cmd, func(ctx context.Context) (err error) {
			*into, err = c.chainCounts(ctx, chains, s.Switches)
			return err
		})
	}
	if err = count(&before); err != nil {
		return nil, err
	}
	select {
	case <-cmd.Context().Done():
		return nil, cmd.Context().Err()
	case <-time.After(over):
	}
	if err = count(&after); err != nil {
		return nil, err
	}
	seconds := time.Since(began).Seconds()
	for _, ch := range chains {
		x := chainStatus{Chain: ch}
		// counters restart at 0 if a switch was set up again between the two readings
		if a, b := before[ch.ID], after[ch.ID]; b.reads >= a.reads && b.writes >= a.writes {
			x.ReadsPerSecond = float64(b.reads-a.reads) / seconds
			x.WritesPerSecond = float64(b.writes-a.writes) / seconds
		}
		s.Chains = append(s.Chains, x)
	}
	s.Problems = problems(s)
	return s, nil
}

// chainCounts reads the counters of every ready switch.
func (c *cli) chainCounts(ctx context.Context, chains []admin.Chain,
	switches []admin.Switch) (map[uint8]counted, error) {
	sums, tails := map[uint8]counted{}, map[uint8]string{}
	for _, ch := range chains {
		if n := len(ch.Members); n > 0 {
			tails[ch.ID] = ch.Members[n-1].Switch
		}
	}
	for _, sw := range switches {
		if !sw.Ready {
			continue
		}
		counters, err := c.api.ChainCounters(ctx, sw.Name)
		if err != nil {
			return nil, fmt.Errorf("switch %s: %w", sw.Name, err)
		}
		for _, n := range counters.Chains {
			sum := sums[n.ID]
			sum.reads += n.Reads
			if tails[n.ID] == sw.Name {
				sum.writes += n.Writes
			}
			sums[n.ID] = sum
		}
	}
	return sums, nil
}

// problems describes every problem that a status shows.
func problems(s *status) []string {
	found := []string{}
	for _, sw := range s.Switches {
		switch {
		case !sw.Connected:
			found = append(found, sw.Name+": the controller cannot reach it at "+sw.P4Runtime+because(sw.LastError))
		case !sw.Primary:
			found = append(found, sw.Name+": another controller is its primary one")
		case !sw.Ready:
			found = append(found, sw.Name+": it is not set up"+because(sw.LastError))
		}
	}
	for _, ch := range s.Chains {
		if ch.Frozen {
			found = append(found, fmt.Sprintf("chain %s is frozen and takes no writes; netcraq chain set %s --frozen=false ends that", ch.Name, ch.Name))
		}
		if !ch.Ready {
			found = append(found, "chain "+ch.Name+" is not ready"+because(ch.Reason))
		}
		if n := ch.Short(); n > 0 {
			found = append(found, fmt.Sprintf("chain %s has %d of %d members", ch.Name, len(ch.Members), ch.Length))
		}
		if ch.VersionWarning != "" {
			found = append(found, "chain "+ch.Name+": "+ch.VersionWarning)
		}
		for _, m := range ch.Missing {
			found = append(found, fmt.Sprintf("%s is missing in chain %s: %s", m.Switch, ch.Name, m.Why))
		}
		for _, m := range ch.Members {
			if m.Ready && !m.LeaseLive {
				found = append(found, fmt.Sprintf("%s has no live lease in chain %s: reads are not answered there", m.Switch, ch.Name))
			}
		}
		if ch.Slots > 0 && ch.Keys*10 >= ch.Slots*9 {
			found = append(found, fmt.Sprintf("chain %s has %d of %d slots in use", ch.Name, ch.Keys, ch.Slots))
		}
	}
	if p := s.Placement; p != nil && p.Problem != "" {
		found = append(found, "no key of etcd is placed or removed: "+p.Problem)
	}
	return found
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func printStatus(w io.Writer, s *status) {
	member := map[string]bool{}
	for _, ch := range s.Chains {
		fmt.Fprintf(w, "chain %s   %d of %d switches   %s of %s keys   %s reads/s   %s writes/s\n", ch.Name,
			len(ch.Members), max(ch.Length, len(ch.Members)), grouped(uint64(ch.Keys)), grouped(uint64(ch.Slots)),
			grouped(uint64(ch.ReadsPerSecond+.5)), grouped(uint64(ch.WritesPerSecond+.5)))
		var rows [][]string
		for _, m := range ch.Members {
			member[m.Switch] = true
			rows = append(rows, []string{"  " + m.Switch, strings.ToLower(m.Role),
				map[bool]string{true: "ready", false: "not ready"}[m.Ready], map[bool]string{true: "lease live", false: "no lease"}[m.LeaseLive]})
		}
		table(w, rows)
	}
	for _, sw := range s.Switches {
		if !member[sw.Name] {
			fmt.Fprintf(w, "%s   in no chain, %s\n", sw.Name, map[bool]string{true: "ready", false: "not ready"}[sw.Ready])
		}
	}
	if p := s.Placement; p != nil {
		n := 0
		for _, ch := range p.Chains {
			n += ch.Placed
		}
		fmt.Fprintf(w, "etcd: %s in the network", plural(n, "key"))
		if p.Heat.HitRatio != nil {
			fmt.Fprintf(w, ", which answers %.0f %% of reads", 100**p.Heat.HitRatio)
		}
		if p.Heat.Error != "" {
			fmt.Fprintf(w, "; only pinned keys are placed, as it is not known which are hot")
		}
		fmt.Fprintln(w)
	}
	if len(s.Problems) == 0 {
		fmt.Fprintln(w, "no problems")
		return
	}
	for _, p := range s.Problems {
		fmt.Fprintln(w, "PROBLEM:", p)
	}
}
