// Command netcraq-pipelets copies records between stores, as described by pipelets
// (docs/pipelets.md).
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/internal/helptext"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/run"
	"github.com/netcraq/netcraq/pipelets/synchronizer/share"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := command()
	helptext.Fit(root)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "netcraq-pipelets:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "netcraq-pipelets",
		Short:         "Copy records between stores as pipelets define it",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cfg := run.Config{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	alone, secrets := false, ""
	start := &cobra.Command{
		Use:   "run FILE...",
		Short: "Run the pipelets of files until SIGINT or SIGTERM",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			all, err := run.Load(c.Context(), files)
			if err != nil {
				return err
			}
			cfg.Secrets = func(string) endpoint.Secrets { return endpoint.Folder(secrets) }
			if !alone {
				cfg.Shared = share.New()
			}
			run.Run(c.Context(), cfg, all)
			return nil
		},
	}
	start.Flags().BoolVar(&alone, "no-consolidation", false, "let each worker read its source separately")
	start.Flags().StringVar(&secrets, "secrets", "/run/secrets/netcraq-pipelets",
		"folder with one folder for each secret")
	check := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check the pipelets of files and print their mistakes",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			all, err := run.Load(c.Context(), files)
			for _, p := range all {
				fmt.Fprintf(c.OutOrStdout(), "pipelet %s/%s: all is well\n", p.Namespace, p.Name)
			}
			return err
		},
	}
	root.AddCommand(start, check, explain(), operate())
	return root
}
