package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/cmd/internal/operate"
)

func (c *cli) streamCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stream", Short: "Create, append to, read and delete streams",
		Long: `Create, append to, read and delete streams. A stream is a sequence of records that several consumers read, each at its own pace.
Programs read streams without a copy by the libraries (docs/streams.md); these commands are for people and shells.`,
		Example: `  netcraq stream create orders
  netcraq stream append orders '{"id":1}'
  netcraq stream read orders --from earliest`,
	}
	cmd.AddCommand(c.streamCreate(), c.streamList(), c.streamAppend(), c.streamRead(), c.streamDelete())
	return cmd
}

func (c *cli) streamCreate() *cobra.Command {
	var cfg nodeapi.StreamConfig
	var keys string
	cmd := &cobra.Command{
		Use: "create STREAM", Short: "Create a stream", Args: cobra.ExactArgs(1),
		Long: "Create a stream, unless there is one of this name, and print where each partition begins and ends.",
		Example: `  netcraq stream create orders --partitions 4
  netcraq stream create changes --keys config/   # records are changes of keys`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("keys") {
				cfg.Source = &nodeapi.StreamSource{Keys: &nodeapi.KeysSource{Prefix: keys}}
			}
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				a, err := cl.OpenStream(ctx, args[0], &cfg)
				if err != nil {
					return err
				}
				text := "created " + a.Stream
				if !a.Made {
					text = a.Stream + " is there already; its settings did not change"
				}
				for i, p := range a.State {
					text += fmt.Sprintf("\npartition %d: records %d to %d", i, p.Oldest, p.Next)
				}
				return c.show(a, text)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Partitions, "partitions", 1, "`NUMBER` of partitions, 1 to 32; records of one partition keep their order")
	f.StringVar(&keys, "keys", "", "fill the stream with the changes of the keys whose names begin with `PREFIX`")
	f.BoolVar(&cfg.Volatile, "volatile", false, "drop the stream's records when the server stops")
	return cmd
}

func (c *cli) streamList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the streams of the namespace", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				names, err := cl.Streams(ctx)
				for _, name := range names {
					if err = c.show(map[string]string{"stream": name}, name); err != nil {
						break
					}
				}
				return err
			})
		},
	}
}

func (c *cli) streamDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete STREAM", Short: "Delete a stream and its records", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				return cl.DeleteStream(ctx, args[0])
			})
		},
	}
}

// record converts a value to the form that the API uses.
func record(value []byte) nodeapi.RecordData {
	if text := string(value); utf8.ValidString(text) {
		return nodeapi.RecordData{Value: &text}
	}
	return nodeapi.RecordData{ValueBase64: value}
}

func (c *cli) streamAppend() *cobra.Command {
	var partition int
	cmd := &cobra.Command{
		Use: "append STREAM [VALUE...]", Short: "Append records to a stream", Args: cobra.MinimumNArgs(1),
		Long: "Append one record for each VALUE, or for each line of standard input, and print the offset of the first one.\n" +
			"VALUE is text, @FILE, or hex:00ff, as for put.",
		Example: `  netcraq stream append orders '{"id":1}' '{"id":2}'
  tail -f access.log | netcraq stream append log`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				stream := nodeapi.StreamData{Namespace: c.namespace, Stream: args[0]}
				d := nodeapi.AppendData{StreamData: stream, Partition: partition}
				if len(args) > 1 {
					for _, v := range args[1:] {
						value, err := c.value(v)
						if err != nil {
							return err
						}
						d.Records = append(d.Records, record(value))
					}
					return c.appendRecords(ctx, cl, d)
				}
				lines := bufio.NewScanner(c.std.In)
				for lines.Scan() {
					d.Records = []nodeapi.RecordData{record(lines.Bytes())}
					if err := c.appendRecords(ctx, cl, d); err != nil {
						return err
					}
				}
				if errors.Is(lines.Err(), bufio.ErrTooLong) {
					return fmt.Errorf("a line is longer than %d bytes. Pass it as @FILE", bufio.MaxScanTokenSize)
				}
				return lines.Err()
			})
		},
	}
	cmd.Flags().IntVar(&partition, "partition", 0, "append to this partition, by its `NUMBER` from 0")
	return cmd
}

