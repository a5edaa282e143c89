package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/cmd/internal/operate"
)

func (c *cli) leaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "lease", Short: "Grant, keep alive, revoke and list leases",
		Long: `Grant, keep alive, revoke and list leases. When a lease ends, the server removes the keys that were written with it (put --lease).`,
		Example: `  lease=$(netcraq lease grant 30s)
  netcraq put worker/1 busy --lease "$lease"
  netcraq lease keep "$lease"
  netcraq lease list`,
	}
	cmd.AddCommand(c.leaseGrant(), c.leaseKeep(), c.leaseRevoke(), c.leaseList())
	return cmd
}

// showLease prints a lease. As text this is its name; as JSON it is its name and its TTL.
func (c *cli) showLease(l node.Lease) error {
	return c.show(map[string]any{"lease": l.ID, "ttlMillis": l.TTL.Milliseconds()}, l.ID)
}

func (c *cli) leaseGrant() *cobra.Command {
	return &cobra.Command{
		Use: "grant TTL", Short: "Grant a lease and print its name", Args: cobra.ExactArgs(1),
		Long:    "Grant a lease with a time to live of 500ms to 1h, and print its name. The lease ends when nobody keeps it alive for that time.",
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
	cmd.Flags().BoolVar(&once, "once", false, "renew the lease once, then exit")
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

// shownLease is a lease as JSON.
type shownLease struct {
	Lease      string      `json:"lease"`
	TTLMillis  int64       `json:"ttlMillis"`
	LeftMillis int64       `json:"leftMillis"`
	Node       string      `json:"node,omitempty"`
	Holder     string      `json:"holder,omitempty"`
	Holds      []shownHeld `json:"holds"`
}

type shownHeld struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

func (c *cli) leaseList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List leases, who holds them and what they hold", Args: cobra.NoArgs,
		Long: `List the leases of the namespace: the time left unless the holder renews the lease, the program that holds it, and what is released when it ends.
The time left is an upper bound. The holder of a lease that another node granted is the name of that node.

The command reads all names of the namespace. In a pod it lists only the leases that this node granted to the pod's own processes.`,
		Example: `  netcraq lease list
  netcraq lease list -o json | jq 'select(.holds == [])'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				leases, unread, err := cl.Leases(ctx)
				if err != nil {
					return err
				}
				if err := c.showLeases(leases); err != nil {
					return err
				}
				if unread > 0 {
					return fmt.Errorf("cannot read %d names, so what the leases hold may be incomplete. Try again", unread)
				}
				return nil
			})
		},
	}
}

func (c *cli) showLeases(leases []node.LeaseState) error {
	if len(leases) == 0 && !c.json() {
		_, err := fmt.Fprintln(c.out(), "no leases")
		return err
	}
	t := tabwriter.NewWriter(c.out(), 0, 8, 2, ' ', 0)
	if !c.json() {
		fmt.Fprintln(t, "LEASE\tLEFT\tHOLDER\tHOLDS")
	}
	for _, l := range leases {
		if !c.json() {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.ID, l.Left.Round(100*time.Millisecond), holderOf(l), holdsOf(l))
			continue
		}
		s := shownLease{Lease: l.ID, TTLMillis: l.TTL.Milliseconds(), LeftMillis: l.Left.Milliseconds(), Node: l.Node,
			Holder: l.Holder, Holds: []shownHeld{}}
		for _, h := range l.Holds {
			s.Holds = append(s.Holds, shownHeld(h))
		}
		if err := c.show(s, ""); err != nil {
			return err
		}
	}
	return t.Flush()
}

// holderOf describes the holder of a lease, as far as the server knows it.
func holderOf(l node.LeaseState) string {
	switch {
	case l.Holder != "":
		return l.Holder
	case l.Node != "":
		return "on node " + l.Node
	}
	return "not known"
}

// holdsOf names the first thing that a lease holds. It counts the other things.
func holdsOf(l node.LeaseState) string {
	switch n := len(l.Holds); n {
	case 0:
		return "nothing"
	case 1:
		return l.Holds[0].Kind + " " + l.Holds[0].Name
	default:
		return fmt.Sprintf("%s %s and %d more", l.Holds[0].Kind, l.Holds[0].Name, n-1)
	}
}
