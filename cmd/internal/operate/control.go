package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/fromadmin"
)

// ask calls f with a context that ends after --timeout.
func (c *cli) ask(cmd *cobra.Command, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
	defer cancel()
	err := f(ctx)
	if errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) && slices.Contains(cmd.Flags().Args(), "127.0.0.1") {
		return fmt.Errorf("%w. After h1, h2 ... Mininet's prompt replaces the name of a switch by this address: write sh instead", err)
	}
	return err
}

// onlyChain returns the ID of the controller's only chain.
func (c *cli) onlyChain(ctx context.Context) (uint8, error) {
	ch, err := c.chainOf(ctx, "")
	if err != nil {
		return 0, err
	}
	return ch.ID, nil
}

// chainOf returns the chain with a name or number. Without a name it returns the controller's only
// chain.
func (c *cli) chainOf(ctx context.Context, name string) (*admin.Chain, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if name != "" {
		return c.api.Chain(ctx, name)
	}
	chains, err := c.api.Chains(ctx)
	if err != nil {
		return nil, err
	}
	if len(chains) != 1 {
		var have []string
		for _, ch := range chains {
			have = append(have, ch.Name)
		}
		return nil, usageError{fmt.Errorf("the controller has %s (%s): say which with --chain", plural(len(chains), "chain"), list(have))}
	}
	return &chains[0], nil
}

func (c *cli) chainName(ctx context.Context, chosen func(admin.Chain) bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	chains, err := c.api.Chains(ctx)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(chains, chosen); i >= 0 {
		return chains[i].Name, nil
	}
	return "", &admin.Error{Code: admin.CodeNotFound, Message: "no such chain"}
}

// switchAddresses returns the own addresses of the switches with these names.
func (c *cli) switchAddresses(ctx context.Context, names []string) ([]netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	switches, err := c.api.Switches(ctx)
	if err != nil {
		return nil, err
	}
	var out []netip.AddrPort
	for _, n := range names {
		i := slices.IndexFunc(switches, func(s admin.Switch) bool { return s.Name == n })
		if i < 0 {
			return nil, &admin.Error{Code: admin.CodeNotFound, Message: fmt.Sprintf("the controller has no switch %q", n)}
		}
		a, err := fromadmin.Addresses(&admin.Chain{Name: n, ServiceAddress: switches[i].Address})
		if err != nil || len(a) == 0 {
			return nil, fmt.Errorf("switch %s has no usable address (%q)", n, switches[i].Address)
		}
		out = append(out, a[0])
	}
	return out, nil
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (c *cli) chainCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "chain", Short: "Show and change chains and their keys"}
	cmd.AddCommand(c.chainShow(), c.chainKeys(), c.chainAddKey(), c.chainRemoveKey(), c.chainMoveKey(),
		c.chainSet(), c.chainFail(), c.chainRecover(), c.chainWatch())
	return cmd
}

func (c *cli) chainShow() *cobra.Command {
	return &cobra.Command{
		Use: "show [CHAIN]", Short: "Show chains and their members", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.ask(cmd, func(ctx context.Context) error {
				var chains []admin.Chain
				if len(args) == 1 {
					ch, err := c.api.Chain(ctx, args[0])
					if err != nil {
						return err
					}
					chains = []admin.Chain{*ch}
				} else {
					var err error
					if chains, err = c.api.Chains(ctx); err != nil {
						return err
					}
				}
				return c.show(chains, func(w io.Writer) {
					for i := range chains {
						if i > 0 {
							fmt.Fprintln(w)
						}
						printChain(w, &chains[i])
					}
					if len(chains) == 0 {
						fmt.Fprintln(w, "no chain")
					}
				})
			})
		},
	}
}

