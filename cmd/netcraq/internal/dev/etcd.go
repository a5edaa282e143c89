package dev

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/client/etcd/guarded"
	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/service"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/controlplane/leadership"
	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/etcd-monitor/gateway"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
)

// DurableNamespace is the namespace of the node API whose keys are stored in etcd.
const DurableNamespace = "durable"

// The server's etcd is the only member of its cluster. Its election timeout can be short, because
// it does not wait for votes.
const (
	etcdTick     = 10  // milliseconds
	etcdElection = 100 // milliseconds
	etcdGrace    = 2 * time.Second
)

// startEtcd starts the etcd for durable keys and for the state of the controller and of the
// gateway, if the configuration needs it. If the configuration names an existing etcd, startEtcd
// uses that one.
func (s *Server) startEtcd(ctx context.Context) (err error) {
	if len(s.cfg.Etcd.Endpoints) > 0 {
		return s.shareEtcd(ctx)
	}
	if s.cfg.Gateway == "" && s.cfg.Data == "" {
		return nil
	}
	dir := s.cfg.Data
	if dir == "" {
		dir = filepath.Join(s.folder.path, "etcd")
	}
	s.etcd, err = embedded.Start(ctx, embedded.Config{DataDir: dir,
		LogOutput: filepath.Join(s.folder.path, "etcd.log"),
		Adjust: func(c *embed.Config) {
			c.TickMs, c.ElectionMs = etcdTick, etcdElection
			c.UnsafeNoFsync = s.cfg.Data == "" // data that is lost with the process need not reach the disk
			c.MaxTxnOps += guarded.MoreTxnOps
			c.MaxRequestBytes += guarded.MoreRequestBytes
		}})
	if err != nil {
		return err
	}
	s.goes("etcd", func() error {
		select {
		case err := <-s.etcd.Err():
			return err
		case <-s.ended:
			return s.err()
		}
	})
	return s.forget(ctx)
}

// shareEtcd begins to use an existing etcd.
func (s *Server) shareEtcd(ctx context.Context) (err error) {
	if s.shared, err = openSharedEtcd(ctx, s.cfg.Etcd); err != nil {
		return err
	}
	s.goes("the use of --etcd", func() error {
		select {
		case <-s.shared.over():
			return fmt.Errorf("it was out of reach for %d s, so another netcraq dev may use it now. Start netcraq dev again",
				ownerTTLSeconds)
		case <-s.ended:
			return s.err()
		}
	})
	return nil
}

// forget removes from etcd the state of an earlier server's controller and gateway. That state is
// obsolete, because the earlier server had other switches.
func (s *Server) forget(ctx context.Context) error {
	if s.cfg.Data == "" {
		return nil
	}
	c, err := s.etcdAddress().Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Delete(ctx, statePrefix, clientv3.WithPrefix())
	return err
}

// statePrefix is the prefix of the controller's and the gateway's own keys, in this process's etcd
// and in clusters' etcds.
const statePrefix = "/netcraq/"

// statePrefix is the prefix of the keys of this server's controller and gateway.
func (s *Server) statePrefix() string {
	if s.shared != nil {
		return sharedPrefix
	}
	return statePrefix
}

// reserved returns the prefix of the keys that the gateway hides from etcd's clients.
func (s *Server) reserved() string {
	if s.shared != nil {
		return sharedReserved
	}
	return statePrefix
}

// etcdAddress returns the address of the etcd for the controller, or nil if there is no etcd.
func (s *Server) etcdAddress() *leadership.Etcd {
	switch {
	case s.shared != nil:
		e := s.cfg.Etcd
		e.Prefix = sharedPrefix
		return &e
	case s.etcd != nil:
		return &leadership.Etcd{Endpoints: []string{s.etcd.Endpoint()}, Prefix: statePrefix}
	}
	return nil
}

