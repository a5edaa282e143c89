package main

import (
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/cmd/internal/operate"
)

// Exit codes that only netcraq's own commands have.
const (
	exitNotFound = 3
	exitRefused  = 4 // a condition was not met
	exitUnknown  = 6 // a write may or may not have been executed
	exitLost     = 7 // a command ran, but its lock or lease was lost meanwhile
)

const rootHelp = `netcraq: a key-value store that runs in network switches

Start one on this machine with netcraq dev, without root. The commands for keys and locks use the node API at
$NETCRAQ_NODE_SOCKET, otherwise that of a running netcraq dev, otherwise /run/netcraq/node.sock. The commands under Operate use the controller at
$NETCRAQ_ADMIN, otherwise that of the netcraq dev, otherwise this machine's.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 a condition was not met (--if-version, a lock that is not free),
5 doctor found a problem, 6 a write may or may not have happened. A command that runs another exits with that command's code, or
with 7 if it lost what it held.`

// cli is one run of the program. It has the flags that all commands share, the input and the
// outputs.
type cli struct {
	std       operate.Streams
	getenv    func(string) string
	socket    string
	namespace string
	root      *cobra.Command
	inRead    bool // true after standard input was read as a value
}

// Groups of commands in the help.
const (
	groupStart   = "start"
	groupKeys    = "keys"
	groupHold    = "hold"
	groupData    = "data"
	groupOperate = "operate"
)

// complete adds netcraq's own commands to the root command with the operators' commands.
func (c *cli) complete(root *cobra.Command, std operate.Streams) func(error) int {
	c.std, c.root = std, root
	root.Use, root.Short, root.Long = "netcraq", "A key-value store that runs in network switches", rootHelp
	root.Example = `  netcraq dev                                  # in one terminal
  netcraq put color blue && netcraq get color  # in another
  netcraq lock printer -- sleep 5`
	f := root.PersistentFlags()
	f.StringVar(&c.socket, "socket", "", "`PATH` of the node API (default $NETCRAQ_NODE_SOCKET)")
	f.StringVar(&c.namespace, "namespace", "", "`NAME` of the keys' namespace (default: the server's)")
	root.AddGroup(&cobra.Group{ID: groupStart, Title: "Start here:"}, &cobra.Group{ID: groupKeys, Title: "Keys:"},
		&cobra.Group{ID: groupHold, Title: "Coordination:"}, &cobra.Group{ID: groupData, Title: "Data:"},
		&cobra.Group{ID: groupOperate, Title: "Operate:"})
	output, timeout, server, token := f.Lookup("output"), f.Lookup("timeout"), f.Lookup("admin"), f.Lookup("token-file")
	if server != nil {
		output.Usage = "`FORMAT` of the output: text or json"
		timeout.Usage = "`TIME` for one request"
		server.Usage = "`URL` of the controller (default $NETCRAQ_ADMIN)"
		token.Usage = "`FILE` with the token of --admin ($NETCRAQ_TOKEN_FILE)"
	}
	root.SetHelpCommandGroupID(groupStart)
	root.SetCompletionCommandGroupID(groupStart)
	for _, cmd := range root.Commands() {
		cmd.GroupID = groupOperate
		if cmd.Name() == "doctor" {
			cmd.GroupID = groupStart
		}
	}
	add := func(group string, commands ...*cobra.Command) {
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add(groupStart, c.devCommand(), c.connectCommand(), c.versionCommand())
	add(groupKeys, c.getCommand(), c.listCommand(), c.putCommand(), c.casCommand(), c.deleteCommand(),
		c.transactCommand(), c.watchCommand(), c.incrementCommand())
	add(groupHold, c.lockCommand(), c.electCommand(), c.semaphoreCommand(), c.leaseCommand(), c.serviceCommand())
	add(groupData, c.streamCommand(), c.pipeletCommand(), c.hotKeysCommand())
	root.AddCommand(c.manCommand())
	return c.exitCode
}

// ranCode is an error with a certain exit code, for example the code of a command that netcraq has
// run.
type ranCode struct {
	error
	code int
}

func (r ranCode) Unwrap() error { return r.error }

// exitCode returns the exit code of an error. It returns 0 for errors that have the exit code of an
// operators' command.
func (c *cli) exitCode(err error) int {
	var ran ranCode
	switch {
	case errors.As(err, &ran):
		return ran.code
	case errors.As(err, new(missing)):
		return exitNotFound
	case errors.As(err, new(refused)):
		return exitRefused
	case node.CodeOf(err) == node.CodeOutcomeUnknown:
		return exitUnknown
	}
	return 0
}

// json reports whether the output is JSON.
func (c *cli) json() bool { return c.root.PersistentFlags().Lookup("output").Value.String() == "json" }

// timeout returns the timeout of one request to a server.
func (c *cli) timeout() time.Duration {
	d, _ := c.root.PersistentFlags().GetDuration("timeout")
	return d
}

func (c *cli) out() io.Writer { return c.std.Out }
