package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/cmd/internal/operate"
	"github.com/netcraq/netcraq/cmd/internal/place"
)

// connect connects to the node API. If no server runs it fails at once, and the error names the
// remedy.
func (c *cli) connect(ctx context.Context) (*node.Client, error) {
	socket := c.socket
	if socket == "" {
		socket = place.NodeSocket(c.getenv)
	}
	if socket == "" {
		return nil, c.noServer()
	}
	cl, err := node.Connect(ctx, node.Config{Socket: socket, Namespace: c.namespace, Agent: "netcraq",
		Wait: connectTime, Timeout: c.timeout()})
	if err != nil && ctx.Err() == nil && !listens(socket) {
		return nil, fmt.Errorf("no server listens at %s. Start one with netcraq dev, or name another with --socket", socket)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the node API at %s: %w", socket, err)
	}
	return cl, nil
}

// listens reports whether a process accepts connections at a socket.
func listens(socket string) bool {
	network, address := "unix", strings.TrimPrefix(socket, "unix://")
	if tcp, ok := strings.CutPrefix(socket, "tcp://"); ok {
		network, address = "tcp", tcp
	}
	nc, err := net.DialTimeout(network, address, connectTime)
	if err != nil {
		return false
	}
	nc.Close()
	return true
}

// connectTime is the time to wait for a server. It suffices while a server is being replaced.
const connectTime = time.Second

// noServer returns the error that no server was found. It lists the sockets at which the command
// searched.
func (c *cli) noServer() error {
	text := "found no NetCRAQ server\n  looked for   $" + nodeapi.SocketVariable + " (not set)"
	for _, p := range place.Candidates(c.getenv) {
		text += ", " + p[0]
	}
	return errors.New(text + "\n  to start one on this machine: netcraq dev\n  to use another one:           --socket PATH")
}

// call connects to the node API and calls f with the connection.
func (c *cli) call(cmd *cobra.Command, f func(ctx context.Context, cl *node.Client) error) error {
	cl, err := c.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer cl.Close(context.Background())
	return f(cmd.Context(), cl)
}

// refused is the error of a write whose condition was not met. The write changed nothing.
type refused struct{ error }

// missing is the error for a key without a value.
type missing struct{ error }

// shown is the state of a key as JSON, one object per line.
type shown struct {
	Key     string  `json:"key"`
	Found   bool    `json:"found"`
	Value   *string `json:"value,omitempty"`
	Base64  []byte  `json:"valueBase64,omitempty"` // set if the value is not text
	Version string  `json:"version"`
	Lease   string  `json:"lease,omitempty"`
	Missed  uint64  `json:"missed,omitempty"` // number of earlier versions that were not shown
}

func shownOf(i node.Item) shown {
	s := shown{Key: i.Key, Found: i.Found, Version: string(i.Version), Lease: i.Lease}
	if text := string(i.Value); i.Found && utf8.ValidString(text) {
		s.Value = &text
	} else if i.Found {
		s.Base64 = i.Value
	}
	return s
}

