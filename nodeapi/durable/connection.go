package durable

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Access configures a connection to gateways, or to an etcd, with its credentials.
type Access struct {
	Endpoints     []string
	CA, Cert, Key string // paths of PEM files; empty if there are none
	User          string // user name for etcd's authentication; empty if there is none
	PasswordFile  string
}

// Given reports whether the connection is configured at all.
func (a Access) Given() bool { return len(a.Endpoints) > 0 }

// Connection is a connection to gateways or to etcd. It is established when an endpoint answers.
type Connection struct {
	endpoints []string
	now       atomic.Pointer[clientv3.Client]
	// away is the time when the connection was lost, in nanoseconds since began. It is 0 while the
	// connection is up.
	away     atomic.Int64
	stop     context.CancelFunc
	connects sync.WaitGroup
	links    *links // further connections for single calls; may be nil
}

// Over makes a Connection from an existing client. Close of the Connection closes the client.
func Over(client *clientv3.Client) *Connection {
	c := &Connection{endpoints: client.Endpoints(), stop: func() {}}
	c.now.Store(client)
	return c
}

// keepAliveTime plus keepAliveTimeout is the longest time until a broken connection is noticed.
const keepAliveTime, keepAliveTimeout = 3 * time.Second, 2 * time.Second

// Dial starts to connect. It fails if arguments are invalid, but not if no endpoint answers.
func Dial(a Access) (*Connection, error) {
	config := clientv3.Config{
		Endpoints: a.Endpoints, Logger: zap.NewNop(), RejectOldCluster: false,
		DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout, PermitWithoutStream: true,
		DialOptions: []grpc.DialOption{
			// Without these parameters, gRPC would wait two minutes between attempts after etcd was
			// unreachable for long.
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond,
				Multiplier: 1.6, Jitter: .2, MaxDelay: 2 * time.Second}, MinConnectTimeout: 5 * time.Second})},
	}
	secure := a.CA != "" || a.Cert != ""
	for _, e := range a.Endpoints {
		if strings.HasPrefix(e, "https://") != strings.HasPrefix(a.Endpoints[0], "https://") {
			return nil, errors.New("all endpoints begin with https://, or none does")
		}
		if secure && strings.HasPrefix(e, "http://") {
			return nil, fmt.Errorf("certificates are given, and %s is without TLS", e)
		}
		secure = secure || strings.HasPrefix(e, "https://")
	}
	if (a.Cert == "") != (a.Key == "") {
		return nil, errors.New("give a certificate and its key, or neither")
	}
	if secure {
		t, err := transport.TLSInfo{TrustedCAFile: a.CA, CertFile: a.Cert, KeyFile: a.Key}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
		config.TLS = t
	}
	if (a.User == "") != (a.PasswordFile == "") {
		return nil, errors.New("pass a user and the file with the password, or neither")
	}
	c := &Connection{endpoints: a.Endpoints}
	if a.User == "" {
		client, err := clientv3.New(config)
		if err != nil {
			return nil, err
		}
		c.now.Store(client)
		c.links = dialLinks(client, config)
		c.stop = c.links.close
		return c, nil
	}
	password, err := os.ReadFile(a.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("the password: %w", err)
	}
	config.Username, config.Password = a.User, strings.TrimRight(string(password), "\r\n")
	config.DialTimeout = 5 * time.Second
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	config.Context = ctx
	// Run this in the background, because a client with a user name first requests a token, and
	// fails if it gets none.
	c.connects.Go(func() {
		for pause := firstPause; ; pause = min(2*pause, lastPause) {
			if client, err := clientv3.New(config); err == nil {
				c.now.Store(client)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
	return c, nil
}

// Close ends the connection.
func (c *Connection) Close() error {
	c.stop()
	c.connects.Wait()
	if client := c.now.Load(); client != nil {
		return client.Close()
	}
	return nil
}

// isThere reports whether the connection is up, as far as this process knows.
func (c *Connection) isThere() bool {
	if c == nil || c.now.Load() == nil {
		return false
	}
	if c.links.isUp() {
		return true
	}
	state := c.now.Load().ActiveConnection().GetState()
	// the state Idle means that there was no call for a long time
	return state == connectivity.Ready || state == connectivity.Idle
}

// noPatience is how long a call waits for the connection if it has been down for longer than
// patience.
const noPatience = 250 * time.Millisecond

// began is the time from which Connection.away counts.
var began = time.Now()

// Wait waits for a connection, for at most patience. If the connection has already been down for
// that long, Wait waits only briefly, so that calls do not pile up. If Wait fails, the caller knows
// that nothing was sent.
func (c *Connection) Wait(ctx context.Context, patience time.Duration) (*clientv3.Client, error) {
	client := c.now.Load()
	if client != nil && (c.links.isUp() || client.ActiveConnection().GetState() == connectivity.Ready) {
		if c.away.Load() != 0 {
			c.away.Store(0)
		}
		return client, nil
	}
	now := int64(time.Since(began)) + 1
	c.away.CompareAndSwap(0, now)
	patience = max(patience-time.Duration(now-c.away.Load()), min(patience, noPatience))
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	state := connectivity.Idle
	for waiting.Err() == nil {
		if client = c.now.Load(); client == nil {
			select {
			case <-waiting.Done():
			case <-time.After(firstPause):
			}
			continue
		}
		conn := client.ActiveConnection()
		if state = conn.GetState(); state == connectivity.Ready {
			c.away.Store(0)
			return client, nil
		}
		conn.Connect()
		conn.WaitForStateChange(waiting, state)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, nodeapi.Errorf(nodeapi.CodeCanceled, "", "the request was canceled")
	}
	return nil, nodeapi.Errorf(nodeapi.CodeUnavailable, "try again; an operator sees to etcd and its gateways (etcd-monitor)",
		"etcd, where durable keys are, cannot be reached at %q (%s)", c.endpoints, state)
}