func printChain(w io.Writer, ch *admin.Chain) {
	lease := fmt.Sprintf("read lease %d ms", ch.LeaseMillis)
	if ch.LeaseGivenMillis > 0 {
		lease += fmt.Sprintf(" (%d ms now: all is prompt)", ch.LeaseGivenMillis)
	}
	if ch.LeaseMillis == 0 {
		lease = "no read lease (fail-stop assumed)"
	}
	fmt.Fprintf(w, "chain %s (%d): epoch %d, service address %s, %s, values to %d bytes, keys %d of %d", ch.Name, ch.ID, ch.Epoch, ch.ServiceAddress, lease, ch.ValueBytes,
		ch.Keys, ch.Slots)
	if ch.Frozen {
		fmt.Fprint(w, ", FROZEN")
	}
	if !ch.Ready {
		fmt.Fprint(w, ", NOT READY")
	}
	if ch.Short() > 0 {
		fmt.Fprintf(w, ", SHORT: %d of %d members", len(ch.Members), ch.Length)
	}
	fmt.Fprintln(w)
	rows := [][]string{{"  SWITCH", "ROLE", "ADDRESS", "READY", "LEASE", "VERSION"}}
	for _, m := range ch.Members {
		rows = append(rows, []string{"  " + m.Switch, m.Role, m.Address, yes(m.Ready),
			map[bool]string{true: "live", false: "out"}[m.LeaseLive], cmp.Or(m.Version, "unknown")})
	}
	table(w, rows)
	if ch.VersionWarning != "" {
		fmt.Fprintln(w, "  WARNING:", ch.VersionWarning)
	}
	for _, m := range ch.Missing {
		fmt.Fprintf(w, "  %s is missing: %s\n", m.Switch, m.Why)
	}
}

func (c *cli) chainKeys() *cobra.Command {
	var prefix string
	var state bool
	cmd := &cobra.Command{
		Use: "keys", Short: "List the keys that are placed in the network",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd, func(ctx context.Context) error {
				keys, err := c.api.Directory(ctx, prefix, state)
				if err != nil {
					return err
				}
				return c.show(keys, func(w io.Writer) {
					rows := [][]string{{"KEY_ID", "CHAIN", "SLOT", "NAME"}}
					if state {
						rows[0] = []string{"KEY_ID", "CHAIN", "SLOT", "SWITCH", "STATUS", "VERSION", "NEWEST", "BYTES", "NAME"}
					}
					for _, k := range keys {
						first := []string{wire.Key(k.KeyID).String(), k.Chain, strconv.Itoa(k.Slot)}
						if !state {
							rows = append(rows, append(first, k.Name))
						}
						for _, s := range k.State {
							rows = append(rows, append(slices.Clone(first), s.Switch, s.Status,
								wire.Version(s.Version).String(), wire.Version(s.Newest).String(),
								strconv.Itoa(s.Length), k.Name))
						}
					}
					table(w, rows)
				})
			})
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "list only names that begin with this prefix")
	cmd.Flags().BoolVar(&state, "state", false, "show the state of each key at each switch")
	return cmd
}

func (c *cli) chainAddKey() *cobra.Command {
	var chain, id string
	cmd := &cobra.Command{
		Use: "add-key NAME [VALUE]", Short: "Place a key in a chain, with a value if one is given", Args: cobra.RangeArgs(1, 2),
		Long: "Place a key in a chain. With VALUE (text, @FILE, @-, hex:...) the command also writes the value, and returns once it is committed.",
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := admin.KeySpec{Name: args[0]}
			if id != "" {
				k, err := wire.ParseKey(id)
				if err != nil {
					return usageError{fmt.Errorf("--key-id: %w", err)}
				}
				n := uint32(k)
				spec.KeyID = &n
			}
			if len(args) == 2 {
				v, err := c.value(args[1])
				if err != nil {
					return err
				}
				spec.Value = append([]byte{}, v...) // not nil even if v is empty, because nil means no value
			}
			ch, err := c.chainOf(cmd.Context(), chain)
			if err != nil {
				return err
			}
			return c.ask(cmd, func(ctx context.Context) error {
				k, err := c.api.AddKey(ctx, ch.Name, spec)
				if err != nil {
					return err
				}
				return c.show(k, func(w io.Writer) {
					fmt.Fprintf(w, "%s is %v in chain %s, slot %d\n", k.Name, wire.Key(k.KeyID), k.Chain, k.Slot)
				})
			})
		},
	}
	cmd.Flags().StringVar(&chain, "chain", "", "chain, by name or number (default: the only one)")
	cmd.Flags().StringVar(&id, "key-id", "", "KEY_ID of the new key (default: the controller chooses)")
	return cmd
}

