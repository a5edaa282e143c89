package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/admin"
)

// Commands that remove failed members from a chain and add recovered ones.

// recoverTimeout is the default --timeout of "chain recover". It is long, because filling a switch
// with values takes seconds.
const recoverTimeout = 2 * time.Minute

// failTimeout is the default --timeout of "chain fail". That command waits until the lease of an
// unreachable switch has expired.
const failTimeout = 10 * time.Second

func (c *cli) chainFail() *cobra.Command {
	var chain string
	cmd := &cobra.Command{
		Use: "fail SWITCH", Short: "Remove a switch from a chain, as if it had failed", Args: cobra.ExactArgs(1),
		Long: "Remove a switch from a chain. The controller first fences the switch or waits until its lease expires. The switch stays out until \"chain recover\" refills it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ch, err := c.chainOf(cmd.Context(), chain)
			if err != nil {
				return err
			}
			members, here := []string{}, []string{}
			for _, m := range ch.Members {
				here = append(here, m.Switch)
				if m.Switch != args[0] {
					members = append(members, m.Switch)
				}
			}
			switch {
			case len(members) == len(here):
				return &admin.Error{Code: admin.CodeNotFound, Message: fmt.Sprintf("%s is not a member of chain %s, whose members are %s", args[0], ch.Name, list(here))}
			case len(members) == 0:
				return &admin.Error{Code: admin.CodeFailedPrecondition, Message: fmt.Sprintf(
					"%s is the only member of chain %s, and without it the values would be gone: bring another in first (chain recover)", args[0], ch.Name)}
			}
			if !cmd.Flags().Changed("timeout") {
				c.timeout = max(failTimeout, 2*time.Duration(ch.LeaseMillis)*time.Millisecond)
			}
			return c.ask(cmd, func(ctx context.Context) error {
				ch, err := c.api.ChangeChain(ctx, ch.Name, admin.ChainChange{Members: &members})
				if err != nil {
					return err
				}
				return c.show(ch, func(w io.Writer) { printChain(w, ch) })
			})
		},
	}
	cmd.Flags().StringVar(&chain, "chain", "", "chain, by name or number (default: the only one)")
	return cmd
}

func (c *cli) chainRecover() *cobra.Command {
	var chain string
	cmd := &cobra.Command{
		Use: "recover SWITCH", Short: "Copy a chain's data to a switch and make it the tail", Args: cobra.ExactArgs(1),
		Long: "Copy a chain's data to a switch and make it the tail, while the chain serves reads and writes. Writes wait for a moment at the end.\n" +
			"If the switch still holds old values, because it was cut off and not restarted, the controller erases them first.\n" +
			"The controller returns a lost member by itself once it has been stable for rejoinMillis (topology file), later each time. This command does\n" +
			"it at once. A member that you removed by hand returns only through this command.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ch, err := c.chainOf(cmd.Context(), chain)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("timeout") {
				c.timeout = recoverTimeout
			}
			return c.ask(cmd, func(ctx context.Context) error {
				ch, err := c.api.Recover(ctx, ch.Name, args[0])
				if err != nil {
					return err
				}
				return c.show(ch, func(w io.Writer) { printChain(w, ch) })
			})
		},
	}
	cmd.Flags().StringVar(&chain, "chain", "", "chain, by name or number (default: the only one)")
	return cmd
}

func (c *cli) chainWatch() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "watch [CHAIN]", Short: "Print new events of chains and switches until Ctrl-C", Args: cobra.MaximumNArgs(1),
		Long: "Print new events of chains and switches until Ctrl-C. With CHAIN, omit events of other chains.\n" +
			"\"events\" shows earlier events.",
		RunE: func(cmd *cobra.Command, args []string) error {
			asJSON = asJSON || c.output == "json"
			chain := ""
			if len(args) > 0 {
				ch, err := c.chainOf(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				chain = ch.Name
			}
			var last uint64
			if err := c.ask(cmd, func(ctx context.Context) error {
				return c.api.Events(ctx, 0, false, func(e admin.Event) error { last = e.ID; return nil })
			}); err != nil {
				return err
			}
			err := c.api.Events(cmd.Context(), last, true, func(e admin.Event) error {
				if chain != "" && e.Chain != "" && e.Chain != chain {
					return nil
				}
				if asJSON {
					return json.NewEncoder(c.std.Out).Encode(e)
				}
				_, err := fmt.Fprintf(c.std.Out, "%s  %-24s %-12s %s\n", e.Time.Format("15:04:05.000"), e.Type,
					strings.TrimSpace(e.Chain+" "+e.Switch), e.Message)
				return err
			})
			if cmd.Context().Err() != nil {
				return nil // the user has interrupted the command
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object on each line")
	return cmd
}
