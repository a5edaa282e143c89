package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/cmd/internal/operate"
)

// holdFlags are the flags of commands that hold something while a command runs, for example a lock.
type holdFlags struct {
	ttl, wait time.Duration
	noWait    bool
}

func (h *holdFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&h.ttl, "ttl", 10*time.Second, "time to live (500ms to 1h): others wait at most this `TIME` after this process has died")
	f.DurationVar(&h.wait, "wait", 0, "give up after waiting for this `TIME` (0: never)")
	f.BoolVar(&h.noWait, "no-wait", false, "give up at once instead of waiting")
}

// validTTL reports whether the server grants leases with this TTL.
func validTTL(ttl time.Duration) bool { return ttl >= 500*time.Millisecond && ttl <= time.Hour }

// checkTTL checks the flag --ttl.
func checkTTL(ttl time.Duration) error {
	if !validTTL(ttl) {
		return operate.UsageError(fmt.Errorf("--ttl %v: pass 500ms to 1h", ttl))
	}
	return nil
}

type options = []node.Option

// options converts the flags to options of the client.
func (h *holdFlags) options() (options, error) {
	if err := checkTTL(h.ttl); err != nil {
		return nil, err
	}
	if h.wait < 0 || h.noWait && h.wait > 0 {
		return nil, operate.UsageError(errors.New("--wait: pass a time above 0, and not --no-wait as well"))
	}
	o := []node.Option{node.TTL(h.ttl)}
	if h.noWait || h.wait > 0 {
		o = append(o, node.Wait(h.wait))
	}
	return o, nil
}

const holdHelp = `Without COMMAND, hold it until Ctrl-C. With -- COMMAND, hold it while the command runs; the command's environment has
NETCRAQ_TOKEN, and its exit code becomes this one's. If it is lost meanwhile, the command gets SIGTERM and the exit code is 7.

The fencing token is a number that grows with each holder. Pass it to the resource that the holder changes, and make the resource refuse lower tokens.`

