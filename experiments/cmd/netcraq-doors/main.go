// Command netcraq-doors has the servers that make bench-nodeapi measures, and their load in Go. All
// servers share one store in memory, so the benchmark compares only the servers' interfaces.
// experiments/bench_nodeapi.py starts it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/experiments/coordinators"
	"github.com/netcraq/netcraq/internal/helptext"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := command()
	helptext.Fit(root)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "netcraq-doors:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "netcraq-doors", Short: "One store behind several doors, and a load for each",
		SilenceUsage: true, SilenceErrors: true}
	var directory, etcd string
	serve := &cobra.Command{Use: "serve", Short: "open all doors, until SIGTERM", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), directory, etcd, cmd.OutOrStdout())
		}}
	serve.Flags().StringVar(&directory, "directory", "", "directory for the sockets")
	_ = serve.MarkFlagRequired("directory")
	serve.Flags().StringVar(&etcd, "etcd", "", "URL of an etcd for a node API whose keys are durable (default: there is none)")

	var load load
	client := &cobra.Command{Use: "client", Short: "get a key, one call at a time", Args: cobra.NoArgs,
		Long: "Get a key, one call at a time. After a line on the input it measures, and prints the results as JSON.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return load.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		}}
	client.Flags().StringVar(&load.door, "door", "", "echo, json, compact or grpc")
	client.Flags().StringVar(&load.address, "address", "", "path of a socket, or tcp://HOST:PORT")
	client.Flags().Float64Var(&load.seconds, "seconds", 1, "length of the run")
	client.Flags().IntVar(&load.warm, "warm", 2000, "calls before that")

	var pair coordinate
	coordinating := &cobra.Command{Use: "coordinate", Short: "two clients of one coordinator", Args: cobra.NoArgs,
		Long: "Two clients of one coordinator do one job repeatedly. Otherwise like the command client.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return pair.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		}}
	coordinating.Flags().StringVar(&pair.kind, "door", "", "node, etcd or consul")
	coordinating.Flags().StringVar(&pair.address, "address", "", "path of a socket for node; otherwise a URL")
	coordinating.Flags().StringVar(&pair.job, "job", "", strings.Join(coordinators.Jobs, ", "))
	coordinating.Flags().Float64Var(&pair.seconds, "seconds", 1, "length of the run")
	coordinating.Flags().IntVar(&pair.warm, "warm", 10, "calls before that")
	coordinating.Flags().IntVar(&pair.least, "least", 1, "calls, however long they take")

	burn := &cobra.Command{Use: "burn", Short: "keep one core busy, until SIGTERM", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runtime.GOMAXPROCS(2)
			done := cmd.Context().Done()
			for n := uint64(1); ; n = n*6364136223846793005 + 1442695040888963407 {
				if n>>44 == 0 {
					select {
					case <-done:
						return nil
					default:
					}
				}
			}
		}}
	root.AddCommand(serve, client, coordinating, burn)
	return root
}

// These are the requested key and its value.
const (
	namespace = "default"
	key       = "services/barista/leader"
	valueSize = 64
	// echoSize is about the size of a read as JSON, and of its answer, in bytes.
	echoSize = 128
)

// background is the context of calls without a timeout.
var background = context.Background()
