// Package embedded runs an etcd server inside this process. The server is the only member of its
// cluster. It serves a machine for which no other etcd is configured.
//
// It is the same server as the etcd binary's (go.etcd.io/etcd/server/v3/embed). Its data is on
// disk. Its listeners are on loopback addresses, in plain text and without authentication. So every
// program that can connect to the machine's loopback can read and write the data. Such writes
// bypass the gateway.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// loopback is the default address of a listener. Port 0 means any free port.
const loopback = "127.0.0.1:0"

// Config configures the server.
type Config struct {
	// DataDir is the folder of the data. The server creates it if it does not exist, and otherwise
	// serves the data in it.
	DataDir string
	// Client and Peer are loopback addresses, HOST:PORT. If the port is 0 or the address is empty,
	// the server chooses a free port. Clients connect to Client. Peer is unused while the cluster
	// has one member.
	Client, Peer string
	// LogLevel is a zap level; the default is "warn". LogOutput is a file, "stderr" or "stdout";
	// the default is "stderr".
	LogLevel, LogOutput string
	// Adjust, if set, changes further options of etcd, for example the snapshot count or TLS.
	Adjust func(*embed.Config)
}

// Server is a running etcd server.
type Server struct {
	etcd     *embed.Etcd
	lock     *fileutil.LockedFile
	endpoint string
	close    sync.Once
}

// Start starts a server and returns when it can answer. A single member needs about a second to
// elect itself. If ctx ends during the start, Start fails. Afterwards ctx has no effect.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.DataDir == "" {
		return nil, errors.New("embedded etcd: no data directory is given")
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded etcd: making the data directory: %w", err)
	}
	// A lock of our own is needed, because etcd waits forever for a directory that another server
	// has open.
	lock, err := fileutil.TryLockFile(filepath.Join(cfg.DataDir, "in-use"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: the data directory %s: %w (does another process use it?)", cfg.DataDir, err)
	}
	var e *embed.Etcd
	// A free port is found by listening and closing. Another process may take the port before etcd
	// does, so there are several attempts.
	for range 5 {
		if e, err = start(cfg); !errors.Is(err, syscall.EADDRINUSE) || fixed(cfg.Client) && fixed(cfg.Peer) {
			break
		}
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	s := &Server{etcd: e, lock: lock, endpoint: e.Config().AdvertiseClientUrls[0].String()}
	select {
	case <-e.Server.ReadyNotify():
		return s, nil
	case <-e.Server.StopNotify():
		err = errors.New("it stopped")
	case err = <-e.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.Close()
	return nil, fmt.Errorf("embedded etcd: not ready: %w", err)
}

func start(cfg Config) (*embed.Etcd, error) {
	client, err := listenURL(cfg.Client)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: the address for clients: %w", err)
	}
	peer, err := listenURL(cfg.Peer)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: the address for peers: %w", err)
	}
	c := embed.NewConfig()
	c.Dir = filepath.Join(cfg.DataDir, "etcd")
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.LogLevel, c.LogOutputs = "warn", []string{"stderr"}
	if cfg.LogLevel != "" {
		c.LogLevel = cfg.LogLevel
	}
	if cfg.LogOutput != "" {
		c.LogOutputs = []string{cfg.LogOutput}
	}
	// the etcd binary sets this default; with 0, etcd would log each request
	c.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	c.InitialCluster = ""
	if cfg.Adjust != nil {
		cfg.Adjust(c)
	}
	if c.InitialCluster == "" {
		c.InitialCluster = c.InitialClusterFromName(c.Name)
	}
	if wal.Exist(filepath.Join(c.Dir, "member", "wal")) {
		// A member that already has data must not be created again, even if its addresses have
		// changed.
		c.ClusterState = embed.ClusterStateFlagExisting
	}
	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: starting it in %s: %w", cfg.DataDir, err)
	}
	return e, nil
}

func fixed(address string) bool {
	return address != "" && !strings.HasSuffix(address, ":0")
}

// listenURL returns the URL to listen at. If address is empty or has port 0, it chooses a free
// port.
func listenURL(address string) (url.URL, error) {
	if address == "" {
		address = loopback
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return url.URL{}, fmt.Errorf("%q is not HOST:PORT: %w", address, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return url.URL{}, fmt.Errorf("%s is not on this machine's loopback: an embedded etcd has no authentication; give 127.0.0.1:PORT, or run an etcd of your own and name its endpoints", address)
	}
	if port == "0" {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return url.URL{}, fmt.Errorf("looking for a free port: %w", err)
		}
		defer l.Close()
		address = l.Addr().String()
	}
	return url.URL{Scheme: "http", Host: address}, nil
}

// Endpoint returns the URL for the server's clients.
func (s *Server) Endpoint() string { return s.endpoint }

// Err returns a channel that receives the error with which the server has ended.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Etcd returns the underlying etcd server.
func (s *Server) Etcd() *embed.Etcd { return s.etcd }

// Close stops the server. Its acknowledged writes are on disk.
func (s *Server) Close() {
	s.close.Do(func() {
		s.etcd.Close()
		s.lock.Close()
	})
}