func (c *cli) chainRemoveKey() *cobra.Command {
	var chain string
	cmd := &cobra.Command{
		Use: "remove-key KEY", Short: "Delete a key's value and remove the key from the network", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ch, err := c.chainOf(cmd.Context(), chain)
			if err != nil {
				return err
			}
			return c.ask(cmd, func(ctx context.Context) error {
				if err := c.api.RemoveKey(ctx, ch.Name, args[0]); err != nil {
					return err
				}
				return c.show(map[string]string{"removed": args[0], "chain": ch.Name}, func(w io.Writer) {
					fmt.Fprintf(w, "%s is out of chain %s\n", args[0], ch.Name)
				})
			})
		},
	}
	cmd.Flags().StringVar(&chain, "chain", "", "chain, by name or number (default: the only one)")
	return cmd
}

func (c *cli) chainMoveKey() *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use: "move-key KEY --to CHAIN", Short: "Move a key to another chain", Args: cobra.ExactArgs(1),
		Long: "Move a key to another chain, where it gets another KEY_ID. Clients that use its name look it up again when the old KEY_ID is NOT_FOUND.\n" +
			"During the move, for some milliseconds, nobody can read or write the key.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return usageError{fmt.Errorf("where to? give --to CHAIN")}
			}
			ch, err := c.chainOf(cmd.Context(), from)
			if err != nil {
				return err
			}
			return c.ask(cmd, func(ctx context.Context) error {
				k, err := c.api.MoveKey(ctx, ch.Name, args[0], to)
				if err != nil {
					return err
				}
				return c.show(k, func(w io.Writer) {
					fmt.Fprintf(w, "%s is %v in chain %s, slot %d\n", k.Name, wire.Key(k.KeyID), k.Chain, k.Slot)
				})
			})
		},
	}
	cmd.Flags().StringVar(&from, "chain", "", "current chain of the key, by name or number (default: the only one)")
	cmd.Flags().StringVar(&to, "to", "", "new chain of the key, by name or number")
	return cmd
}

func (c *cli) chainSet() *cobra.Command {
	var lease time.Duration
	var frozen bool
	var members []string
	cmd := &cobra.Command{
		Use: "set CHAIN", Short: "Change a running chain", Args: cobra.ExactArgs(1),
		Long: "Change a running chain. --members lists the members to keep, head first. The others stay out until \"chain recover\", which also adds new members.",
		RunE: func(cmd *cobra.Command, args []string) error {
			var change admin.ChainChange
			if cmd.Flags().Changed("lease") {
				ms := int(lease.Milliseconds())
				change.LeaseMillis = &ms
			}
			if cmd.Flags().Changed("frozen") {
				change.Frozen = &frozen
			}
			if cmd.Flags().Changed("members") {
				change.Members = &members
			}
			if change == (admin.ChainChange{}) {
				return usageError{fmt.Errorf("nothing to change: give --lease, --frozen or --members")}
			}
			return c.ask(cmd, func(ctx context.Context) error {
				ch, err := c.api.ChangeChain(ctx, args[0], change)
				if err != nil {
					return err
				}
				return c.show(ch, func(w io.Writer) { printChain(w, ch) })
			})
		},
	}
	cmd.Flags().DurationVar(&lease, "lease", 0, "length of the read lease; 0: none, as the paper's fail-stop model assumes")
	cmd.Flags().BoolVar(&frozen, "frozen", false, "refuse writes (--frozen=false: accept them again)")
	cmd.Flags().StringSliceVar(&members, "members", nil, "switches of the chain, head first")
	return cmd
}

