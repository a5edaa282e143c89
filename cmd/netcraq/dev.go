package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	osuser "os/user"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/cmd/internal/operate"
	"github.com/netcraq/netcraq/cmd/internal/place"
	"github.com/netcraq/netcraq/cmd/netcraq/internal/dev"
	"github.com/netcraq/netcraq/internal/configfile"

	"github.com/netcraq/netcraq/api/admin"
)

const devHelp = `Start a chain of switches, its controller, the node API and an etcd gateway in this process, without root and without installation. Press Ctrl-C
to stop it.

The parts are those that ship. Only the switches differ from those of a cluster: they interpret the P4 program in this process,
so this server shows what the store does, not how fast switches in the kernel are. An etcd in this process serves etcd's clients
through the gateway, and keeps the keys of the namespace durable. With --etcd, an existing etcd does that. Its clients may continue to use it directly,
but must write keys that you place in the switches (netcraq placement pin) through this gateway.

Only this user can use the node API and the controller, because of their sockets' permissions. With --socket-group, users of
that group can use the node API, too. Other users of this machine can reach the gateway, and the switches themselves on
127.0.0.0/8. So use it for development, not for secrets.

With --listen, programs of other hosts that have the token of --listen-token can do over TLS all that this user can do here. They use
netcraq connect. One host may have 64 connections open.`

// devOptions are the flags of dev.
type devOptions struct {
	dev.Config
	file     string
	kill     string
	after    time.Duration
	logLevel string
	listen   listenOptions
}

func (c *cli) devCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use: "dev", Short: "Start a chain, the node API and an etcd gateway in this process", Long: devHelp,
		Example: `  netcraq dev
  netcraq dev --switches 5 --kill s2 --after 5s
  netcraq dev --data ~/netcraq
  netcraq dev --etcd https://etcd:2379 --etcd-cacert ca.pem
  netcraq dev --listen 192.0.2.7:20037 --listen-token ~/netcraq.token
  netcraq dev --socket /tmp/mine/netcraq.sock --page none --gateway none`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			began := time.Now()
			file, err := configfile.Read(o.file, cmd.Flags())
			if err != nil {
				return operate.UsageError(err)
			}
			if err := c.checkDev(cmd, &o); err != nil {
				return operate.UsageError(file.Locate(err))
			}
			return c.runDev(cmd.Context(), &o, began)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&o.Switches, "switches", 3, fmt.Sprintf("`N` switches in the chain, 1 to %d", dev.MaxSwitches))
	f.StringVar(&o.Page, "page", admin.DefaultAddress, "`HOST:PORT` of the controller's page on the loopback interface, or none")
	f.StringVar(&o.Gateway, "gateway", defaultGateway, "`HOST:PORT` of the etcd gateway on the loopback interface, or none")
	f.StringVar(&o.Group, "socket-group", "", "Unix `GROUP` whose users can use the node API, too (default: only this user can)")
	f.StringVar(&o.file, configfile.Flag, "", "YAML `FILE` with flags, one in a line, as switches: 5; the command line has precedence")
	f.StringVar(&o.Data, "data", "", "keep durable keys in `DIR` (default: they are lost when the server ends)")
	f.StringSliceVar(&o.Etcd.Endpoints, "etcd", nil, "use the etcd at these `URL`s for durable keys and the gateway (default: one in this process)")
	f.StringVar(&o.Etcd.CA, "etcd-cacert", "", "`FILE` with certificates (PEM) that may have signed those of --etcd")
	f.StringVar(&o.Etcd.Cert, "etcd-cert", "", "`FILE` with the certificate (PEM) to show to --etcd")
	f.StringVar(&o.Etcd.Key, "etcd-key", "", "`FILE` with the key (PEM) of --etcd-cert")
	f.StringVar(&o.kill, "kill", "", "kill this `SWITCH` (s1, s2, ...) after a while, and print what the failover cost")
	f.DurationVar(&o.after, "after", 5*time.Second, "time from the start to --kill")
	f.StringVar(&o.Listen, "listen", "", "accept programs of other hosts at `HOST:PORT`, over TLS and with a token (default: none)")
	f.StringVar(&o.listen.token, "listen-token", "", "`FILE` with the token for --listen; the server makes a missing one")
	f.StringVar(&o.listen.cert, "tls-cert", "", "`FILE` with the certificate (PEM) for --listen (default: the server makes one at each start)")
	f.StringVar(&o.listen.key, "tls-key", "", "`FILE` with the key (PEM) of --tls-cert")
	f.StringVar(&o.logLevel, "log-level", "error", "print log lines from this `LEVEL` on: debug, info, warn or error")
	return cmd
}

