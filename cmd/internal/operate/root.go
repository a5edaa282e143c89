package operate

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
)

// Environment variables for the flags --admin and --token-file.
const (
	adminVariable = "NETCRAQ_ADMIN"
	tokenVariable = "NETCRAQ_TOKEN_FILE"
)

// Streams are a command's input and outputs.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// cli is one run of the program. It has the values of the flags that all commands share.
type cli struct {
	program    Program
	std        Streams
	args       []string
	plugin     *plugin // set if the program was started as kubectl netcraq
	servers    []string
	services   []string
	admin      string
	adminGiven bool // reports whether the user named a controller; that controller must answer
	tokenFile  string
	output     string
	valueBits  string
	timeout    time.Duration
	retransmit time.Duration
	sessions   []string
	api        *admin.Client
}

// keysHelp is the help for the commands that send packets themselves.
const keysHelp = `KEY is a KEY_ID (0x01000007, or decimal) or the name of a key in the network ("/registry/leases/..."; "name:123" for a name that looks
like a number). VALUE is text, @FILE, @- for standard input, or hex:00ff...; write "text:..." if the text begins like one of these.

Reads and writes are UDP packets to the switches. The controller provides the addresses, the keys' names, the width of values and sessions. You need
no controller if you pass --server, a KEY_ID and --value-bits. Writes then have no session (they execute at least once) unless you pass --session.
Answers must come from the addresses of the requests or from the chain's service address. If --server lists only switches' own addresses, and
there is no controller, pass the service address with --service.`

const rootHelp = `netcraqctl reads, writes and measures the key-value store in the switches, and shows and changes what the controller manages.

` + keysHelp + `

At its Unix socket the controller admits root, its own user, and its --admin-users and --admin-group. Over TCP it requires a token.

Exit codes: 0 done, 1 error, 2 wrong usage, 3 no such key (or chain, switch, lease), 4 compare and swap failed,
5 doctor found a problem.`

// root makes the root command. It also returns the function that maps errors of a program's own
// commands to exit codes.
func (c *cli) root(getenv func(string) string) (root *cobra.Command, code func(error) int) {
	root = &cobra.Command{
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return c.prepare(cmd, getenv) },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	code = func(error) int { return 0 }
	f := root.PersistentFlags()
	f.StringVar(&c.admin, "admin", "", "address of the controller's admin API: unix:///PATH, or http://HOST:PORT with a token (default $"+adminVariable+", or "+admin.SystemSocket+")")
	f.StringVar(&c.tokenFile, "token-file", "", "file with the controller's token for TCP (default $"+tokenVariable+")")
	f.StringVarP(&c.output, "output", "o", "text", "output format: text for people, or json for programs")
	f.DurationVar(&c.timeout, "timeout", 2*time.Second, "give up a query or a request to the controller after this time")
	bench := c.benchCommand()
	if c.program.Complete == nil {
		c.netcraqctl(root)
		c.queryFlags(f)
	} else {
		c.queryFlags(bench.Flags())
		root.AddCommand(c.keyCommand(), c.directCommand())
	}
	root.AddCommand(c.statusCommand(), bench, c.chainCommand(), c.switchCommand(), c.placementCommand(),
		c.sessionCommand(), c.eventsCommand(), c.pageCommand(), c.doctorCommand())
	if c.program.Complete != nil {
		rename(root, "netcraqctl ", c.program.Name+" ")
		code = c.program.Complete(root, c.std)
	}
	root.CompletionOptions.HiddenDefaultCmd = c.program.Complete == nil
	usage(root)
	return root, code
}

// rename replaces the program's name in the examples of a command.
func rename(cmd *cobra.Command, from, to string) {
	cmd.Example = strings.ReplaceAll(cmd.Example, from, to)
	for _, sub := range cmd.Commands() {
		rename(sub, from, to)
	}
}

