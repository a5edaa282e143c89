package dev

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/etcd-monitor/gateway"
)

// DurableNamespace is the node API's namespace whose keys are kept in etcd.
const DurableNamespace = "durable"

// The etcd of a server is the only member of its cluster, so nobody can answer it late, and it may
// elect itself at once.
const (
	etcdTick     = 10  // milliseconds
	etcdElection = 100 // milliseconds
	etcdGrace    = 2 * time.Second
)

// startEtcd starts the etcd that keeps durable keys, and a gateway before it, if either is wanted.
// It returns where durable keys are kept; "": nowhere.
func (s *Server) startEtcd(ctx context.Context) (endpoint string, err error) {
	if s.cfg.Gateway == "" && s.cfg.Data == "" {
		return "", nil
	}
	dir := s.cfg.Data
	if dir == "" {
		dir = filepath.Join(s.folder.path, "etcd")
	}
	e, err := embedded.Start(ctx, embedded.Config{DataDir: dir, LogOutput: filepath.Join(s.folder.path, "etcd.log"),
		Adjust: func(c *embed.Config) {
			c.TickMs, c.ElectionMs = etcdTick, etcdElection
			c.UnsafeNoFsync = s.cfg.Data == "" // what is lost when the process ends need not reach the disk
		}})
	if err != nil {
		return "", err
	}
	s.closers = append(s.closers, e.Close)
	s.goes("etcd", func() error {
		select {
		case err := <-e.Err():
			return err
		case <-s.ended:
			return s.err()
		}
	})
	if s.cfg.Gateway == "" {
		return e.Endpoint(), nil
	}
	return e.Endpoint(), s.startGateway(e.Endpoint())
}

// startGateway serves etcd's API to other programs.
func (s *Server) startGateway(endpoint string) error {
	upstream, err := gateway.Dial(gateway.UpstreamConfig{Endpoints: []string{endpoint}, Log: s.cfg.Log})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() { upstream.Close() })
	g, err := gateway.New(gateway.Config{Upstream: upstream, Log: s.cfg.Log})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() {
		ctx, cancel := context.WithTimeout(context.Background(), etcdGrace)
		defer cancel()
		g.Shutdown(ctx)
	})
	l, err := gateway.Listen(url.URL{Scheme: "http", Host: s.cfg.Gateway}, transport.TLSInfo{})
	if err != nil {
		return inUse(err, s.cfg.Gateway, "--gateway HOST:PORT, or --gateway none")
	}
	if t, ok := l.Addr().(*net.TCPAddr); ok {
		s.GatewayURL = "http://" + t.String()
	}
	s.goes("the etcd gateway", func() error { return g.Serve(l) })
	s.parts.Go(g.Reach)
	return nil
}

// durableArgs are the node API's flags that keep the keys of DurableNamespace in etcd.
func (s *Server) durableArgs(endpoint string) ([]string, error) {
	if endpoint == "" {
		return nil, nil
	}
	users := fmt.Sprintf("  - {user: %d, access: {\"*\": write}}\n", os.Geteuid())
	if os.Geteuid() != 0 {
		users += "  - {user: 0, access: {\"*\": write}}\n"
	}
	policy := "callers:\n" + users + "namespaces:\n  " + DurableNamespace + ": {durable: true}\n"
	path := filepath.Join(s.folder.path, "policy.yaml")
	return []string{"--policy", path, "--endpoints", endpoint}, os.WriteFile(path, []byte(policy), 0o600)
}