// show prints v as a line of JSON if the output is JSON, and otherwise prints text as a line.
func (c *cli) show(v any, text string) error {
	if c.json() {
		e := json.NewEncoder(c.out())
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	_, err := fmt.Fprintln(c.out(), text)
	return err
}

// showVersion prints a key's current version.
func (c *cli) showVersion(key string, v node.Version) error {
	return c.show(map[string]string{"key": key, "version": string(v)}, string(v))
}

// value parses VALUE.
func (c *cli) value(s string) ([]byte, error) {
	if s == "-" {
		if c.inRead { // standard input was already read to its end, so another value would be empty
			return nil, operate.UsageError(errors.New("standard input is a value twice. Pass @FILE for one of them"))
		}
		c.inRead = true
		return io.ReadAll(c.std.In)
	}
	b, file, isFile, err := operate.ParseValue(s)
	if err != nil {
		return nil, operate.UsageError(fmt.Errorf("the value %s: %w. Pass text:%s if that is the text itself", s, err, s))
	}
	if !isFile {
		return b, nil
	}
	if b, err = os.ReadFile(file); err != nil {
		return nil, fmt.Errorf("cannot read the value: %w. Pass text:%s if that is the text itself", err, s)
	}
	return b, nil
}

// version parses a version. "0" is the version of a key that was never written.
func version(flag, s string) (node.Version, error) {
	if s == "0" {
		return node.Never, nil
	}
	epoch, sequence, ok := strings.Cut(s, ".")
	_, err1 := strconv.ParseUint(epoch, 10, 16)
	_, err2 := strconv.ParseUint(sequence, 10, 48)
	if !ok || err1 != nil || err2 != nil {
		return "", operate.UsageError(fmt.Errorf("%s %s: pass a version such as 1.7, as get and put print it, or 0 for a key that was never written", flag, s))
	}
	return node.Version(s), nil
}

func (c *cli) getCommand() *cobra.Command {
	var eventual, withVersion bool
	cmd := &cobra.Command{
		Use: "get KEY", SuggestFor: []string{"read", "show"}, Short: "Read a key", Args: cobra.ExactArgs(1),
		Long: "Print the value of a key. The answer is the newest committed value (linearizable), unless --eventual allows an older one.",
		Example: `  netcraq get color
  netcraq get color -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				var options []node.Option
				if eventual {
					options = append(options, node.Eventual())
				}
				i, err := cl.Get(ctx, args[0], options...)
				if err != nil {
					return err
				}
				if !i.Found && c.json() {
					_ = c.show(shownOf(i), "")
					return silent{missing{}}
				}
				if !i.Found {
					return missing{fmt.Errorf("%s has no value", args[0])}
				}
				text := string(i.Value)
				if withVersion {
					text = string(i.Version) + "\t" + text
				}
				return c.show(shownOf(i), text)
			})
		},
	}
	cmd.Flags().BoolVar(&withVersion, "version", false, "print the version before the value")
	cmd.Flags().BoolVar(&eventual, "eventual", false, "allow the last committed value that the nearest switch knows")
	return cmd
}

// silent is an error without a message, because the output has already shown the problem.
type silent struct{ error }

func (silent) Silent() bool    { return true }
func (s silent) Unwrap() error { return s.error }

func (c *cli) putCommand() *cobra.Command {
	var ifVersion, lease string
	var ifAbsent bool
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "put KEY VALUE", SuggestFor: []string{"set", "write"}, Short: "Write a key", Args: cobra.ExactArgs(2),
		Long: "Write a key, and print its new version. VALUE is text, @FILE, - for standard input, or hex:00ff. Write text: before text that begins like one of these.",
		Example: `  netcraq put color blue
  netcraq put color red --if-version 1.7
  netcraq put session open --ttl 30s
  netcraq put config @config.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if ifAbsent && ifVersion != "" {
				return operate.UsageError(errors.New("--if-absent and --if-version exclude each other: pass one"))
			}
			if ttl != 0 && lease != "" {
				return operate.UsageError(errors.New("--ttl grants a lease of its own: pass --ttl or --lease"))
			}
			if ttl != 0 && !validTTL(ttl) {
				return operate.UsageError(fmt.Errorf("--ttl %v: pass a time of 500ms to 1h", ttl))
			}
			value, err := c.value(args[1])
			if err != nil {
				return err
			}
			expected := node.Never
			if ifVersion != "" {
				if expected, err = version("--if-version", ifVersion); err != nil {
					return err
				}
			}
			return c.call(cmd, func(ctx context.Context, cl *node.Client) (err error) {
				name := lease
				if ttl != 0 {
					granted, err := cl.Grant(ctx, ttl)
					if err != nil {
						return err
					}
					name = granted.ID
				}
				var options []node.Option
				if name != "" {
					options = append(options, node.WithLease(name))
				}
				switch {
				case ifAbsent:
					err = c.putAbsent(ctx, cl, args[0], value, options)
				case ifVersion != "":
					err = c.swap(ctx, cl, args[0], expected, value, options)
				default:
					err = c.put(ctx, cl, args[0], value, options)
				}
				if ttl != 0 && errors.As(err, new(refused)) {
					err = errors.Join(err, cl.Revoke(ctx, name)) // no key was written under the lease
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&ifVersion, "if-version", "", "write only if this is the key's `VERSION`")
	cmd.Flags().BoolVar(&ifAbsent, "if-absent", false, "write only if the key has no value")
	cmd.Flags().StringVar(&lease, "lease", "", "remove the key when this `LEASE` ends")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "remove the key after this `TIME` (500ms to 1h)")
	return cmd
}

func (c *cli) put(ctx context.Context, cl *node.Client, key string, value []byte, options []node.Option) error {
	v, err := cl.Put(ctx, key, value, options...)
	if err != nil {
		return err
	}
	return c.showVersion(key, v)
}

// putAbsent writes a key that has no value. If the key was deleted, its version is that of the
// deletion.
func (c *cli) putAbsent(ctx context.Context, cl *node.Client, key string, value []byte, options []node.Option) error {
	expected := node.Never
	for {
		i, swapped, err := cl.CAS(ctx, key, expected, value, options...)
		switch {
		case err != nil:
			return err
		case swapped:
			return c.showVersion(key, i.Version)
		case i.Found:
			return refused{fmt.Errorf("%s has a value, of version %s; nothing was written", key, i.Version)}
		}
		expected = i.Version
	}
}

// swap writes a key if it has the expected version.
func (c *cli) swap(ctx context.Context, cl *node.Client, key string, expected node.Version, value []byte,
	options []node.Option) error {
	i, swapped, err := cl.CAS(ctx, key, expected, value, options...)
	if err != nil {
		return err
	}
	if !swapped {
		return refused{fmt.Errorf("%s has version %s, not %s; nothing was written", key, i.Version, expected)}
	}
	return c.showVersion(key, i.Version)
}

func (c *cli) casCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cas KEY VERSION VALUE", Short: "Write a key if it has a version", Args: cobra.ExactArgs(3),
		Long: "Compare and swap: write a key if its version is VERSION, as get --version and put print it, or 0 for a key that was never written.\n" +
			"Print the new version. If the version is another one, write nothing and exit with 4. put --if-version does the same.",
		Example: `  netcraq cas color 0 blue
  netcraq cas color 1.7 red`,
		RunE: func(cmd *cobra.Command, args []string) error {
			expected, err := version("VERSION", args[1])
			if err != nil {
				return err
			}
			value, err := c.value(args[2])
			if err != nil {
				return err
			}
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				return c.swap(ctx, cl, args[0], expected, value, nil)
			})
		},
	}
}

