// Command netcraq-streams has the programs that make bench-streams measures. These are producers,
// working consumers, and a node's stream broker without the other parts of the node's server.
// experiments/bench_streams.py starts each in a separate process.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

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
		fmt.Fprintln(os.Stderr, "netcraq-streams:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "netcraq-streams", Short: "A broker of streams, and loads for it",
		SilenceUsage: true, SilenceErrors: true}
	var socket, dir string
	serve := &cobra.Command{Use: "serve", Short: "serve streams, until SIGTERM", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), socket, dir, cmd.OutOrStdout())
		}}
	serve.Flags().StringVar(&socket, "socket", "", "path of the Unix socket")
	serve.Flags().StringVar(&dir, "streams", "", "folder of streams that survive the process (default: none do)")
	_ = serve.MarkFlagRequired("socket")

	var p producer
	produce := &cobra.Command{Use: "produce", Short: "append chunks, one after the other for each partition",
		Args: cobra.NoArgs, Long: "Append chunks, one after the other for each partition." + streamload.Usage,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		}}
	f := produce.Flags()
	f.StringVar(&p.socket, "socket", "", "path of the broker's Unix socket")
	f.StringVar(&p.stream, "stream", "", "its name")
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
	f.StringVar(&c.socket, "socket", "", "path of the broker's Unix socket")
	f.StringVar(&c.stream, "stream", "", "its name")
	f.StringVar(&c.name, "name", "", "the consumer's")
	f.IntSliceVar(&c.partitions, "partitions", []int{0}, "which")
	f.StringVar(&c.way, "way", "push", "push; pull: the library's; compact: pull in the compact framing")
	f.StringVar(&c.work, "work", "count", "count, filter, words or windows")
	f.IntVar(&c.batch, "batch", 0, "bytes of a batch that is pulled (default: the server's bound)")

	var w follower
	follow := &cobra.Command{Use: "follow", Short: "write a key, and measure when followers receive it",
		Args: cobra.NoArgs, Long: `Write a key again and again, by the node API and to etcd in turn, and measure when a stream's
consumer, the node API's watch and etcd's watch receive it. The report is JSON.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return w.run(cmd.Context(), cmd.OutOrStdout()) }}
	f = follow.Flags()
	f.StringVar(&w.writer, "writer", "", "path of the socket of the node API where the key is written")
	f.StringVar(&w.reader, "reader", "", "path of that where it is followed")
	f.StringToStringVar(&w.etcd, "etcd", nil, "`NAME=ENDPOINT` of etcds that are followed, too (default: none)")
	f.IntVar(&w.writes, "writes", 1000, "by each way, after 50 that do not count")
	f.DurationVar(&w.every, "every", 2*time.Millisecond, "between two of them")

	root.AddCommand(serve, produce, consume, follow)
	return root
}
