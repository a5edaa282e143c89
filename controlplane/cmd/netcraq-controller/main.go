// Command netcraq-controller brings a NetCRAQ network up from one file and keeps it running.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/leadership"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/helptext"
)

// These are the exit codes.
const (
	exitOK       = 0 // the process was ended by SIGTERM or SIGINT
	exitFailed   = 1 // the process failed at run time
	exitBadInput = 2 // the command line, the topology, the program or the state file is wrong
)

type options struct {
	topology string
	admin    adminserver.Config
	state    string
	logLevel string
	check    bool
	etcd     leadership.Etcd // without endpoints, this is the only controller
	place    placementOptions
}

// replicated reports whether the state is in etcd, shared with other controllers.
func (o *options) replicated() bool { return o.etcd.Endpoints != nil }

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// badInput marks an error in the caller's input.
type badInput struct{ error }

func (b badInput) Unwrap() error { return b.error }

func run(args []string, stdout, stderr io.Writer) int {
	var o options
	cmd := &cobra.Command{
		Use:   "netcraq-controller --topology FILE",
		Short: "Configure a NetCRAQ network from one file and keep it running",
		Long: `netcraq-controller connects to the switches that FILE lists (P4Runtime: netcraq-switch,
simple_switch_grpc), loads the program into them, installs routes, multicast trees and the
chains, renews the members' read leases, and serves the admin API that netcraqctl uses.

You can stop and restart it at any time. The switches keep running and keep their data. Without
a controller the read leases expire, and switches then refuse reads (NOT_SERVING) until it
returns. With leaseMillis: 0 they keep answering.

On SIGHUP it reads FILE again and applies changes of hosts, switches, links and chains. It does
not change the program, sessions, or existing addresses. "netcraqctl events" shows the result. If
FILE has a mistake or an unsupported change, nothing changes.

Several controllers may run with the same topology and --etcd. They elect a leader, which does
the work. The others forward admin requests to the leader, and one takes over when it dies. With
--prometheus the leader also places the most-read etcd keys in the switches (docs/etcd.md).

The admin API can change everything, so it authenticates callers. The Unix socket admits root, the
controller's own user, --admin-users and --admin-group. TCP admits callers with the token from a
file that the controller creates at its start. /healthz, /readyz and /metrics are open to all and
name no keys. netcraqctl finds the socket by itself. "netcraqctl page" prints a link that opens
the page at HOST:PORT in a browser.

Once every chain serves, it prints one line on stdout that begins with "ready:". SIGINT and
SIGTERM end it. Exit codes: 0 after such a signal; 1 if it cannot start or run; 2 for a mistake
on the command line, in the topology, the program or the state file.

controlplane/topology/example.yaml describes the topology file.`,
		Example: `  netcraq-controller --topology net.yaml --state out/controller.json
  netcraq-controller --topology net.yaml --etcd 10.0.0.1:2379,10.0.0.2:2379
  netcraq-controller --topology net.yaml --etcd 10.0.0.1:2379 \
    --prometheus http://10.0.0.9:9090
  netcraq-controller --topology net.yaml --admin-group lab \
    --admin unix:///run/lab/controller.sock
  netcraq-controller --topology net.yaml --check`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), o, stdout, stderr) },
	}
	f := cmd.Flags()
	f.StringVar(&o.topology, "topology", "", "`FILE` that describes the network (YAML or JSON)")
	o.admin.Flags(f)
	f.StringVar(&o.state, "state", "", "`FILE` for the state that survives a restart: names of keys, epochs, sessions (default: none; "+
		"a restarted controller then reads the switches, knows keys only by KEY_ID, and leases no sessions for two TTLs)")
	f.StringSliceVar(&o.etcd.Endpoints, "etcd", nil, "keep the state in the etcd at these client addresses (HOST:PORT,...), and elect a leader among the controllers that use it")
	f.StringVar(&o.etcd.Prefix, "etcd-prefix", "/netcraq/", "prefix of all keys in etcd; each network needs its own")
	f.StringVar(&o.etcd.CA, "etcd-cacert", "", "CA certificates that must have signed etcd's certificate (PEM); enables TLS")
	f.StringVar(&o.etcd.Cert, "etcd-cert", "", "certificate to present to etcd (PEM)")
	f.StringVar(&o.etcd.Key, "etcd-key", "", "private key of --etcd-cert (PEM)")
	o.place.flags(f)
	f.SetNormalizeFunc(formerFlag)
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.BoolVar(&o.check, "check", false, "check the topology, the program and the state file, then exit")
	helptext.Fit(cmd)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badInput{err} })
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, new(badInput)) || strings.HasPrefix(err.Error(), "unknown command"):
		fmt.Fprintf(stderr, "netcraq-controller: %v\n", err)
		return exitBadInput
	}
	fmt.Fprintf(stderr, "netcraq-controller: %v\n", err)
	return exitFailed
}