func (c *cli) lockCommand() *cobra.Command {
	var h holdFlags
	cmd := &cobra.Command{
		Use: "lock NAME [-- COMMAND ARG...]", Short: "Hold a lock, or run a command while holding it",
		Args: cobra.MinimumNArgs(1), Long: "Wait for a lock, and hold it. " + holdHelp,
		Example: `  netcraq lock printer -- ./print-all.sh
  netcraq lock printer --no-wait -- true || echo "somebody prints"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.hold(cmd, args, 1, &h, func(ctx context.Context, cl *node.Client, o options) (*node.Held, error) {
				return cl.Lock(ctx, args[0], o...)
			})
		},
	}
	h.add(cmd)
	return cmd
}

func (c *cli) electCommand() *cobra.Command {
	var h holdFlags
	var value string
	cmd := &cobra.Command{
		Use: "elect NAME [-- COMMAND ARG...]", Short: "Campaign for leadership, or run a command while leading",
		Args: cobra.MinimumNArgs(1), Long: "Wait until this process leads, and lead. " + holdHelp,
		Example: `  netcraq elect scheduler --value "$(hostname)" -- ./scheduler`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.hold(cmd, args, 1, &h, func(ctx context.Context, cl *node.Client, o options) (*node.Held, error) {
				return cl.Campaign(ctx, args[0], value, o...)
			})
		},
	}
	host, _ := os.Hostname()
	cmd.Flags().StringVar(&value, "value", host, "publish this `TEXT` about the leader (default: this host's name)")
	cmd.Flags().Lookup("value").DefValue = "" // so that the help does not depend on the host
	h.add(cmd)
	return cmd
}

func (c *cli) semaphoreCommand() *cobra.Command {
	var h holdFlags
	cmd := &cobra.Command{
		Use: "semaphore NAME PERMITS [-- COMMAND ARG...]", Short: "Hold one of N permits, or run a command while holding it",
		Args: cobra.MinimumNArgs(2), Long: "Wait for one of PERMITS permits, and hold it. All processes must pass the same number. " + holdHelp,
		Example: `  netcraq semaphore uploads 3 -- ./upload.sh`,
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 {
				return operate.UsageError(fmt.Errorf("PERMITS %s: pass a number above 0", args[1]))
			}
			return c.hold(cmd, args, 2, &h, func(ctx context.Context, cl *node.Client, o options) (*node.Held, error) {
				return cl.Acquire(ctx, args[0], n, o...)
			})
		},
	}
	h.add(cmd)
	return cmd
}

// hold acquires something by name, and keeps it while a command runs, or until the process is
// interrupted.
func (c *cli) hold(cmd *cobra.Command, args []string, n int, h *holdFlags,
	take func(context.Context, *node.Client, options) (*node.Held, error)) error {
	own, command, err := splitN(cmd, args, n)
	if err != nil {
		return err
	}
	options, err := h.options()
	if err != nil {
		return err
	}
	return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
		held, err := take(ctx, cl, options)
		if ctx.Err() != nil {
			return ranCode{silent{ctx.Err()}, 1}
		}
		if node.CodeOf(err) == node.CodeNotHeld {
			return refused{fmt.Errorf("%s is not free", own[0])}
		}
		if err != nil {
			return err
		}
		if err := c.holding(held, command); err != nil {
			return err
		}
		if len(command) > 0 {
			err = c.runHolding(ctx, held, command)
		} else {
			select {
			case <-ctx.Done():
			case <-held.Lost():
				err = lost(held)
			}
		}
		if e := c.giveBack(ctx, held.Release); e != nil && err == nil {
			err = ranCode{fmt.Errorf("%s was lost before it was given back: %w", held.Name(), e), exitLost}
		}
		return err
	})
}

// giveBack calls release. It does so even if this process is being interrupted.
func (c *cli) giveBack(ctx context.Context, release func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout())
	defer cancel()
	return release(ctx)
}

// holding reports that something was acquired.
func (c *cli) holding(held *node.Held, command []string) error {
	return c.announce(command, map[string]string{"name": held.Name(), "token": strconv.FormatUint(held.Token(), 10),
		"lease": held.Lease()}, fmt.Sprintf("holding %s with token %d", held.Name(), held.Token()))
}

// announce is like show. But if a command is to use the standard output, announce prints text to
// standard error.
func (c *cli) announce(command []string, v any, text string) error {
	if len(command) > 0 {
		_, err := fmt.Fprintln(c.std.Err, text)
		return err
	}
	return c.show(v, text)
}

func lost(held *node.Held) error {
	return ranCode{fmt.Errorf("%s is lost: %w", held.Name(), held.Err()), exitLost}
}

// runHolding runs a command until it ends. It sends SIGTERM to the command if this process is
// interrupted, or if it no longer holds the lock or lease.
func (c *cli) runHolding(ctx context.Context, held *node.Held, command []string) error {
	isLost, err := c.run(ctx, command, held.Lost(), "NETCRAQ_TOKEN="+strconv.FormatUint(held.Token(), 10))
	if isLost {
		return lost(held)
	}
	return err
}

// run runs a command until it ends, with additional environment variables. It sends SIGTERM to the
// command when this process is interrupted, or when stop is closed; isStopped reports whether stop
// was closed.
func (c *cli) run(ctx context.Context, command []string, stop <-chan struct{}, variables ...string) (isStopped bool,
	err error) {
	run := c.command(command)
	run.Env = append(os.Environ(), variables...)
	if err := run.Start(); err != nil {
		return false, ran(err, command[0])
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	select {
	case err := <-ended:
		return false, ran(err, command[0])
	case <-stop:
		isStopped = true
	case <-ctx.Done():
	}
	_ = run.Process.Signal(syscall.SIGTERM)
	return isStopped, ran(<-ended, command[0])
}
