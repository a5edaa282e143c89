// Command netcraqctl reads and writes the key-value store in the switches, measures it, and shows
// and changes what the controller runs. See netcraqctl --help.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/internal/helptext"
)

// The exit codes. The help of the root command documents them.
const (
	exitOK        = 0
	exitError     = 1
	exitUsage     = 2
	exitNotFound  = 3
	exitCASFailed = 4
	exitUnwell    = 5
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, streams{os.Stdin, os.Stdout, os.Stderr}, os.Getenv)
	stop()
	os.Exit(code)
}

// run is the whole command, for main and for tests; args begin with the name by which it was
// started.
func run(ctx context.Context, args []string, std streams, getenv func(string) string) int {
	c := &cli{std: std, args: args[1:]}
	if isPlugin(args[0]) {
		c.plugin = &plugin{kubectl: "kubectl"}
	}
	root := c.root(getenv)
	root.SetArgs(c.args)
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	helptext.Fit(root)
	err := root.ExecuteContext(ctx)
	var elsewhere ranElsewhere
	if errors.As(err, &elsewhere) {
		return elsewhere.code
	}
	if err != nil {
		c.printError(err)
	}
	return exitCode(err)
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// ranElsewhere is the end of a command that has run, and said what there was to say, in an agent's
// container.
type ranElsewhere struct{ code int }

func (e ranElsewhere) Error() string { return "it ran elsewhere" }

func exitCode(err error) int {
	var usage usageError
	var ill unwell
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &ill):
		return exitUnwell
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, client.ErrNotFound), errors.Is(err, &api.Error{Code: api.CodeNotFound}):
		return exitNotFound
	case errors.Is(err, client.ErrCASFailed):
		return exitCASFailed
	}
	return exitError
}
