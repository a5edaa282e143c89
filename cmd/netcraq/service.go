package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/cmd/internal/operate"
)

func (c *cli) serviceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "service", Short: "Register, list and watch instances of a service",
		Long: `Register, list and watch instances of a service. An instance is listed while its process runs, and for at most its --ttl after.`,
		Example: `  netcraq service register web 10.0.0.7:80 -- ./web-server
  netcraq service list web
  netcraq service watch web`,
	}
	cmd.AddCommand(c.serviceRegister(), c.serviceList(), c.serviceWatch())
	return cmd
}

func (c *cli) serviceRegister() *cobra.Command {
	var name string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "register SERVICE HOST:PORT [-- COMMAND ARG...]", Short: "Register an instance until Ctrl-C, or while a command runs",
		Args: cobra.MinimumNArgs(2),
		Long: `Register an instance until Ctrl-C. With -- COMMAND, register it while the command runs. The command's environment has
NETCRAQ_INSTANCE, and its exit code becomes this one's.`,
		Example: `  netcraq service register web 10.0.0.7:80
  netcraq service register web 10.0.0.7:80 --instance web-1 -- ./web-server`,
		RunE: func(cmd *cobra.Command, args []string) error {
			own, command, err := splitN(cmd, args, 2)
			if err != nil {
				return err
			}
			if _, _, err := net.SplitHostPort(own[1]); err != nil {
				return operate.UsageError(fmt.Errorf("%s: pass an address with its port, such as 10.0.0.7:80", own[1]))
			}
			if err := checkTTL(ttl); err != nil {
				return err
			}
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				options := options{node.TTL(ttl)}
				if name != "" {
					options = append(options, node.Named(name))
				}
				r, err := cl.RegisterService(ctx, own[0], own[1], options...)
				if err != nil {
					return err
				}
				err = c.announce(command, node.Instance{Instance: r.Instance(), Address: own[1]},
					fmt.Sprintf("registered %s of %s at %s", r.Instance(), own[0], own[1]))
				if err == nil && len(command) > 0 {
					_, err = c.run(ctx, command, nil, "NETCRAQ_INSTANCE="+r.Instance())
				} else if err == nil {
					<-ctx.Done()
				}
				return errors.Join(err, c.giveBack(ctx, r.Deregister))
			})
		},
	}
	cmd.Flags().StringVar(&name, "instance", "", "`NAME` of the instance (default: the server chooses one)")
	cmd.Flags().DurationVar(&ttl, "ttl", 10*time.Second, "list the instance for at most this `TIME` after this process has died; 500ms to 1h")
	return cmd
}

// showInstances prints the instances of a service. As text each instance is a line; as JSON there
// is one object.
func (c *cli) showInstances(service string, list []node.Instance) error {
	if c.json() {
		return c.show(map[string]any{"service": service, "instances": append([]node.Instance{}, list...)}, "")
	}
	for _, i := range list {
		if err := c.show(nil, i.Address+"\t"+i.Instance); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) serviceList() *cobra.Command {
	var nearest bool
	cmd := &cobra.Command{
		Use: "list SERVICE", Short: "List the instances of a service", Args: cobra.ExactArgs(1),
		Long:    "Print the address and the name of each instance. The order changes with each call, so that the first one is a balanced choice.",
		Example: `  netcraq service list web | head -1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				var o options
				if nearest {
					o = append(o, node.Nearest())
				}
				list, err := cl.GetService(ctx, args[0], o...)
				if err != nil {
					return err
				}
				if len(list) == 0 && !c.json() {
					return missing{fmt.Errorf("%s has no instance", args[0])}
				}
				return c.showInstances(args[0], list)
			})
		},
	}
	cmd.Flags().BoolVar(&nearest, "nearest", false, "print instances of this node first")
	return cmd
}

func (c *cli) serviceWatch() *cobra.Command {
	var count int
	cmd := &cobra.Command{
		Use: "watch SERVICE", Short: "Print the instances of a service after each change", Args: cobra.ExactArgs(1),
		Long:    "Print the addresses of a service's instances on one line, and again after each change, until Ctrl-C.",
		Example: `  netcraq service watch web -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				w, err := cl.WatchService(ctx, args[0])
				if err != nil {
					return err
				}
				defer w.Close()
				for n := 0; count == 0 || n < count; n++ {
					list, err := w.Next(ctx)
					if ctx.Err() != nil {
						return nil
					}
					if err == nil && c.json() {
						err = c.showInstances(args[0], list)
					} else if err == nil {
						var all []string
						for _, i := range list {
							all = append(all, i.Address)
						}
						err = c.show(nil, fmt.Sprintf("%d instances\t%s", len(list), strings.Join(all, " ")))
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&count, "count", 0, "end after this `NUMBER` of lines (0: never)")
	return cmd
}
