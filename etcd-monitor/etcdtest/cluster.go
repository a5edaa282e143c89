// Package etcdtest runs etcd clusters inside tests. It also makes clients, certificates and etcdctl
// for such tests.
package etcdtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// Cluster is an etcd cluster in this process, on loopback.
type Cluster struct {
	t        testing.TB
	dir      string
	clients  []string // client address of each member, HOST:PORT
	peers    []string
	tls      transport.TLSInfo
	adjust   func(*embed.Config)
	mu       sync.Mutex
	members  []*embedded.Server
	crashes  []*crash // for each member, the wrapper that makes it crash
	starting sync.WaitGroup
}

// Options configure a cluster.
type Options struct {
	TLS    transport.TLSInfo   // TLS for clients' connections
	Adjust func(*embed.Config) // changes any other option of etcd
}

// New starts an empty cluster of n members, which ends with the test.
func New(t testing.TB, n int, o Options) *Cluster {
	t.Helper()
	c := &Cluster{t: t, dir: t.TempDir(), tls: o.TLS, adjust: o.Adjust,
		members: make([]*embedded.Server, n), crashes: make([]*crash, n)}
	for range n {
		c.clients = append(c.clients, testport.Free(t))
		c.peers = append(c.peers, testport.Free(t))
	}
	t.Cleanup(func() {
		if t.Failed() {
			for i := range c.members {
				b, _ := os.ReadFile(c.log(i))
				if len(b) > 0 {
					t.Logf("etcd %d's log ends:\n%s", i, b[max(0, len(b)-1500):])
				}
			}
		}
		var stopping sync.WaitGroup
		for i := range c.members {
			stopping.Go(func() { c.Kill(i) }) // a member that stops gracefully would wait for a new leader
		}
		stopping.Wait()
	})
	for i := range n {
		c.starting.Go(func() { c.Start(i) })
	}
	c.starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return c
}

// Start starts a single etcd server and returns its client address (HOST:PORT). The server ends
// with the test.
func Start(t testing.TB) string {
	t.Helper()
	return New(t, 1, Options{}).clients[0]
}

func (c *Cluster) log(i int) string { return filepath.Join(c.dir, fmt.Sprint("log", i)) }

// Quick makes an etcd fast for tests. Its password hashes are cheap, because with the race detector
// they otherwise take minutes. It skips fsync, because the tests simulate crashes of processes, not
// of machines.
func Quick(e *embed.Config) { e.BcryptCost, e.UnsafeNoFsync = 4, true }

// Start starts member i, for the first time or again.
func (c *Cluster) Start(i int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	crash := newCrash()
	s, err := embedded.Start(ctx, embedded.Config{DataDir: filepath.Join(c.dir, fmt.Sprint("m", i)),
		Client: c.clients[i], Peer: c.peers[i], LogOutput: c.log(i), Adjust: func(e *embed.Config) {
			var all []string
			for j, p := range c.peers {
				all = append(all, fmt.Sprintf("m%d=http://%s", j, p))
			}
			e.Name, e.InitialCluster = fmt.Sprint("m", i), strings.Join(all, ",")
			e.TickMs, e.ElectionMs = 50, 500
			Quick(e)
			if !c.tls.Empty() {
				e.ClientTLSInfo = c.tls
				u := []url.URL{{Scheme: "https", Host: c.clients[i]}}
				e.ListenClientUrls, e.AdvertiseClientUrls = u, u
			}
			if c.adjust != nil {
				c.adjust(e)
			}
			e.GRPCAdditionalServerOptions = append(e.GRPCAdditionalServerOptions, crash.options()...)
		}})
	if err != nil {
		c.t.Errorf("etcd %d: %v", i, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[i], c.crashes[i] = s, crash
}

// Stop stops member i, if it runs.
func (c *Cluster) Stop(i int) {
	c.mu.Lock()
	s := c.members[i]
	c.members[i] = nil
	c.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// Kill ends member i, if it runs, as a crash does. A leader does not transfer its leadership, and
// requests in progress get no answer. Kill returns when the member can be started again, like Stop.
// It may take several seconds, because all connections of clients must close first.
func (c *Cluster) Kill(i int) {
	c.mu.Lock()
	s, crash := c.members[i], c.crashes[i]
	c.mu.Unlock()
	if s != nil {
		crash.begin()
		s.Etcd().Server.HardStop()
		crash.end()
		c.Stop(i)
	}
}

// Endpoints returns the URLs of all members.
func (c *Cluster) Endpoints() (out []string) {
	for _, a := range c.clients {
		if c.tls.Empty() {
			out = append(out, "http://"+a)
		} else {
			out = append(out, "https://"+a)
		}
	}
	return out
}

// Leader waits until a member leads, and returns its number.
func (c *Cluster) Leader() (i int) {
	c.t.Helper()
	poll.Until(c.t, 20*time.Second, "the cluster has a leader", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i = slices.IndexFunc(c.members, func(m *embedded.Server) bool {
			return m != nil && m.Etcd().Server.Leader() == m.Etcd().Server.MemberID()
		})
		return i >= 0
	})
	return i
}

// Client returns a client of endpoints, which is closed at the end of the test.
func Client(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	return ClientWith(t, clientv3.Config{Endpoints: endpoints})
}

// ClientWith returns a client with a configuration, which is closed at the end of the test.
func ClientWith(t testing.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.Logger = zap.NewNop()
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = 5 * time.Second
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatalf("etcd's client: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
