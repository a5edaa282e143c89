// Package operate has the commands for operators: chains, switches, placement, sessions, events,
// measurements and the doctor. The programs netcraqctl and netcraq share them. netcraqctl also
// reads and writes keys by sending packets to the switches itself. netcraq reads and writes keys
// through the node API.
package operate

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/admin"
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

// Program describes a command-line program that has the operators' commands.
type Program struct {
	Name string
	// Admin returns the controller's address if neither --admin nor the environment sets it. If
	// Admin is nil, the default of package admin applies.
	Admin func() string
	// Complete gives the root command its texts and further commands. It returns a function that
	// maps the errors of these commands to exit codes; 0 means the exit code of the operators'
	// commands. If Complete is nil, the program is netcraqctl.
	Complete func(root *cobra.Command, std Streams) (code func(error) int)
}

var Netcraqctl = Program{Name: "netcraqctl"}

// Main runs a program and ends the process.
func Main(p Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := p.Run(ctx, os.Args, Streams{os.Stdin, os.Stdout, os.Stderr}, os.Getenv)
	stop()
	os.Exit(code)
}

// Run runs the whole program, for Main and for tests. args begins with the program's name, as in
// os.Args.
func (p Program) Run(ctx context.Context, args []string, std Streams, getenv func(string) string) int {
	c := &cli{program: p, std: std, args: args[1:]}
	if p.Complete == nil && isPlugin(args[0]) {
		c.plugin = &plugin{kubectl: "kubectl"}
	}
	root, code := c.root(getenv)
	root.SetArgs(c.args)
	root.SetIn(std.In)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	helptext.Fit(root)
	err := root.ExecuteContext(ctx)
	var elsewhere ranElsewhere
	if errors.As(err, &elsewhere) {
		return elsewhere.code
	}
	if err != nil {
		c.printError(err)
		if code := code(err); code != 0 {
			return code
		}
	}
	return exitCode(err)
}

// usageError is a mistake in the command line.
type usageError struct{ error }

// UsageError marks an error as a mistake in the command line, with exit code 2.
func UsageError(err error) error { return usageError{err} }

func (e usageError) Unwrap() error { return e.error }

// ranElsewhere is the error of a command that ran in an agent's container. That command has already
// printed its messages.
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
	case errors.Is(err, client.ErrNotFound), errors.Is(err, &admin.Error{Code: admin.CodeNotFound}):
		return exitNotFound
	case errors.Is(err, client.ErrCASFailed):
		return exitCASFailed
	}
	return exitError
}
