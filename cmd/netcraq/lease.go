package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/cmd/internal/operate"
)

func (c *cli) leaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "lease", Short: "Grant, keep alive and revoke leases",
		Long: `Grant, keep alive and revoke leases. When a lease ends, the server removes the keys that were written with it (put --lease).`,
		Example: `  lease=$(netcraq lease grant 30s)
  netcraq put worker/1 busy --lease "$lease"
  netcraq lease keep "$lease"`,
	}
	cmd.AddCommand(c.leaseGrant(), c.leaseKeep(), c.leaseRevoke())
	return cmd
}

// showLease prints a lease: its name as text; as JSON also its TTL.
func (c *cli) showLease(l node.Lease) error {
	return c.show(map[string]any{"lease": l.ID, "ttlMillis": l.TTL.Milliseconds()}, l.ID)
}

func (c *cli) leaseGrant() *cobra.Command {
	return &cobra.Command{
		Use: "grant TTL", Short: "Grant a lease and print its name", Args: cobra.ExactArgs(1),
		Long:    "Grant a lease with a time to live of 500ms to 1h, and print its name. It ends when nobody keeps it alive for that time.",
		Example: `  netcraq lease grant 30s`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ttl, err := time.ParseDuration(args[0])
			if err != nil || !validTTL(ttl) {
				return operate.UsageError(fmt.Errorf("TTL %s: pass a time of 500ms to 1h, such as 30s", args[0]))
			}
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				l, err := cl.Grant(ctx, ttl)
				if err != nil {
					return err
				}
				return c.showLease(l)
			})
		},
	}
}

func (c *cli) leaseKeep() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use: "keep LEASE", Short: "Keep a lease alive until Ctrl-C", Args: cobra.ExactArgs(1),
		Long: "Keep a lease alive until Ctrl-C; it then ends after its time to live. With --once, renew it once.",
		Example: `  netcraq lease keep 1f00c2
  netcraq lease keep 1f00c2 --once`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				for {
					l, err := cl.KeepAlive(ctx, args[0])
					if ctx.Err() != nil {
						return nil
					}
					if node.CodeOf(err) == node.CodeLeaseGone {
						return missing{err}
					}
					if err != nil || once {
						return err
					}
					select {
					case <-ctx.Done():
						return nil
					case <-time.After(l.TTL / 3):
					}
				}
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "renew it once, then exit")
	return cmd
}

func (c *cli) leaseRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke LEASE", Short: "End a lease and remove its keys", Args: cobra.ExactArgs(1),
		Example: `  netcraq lease revoke 1f00c2`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				err := cl.Revoke(ctx, args[0])
				if node.CodeOf(err) == node.CodeLeaseGone {
					return missing{err}
				}
				return err
			})
		},
	}
}