func (c *cli) switchCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "switch", Short: "Show switches and their counters"}
	cmd.AddCommand(c.switchList(), c.switchCounters())
	return cmd
}

func (c *cli) switchList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the switches",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd, func(ctx context.Context) error {
				switches, err := c.api.Switches(ctx)
				if err != nil {
					return err
				}
				return c.show(switches, func(w io.Writer) {
					rows := [][]string{{"SWITCH", "ADDRESS", "P4RUNTIME", "DEVICE", "CONNECTED", "READY", "CHAINS", "LAST ERROR"}}
					for _, s := range switches {
						rows = append(rows, []string{
							s.Name, s.Address, s.P4Runtime, strconv.FormatUint(s.DeviceID, 10),
							yes(s.Connected), yes(s.Ready), strings.Join(s.Chains, ","), s.LastError,
						})
					}
					table(w, rows)
				})
			})
		},
	}
}

func (c *cli) switchCounters() *cobra.Command {
	var keys bool
	cmd := &cobra.Command{
		Use: "counters [SWITCH...]", Short: "Show counters of switches (default: of all switches)", Args: cobra.ArbitraryArgs,
		Long: "Show counters of switches: packets by their outcome. \"unsent\" counts packets that the\n" +
			"controller dropped before they reached the switch. With --keys or -o json, show for each\n" +
			"key's slot the reads answered there, the reads forwarded to the tail, and the versions accepted.\n" +
			"The text output omits counters that are 0.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.ask(cmd, func(ctx context.Context) error {
				if len(args) == 0 {
					switches, err := c.api.Switches(ctx)
					if err != nil {
						return err
					}
					for _, s := range switches {
						args = append(args, s.Name)
					}
				}
				var all []admin.Counters
				for _, name := range args {
					n, err := c.api.Counters(ctx, name)
					if err != nil {
						return fmt.Errorf("switch %s: %w", name, err)
					}
					all = append(all, *n)
				}
				return c.show(all, func(w io.Writer) { printCounters(w, all, keys) })
			})
		},
	}
	cmd.Flags().BoolVar(&keys, "keys", false, "list the counters of each key, too")
	return cmd
}

// printCounters prints the number of packets by outcome. For keys it prints each key's counters, or
// only how many keys there are.
func printCounters(w io.Writer, all []admin.Counters, keys bool) {
	printEvents(w, all)
	rows := [][]string{{"SWITCH", "READS", "FORWARDED", "WRITES", "KEY_ID", "NAME"}}
	for _, s := range all {
		for _, n := range s.Slots {
			if n.Reads+n.Forwards+n.Writes == 0 {
				continue
			}
			id, name := wire.Key(n.KeyID).String(), n.Name
			if name == "" && n.KeyID == 0 {
				id, name = "-", fmt.Sprintf("(slot %d, no key)", n.Slot)
			}
			rows = append(rows, []string{s.Switch, grouped(n.Reads), grouped(n.Forwards), grouped(n.Writes), id, name})
		}
	}
	fmt.Fprintln(w)
	if keys {
		table(w, rows)
	} else {
		fmt.Fprintf(w, "--keys lists what was counted for keys (%d lines)\n", len(rows)-1)
	}
}

