package operate

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
)

// answer is the result of get, put, del and cas as JSON.
type answer struct {
	Key  string `json:"key"`
	Name string `json:"name,omitempty"`
	*state
	Superseded bool    `json:"superseded,omitempty"` // a newer write had already replaced the value
	AnsweredBy string  `json:"answeredBy"`
	Epoch      uint16  `json:"epoch"`
	Micros     float64 `json:"micros"`
	Packets    int     `json:"packets"`
}

func (c *cli) getCommand() *cobra.Command {
	var eventual, raw bool
	cmd := &cobra.Command{
		Use: "get KEY", Short: "Read a key", Args: cobra.ExactArgs(1),
		Long: "Read a key. The answer is the newest committed value (linearizable), unless --eventual allows an older one.",
		RunE: func(cmd *cobra.Command, args []string) error {
			var options []client.Option
			if eventual {
				options = append(options, client.Eventual())
			}
			return c.do(cmd.Context(), args[0], false, func(ctx context.Context, cl *client.Client, k key) error {
				r, err := cl.Get(ctx, k.id, options...)
				if err != nil {
					return err
				}
				if raw {
					_, err := c.std.Out.Write(r.Value)
					return err
				}
				return c.show(answer{
					Key: k.id.String(), Name: k.name, state: stateOf(r.Version, r.Value, true),
					AnsweredBy: r.From.String(), Epoch: r.Epoch, Micros: micros(r.RTT), Packets: r.Attempts,
				}, func(w io.Writer) {
					table(w, [][]string{
						{"key", k.String()},
						{"value", wire.FormatValue(r.Value, 0)},
						{"version", r.Version.String()},
						{"answer", fmt.Sprintf("from %v in %s, %s", r.From, short(r.RTT), plural(r.Attempts, "packet"))},
					})
				})
			})
		},
	}
	cmd.Flags().BoolVar(&eventual, "eventual", false, "allow the last committed value that the nearest switch knows")
	cmd.Flags().BoolVar(&raw, "raw", false, "print only the value's bytes")
	return cmd
}

func (c *cli) putCommand() *cobra.Command {
	return &cobra.Command{
		Use: "put KEY VALUE", Short: "Write a key", Args: cobra.ExactArgs(2),
		Long: "Write a key. VALUE is text, @FILE, @- for standard input, or hex:00ff... The key must already be in the network (chain add-key).",
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := c.value(args[1])
			if err != nil {
				return err
			}
			return c.write(cmd.Context(), args[0], "put", func(ctx context.Context, cl *client.Client,
				k wire.Key) (client.Result, error) {
				return cl.Put(ctx, k, value)
			})
		},
	}
}

func (c *cli) deleteCommand() *cobra.Command {
	var ifVersion string
	cmd := &cobra.Command{
		Use: "del KEY", Short: "Delete a key's value", Args: cobra.ExactArgs(1),
		Long: "Delete a key's value. The key stays in the network; chain remove-key removes it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if ifVersion == "" {
				return c.write(cmd.Context(), args[0], "deleted", func(ctx context.Context, cl *client.Client,
					k wire.Key) (client.Result, error) {
					return cl.Delete(ctx, k)
				})
			}
			expected, err := wire.ParseVersion(ifVersion)
			if err != nil {
				return usageError{fmt.Errorf("--if-version: %w", err)}
			}
			return c.write(cmd.Context(), args[0], "deleted", func(ctx context.Context, cl *client.Client,
				k wire.Key) (client.Result, error) {
				return cl.CompareAndDelete(ctx, k, expected)
			})
		},
	}
	cmd.Flags().StringVar(&ifVersion, "if-version", "", "delete only if this is the key's version")
	return cmd
}

func (c *cli) casCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cas KEY EXPECTED-VERSION VALUE", Short: "Write a key if it has the expected version", Args: cobra.ExactArgs(3),
		Long: "Write a key if its version is EXPECTED-VERSION: EPOCH.SEQUENCE as get and put print it, or 0 for a key that was never written.\n" +
			"Otherwise print the key's version and value, and exit with 4.",
		RunE: func(cmd *cobra.Command, args []string) error {
			expected, err := wire.ParseVersion(args[1])
			if err != nil {
				return usageError{err}
			}
			value, err := c.value(args[2])
			if err != nil {
				return err
			}
			return c.write(cmd.Context(), args[0], "swapped", func(ctx context.Context, cl *client.Client,
				k wire.Key) (client.Result, error) {
				return cl.CompareAndSwap(ctx, k, expected, value)
			})
		},
	}
}

