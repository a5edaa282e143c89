package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"sync"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cmd/internal/place"
	"github.com/netcraq/netcraq/cmd/netcraq/internal/tunnel"
	"github.com/netcraq/netcraq/nodeapi/server"
)

// Connection makes another host's server available at addresses of this machine.
type Connection struct {
	// PageURL opens the controller's page, once. GatewayURL is the URL of etcd's API. An empty URL
	// means that the server does not offer the service.
	PageURL, GatewayURL string

	folder  *folder
	stop    context.CancelFunc
	failed  chan error
	forward sync.WaitGroup
}

// Connect makes the services of another host's server available on this machine, at the addresses
// of a local server. It uses only Socket, Page, Gateway and Log of cfg.
func Connect(ctx context.Context, client *tunnel.Client, cfg Config) (_ *Connection, err error) {
	probe, doors, err := client.Dial(ctx, tunnel.Node)
	if err != nil {
		return nil, err
	}
	probe.Close()
	running, stop := context.WithCancel(context.Background())
	c := &Connection{stop: stop, failed: make(chan error, 4)} // room for one error of each forwarded service
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if c.folder, err = openFolder(cfg.Socket); err != nil {
		return nil, err
	}
	only := server.Access{Mode: 0o600, GID: -1}
	sockets := []struct{ door, path string }{{tunnel.Node, cfg.Socket}, {tunnel.Admin, place.AdminSocket(cfg.Socket)}}
	for _, socket := range sockets {
		l, err := server.Listen("unix://"+socket.path, only)
		if err != nil {
			return nil, err
		}
		c.goes(running, client, l, socket.door, cfg.Log)
	}
	if cfg.Gateway != "" && slices.Contains(doors, tunnel.Gateway) {
		l, err := net.Listen("tcp", cfg.Gateway)
		if err != nil {
			return nil, cannotListen(err, cfg.Gateway, "--gateway HOST:PORT, or --gateway none")
		}
		c.GatewayURL = "http://" + l.Addr().String()
		c.goes(running, client, l, tunnel.Gateway, cfg.Log)
	}
	if cfg.Page != "" && slices.Contains(doors, tunnel.Page) {
		l, err := net.Listen("tcp", cfg.Page)
		if err != nil {
			return nil, cannotListen(err, cfg.Page, "--page HOST:PORT, or --page none")
		}
		c.goes(running, client, l, tunnel.Page, cfg.Log)
		if c.PageURL, err = pageLink(ctx, cfg.Socket, l.Addr().String()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Connection) goes(ctx context.Context, client *tunnel.Client, l net.Listener, door string, log *slog.Logger) {
	c.forward.Go(func() {
		if err := client.Forward(ctx, l, door, log); err != nil {
			c.failed <- fmt.Errorf("the listener for the door %s has ended: %w", door, err)
		}
	})
}

// pageLink returns the server's link to the controller's page, with the page's address on this
// machine.
func pageLink(ctx context.Context, socket, address string) (string, error) {
	a := admin.NewClient("unix://" + place.AdminSocket(socket))
	defer a.Close()
	link, err := a.PageLink(ctx)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(link.URL)
	if err != nil {
		return "", err
	}
	u.Host = address
	return u.String(), nil
}

// Wait waits until ctx ends, or until forwarding a service has failed.
func (c *Connection) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-c.failed:
		return errors.Join(err, ctx.Err())
	}
}

// Close ends all connections, and removes the sockets.
func (c *Connection) Close() {
	c.stop()
	c.forward.Wait()
	if c.folder != nil {
		c.folder.remove()
	}
}