func printEvents(w io.Writer, all []admin.Counters) {
	rows := [][]string{{"SWITCH", "PACKETS", "EVENT"}}
	for _, s := range all {
		var names []string
		for name, n := range s.Events {
			if n > 0 {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			rows = append(rows, []string{s.Switch, grouped(s.Events[name]), name})
		}
		if s.Unsent > 0 {
			rows = append(rows, []string{s.Switch, grouped(s.Unsent), "unsent"})
		}
	}
	table(w, rows)
}

func (c *cli) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "session", Short: "Manage sessions of programs that write packets themselves",
		Long: "Manage sessions of programs that write packets themselves and do not call the controller. Extend a lease (session keep) before it ends.\n" +
			"Afterwards the controller may give its sessions to others, so do not use them any more.",
	}
	var count int
	var address string
	lease := &cobra.Command{
		Use: "new", Short: "Lease sessions",
		Long: "Lease sessions for one host, named by its IPv4 address in the network. No other host can write with them.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd, func(ctx context.Context) error {
				if address == "" {
					var err error
					if address, err = c.hostAddress(ctx); err != nil {
						return err
					}
				}
				s, err := c.api.NewSessions(ctx, admin.SessionsRequest{Count: count, Owner: owner(), Address: address})
				return c.showSessions(s, err)
			})
		},
	}
	lease.Flags().IntVar(&count, "count", 1, "number of sessions to lease")
	lease.Flags().StringVar(&address, "address", "", "address of the host that will use the sessions (default: this host's address towards the chains)")
	keep := &cobra.Command{
		Use: "keep LEASE", Short: "Extend a lease", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.ask(cmd, func(ctx context.Context) error {
				s, err := c.api.KeepSessions(ctx, args[0])
				return c.showSessions(s, err)
			})
		},
	}
	giveBack := &cobra.Command{
		Use: "close LEASE", Short: "Return a lease", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.ask(cmd, func(ctx context.Context) error { return c.api.CloseSessions(ctx, args[0]) })
		},
	}
	cmd.AddCommand(lease, keep, giveBack)
	return cmd
}

// hostAddress returns this host's address in the network of the controller's chains, or "" if it
// has none.
func (c *cli) hostAddress(ctx context.Context) (string, error) {
	chains, err := c.api.Chains(ctx)
	if err != nil {
		return "", err
	}
	for i := range chains {
		to, err := fromadmin.Services(&chains[i])
		if err != nil {
			return "", err
		}
		if len(to) == 0 {
			continue
		}
		if a := client.HostAddress(to[0]); a.IsValid() {
			return a.String(), nil
		}
	}
	return "", nil
}

func (c *cli) showSessions(s *admin.Sessions, err error) error {
	if err != nil {
		return err
	}
	return c.show(s, func(w io.Writer) {
		fmt.Fprintf(w, "lease %s, to be kept within %v\n", s.Lease, s.TTL())
		rows := [][]string{{"SESSION", "NEXT REQUEST", "AS A FLAG"}}
		for _, id := range s.Sessions {
			rows = append(rows, []string{strconv.Itoa(int(id.ID)), strconv.FormatUint(uint64(id.NextRequest),
				10), fmt.Sprintf("--session %d:%d", id.ID, id.NextRequest)})
		}
		table(w, rows)
	})
}

// pageCommand is the command that requests a link to the controller's page.
func (c *cli) pageCommand() *cobra.Command {
	return &cobra.Command{
		Use: "page", Short: "Print a one-time link that opens the controller's page",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
			defer cancel()
			link, err := c.api.PageLink(ctx)
			if err != nil {
				return err
			}
			return c.show(link, func(w io.Writer) { fmt.Fprintln(w, link.URL) })
		},
	}
}

func (c *cli) eventsCommand() *cobra.Command {
	var follow bool
	var since uint64
	cmd := &cobra.Command{
		Use: "events", Short: "Show past events of chains, switches and keys",
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := c.api.Events(cmd.Context(), since, follow, func(e admin.Event) error {
				return c.show(e, func(w io.Writer) {
					about := strings.TrimSpace(e.Switch + " " + e.Chain)
					fmt.Fprintf(w, "%s  %-20s %-12s %s\n", e.Time.Format("15:04:05.000"), e.Type, about, e.Message)
				})
			})
			if follow && cmd.Context().Err() != nil {
				return nil // the user has interrupted the command
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new events until Ctrl-C")
	cmd.Flags().Uint64Var(&since, "since", 0, "print only events after this number")
	return cmd
}