// appendRecords appends all records. While consumers are slow, the server may accept only some
// records at a time.
func (c *cli) appendRecords(ctx context.Context, cl *node.Client, d nodeapi.AppendData) error {
	first := ""
	for len(d.Records) > 0 {
		a, err := cl.Append(ctx, d)
		if err != nil {
			return err
		}
		if a.Appended == 0 {
			return fmt.Errorf("%d records were not appended: a consumer holds its place in the full stream. Try again later", len(d.Records))
		}
		if first == "" {
			first = strconv.FormatUint(a.Offset, 10)
		}
		d.Records = d.Records[a.Appended:]
	}
	return c.show(map[string]string{"stream": d.Stream, "offset": first}, first)
}

// streamed is a record of a stream as JSON, one object per line.
type streamed struct {
	Stream    string    `json:"stream"`
	Partition int       `json:"partition"`
	Offset    uint64    `json:"offset,string"`
	Time      time.Time `json:"time"`
	Value     *string   `json:"value,omitempty"`
	Base64    []byte    `json:"valueBase64,omitempty"`
}

func (c *cli) streamRead() *cobra.Command {
	var d nodeapi.ReadData
	var count int
	var follow bool
	cmd := &cobra.Command{
		Use: "read STREAM", Short: "Print the records of a stream", Args: cobra.ExactArgs(1),
		Long: "Print the records of a partition that are there: the offset and the value. With --follow, wait for more until Ctrl-C.\n" +
			"With --consumer NAME, the server holds the records that NAME has not read yet, and NAME goes on where it was.",
		Example: `  netcraq stream read orders --from earliest
  netcraq stream read orders --consumer billing --follow -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			d.Namespace, d.Stream = c.namespace, args[0]
			if d.From != "" && d.From != nodeapi.FromEarliest && d.From != nodeapi.FromLatest {
				n, err := strconv.ParseUint(d.From, 10, 64)
				if err != nil {
					return operate.UsageError(fmt.Errorf("--from %s: pass earliest, latest or an offset", d.From))
				}
				d.From, d.Offset = "", &n
			}
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				return c.readRecords(ctx, cl, d, count, follow)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.From, "from", "", "begin at earliest, latest or an `OFFSET` (default: where --consumer was, otherwise earliest)")
	f.StringVar(&d.Consumer, "consumer", "", "read as the consumer of this `NAME`")
	f.IntVar(&d.Partition, "partition", 0, "read this partition, by its `NUMBER` from 0")
	f.IntVar(&count, "count", 0, "end after this `NUMBER` of records (0: no bound)")
	f.BoolVarP(&follow, "follow", "f", false, "wait for more records until Ctrl-C")
	return cmd
}

// readRecords prints the records of a stream, beginning at a position.
func (c *cli) readRecords(ctx context.Context, cl *node.Client, d nodeapi.ReadData, count int, follow bool) error {
	for n := 0; ; {
		d.MaxRecords = 256
		if count > 0 {
			d.MaxRecords = min(d.MaxRecords, count-n)
		}
		if follow {
			d.WaitMillis = 1000
		}
		a, err := cl.Read(ctx, d)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if a.Missed > 0 {
			fmt.Fprintf(c.std.Err, "%d records before offset %d are gone\n", a.Missed, a.Offset)
		}
		for i, r := range a.Records {
			at := a.Offset + uint64(i)
			value := string(r.ValueBase64)
			if r.Value != nil {
				value = *r.Value
			}
			if err := c.show(streamed{d.Stream, d.Partition, at, time.UnixMicro(r.Time).UTC(), r.Value, r.ValueBase64},
				fmt.Sprintf("%d\t%s", at, value)); err != nil {
				return err
			}
		}
		n += len(a.Records)
		if count > 0 && n >= count || len(a.Records) == 0 && !follow {
			return nil
		}
		d.From, d.Offset, d.Incarnation = "", &a.Next, a.Incarnation
	}
}
