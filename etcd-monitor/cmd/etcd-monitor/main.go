// Command etcd-monitor is an etcd v3 endpoint in front of an etcd cluster. It counts reads, and
// lets the network answer reads of the most-read keys (docs/etcd.md).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/internal/configfile"
	"github.com/netcraq/netcraq/internal/helptext"
)

// Exit codes.
const (
	exitOK       = 0 // ended by SIGTERM or SIGINT
	exitFailed   = 1 // something went wrong while it ran
	exitBadInput = 2 // mistake in the command line or in a file that it names
)

// badInput marks an error that is due to the command line or a file that it names.
type badInput struct{ error }

func (b badInput) Unwrap() error { return b.error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := root(stdout, stderr)
	helptext.Fit(cmd)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil || ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitOK
	case errors.As(err, new(badInput)) || strings.HasPrefix(err.Error(), "unknown command"):
		fmt.Fprintf(stderr, "etcd-monitor: %v\n", err)
		return exitBadInput
	}
	fmt.Fprintf(stderr, "etcd-monitor: %v\n", err)
	return exitFailed
}

func root(stdout, stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "etcd-monitor [--endpoints URL,...]",
		Short: "Serve etcd's API in front of an etcd cluster, and count reads",
		Long: `etcd-monitor is an etcd v3 endpoint: point etcdctl, a program that uses etcd's client, or
kube-apiserver at it instead of at etcd. It forwards their requests to etcd and returns etcd's
answers. It counts the reads of each of the hottest keys for Prometheus.

Without --endpoints it runs an etcd of its own in --data-dir, on a loopback address.

Flags have the names of etcd's and etcdctl's flags. --cert-file, --key-file, --trusted-ca-file
and --client-cert-auth concern clients; --endpoints, --cacert, --cert and --key concern etcd.
A new certificate takes effect as soon as you replace its file.

Once it serves, it prints one line on stdout that begins with "ready:". On SIGINT or SIGTERM it
closes streams at once and finishes requests within 5 s. Exit codes: 0 after such a signal; 1 if
it cannot start or run; 2 for a mistake on the command line or in the files.`,
		Example: `  etcd-monitor
  etcd-monitor --endpoints 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379
  etcd-monitor --endpoints https://10.0.0.1:2379 --cacert ca.pem \
    --cert client.pem --key client-key.pem \
    --listen-client-urls https://10.0.0.9:2379 --cert-file server.pem \
    --key-file server-key.pem --client-cert-auth --trusted-ca-file ca.pem`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := configfile.Read(o.file, cmd.Flags())
			if err != nil {
				return badInput{err}
			}
			err = serve(cmd.Context(), o, stdout, stderr)
			if bad := (badInput{}); errors.As(err, &bad) {
				return badInput{file.Locate(bad.error)}
			}
			return err
		},
	}
	o.flags(cmd.Flags())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badInput{err} })
	cmd.AddCommand(dictionary(stdout), sealing(stdout))
	return cmd
}
