// Package dev is the server of `netcraq dev`. It runs all components of a cluster in one process,
// without root. Only the cables between the switches are simulated.
//
//	programs ─ node API ── UDP on 127.78.67.0/24 ──▶ devnet: s1 ─ s2 ─ s3 ◀── P4Runtime ── controller
//	              │ durable keys                                              admin API, page ─┘
//	              ▼
//	            etcd ◀── gateway ◀── etcd's clients
package dev

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/cmd/internal/place"
	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/leadership"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/nodeapi/sidecar"
)

// MaxSwitches is the maximum length of a chain.
const MaxSwitches = 8

// grace is the time that programs have to finish when the server ends.
const grace = "2s"

// Config configures a server.
type Config struct {
	Switches int    // length of the chain
	Socket   string // absolute path of the node API's socket
	Group    string // Unix group, name or number, whose members may use the node API; "" means only this user
	Page     string // HOST:PORT for the controller's page; "" means no page
	Gateway  string // HOST:PORT for the etcd gateway; "" means no gateway
	// Data is the folder of the etcd for durable keys. If it is empty, they are lost when the
	// server ends.
	Data string
	// Etcd is an existing etcd. Without endpoints, the server starts its own etcd in this process
	// if it needs an etcd. The server ignores Etcd.Prefix.
	Etcd leadership.Etcd
	Log  *slog.Logger
	// Listen is the HOST:PORT for programs on other hosts; "" means that only this host is served.
	// Certificate authenticates the server to these programs. They must present Token.
	Listen      string
	Certificate tls.Certificate
	Token       string
}

// Server is a `netcraq dev` server that was started.
type Server struct {
	// PageURL opens the controller's page, once. It is "" if there is no page.
	PageURL string
	// GatewayURL is the URL of etcd's API. It is "" if there is no gateway.
	GatewayURL string
	// ListenAddress is the address for other hosts, and Fingerprint identifies its certificate.
	// Both are "" if only this host is served.
	ListenAddress, Fingerprint string

	cfg     Config
	folder  *folder
	network *network
	admin   *admin.Client
	stop    context.CancelCauseFunc
	ended   <-chan struct{}
	parts   sync.WaitGroup
	err     func() error
	node    chan struct{}    // closed when the node API has ended; nil before it starts
	closers []func()         // functions that close the gateway's components, last first
	etcd    *embedded.Server // etcd in this process, or nil
	shared  *sharedEtcd      // existing etcd that the server uses, or nil
}

// Start starts a server, and returns when a key can be written. The server runs until Close is
// called or a component fails (see Ended).
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	// Compiling the program for the switches makes much garbage at the start. Its collection can
	// wait.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	s := &Server{cfg: cfg}
	running, stop := context.WithCancelCause(context.Background())
	s.stop, s.ended, s.err = stop, running.Done(), func() error { return context.Cause(running) }
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.folder, err = openFolder(cfg.Socket); err != nil {
		return nil, err
	}
	if s.network, err = openNetwork(cfg.Switches); err != nil {
		return nil, err
	}
	if err := s.startEtcd(ctx); err != nil {
		return nil, err
	}
	if err := s.control(running); err != nil {
		return nil, err
	}
	if err := s.startGateway(ctx); err != nil { // the gateway starts while the switches compile
		return nil, err
	}
	if err := s.waitFor(ctx, s.admin.Ready); err != nil {
		return nil, fmt.Errorf("the chain is not ready: %w", err)
	}
	if err := s.serve(ctx, running); err != nil {
		return nil, err
	}
	if cfg.Page != "" {
		link, err := s.admin.PageLink(ctx)
		if err != nil {
			return nil, err
		}
		s.PageURL = link.URL
	}
	if err := s.startListen(ctx, running); err != nil {
		return nil, err
	}
	return s, nil
}

// goes runs a component of the server. If the component ends first, the server ends, too.
func (s *Server) goes(name string, part func() error) {
	s.parts.Go(func() { s.stop(fmt.Errorf("%s has ended: %w", name, part())) })
}