// checkDev checks the flags of dev, and sets their defaults.
func (c *cli) checkDev(cmd *cobra.Command, o *devOptions) error {
	if o.Switches < 1 || o.Switches > dev.MaxSwitches {
		return fmt.Errorf("--switches %d: pass 1 to %d", o.Switches, dev.MaxSwitches)
	}
	if err := checkEtcd(cmd, o); err != nil {
		return err
	}
	if err := c.checkPlaces(o); err != nil {
		return err
	}
	var err error
	if o.Data != "" {
		if o.Data, err = filepath.Abs(o.Data); err != nil {
			return err
		}
	}
	if o.Group != "" {
		_, err := osuser.LookupGroup(o.Group)
		if _, err2 := osuser.LookupGroupId(o.Group); err != nil && err2 != nil {
			return fmt.Errorf("--socket-group %s: this machine has no such group", o.Group)
		}
	}
	if cmd.Flags().Changed("after") && o.kill == "" {
		return fmt.Errorf("--after is the time to --kill: pass --kill SWITCH, too")
	}
	if o.after < 0 {
		return fmt.Errorf("--after %v: pass 0s or more", o.after)
	}
	if n := 0; o.kill != "" {
		if _, err := fmt.Sscanf(o.kill+"\n", "s%d\n", &n); err != nil || n < 1 || n > o.Switches {
			return fmt.Errorf("--kill %s: pass a switch of the chain, s1 to s%d", o.kill, o.Switches)
		}
		if o.Switches == 1 {
			return fmt.Errorf("--kill %s: the chain's only switch has nobody to take over. Pass --switches 2 or more", o.kill)
		}
	}
	return checkListen(o)
}

// checkEtcd checks the flags for using an existing etcd. Such an etcd usually occupies the
// gateway's default port on this machine, so checkEtcd gives the gateway another port.
func checkEtcd(cmd *cobra.Command, o *devOptions) error {
	e := &o.Etcd
	switch {
	case len(e.Endpoints) == 0 && e.CA+e.Cert+e.Key != "":
		return errors.New("--etcd-cacert, --etcd-cert and --etcd-key are for --etcd: pass --etcd URL, too")
	case len(e.Endpoints) == 0:
		return nil
	case o.Data != "":
		return errors.New("--data is the folder of the etcd in this process: pass --data or --etcd")
	case (e.Cert == "") != (e.Key == ""):
		return errors.New("--etcd-cert and --etcd-key belong together: pass both")
	}
	for _, endpoint := range e.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || u.Path != "" {
			return fmt.Errorf("--etcd %s: pass a client URL of etcd, such as http://127.0.0.1:2379 or https://etcd:2379", endpoint)
		}
		if secure := u.Scheme == "https"; !secure && e.CA+e.Cert != "" {
			return fmt.Errorf("--etcd %s: certificates are for https", endpoint)
		}
	}
	if !cmd.Flags().Changed("gateway") {
		o.Gateway = gatewayBeforeEtcd
	}
	return nil
}

// checkPlaces checks the flags of dev and connect that set the server's addresses on this machine.
func (c *cli) checkPlaces(o *devOptions) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return fmt.Errorf("--log-level %s: pass debug, info, warn or error", o.logLevel)
	}
	o.Log = slog.New(slog.NewTextHandler(c.std.Err, &slog.HandlerOptions{Level: level}))
	o.Socket = c.socket
	if o.Socket == "" {
		o.Socket = place.Socket(c.getenv)
	}
	o.Socket = strings.TrimPrefix(o.Socket, "unix://")
	path, err := filepath.Abs(o.Socket)
	if err != nil || strings.HasPrefix(o.Socket, "tcp://") {
		return fmt.Errorf("--socket %s: pass the path of a Unix socket", o.Socket)
	}
	if o.Socket = path; len(place.AdminSocket(path)) > maxSocketPath {
		return fmt.Errorf("--socket %s: the path is too long for a Unix socket; pass one of at most %d bytes", path,
			maxSocketPath-len(place.AdminSocket("")))
	}
	if o.Page, err = loopback("page", o.Page, admin.DefaultAddress); err != nil {
		return err
	}
	if o.Gateway, err = loopback("gateway", o.Gateway, defaultGateway); err != nil {
		return err
	}
	return nil
}

