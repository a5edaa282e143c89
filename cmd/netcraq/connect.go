package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/cmd/internal/operate"
	"github.com/netcraq/netcraq/cmd/netcraq/internal/dev"
	"github.com/netcraq/netcraq/cmd/netcraq/internal/tunnel"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
)

const connectHelp = `Use another host's netcraq dev --listen as if it ran on this host: its node API, etcd gateway and page get the addresses that a netcraq dev has
here. All connections go over TLS, with the server's token. Press Ctrl-C to stop.

Copy the server's token file to this host first, so that only you can read it. The server prints the fingerprint of its certificate. Without
--fingerprint, an authority that this machine trusts, or one of --cacert, must have signed the certificate for HOST.

A stream can be read and written this way, but not mapped into memory: libraries read it with pull.`

type connectOptions struct {
	devOptions
	token, fingerprint, ca string
}

func (c *cli) connectCommand() *cobra.Command {
	var o connectOptions
	cmd := &cobra.Command{
		Use: "connect HOST:PORT", Short: "Use another host's netcraq dev --listen on this machine", Long: connectHelp, Args: cobra.ExactArgs(1),
		Example: `  netcraq connect 192.0.2.7:20037 --listen-token token --fingerprint sha256:...
  netcraq connect lab.example:20037 --listen-token token --page none`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.checkConnect(args[0], &o)
			if err != nil {
				return operate.UsageError(err)
			}
			return c.runConnect(cmd.Context(), client, &o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.token, "listen-token", "", "`FILE` with the server's token")
	f.StringVar(&o.fingerprint, "fingerprint", "", "`SHA256` fingerprint of the server's certificate, as the server prints it")
	f.StringVar(&o.ca, "cacert", "", "`FILE` with certificates (PEM) that may have signed the server's")
	f.StringVar(&o.Page, "page", admin.DefaultAddress, "`HOST:PORT` of the controller's page on the loopback interface, or none")
	f.StringVar(&o.Gateway, "gateway", defaultGateway, "`HOST:PORT` of the etcd gateway on the loopback interface, or none")
	f.StringVar(&o.logLevel, "log-level", "error", "print log lines from this `LEVEL` on: debug, info, warn or error")
	return cmd
}

// checkConnect checks the flags of connect.
func (c *cli) checkConnect(address string, o *connectOptions) (*tunnel.Client, error) {
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("%q: pass the HOST:PORT that netcraq dev --listen prints", address)
	}
	if err := c.checkPlaces(&o.devOptions); err != nil {
		return nil, err
	}
	if o.token == "" {
		return nil, errors.New("a server lets in only clients with its token: copy its token file here, and pass --listen-token FILE")
	}
	token, err := tunnel.ReadToken(o.token)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--listen-token %s: no such file. Copy the file that netcraq dev --listen has for this flag", o.token)
	}
	if err != nil {
		return nil, fmt.Errorf("--listen-token: %w", err)
	}
	client := &tunnel.Client{Address: address, Token: token}
	switch {
	case o.fingerprint != "" && o.ca != "":
		return nil, errors.New("pass --fingerprint or --cacert, not both")
	case o.fingerprint != "":
		if client.TLS, err = tunnel.Pinned(o.fingerprint); err != nil {
			return nil, fmt.Errorf("--fingerprint: %w", err)
		}
	default:
		if client.TLS, err = tunnel.SignedBy(o.ca, address); err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
	}
	return client, nil
}

func (c *cli) runConnect(ctx context.Context, client *tunnel.Client, o *connectOptions) error {
	connection, err := dev.Connect(ctx, client, o.Config)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if strings.Contains(err.Error(), "unknown authority") {
			err = fmt.Errorf("%w. Pass --fingerprint as netcraq dev --listen prints it, or --cacert FILE", err)
		}
		return err
	}
	defer connection.Close()
	fmt.Fprintf(c.out(), "connected to %s\n\n", client.Address)
	c.printPlaces(o.Socket, connection.GatewayURL, connection.PageURL)
	fmt.Fprintln(c.out(), "Stop it with Ctrl-C.")
	return connection.Wait(ctx)
}

// printPlaces prints the addresses of a server for programs on this machine.
func (c *cli) printPlaces(socket, gateway, page string) {
	t := tabwriter.NewWriter(c.out(), 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "  node API\tunix://%s\n", socket)
	if gateway != "" {
		fmt.Fprintf(t, "  etcd gateway\t%s\n", gateway)
	}
	if page != "" {
		fmt.Fprintf(t, "  page\t%s\n", page)
	}
	_ = t.Flush()
	fmt.Fprintf(c.out(), `
For programs in another terminal:
  export %s=%s
Try there:
  netcraq put color blue
  netcraq get color
  netcraq lock printer -- sleep 5
`, nodeapi.SocketVariable, socket)
}

// listenOptions are the flags of dev for serving other hosts.
type listenOptions struct{ token, cert, key string }

// checkListen checks the flags of dev for serving other hosts, and reads the files that they name.
func checkListen(o *devOptions) (err error) {
	l := &o.listen
	switch {
	case o.Listen == "" && *l != listenOptions{}:
		return errors.New("--listen-token, --tls-cert and --tls-key are for other hosts: pass --listen HOST:PORT, too")
	case o.Listen == "":
		return nil
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("--listen %s: pass HOST:PORT with an address of this machine, such as 192.0.2.7:20037", o.Listen)
	}
	if l.token == "" {
		return fmt.Errorf("--listen %s: other hosts are let in only over TLS and with a token. Add --listen-token FILE; the token is made if there "+
			"is no such file. TLS needs no flag: without --tls-cert and --tls-key, a certificate is made and its fingerprint printed", o.Listen)
	}
	if (l.cert == "") != (l.key == "") {
		return errors.New("--tls-cert and --tls-key belong together: pass both, or none to have a certificate made")
	}
	if l.cert == "" {
		o.Certificate, err = tunnel.MakeCertificate(host)
	} else if o.Certificate, err = tls.LoadX509KeyPair(l.cert, l.key); err != nil {
		err = fmt.Errorf("--tls-cert %s, --tls-key %s: %w", l.cert, l.key, err)
	}
	if err != nil {
		return err
	}
	if o.Token, err = tunnel.Token(l.token); err != nil {
		return fmt.Errorf("--listen-token: %w", err)
	}
	return nil
}

// printListen prints how other hosts can connect to a server.
func (c *cli) printListen(s *dev.Server, o *devOptions) {
	if s.ListenAddress == "" {
		return
	}
	host, port, _ := net.SplitHostPort(s.ListenAddress)
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	fmt.Fprintf(c.out(), `For other hosts, with a copy of the token in %s:
  netcraq connect %s --listen-token FILE \
    --fingerprint \
    %s
`, o.listen.token, net.JoinHostPort(host, port), s.Fingerprint)
}
