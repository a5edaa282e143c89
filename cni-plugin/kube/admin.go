package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
)

// The admin API is served on the loopback address of each node whose agent may lead, for the node's gateway and netcraqctl. An agent that does not lead passes requests on to
// the one that does, at its address for other agents (TLS, both ways), so that every gateway has a controller beside it.

// adminPath is where an agent serves the admin API to other agents.
const adminPath = "/admin/"

// serveAdmin begins to serve it to this node's processes.
func (l *leader) serveAdmin(serve func(string, net.Listener, http.Handler)) error {
	listener, err := net.Listen("tcp", l.o.Lead.Admin)
	if err != nil {
		return fmt.Errorf("the admin API: %w", err)
	}
	if a, ok := listener.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		listener.Close()
		return fmt.Errorf("the admin API would be served at %s: it asks nobody who he is, so it has to be a loopback address", l.o.Lead.Admin)
	}
	toLeader := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "https", Host: "127.0.0.1", Path: adminPath}) // it answers nobody who calls it by a name; where it is, dialLeader knows
		},
		FlushInterval: -1, // events are passed on as they come
		Transport:     &http.Transport{DialTLSContext: l.dialLeader, DisableKeepAlives: true},
	}
	serve("the admin API", listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if holder := l.holds(); holder == "" || holder == l.self.Name || l.current() != nil {
			l.replica.ServeHTTP(w, r)
			return
		}
		toLeader.ServeHTTP(w, r)
	}))
	return nil
}

// dialLeader connects to the leading agent.
func (l *leader) dialLeader(ctx context.Context, network, _ string) (net.Conn, error) {
	holder := l.holds()
	var n v1alpha1.NetcraqNode
	if err := l.client.Get(ctx, clientKey(holder), &n); err != nil {
		return nil, fmt.Errorf("where the leading agent (%s) is: %w", holder, err)
	}
	conf := l.tls.Clone()
	conf.ServerName = holder
	return (&tls.Dialer{Config: conf}).DialContext(ctx, network, n.Status.Agent)
}
