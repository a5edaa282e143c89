package reconcilers

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"

	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/adminrights"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/controlplane/adminserver"
)

// Each agent that may lead serves the admin API on its node, for the node's gateway and netcraqctl.
// It does so on a Unix socket, and over TCP for callers with the token. An agent that does not lead
// forwards requests to the leader, at the leader's address for other agents (mutual TLS). So every
// gateway can reach the controller on its own node.

// ServeAdmin starts serving the admin API to processes on this node. failed is called if the server
// ends before ctx ends.
func (p *Operator) ServeAdmin(ctx context.Context, failed context.CancelCauseFunc) error {
	door, err := adminserver.Listen(p.o.Admin, p.log)
	if err != nil {
		return err
	}
	for _, address := range door.Addresses() {
		to, tcp := strings.CutPrefix(address, "http://")
		if a, err := netip.ParseAddrPort(to); tcp && (err != nil || !a.Addr().IsLoopback()) {
			door.Close()
			return fmt.Errorf("the admin API would be served at %s: its token would be told to the network, so it has to be a loopback address", to)
		}
	}
	toLeader := adminserver.Bounded(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			// dialLeader knows the leader's address. This host is a placeholder, because the server
			// refuses names.
			r.SetURL(&url.URL{Scheme: "https", Host: "127.0.0.1", Path: adminrights.Path})
			r.Out.Header.Del(adminrights.ReadOnlyHeader)
			if caller, named := adminserver.CallerFrom(r.In.Context()); !named || caller.ReadOnly {
				r.Out.Header.Set(adminrights.ReadOnlyHeader, "1")
			}
		},
		FlushInterval: -1, // forward events immediately
		Transport:     &http.Transport{DialTLSContext: p.dialLeader, DisableKeepAlives: true},
	})
	p.serving.Go(func() {
		err := door.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if holder := p.leader.Holder(); holder == "" || holder == p.o.Self.Name || p.leader.Term() != nil {
				p.replica.ServeHTTP(w, r)
				return
			}
			toLeader.ServeHTTP(w, r)
		}))
		if err != nil {
			failed(err)
		}
	})
	return nil
}

// ForAgents serves the admin API to other agents, which forward requests of their nodes.
func (p *Operator) ForAgents() http.Handler { return adminrights.ByAgents(&p.replica) }

// dialLeader connects to the leading agent.
func (p *Operator) dialLeader(ctx context.Context, network, _ string) (net.Conn, error) {
	holder := p.leader.Holder()
	var n v1alpha1.NetcraqNode
	if err := p.client.Get(ctx, apiobjects.Key(holder), &n); err != nil {
		return nil, fmt.Errorf("where the leading agent (%s) is: %w", holder, err)
	}
	conf := p.o.TLS.Clone()
	conf.ServerName = holder
	return (&tls.Dialer{Config: conf}).DialContext(ctx, network, n.Status.Agent)
}