func serve(ctx context.Context, o options, stdout, stderr io.Writer) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return badInput{fmt.Errorf("--log-level %s: give debug, info, warn or error", o.logLevel)}
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	if o.topology == "" {
		return badInput{errors.New("give the topology file: --topology FILE (--help says more)")}
	}
	if err := o.place.check(&o.etcd); err != nil {
		return badInput{err}
	}
	top, err := topology.Load(o.topology)
	if err != nil {
		return badInput{err}
	}
	var store saved.Store = saved.Memory{}
	if o.state != "" {
		store = saved.File(o.state)
		if o.replicated() && !o.check {
			return badInput{errors.New("--state and --etcd: give one place for the state")}
		}
	}
	// If this process could not lead, it must fail when it starts, not only when it is elected.
	if _, err := controller.New(controller.Options{Topology: top, Store: store, Log: log}); err != nil {
		return badInput{err}
	}
	if o.check {
		fmt.Fprintf(stdout, "%s: %d switches, %d hosts, %d chains: all is well\n", o.topology, len(top.Switches), len(top.Hosts), len(top.Chains))
		return nil
	}
	if o.replicated() {
		client, err := o.etcd.Connect(ctx)
		if err != nil {
			return badInput{fmt.Errorf("--etcd: %w", err)}
		}
		client.Close()
	}
	p := &process{network: &network{path: o.topology, top: top, stdout: stdout, stderr: stderr},
		placement: o.place.config(), log: log, stdout: stdout}
	return p.serve(ctx, o, store)
}

// announce prints one line when all chains serve for the first time.
func announce(ctx context.Context, c *controller.Controller, address string, stdout io.Writer) {
	for since := uint64(0); ; {
		events, more := c.Events(since)
		if c.Ready(ctx) == nil {
			break
		}
		for _, e := range events {
			since = e.ID
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		case <-time.After(100 * time.Millisecond):
		}
	}
	chains, err := c.Chains(ctx)
	if err != nil {
		return
	}
	var parts []string
	for _, ch := range chains {
		var members []string
		for _, m := range ch.Members {
			members = append(members, m.Switch)
		}
		parts = append(parts, fmt.Sprintf("chain %s %s at %s, epoch %d, %d keys",
			ch.Name, strings.Join(members, "-"), ch.ServiceAddress, ch.Epoch, ch.Keys))
	}
	fmt.Fprintf(stdout, "ready: %s; admin API at %s\n", strings.Join(parts, "; "), address)
}

// afterStop describes what happens to reads after the controller has stopped.
func afterStop(top *topology.Topology) string {
	longest := time.Duration(0)
	for _, c := range top.Chains {
		longest = max(longest, c.Lease)
	}
	if longest == 0 {
		return "their chains need no leases and serve on"
	}
	return fmt.Sprintf("their read leases run out within %v unless a controller renews them, and reads wait until one does", longest)
}
