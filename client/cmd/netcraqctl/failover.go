package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/controlplane/admin/api"
)

// The commands about members that fail and come back.

func (c *cli) chainFail() *cobra.Command {
	var chain string
	cmd := &cobra.Command{
		Use: "fail SWITCH", Short: "Take a switch out of a chain, as if it had failed", Args: cobra.ExactArgs(1),
		Long: "Take a switch out of a chain. It is fenced first, or its lease has run out. \"chain recover\" brings it back, filled anew.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ch, err := c.chainOf(cmd.Context(), chain)
			if err != nil {
				return err
			}
			members := []string{}
			for _, m := range ch.Members {
				if m.Switch != args[0] {
					members = append(members, m.Switch)
				}
			}
			if len(members) == len(ch.Members) {
				return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("%s is no member of chain %s", args[0], ch.Name)}
			}
			return c.ask(cmd, func(ctx context.Context) error {
				ch, err := c.api.ChangeChain(ctx, ch.Name, api.ChainChange{Members: &members})
				if err != nil {
					return err
				}
				return c.show(ch, func(w io.Writer) { printChain(w, ch) })
			})
		},
	}
	cmd.Flags().StringVar(&chain, "chain", "", "the chain, by name or number (default: the only one)")
	return cmd
}

func (c *cli) chainRecover() *cobra.Command {
	var chain string
	cmd := &cobra.Command{
		Use: "recover SWITCH", Short: "Fill a switch behind a chain's tail and make it the tail", Args: cobra.ExactArgs(1),
		Long: "Fill a switch behind a chain's tail and make it the tail, while the chain is read and written. Writes wait for a moment at the end.\n" +
			"A switch that holds values of before, because it was cut off and not restarted, is emptied first.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ch, err := c.chainOf(cmd.Context(), chain)
			if err != nil {
				return err
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
	cmd.Flags().StringVar(&chain, "chain", "", "the chain, by name or number (default: the only one)")
	return cmd
}

func (c *cli) chainWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch [CHAIN]", Short: "Show what happens to chains from now on", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := c.api.Events(cmd.Context(), 0, true, func(e api.Event) error {
				if e.Chain == "" || len(args) > 0 && !slices.Contains(args, e.Chain) {
					return nil
				}
				return c.show(e, func(w io.Writer) {
					fmt.Fprintf(w, "%s  %-24s %-12s %s\n", e.Time.Format("15:04:05.000"), e.Type, e.Chain+" "+e.Switch, e.Message)
				})
			})
			if cmd.Context().Err() != nil {
				return nil // interrupted
			}
			return err
		},
	}
}