// startGateway serves etcd's API to other programs. The gateway reads from the switches the keys
// that are placed there (netcraq placement pin).
func (s *Server) startGateway(ctx context.Context) error {
	if s.cfg.Gateway == "" {
		return nil
	}
	l, err := gateway.Listen(url.URL{Scheme: "http", Host: s.cfg.Gateway}, transport.TLSInfo{})
	if err != nil {
		return cannotListen(err, s.cfg.Gateway, "--gateway HOST:PORT, or --gateway none")
	}
	s.GatewayURL = "http://" + l.Addr().String()
	closes := func(f func()) { s.closers = append(s.closers, f) }
	closes(func() { l.Close() })
	etcd := s.etcdAddress()
	upstream, err := gateway.Dial(gateway.UpstreamConfig{Endpoints: etcd.Endpoints, Log: s.cfg.Log,
		TLS: transport.TLSInfo{TrustedCAFile: etcd.CA, CertFile: etcd.Cert, KeyFile: etcd.Key}})
	if err != nil {
		return err
	}
	closes(func() { upstream.Close() })
	own, err := upstream.NewClient(ctx, "", "")
	if err != nil {
		return err
	}
	closes(func() { own.Close() })
	nobody, err := upstream.NewClient(ctx, "", "")
	if err != nil {
		return err
	}
	closes(func() { nobody.Close() })
	newest := new(gateway.Newest)
	metrics := hotkeys.NewMetrics(hotkeys.Bounds{Top: hotkeys.DefaultTop}, newest.Revision)
	cfg := service.Config{Own: own, Nobody: nobody, Etcd: gateway.Forward(upstream, metrics),
		Newest: newest, Observer: metrics,
		Prefix: s.statePrefix() + etcdstore.Gateway, Reserved: []string{s.reserved()},
		Controller: s.admin, Owner: "netcraq dev's gateway", RoundTrip: metrics.Network, Keeper: true,
		SealAge: seal.DefaultAge, Log: s.cfg.Log, Detail: zap.NewNop()}
	if s.shared == nil { // the limits of the etcd in this process are higher
		cfg.MaxTxnOps, cfg.MaxRequestBytes = int(embed.DefaultMaxTxnOps), gateway.DefaultMaxRequestBytes
	}
	keys, err := service.Open(ctx, cfg)
	if err != nil {
		return err
	}
	closes(keys.Close)
	g, err := gateway.New(gateway.Config{Upstream: upstream, KV: keys.Server, Newest: newest, Metrics: metrics,
		Log: s.cfg.Log, Reserved: reserved.With(s.reserved()), AsSelf: own, AuthEnable: keys.Enabling})
	if err != nil {
		return err
	}
	closes(func() {
		ctx, cancel := context.WithTimeout(context.Background(), etcdGrace)
		defer cancel()
		g.Shutdown(ctx)
	})
	s.goes("the etcd gateway", func() error { return g.Serve(l) })
	s.parts.Go(g.Reach)
	return nil
}

// durableArgs are the node API's flags for storing the keys of DurableNamespace in etcd.
func (s *Server) durableArgs() ([]string, error) {
	etcd := s.etcdAddress()
	if etcd == nil {
		return nil, nil
	}
	users := fmt.Sprintf("  - {user: %d, access: {\"*\": write}}\n", os.Geteuid())
	if os.Geteuid() != 0 {
		users += "  - {user: 0, access: {\"*\": write}}\n"
	}
	policy := "callers:\n" + users + "namespaces:\n  " + DurableNamespace + ": {durable: true}\n"
	path := filepath.Join(s.folder.path, "policy.yaml")
	args := []string{"--policy", path, "--endpoints", s.GatewayURL}
	if s.GatewayURL == "" {
		args = []string{"--policy", path, "--endpoints", strings.Join(etcd.Endpoints, ","), "--cacert", etcd.CA,
			"--cert", etcd.Cert, "--key", etcd.Key}
	}
	return args, os.WriteFile(path, []byte(policy), 0o600)
}
