package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/cmd/internal/operate"
)

func (c *cli) listCommand() *cobra.Command {
	var keysOnly bool
	var limit int
	cmd := &cobra.Command{
		Use: "list [PREFIX]", Short: "List the keys whose names begin with a prefix", Args: cobra.MaximumNArgs(1),
		Long: `Print the keys whose names begin with PREFIX (all keys of the namespace if you leave it out), in the order of their names: the version, the key
and the value. A key that has a value during the whole listing is printed exactly once.`,
		Example: `  netcraq list config/
  netcraq list --keys-only
  netcraq list config/ --limit 10 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return operate.UsageError(fmt.Errorf("--limit %d: pass 0 or more", limit))
			}
			prefix := strings.Join(args, "") // args has at most one element
			return c.call(cmd, func(ctx context.Context, cl *node.Client) error {
				return c.list(ctx, cl, prefix, limit, keysOnly)
			})
		},
	}
	cmd.Flags().BoolVar(&keysOnly, "keys-only", false, "print no values")
	cmd.Flags().IntVar(&limit, "limit", 0, "end after this `NUMBER` of keys (0: print all)")
	return cmd
}

// list prints up to limit keys. If it cannot read one of the keys, it prints the other keys.
func (c *cli) list(ctx context.Context, cl *node.Client, prefix string, limit int, keysOnly bool) error {
	var options []node.Option
	if keysOnly {
		options = append(options, node.KeysOnly())
	}
	if limit > 0 { // one key more shows whether there are further keys
		options = append(options, node.PageSize(min(limit+1, nodeapi.MaxList)))
	}
	var unread []error
	printed := 0
	for i, err := range cl.List(ctx, prefix, options...) {
		switch {
		case err != nil:
			return errors.Join(append(unread, err)...)
		case i.Err != nil:
			unread = append(unread, fmt.Errorf("cannot read %s: %w", i.Key, i.Err))
			continue
		case limit > 0 && printed == limit:
			fmt.Fprintf(c.std.Err, "more keys follow. Pass a larger --limit, or 0 for all\n")
			return errors.Join(unread...)
		}
		printed++
		s, text := shownOf(i), fmt.Sprintf("%s\t%s\t%s", i.Version, i.Key, i.Value)
		if keysOnly {
			s.Value, s.Base64 = nil, nil
			text = fmt.Sprintf("%s\t%s", i.Version, i.Key)
		}
		if err := c.show(s, text); err != nil {
			return err
		}
	}
	return errors.Join(unread...)
}