// defaultGateway is the address at which clients of etcd connect by default.
const defaultGateway = "127.0.0.1:2379"

// gatewayBeforeEtcd is the gateway's default address if the gateway is in front of an existing
// etcd.
const gatewayBeforeEtcd = "127.0.0.1:23790"

// loopback parses a flag's HOST:PORT. For the value none it returns "".
func loopback(flag, address, example string) (string, error) {
	if address == "none" || address == "" {
		return "", nil
	}
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return "", fmt.Errorf("--%s %s: pass HOST:PORT on the loopback interface, such as %s, or none", flag, address, example)
	}
	return address, nil
}

// maxSocketPath is the maximum length of a Unix socket's path, in bytes. The node API's server
// first makes the socket in a folder next to its final path. The temporary path is up to 14 bytes
// longer.
const maxSocketPath = 107 - 14

// runDev runs a server until it is interrupted.
func (c *cli) runDev(ctx context.Context, o *devOptions, began time.Time) error {
	s, err := dev.Start(ctx, o.Config)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	c.printReady(s, o, time.Since(began))
	failed := make(chan error, 1)
	if o.kill != "" {
		go func() { failed <- c.showFailover(ctx, s, o) }()
	}
	select {
	case <-ctx.Done():
	case <-s.Ended():
	case err = <-failed:
		if err == nil {
			select {
			case <-ctx.Done():
			case <-s.Ended():
			}
		}
	}
	if ended := s.Close(); ended != nil {
		return ended
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// printReady prints all addresses.
func (c *cli) printReady(s *dev.Server, o *devOptions, took time.Duration) {
	switches := "1 switch"
	if o.Switches > 1 {
		switches = fmt.Sprintf("%d switches", o.Switches)
	}
	fmt.Fprintf(c.out(), "ready in %.1f s: a chain of %s in this process\n\n", took.Seconds(), switches)
	c.printPlaces(o.Socket, s.GatewayURL, s.PageURL)
	c.printListen(s, o)
	fmt.Fprintf(c.out(), "%s Stop it with Ctrl-C.\n", durability(o))
}

// durability describes which data remain when the process ends.
func durability(o *devOptions) string {
	kept := "those of the namespace " + dev.DurableNamespace
	if len(o.Etcd.Endpoints) > 0 {
		return fmt.Sprintf("Keys are lost when this process ends, except %s: the etcd at %s keeps them.", kept,
			strings.Join(o.Etcd.Endpoints, ","))
	}
	if o.Data == "" {
		return "Keys are lost when this process ends (--data DIR keeps durable keys)."
	}
	if o.Gateway != "" {
		kept += " and what etcd's clients write"
	}
	return fmt.Sprintf("Keys are lost when this process ends, except %s: %s keeps them.", kept, o.Data)
}

// showFailover kills a switch after a while. It prints what the failover cost programs.
func (c *cli) showFailover(ctx context.Context, s *dev.Server, o *devOptions) error {
	select {
	case <-time.After(o.after):
	case <-ctx.Done():
		return nil
	}
	r, err := s.Failover(ctx, o.kill)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out(), "\nkilled %s; the chain is %s\n", o.kill, strings.Join(r.Members, "-"))
	t := tabwriter.NewWriter(c.out(), 0, 8, 2, ' ', 0)
	for _, line := range []struct {
		name string
		dev.Calls
	}{{"reads", r.Reads}, {"writes", r.Writes}} {
		fmt.Fprintf(t, "  %s\tlongest %v\tmedian before %v\t%d of %d failed\n", line.name, rounded(line.Longest),
			rounded(line.Median), line.Failed, line.Count)
	}
	return t.Flush()
}

// rounded rounds a duration to at most three digits.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= 100*time.Millisecond:
		return d.Round(time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
