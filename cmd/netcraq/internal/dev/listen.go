package dev

import (
	"context"
	"net"
	"net/url"
	"strings"

	"github.com/netcraq/netcraq/cmd/internal/place"
	"github.com/netcraq/netcraq/cmd/netcraq/internal/tunnel"
)

// startListen accepts programs on other hosts, if the configuration asks for that. The programs
// connect over TLS and present the token.
func (s *Server) startListen(ctx, running context.Context) error {
	if s.cfg.Listen == "" {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return cannotListen(err, s.cfg.Listen, "--listen HOST:PORT with an address of this machine and a free port")
	}
	s.ListenAddress, s.Fingerprint = l.Addr().String(), tunnel.Fingerprint(s.cfg.Certificate.Certificate[0])
	doors := map[string]func(context.Context) (net.Conn, error){
		tunnel.Node:  to("unix", s.cfg.Socket),
		tunnel.Admin: to("unix", place.AdminSocket(s.cfg.Socket)),
	}
	if s.GatewayURL != "" {
		doors[tunnel.Gateway] = to("tcp", strings.TrimPrefix(s.GatewayURL, "http://"))
	}
	if s.PageURL != "" {
		page, err := url.Parse(s.PageURL)
		if err != nil {
			return err
		}
		doors[tunnel.Page] = to("tcp", page.Host)
	}
	t := &tunnel.Server{Certificate: s.cfg.Certificate, Token: s.cfg.Token, Doors: doors, Log: s.cfg.Log}
	s.goes("the listener for other hosts", func() error { return t.Serve(running, l) })
	return nil
}

// to returns a function that dials an address of this machine.
func to(network, address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, address) }
}