// write executes a write and prints its result.
func (c *cli) write(ctx context.Context, name, done string, f func(context.Context, *client.Client, wire.Key) (
	client.Result, error)) error {
	return c.do(ctx, name, true, func(ctx context.Context, cl *client.Client, k key) error {
		r, err := f(ctx, cl, k.id)
		if err != nil {
			return err
		}
		s := stateOf(r.Version, nil, done != "deleted")
		s.Text = nil
		return c.show(answer{
			Key: k.id.String(), Name: k.name, state: s, Superseded: r.Superseded, AnsweredBy: r.From.String(),
			Epoch: r.Epoch, Micros: micros(r.RTT), Packets: r.Attempts,
		}, func(w io.Writer) {
			table(w, [][]string{
				{"key", k.String()},
				{done, "version " + r.Version.String() + map[bool]string{true: " (and already replaced by a newer one)"}[r.Superseded]},
				{"answer", fmt.Sprintf("from %v in %s, %s", r.From, short(r.RTT), plural(r.Attempts, "packet"))},
			})
		})
	})
}

// noSwitch is the error message for a host that reaches the controller but no switch.
const noSwitch = "no switch answers here. Switches answer the hosts of their network: run this on one " +
	"(in the prompt of make run KEEP=1: h1 bin/netcraqctl ...), or see netcraqctl doctor"

// do finds the key and its target, and calls f with a client for them.
func (c *cli) do(ctx context.Context, name string, writes bool, f func(context.Context, *client.Client,
	key) error) error {
	k, err := c.findKey(ctx, name)
	if err != nil {
		return err
	}
	t, err := c.targetOf(ctx, k)
	if err != nil {
		return err
	}
	cfg := client.Config{Addresses: t.addresses, Services: t.services, Profile: t.profile,
		Retransmit: c.retransmit, AtLeastOnce: true}
	if writes {
		if cfg.Sessions, err = c.sessionSource(ctx, 1, owner()); err != nil {
			return err
		}
		cfg.AtLeastOnce = cfg.Sessions == nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	cl, err := client.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }() // closing can only fail for the unused socket
	err = f(ctx, cl, k)
	if errors.Is(err, client.ErrTimeout) && len(t.services) == 0 && cl.Stats().Foreign > 0 {
		return fmt.Errorf("%w\nname the chain's service address, where answers come from, with --service", err)
	}
	if err != nil && cl.Stats().Received == 0 && t.chain != nil && errors.Is(err, client.ErrTimeout) {
		err = fmt.Errorf("%w\n%s", err, noSwitch)
	}
	if t.chain == nil && errors.Is(err, client.ErrTimeout) {
		err = fmt.Errorf("%w\nis --server right, and --value-bits (%v here)? Switches drop packets with values of another width", err, t.profile)
	}
	return err
}

// owner returns the name of this command for the controller's events.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("netcraqctl %d on %s", os.Getpid(), host)
}

// value parses VALUE.
func (c *cli) value(s string) ([]byte, error) {
	b, file, isFile, err := ParseValue(s)
	if err != nil {
		return nil, usageError{fmt.Errorf("the value %q: %w (text:%s is the text itself)", s, err, s)}
	}
	if !isFile {
		return b, nil
	}
	if file == "-" {
		b, err = io.ReadAll(c.std.In)
	} else {
		b, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the value (text:%s is the text itself): %w", s, err)
	}
	return b, nil
}

// ParseValue parses VALUE, which is hex:00ff, @FILE or text. For @FILE it returns the file's name.
// Text that looks like one of the other forms needs the prefix text:.
func ParseValue(s string) (value []byte, file string, isFile bool, err error) {
	if digits, ok := strings.CutPrefix(s, "hex:"); ok {
		value, err = hex.DecodeString(digits)
		return value, "", false, err
	}
	if text, ok := strings.CutPrefix(s, "text:"); ok {
		return []byte(text), "", false, nil
	}
	file, isFile = strings.CutPrefix(s, "@")
	return []byte(s), file, isFile, nil
}
