// Package leadership assembles a controller, the placement and the admin API, and runs them for as
// long as the process leads. The command netcraq-controller and the node agents (cni-plugin/leader)
// both use it.
//
//	Run ──▶ campaigns in etcd ──▶ Config.Lead(ctx, *Term) ──▶ resigns, and campaigns again until ctx ends
//	                                   │
//	                                   ▼
//	        New ──▶ Server: the controller, placement, and the admin API that serves both
//
// Without etcd there is no election: Config.Lead is called once, and the controller's state is in
// Config.Store.
package leadership

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/placement/placementcontroller"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Options are the parts and settings of a term's server.
type Options struct {
	Topology *topology.Topology
	// TLS is the TLS configuration for connections to switches. If it is nil, the topology's files
	// apply.
	TLS *tls.Config
	// Replica serves the admin API. While the server runs, Replica forwards to this server.
	// Afterwards it stands by without a known leader.
	Replica *adminserver.Replica
	// Placement places keys of etcd. If it is nil, no keys are placed.
	Placement *Placement
	Log       *slog.Logger
}

// Server is a controller with its placement.
type Server struct {
	Controller *controller.Controller
	Placement  *placementcontroller.Controller // nil if no keys are placed

	replica *adminserver.Replica
	elected bool
}

// ErrDeposed says that another controller has taken over at a switch.
var ErrDeposed = errors.New("another controller has taken over at a switch")

// New assembles a server for a term. It has no effect until Run.
func New(t *Term, o Options) (*Server, error) {
	co := controller.Options{Topology: o.Topology, Store: t.store, TLS: o.TLS, Log: o.Log}
	if e := t.Elected; e != nil {
		co.Store, co.ElectionID, co.Led, co.Leading = e, e.ElectionID(), e.Led, etcdstore.Leading
	}
	c, err := controller.New(co)
	if err != nil {
		return nil, err
	}
	s := &Server{Controller: c, replica: o.Replica, elected: t.Elected != nil}
	if o.Placement == nil {
		return s, nil
	}
	if !s.elected {
		return nil, errors.New("placement keeps what it decides in etcd: there is none")
	}
	if s.Placement, err = o.Placement.New(c, t.Etcd, o.Log, t.Elected.Leads()); err != nil {
		return nil, err
	}
	if err := c.Registry().Register(s.Placement.Metrics()); err != nil {
		return nil, fmt.Errorf("the placement's metrics: %w", err)
	}
	return s, nil
}

// Run works until ctx ends or another controller takes over (ErrDeposed), and returns the reason.
// All its writes to etcd have ended when it returns.
func (s *Server) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var parts sync.WaitGroup
	parts.Go(func() { s.Controller.Run(ctx) })
	var placement adminserver.Placement
	if s.Placement != nil {
		placement = s.Placement
		parts.Go(func() { s.Placement.Run(ctx) })
	}
	s.replica.Lead(s.Controller, placement)
	// The channel is nil without etcd. Then a deposed controller continues with its remaining
	// switches.
	var deposed <-chan struct{}
	if s.elected {
		deposed = s.Controller.Deposed()
	}
	select {
	case <-ctx.Done():
	case <-deposed:
		end(ErrDeposed)
	}
	s.replica.StandBy("")
	parts.Wait()
	return context.Cause(ctx)
}
