// Command netcraq-bench-jetstream runs NATS JetStream, to compare it with our streams in make
// bench-streams. It also runs the loads of netcraq-streams with JetStream's own client.
// experiments/bench_streams.py starts the server and each load as separate processes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/internal/helptext"
	"github.com/netcraq/netcraq/internal/streamload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := command()
	helptext.Fit(root)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "netcraq-bench-jetstream:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "netcraq-bench-jetstream", Short: "NATS JetStream, and loads for it",
		SilenceUsage: true, SilenceErrors: true}
	var s server
	serve := &cobra.Command{Use: "serve", Short: "serve streams, until SIGTERM", Args: cobra.NoArgs,
		Long: `Serve a stream of JetStream for each partition, until SIGTERM. It says "ready" and its URL, which
has a password, when it serves.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context(), cmd.OutOrStdout()) }}
	f := serve.Flags()
	f.StringVar(&s.dir, "dir", "", "folder for what JetStream keeps")
	f.StringVar(&s.storage, "storage", "memory", "memory or file")
	f.IntVar(&s.partitions, "partitions", 1, "number of partitions")
	f.Int64Var(&s.bytes, "bytes", 1<<20, "size limit of a partition, in bytes")
	_ = serve.MarkFlagRequired("dir")

	var p producer
	produce := &cobra.Command{Use: "produce", Short: "publish chunks, one after the other for each partition",
		Args: cobra.NoArgs, Long: "Publish chunks, one after the other for each partition." + streamload.Usage,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		}}
	f = produce.Flags()
	f.StringVar(&p.url, "url", "", "the server's")
	f.IntSliceVar(&p.partitions, "partitions", []int{0}, "which")
	f.IntVar(&p.chunk, "chunk", 32<<10, "bytes of records in a chunk")
	f.IntVar(&p.record, "record", 100, "bytes of a record")

	var c consumer
	consume := &cobra.Command{Use: "consume", Short: "read, and do something with each record", Args: cobra.NoArgs,
		Long: "Read, and do something with each record." + streamload.Usage,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		}}
	f = consume.Flags()
	f.StringVar(&c.url, "url", "", "the server's")
	f.StringVar(&c.name, "name", "", "the consumer's")
	f.IntSliceVar(&c.partitions, "partitions", []int{0}, "which")
	f.StringVar(&c.way, "way", "messages", "messages: asked for ahead; fetch: batch after batch; push: they are sent")
	f.StringVar(&c.work, "work", "count", "count, filter, words or windows")
	f.IntVar(&c.batch, "batch", 128<<10, "bytes that are asked for at once, and that are acknowledged together")

	root.AddCommand(serve, produce, consume)
	return root
}