func (c *cli) deleteCommand() *cobra.Command {
	var ifVersion string
	cmd := &cobra.Command{
		Use: "delete KEY", Aliases: []string{"del"}, SuggestFor: []string{"rm", "remove"}, Short: "Delete a key", Args: cobra.ExactArgs(1),
		Long: "Delete a key's value, and print the version of the deletion. Deleting a key that has no value succeeds.",
		Example: `  netcraq delete color
  netcraq delete color --if-version 1.7`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var options []node.Option
			if ifVersion != "" {
				v, err := version("--if-version", ifVersion)
				if err != nil {
					return err
				}
				options = append(options, node.IfVersion(v))
			}
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				i, deleted, err := cl.Delete(ctx, args[0], options...)
				if err != nil {
					return err
				}
				if !deleted {
					return refused{fmt.Errorf("%s has version %s, not %s; nothing was deleted", args[0], i.Version, ifVersion)}
				}
				return c.showVersion(args[0], i.Version)
			})
		},
	}
	cmd.Flags().StringVar(&ifVersion, "if-version", "", "delete only if this is the key's `VERSION`")
	return cmd
}

func (c *cli) incrementCommand() *cobra.Command {
	var by int64
	cmd := &cobra.Command{
		Use: "increment KEY", Short: "Add to a counter and print the result", Args: cobra.ExactArgs(1),
		Long: "Add to a key whose value is a whole number, and print the sum. A key without a value counts as 0.",
		Example: `  netcraq increment visits
  netcraq increment visits --by -3`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				n, v, err := cl.Increment(ctx, args[0], by)
				if err != nil {
					return err
				}
				return c.show(map[string]any{"key": args[0], "number": n, "version": string(v)}, strconv.FormatInt(n, 10))
			})
		},
	}
	cmd.Flags().Int64Var(&by, "by", 1, "add this `NUMBER`, which may be negative")
	return cmd
}