// control starts the controller and its admin API.
func (s *Server) control(ctx context.Context) error {
	socket := "unix://" + place.AdminSocket(s.cfg.Socket)
	config := adminserver.Config{Endpoints: []string{socket}, Token: filepath.Join(s.folder.path, "token"),
		ReadToken: filepath.Join(s.folder.path, "read-token")}
	if s.cfg.Page != "" {
		config.Endpoints = append(config.Endpoints, s.cfg.Page)
	}
	door, err := adminserver.Listen(config, s.cfg.Log)
	if err != nil {
		return cannotListen(err, s.cfg.Page, "--page HOST:PORT, or --page none")
	}
	s.admin = admin.NewClient(socket)
	var replica adminserver.Replica
	replica.Token, replica.ReadToken = door.Tokens()
	s.goes("the admin API", func() error {
		mux := http.NewServeMux()
		mux.Handle("/", &replica)
		return door.Serve(ctx, mux)
	})
	var places *leadership.Placement
	if s.etcdAddress() != nil {
		places = &leadership.Placement{Window: time.Minute, Prefix: s.statePrefix() + etcdstore.Gateway,
			Limits: policy.DefaultLimits()}
	}
	s.goes("the controller", func() error {
		return leadership.Run(ctx, leadership.Config{Store: saved.Memory{}, Etcd: s.etcdAddress(), Log: s.cfg.Log,
			Identity: etcdstore.Identity{Name: fmt.Sprintf("netcraq dev %d", os.Getpid())},
			StandBy:  func(etcdstore.Identity) {},
			Lead: func(ctx context.Context, term *leadership.Term) error {
				c, err := leadership.New(term, leadership.Options{Topology: s.network.topology, Replica: &replica,
					Placement: places, Log: s.cfg.Log})
				if err != nil {
					return err
				}
				return c.Run(ctx)
			}})
	})
	return nil
}

// waitFor repeats try until it succeeds, the server has ended, or ctx ends.
func (s *Server) waitFor(ctx context.Context, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return s.err()
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// serve starts the node API and waits until it answers.
func (s *Server) serve(ctx, running context.Context) error {
	durable, err := s.durableArgs()
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	said := &firstLine{told: ready}
	log := &lines{log: s.cfg.Log}
	mode := "600"
	if s.cfg.Group != "" {
		mode = "660"
	}
	args := []string{"--listen", "unix://" + s.cfg.Socket, "--socket-mode", mode, "--socket-group", s.cfg.Group, "--node", "dev",
		"--namespace", "default", "--successor-socket", filepath.Join(s.folder.path, "successor"), "--grace", grace,
		"--admin", "unix://" + place.AdminSocket(s.cfg.Socket), "--token-file", ""}
	args = append(args, durable...)
	s.node = make(chan struct{})
	s.goes("the node API", func() error {
		defer close(s.node)
		return sidecar.Execute(running, "netcraq dev", args, said, log)
	})
	select {
	case <-ready:
	case <-s.ended:
		return s.err()
	case <-ctx.Done():
		return ctx.Err()
	}
	c, err := s.Client(ctx)
	if err != nil {
		return err
	}
	defer c.Close(context.Background())
	_, err = c.Get(ctx, "ready") // this call waits until the node API knows the chain
	return err
}

// ownNamespace is the node API's namespace for keys of this package.
const ownNamespace = "netcraq-dev"

// Client returns a client of the node API. Its namespace is not used by other programs.
func (s *Server) Client(ctx context.Context) (*node.Client, error) {
	return node.Connect(ctx, node.Config{Socket: s.cfg.Socket, Namespace: ownNamespace, Agent: "netcraq dev"})
}

// Ended is closed when the server has ended, or when it is ending because a component has failed.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// errClosed is the cause of an end by Close.
var errClosed = errors.New("the server is closed")

// Close ends the server and removes its files. If the server has ended by itself, Close returns the
// reason.
func (s *Server) Close() error {
	s.stop(errClosed)
	if s.node != nil {
		<-s.node // the node API's clients get time to finish, so the other components must still run
	}
	for _, c := range slices.Backward(s.closers) {
		c()
	}
	s.parts.Wait()
	if s.shared != nil {
		s.shared.close()
	}
	if s.etcd != nil {
		s.etcd.Close()
	}
	if s.admin != nil {
		s.admin.Close()
	}
	if s.network != nil {
		s.network.close()
	}
	if s.folder != nil {
		s.folder.remove()
	}
	if err := s.err(); !errors.Is(err, errClosed) {
		return err
	}
	return nil
}

// firstLine is a writer that signals its first write.
type firstLine struct {
	once sync.Once
	told chan struct{}
}

func (w *firstLine) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.told) })
	return len(b), nil
}

// lines is a writer that logs the text output of another component.
type lines struct{ log *slog.Logger }

func (w *lines) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		w.log.Debug("node API", "said", strings.TrimSpace(string(line)))
	}
	return len(b), nil
}