// netcraqctl gives the root command of netcraqctl its own texts and commands.
func (c *cli) netcraqctl(root *cobra.Command) {
	root.Use, root.Long = "netcraqctl", rootHelp
	root.Short = "Read, write, measure and show the key-value store in the switches"
	root.Example = `  netcraqctl get /registry/leases/kube-system/kube-scheduler
  netcraqctl put 0x01000007 "on"
  netcraqctl cas 0x01000007 3.17 "off"
  netcraqctl --server 10.0.0.100 --value-bits 128 get 0x01000007
  netcraqctl bench --duration 10s --outstanding 128 --mix get=95,put=5
  netcraqctl chain show
  netcraqctl placement why /registry/services/endpoints/default/kubernetes`
	if c.plugin != nil {
		root.Use, root.Long = pluginName, pluginHelp+rootHelp
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl netcraq"}
		root.Example = strings.ReplaceAll(root.Example, "  netcraqctl ", "  kubectl netcraq ")
		c.plugin.flags(root.PersistentFlags())
	}
	root.AddCommand(c.getCommand(), c.putCommand(), c.deleteCommand(), c.casCommand())
}

// queryFlags defines the flags of commands that send packets to the switches.
func (c *cli) queryFlags(f *pflag.FlagSet) {
	f.StringSliceVarP(&c.servers, "server", "s", nil, "addresses to send queries to: ADDRESS[:PORT], several with commas, the preferred first (default: from the controller)")
	f.StringSliceVar(&c.services, "service", nil, "service address of the chain, ADDRESS[:PORT], from which answers come (default: from the controller, otherwise only --server)")
	f.StringVar(&c.valueBits, "value-bits", "", "width of the switches' value field: 128, 1024, 4096 or 8192 (default: from the controller, otherwise 128)")
	f.DurationVar(&c.retransmit, "retransmit", 50*time.Millisecond, "resend a query to the next address if there is no answer within this time")
	f.StringSliceVar(&c.sessions, "session", nil, "sessions for writes, as ID:NEXT-REQUEST (default: leased from the controller)")
}

// suggestion lists the commands that a mistyped name may mean. It prefers commands that begin with
// the name or list it in SuggestFor, and otherwise lists commands with a similar spelling.
func suggestion(cmd *cobra.Command, name string) string {
	for cmd.SuggestionsMinimumDistance = range 3 {
		if names := cmd.SuggestionsFor(name); len(names) > 0 {
			return "; did you mean " + strings.Join(names, " or ") + "? Otherwise"
		}
	}
	return ";"
}

// usage turns argument errors of a command and its subcommands into usage errors. A command that
// only has subcommands prints its help.
func usage(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		usage(sub)
	}
	if cmd.RunE == nil {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q%s see %s --help", args[0], suggestion(cmd, args[0]), cmd.CommandPath())}
			}
			return cmd.Help()
		}
		return
	}
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check == nil {
			check = cobra.NoArgs
		}
		if err := check(cmd, args); err != nil {
			return usageError{fmt.Errorf("%w; usage: %s", err, cmd.UseLine())}
		}
		return nil
	}
}

func (c *cli) prepare(cmd *cobra.Command, getenv func(string) string) error {
	if c.output != "text" && c.output != "json" {
		output := c.output
		c.output = "text"
		return usageError{fmt.Errorf("-o %s: want text or json", output)}
	}
	if c.timeout <= 0 || c.retransmit <= 0 {
		return usageError{fmt.Errorf("--timeout and --retransmit must be above 0")}
	}
	if c.valueBits != "" {
		if _, err := wire.ParseProfile(c.valueBits); err != nil {
			return usageError{fmt.Errorf("--value-bits: %w", err)}
		}
	}
	c.adminGiven = cmd.Flags().Changed("admin")
	if v := getenv(adminVariable); !c.adminGiven && v != "" {
		c.admin, c.adminGiven = v, true
	}
	if !cmd.Flags().Changed("token-file") {
		c.tokenFile = getenv(tokenVariable)
	}
	if c.admin == "" && c.program.Admin != nil {
		c.admin = c.program.Admin()
	}
	c.api = admin.NewClient(c.admin, admin.TokenFile(c.tokenFile))
	if of := cmd.Flags().Lookup(clusterFlag); of != nil && of.Changed {
		return nil // doctor --cluster needs no agent: it queries the API server from this machine
	}
	if c.plugin != nil && !cmd.HasSubCommands() && !c.adminGiven && len(c.servers) == 0 {
		code, err := c.plugin.run(cmd.Context(), c.plugin.arguments(c.args), c.std, cmd.Name() == "page")
		if err == nil {
			err = ranElsewhere{code}
		}
		return err
	}
	return nil
}
