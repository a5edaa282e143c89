package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
)

// keyCommand groups the operator's commands for one key. They are commands of chain and placement
// under shorter names.
func (c *cli) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "key", Short: "Show where a key is and why; add, move, remove and pin keys",
		Long: "Show where a key is and why, and change that. KEY is the name of a key in the network, as chain keys lists them: keys of the node API " +
			"are node/NAMESPACE/KEY there. show finds them by KEY and --namespace, too. placement show lists keys of etcd.",
	}
	named := func(cmd *cobra.Command, name string) *cobra.Command {
		_, arguments, _ := strings.Cut(cmd.Use, " ")
		cmd.Use = name + " " + arguments
		return cmd
	}
	cmd.AddCommand(c.keyShow(), named(c.chainAddKey(), "add"), named(c.chainMoveKey(), "move"), named(c.chainRemoveKey(), "remove"))
	cmd.AddCommand(c.placementRules()...)
	return cmd
}

// keyPlace says where a key is stored, as JSON.
type keyPlace struct {
	Key       *admin.Key          `json:"key,omitempty"`       // omitted if no switch stores the key
	Placement *admin.PlacementKey `json:"placement,omitempty"` // omitted if the controller places no etcd keys
}

func (c *cli) keyShow() *cobra.Command {
	return &cobra.Command{
		Use: "show KEY", Short: "Show where a key is, what each switch holds, and why", Args: cobra.ExactArgs(1),
		Example: "  netcraq key show color",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.ask(cmd, func(ctx context.Context) error {
				var found keyPlace
				namespace := "default"
				if f := cmd.Flags().Lookup("namespace"); f != nil && f.Changed {
					namespace = f.Value.String()
				}
				for _, name := range []string{args[0], nodeapi.KeyName(namespace, args[0])} {
					keys, err := c.api.Directory(ctx, name, true)
					if err != nil {
						return err
					}
					i := slices.IndexFunc(keys, func(k admin.Key) bool { return k.Name == name })
					if i >= 0 && found.Key == nil {
						found.Key = &keys[i]
					}
				}
				why, err := c.api.WhyPlaced(ctx, args[0])
				var refused *admin.Error
				switch {
				case err == nil:
					found.Placement = why
				case !errors.As(err, &refused): // the controller places no etcd keys
					return err
				}
				if found.Key == nil && (why == nil || why.Chain == "") {
					err := notPlaced(args[0])
					if why != nil && why.Reason != "" {
						err = fmt.Errorf("%w: %s", err, why.Reason)
					}
					return err
				}
				return c.show(found, func(w io.Writer) { printPlace(w, found) })
			})
		},
	}
}

func printPlace(w io.Writer, p keyPlace) {
	if k := p.Key; k != nil {
		fmt.Fprintf(w, "%s is %v in chain %s, slot %d\n", k.Name, wire.Key(k.KeyID), k.Chain, k.Slot)
		rows := [][]string{{"  SWITCH", "STATUS", "VERSION", "NEWEST", "BYTES"}}
		for _, s := range k.State {
			rows = append(rows, []string{"  " + s.Switch, s.Status, wire.Version(s.Version).String(),
				wire.Version(s.Newest).String(), strconv.Itoa(s.Length)})
		}
		table(w, rows)
	}
	if p.Placement != nil && (p.Key == nil || p.Placement.Chain != "") {
		printKey(w, p.Placement)
	}
}

// directCommand groups, for netcraq, the commands with which netcraqctl itself sends packets to
// switches.
func (c *cli) directCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "direct", Short: "Read and write keys with packets to the switches themselves",
		Long: "Read and write keys with packets to the switches, without a node API. Run it in a host of the switches' network. " +
			"A key of the node API has the name node/NAMESPACE/KEY there.\n\n" + keysHelp,
		Example: `  netcraq direct get /leader
  netcraq direct cas /leader 1.2 carol
  netcraq direct get 0x01000007 --server 10.0.0.100 --value-bits 128`,
	}
	c.queryFlags(cmd.PersistentFlags())
	cmd.AddCommand(c.getCommand(), c.putCommand(), c.deleteCommand(), c.casCommand())
	return cmd
}
