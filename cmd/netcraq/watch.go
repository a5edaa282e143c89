package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/cmd/internal/operate"
)

func (c *cli) watchCommand() *cobra.Command {
	var prefix string
	var count int
	cmd := &cobra.Command{
		Use: "watch KEY... [-- COMMAND ARG...]", Short: "Print changes of keys, or run a command for each",
		Args: cobra.ArbitraryArgs,
		Long: `Print the state of keys and then each change, until Ctrl-C: the version, the key and the value. With -- COMMAND, run the command
instead, with NETCRAQ_KEY, NETCRAQ_VERSION and, unless the key was deleted, NETCRAQ_VALUE in its environment.

If a key changes faster than the changes are printed, only its newest value is printed.`,
		Example: `  netcraq watch color
  netcraq watch --prefix config/ -o json
  netcraq watch color --count 1 -- sh -c 'echo "it is $NETCRAQ_VALUE"'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, command := split(cmd, args)
			cfg := node.WatchConfig{Keys: keys}
			if cmd.Flags().Changed("prefix") {
				cfg.Prefix = &prefix
			}
			if (len(keys) == 0) == (cfg.Prefix == nil) {
				return operate.UsageError(errors.New("pass keys, or --prefix PREFIX"))
			}
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				w, err := cl.Watch(ctx, cfg)
				if err != nil {
					return err
				}
				defer w.Close()
				for n := 0; count == 0 || n < count; n++ {
					e, err := w.Next(ctx)
					if ctx.Err() != nil {
						return nil
					}
					if err != nil {
						return err
					}
					if err := c.changed(e, command); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "watch all keys whose names begin with `PREFIX` (\"\": all keys)")
	cmd.Flags().IntVar(&count, "count", 0, "end after this `NUMBER` of events (0: never)")
	return cmd
}

// split separates a command's own arguments from the arguments after --.
func split(cmd *cobra.Command, args []string) (own, command []string) {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		return args[:at], args[at:]
	}
	return args, nil
}

// splitN is like split, for a command with n arguments of its own.
func splitN(cmd *cobra.Command, args []string, n int) (own, command []string, err error) {
	if own, command = split(cmd, args); len(own) != n {
		return nil, nil, operate.UsageError(fmt.Errorf("pass %s, and a command only after --", cmd.Use))
	}
	return own, command, nil
}

// changed handles an event of a watch: it runs the user's command, or prints the event if there is
// none.
func (c *cli) changed(e node.Event, command []string) error {
	if len(command) == 0 {
		s := shownOf(e.Item)
		s.Missed = e.Overtaken
		text := fmt.Sprintf("%s\t%s\t%s", e.Version, e.Key, e.Value)
		if !e.Found {
			text = fmt.Sprintf("%s\t%s\t(no value)", e.Version, e.Key)
		}
		return c.show(s, text)
	}
	run := c.command(command)
	run.Env = append(os.Environ(), "NETCRAQ_KEY="+e.Key, "NETCRAQ_VERSION="+string(e.Version))
	if e.Found {
		run.Env = append(run.Env, "NETCRAQ_VALUE="+string(e.Value))
	}
	return ran(run.Run(), command[0])
}

// command returns another command that uses this command's input and outputs.
func (c *cli) command(words []string) *exec.Cmd {
	run := exec.Command(words[0], words[1:]...)
	run.Stdin, run.Stdout, run.Stderr = c.std.In, c.std.Out, c.std.Err
	return run
}

// ran returns an error with the exit code of a command that has ended.
func ran(err error, name string) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code := exit.ExitCode()
		if code < 0 { // a signal ended the command
			code = 1
		}
		return ranCode{silent{fmt.Errorf("%s: %w", name, err)}, code}
	}
	if err != nil {
		return fmt.Errorf("cannot run %s: %w", name, err)
	}
	return nil
}
