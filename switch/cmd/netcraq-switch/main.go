// Command netcraq-switch is a software P4 switch. It runs a v1model program, compiled by
// p4c-bm2-ss, on Linux network interfaces, and serves P4Runtime. It accepts the command line of
// BMv2's simple_switch_grpc.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/netcraq/netcraq/api/buildinfo"
	"github.com/netcraq/netcraq/switch/p4rtserver"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := mainWith(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// mainWith is main with its inputs and outputs as arguments.
func mainWith(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args)
	if err != nil {
		fmt.Fprintf(stderr, "netcraq-switch: %v\n", err)
		if errors.Is(err, errUsage) {
			fmt.Fprintln(stderr, "netcraq-switch --help shows how it is used")
		}
		return exitUsage
	}
	switch {
	case o.help:
		usage(stdout)
		return exitOK
	case o.version:
		fmt.Fprintf(stdout, "netcraq-switch %s; P4Runtime %s\n", buildinfo.Get(), p4rtserver.APIVersion)
		return exitOK
	case o.jsonVer:
		fmt.Fprintln(stdout, jsonVersion)
		return exitOK
	}
	if err := run(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "netcraq-switch: %v\n", err)
		return exitFailure
	}
	return exitOK
}
