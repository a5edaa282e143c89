// Package dev is the server of `netcraq dev`: everything that a cluster has, in one process,
// without root. The parts are those that ship; only the switches' cables are different.
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

// MaxSwitches is the most switches that a chain can have here.
const MaxSwitches = 8

// grace is how long programs have to finish when the server ends.
const grace = "2s"

// Config says what to start.
type Config struct {
	Switches int    // of the chain
	Socket   string // of the node API: an absolute path
	Group    string // of Unix users who may use the node API, name or number; "": only this user may
	Page     string // HOST:PORT of the controller's page; "": none
	Gateway  string // HOST:PORT of the etcd gateway; "": none
	// Data is the folder of the etcd that keeps durable keys; "": they are lost when the server
	// ends.
	Data string
	// Etcd is an etcd that exists already; no endpoints: the server starts one in this process, if
	// it needs one. Its Prefix is not used.
	Etcd leadership.Etcd
	Log  *slog.Logger
	// Listen is the HOST:PORT at which programs of other hosts are let in; "": they are not.
	// Certificate is what the server proves itself with to them, and Token what they need.
	Listen      string
	Certificate tls.Certificate
	Token       string
}

// Server is a running server.
type Server struct {
	// PageURL opens the controller's page, once; "": there is none.
	PageURL string
	// GatewayURL is where etcd's API is served; "": nowhere.
	GatewayURL string
	// ListenAddress is where other hosts are let in, and Fingerprint that of the certificate there;
	// "": they are not let in.
	ListenAddress, Fingerprint string

	cfg     Config
	folder  *folder
	network *network
	admin   *admin.Client
	stop    context.CancelCauseFunc
	ended   <-chan struct{}
	parts   sync.WaitGroup
	err     func() error
	node    chan struct{}    // closed when the node API has ended; nil: it has not begun
	closers []func()         // of the gateway; the last first
	etcd    *embedded.Server // nil: there is none in this process
	shared  *sharedEtcd      // nil: the server uses no etcd that existed already
}

// Start starts a server, and returns when a key can be written. The server ends with Close, or when
// a part of it fails: see Ended.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	// The switches compile the program at the start. What that leaves to collect can wait.
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
	if err := s.startGateway(ctx); err != nil { // while the switches compile the program
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

// goes runs a part of the server. Its end before the server's ends the server.
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

// waitFor tries something until it succeeds, the server has ended, or ctx ends.
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

// serve starts the node API, and waits until it answers.
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
	_, err = c.Get(ctx, "ready") // waits until it knows the chain
	return err
}

// ownNamespace is the namespace of this package's own keys.
const ownNamespace = "netcraq-dev"

// Client is a client of the node API, in a namespace that is not that of other programs.
func (s *Server) Client(ctx context.Context) (*node.Client, error) {
	return node.Connect(ctx, node.Config{Socket: s.cfg.Socket, Namespace: ownNamespace, Agent: "netcraq dev"})
}

// Ended is closed when the server has ended, or ends because a part of it has failed.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// errClosed is why a server ends that nothing is wrong with.
var errClosed = errors.New("the server is closed")

// Close ends the server, and removes what it has made. It returns why the server ended by itself,
// if it did.
func (s *Server) Close() error {
	s.stop(errClosed)
	if s.node != nil {
		<-s.node // its clients may finish, and need the rest for that
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

// firstLine tells of the first thing that is written.
type firstLine struct {
	once sync.Once
	told chan struct{}
}

func (w *firstLine) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.told) })
	return len(b), nil
}

// lines logs what another part logs as text.
type lines struct{ log *slog.Logger }

func (w *lines) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		w.log.Debug("node API", "said", strings.TrimSpace(string(line)))
	}
	return len(b), nil
}
