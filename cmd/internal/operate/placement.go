package operate

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/admin"
)

// Commands that place etcd's keys in the network.

func (c *cli) placementCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "placement", Short: "Show and control the placement of etcd's keys in the network",
		Long: "Show and control the placement of etcd's keys in the network (docs/etcd.md). The controller places keys if it runs with --etcd and --prometheus.\n\n" +
			"KEY is an etcd key as text. Write a backslash as \\\\, and a byte that is not text as \\xNN.",
	}
	cmd.AddCommand(c.placementShow(), c.placementWhy())
	cmd.AddCommand(c.placementRules()...)
	return cmd
}

func (c *cli) placementRules() []*cobra.Command {
	return []*cobra.Command{
		c.placementRule("pin KEY", "pin", "Keep a key placed whatever its heat, if possible", true),
		c.placementRule("unpin KEY", "unpin", "Remove a pin", true),
		c.placementRule("exclude KEY", "exclude", "Never place a key, and remove it if it is placed", true),
		c.placementRule("include KEY", "include", "Remove an exclusion, or make an exception to a wider one", true),
	}
}

func (c *cli) placementShow() *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show placed and rejected keys, rules, and the latest moves",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd, func(ctx context.Context) error {
				p, err := c.api.Placement(ctx)
				if err != nil {
					return err
				}
				return c.show(p, func(w io.Writer) { printPlacement(w, p) })
			})
		},
	}
}

func optional(x *float64, format func(float64) string) string {
	if x == nil {
		return "?"
	}
	return format(*x)
}

func perSecond(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

func seconds(x float64) string { return short(time.Duration(x * float64(time.Second))) }

func printPlacement(w io.Writer, p *admin.Placement) {
	for _, ch := range p.Chains {
		fmt.Fprintf(w, "chain %s: %d of etcd's keys, %d of %d slots free, cells of %d bytes%s\n", ch.Name, ch.Placed, ch.Free, ch.Slots, ch.CellBytes, map[bool]string{false: ", NOT READY"}[ch.Ready])
	}
	h := p.Heat
	fmt.Fprintf(w, "gateways: %s reads a second, %s of them answered by the network; median %s there, %s at etcd\n", optional(h.ReadsPerSecond, perSecond),
		optional(h.HitRatio, func(x float64) string {
			return fmt.Sprintf("%.1f %%", 100*x)
		}), optional(h.NetworkMedianSeconds, seconds), optional(h.EtcdMedianSeconds, seconds))
	switch {
	case p.Problem != "":
		fmt.Fprintf(w, "NOTHING IS DECIDED: %s\n", p.Problem)
	case h.Error != "":
		fmt.Fprintf(w, "NOTHING MOVES FOR ITS HEAT: %s\n", h.Error)
	default:
		fmt.Fprintf(w, "heat: %s by %s over %s\n", plural(h.Keys, "key"), h.Prometheus, h.Window)
	}
	keys := func(title string, all []admin.PlacementKey) {
		fmt.Fprintf(w, "\n%s\n", title)
		rows := [][]string{{"  READS/S", "WRITES/S", "CHAIN", "KEY", "WHY"}}
		for _, k := range all {
			chain := k.Chain
			if chain == "" {
				chain = "-"
			}
			rows = append(rows, []string{"  " + optional(k.Reads, perSecond), optional(k.Writes, perSecond),
				chain, k.Key, k.Code + ": " + k.Reason})
		}
		table(w, rows)
	}
	keys("placed", p.Placed)
	keys("not placed", p.Others)
	fmt.Fprint(w, "\nrules\n")
	for _, r := range p.Rules {
		fmt.Fprintf(w, "  %s %s%s%s\n", r.Choice, r.Key, map[bool]string{true: "*"}[r.Prefix], map[bool]string{true: " (by default)"}[r.Default])
	}
	if moves := slices.Concat(p.UnderWay, p.Recent); len(moves) > 0 {
		fmt.Fprint(w, "\nmoves, the latest first\n")
		for _, m := range moves {
			failed := ""
			if m.Error != "" {
				failed = "; FAILED: " + m.Error
			}
			fmt.Fprintf(w, "  %s %s %s: %s%s\n", m.Time.Local().Format("15:04:05"), m.Op, m.Key, m.Reason, failed)
		}
	}
}

func printKey(w io.Writer, k *admin.PlacementKey) {
	where := "is not placed"
	if k.Chain != "" {
		where = fmt.Sprintf("is placed in chain %s since %s", k.Chain, k.Since.Local().Format(time.DateTime))
	}
	fmt.Fprintf(w, "%s %s\n%s: %s\n", k.Key, where, k.Code, k.Reason)
	if k.Reads != nil {
		fmt.Fprintf(w, "reads %s/s, writes %s/s, score %s\n", optional(k.Reads, perSecond), optional(k.Writes, perSecond), optional(k.Score, perSecond))
	}
}

func (c *cli) placementWhy() *cobra.Command {
	return &cobra.Command{
		Use: "why KEY", Short: "Explain why a key is placed or not", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.ask(cmd, func(ctx context.Context) error {
				k, err := c.api.WhyPlaced(ctx, args[0])
				if err != nil {
					return err
				}
				return c.show(k, func(w io.Writer) { printKey(w, k) })
			})
		},
	}
}

func (c *cli) placementRule(use, choice, what string, prefixes bool) *cobra.Command {
	var prefix bool
	cmd := &cobra.Command{
		Use: use, Short: what, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.ask(cmd, func(ctx context.Context) error {
				k, err := c.api.SetPlacementRule(ctx, admin.PlacementRule{Key: args[0], Prefix: prefix, Choice: choice})
				switch {
				case err != nil:
					return err
				case k == nil:
					return c.show(map[string]string{"prefix": args[0], "choice": choice}, func(w io.Writer) {
						fmt.Fprintf(w, "%s: all keys that begin with %s\n", choice, args[0])
					})
				}
				return c.show(k, func(w io.Writer) { printKey(w, k) })
			})
		},
	}
	if prefixes {
		cmd.Flags().BoolVar(&prefix, "prefix", false, "apply the rule to all keys that begin with KEY")
	}
	return cmd
}
