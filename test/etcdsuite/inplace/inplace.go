// Package inplace puts gateways between etcd's own tests and their etcd. The tests' framework
// connects to a gateway in front of a member instead of the member itself. Each gateway is the
// released command in its own process, because the tests count the goroutines in the tests'
// process.
package inplace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// These are environment variables. The runner of the suites uses them to configure the tests'
// processes.
const (
	// EnvGateway is the path of the gateway's binary.
	EnvGateway = "NETCRAQ_SUITE_GATEWAY"
	// EnvFixtures is the directory with the certificates of etcd's tests.
	EnvFixtures = "NETCRAQ_SUITE_FIXTURES"
	// EnvLog is the path of the file for the gateways' logs.
	EnvLog = "NETCRAQ_SUITE_LOG"
	// EnvController is the address of the admin API of the switches' controller. EnvSlots is the
	// path of the file with the slots in which keys are placed. If they are not set, no key is
	// placed.
	EnvController = "NETCRAQ_SUITE_CONTROLLER"
	EnvSlots      = "NETCRAQ_SUITE_SLOTS"
	// EnvPassword is the password that the tests give to root, for runs with placed keys. Gateways
	// read and write keys of their own in etcd, and do that as root.
	EnvPassword = "NETCRAQ_SUITE_PASSWORD"
	// EnvFlags has additional flags for gateways, separated by spaces.
	EnvFlags = "NETCRAQ_SUITE_FLAGS"
)

// running has the gateways that have clients, by the clients' endpoints and certificates.
var running = struct {
	sync.Mutex
	gateways map[string]*gateway
}{gateways: map[string]*gateway{}}

// NewClient works like clientv3.New, with a gateway in front of the endpoints. Clients with the
// same endpoints and certificates share a gateway. The gateway ends when its last client is closed.
func NewClient(cfg clientv3.Config) (*clientv3.Client, error) {
	if len(cfg.Endpoints) == 0 {
		return clientv3.New(cfg)
	}
	if secure := strings.HasPrefix(cfg.Endpoints[0], "https:") ||
		strings.HasPrefix(cfg.Endpoints[0], "unixs:"); secure || cfg.TLS != nil {
		// Connect to etcd first, as etcd's framework does with its own proxy. If etcd rejects the
		// client, this returns the error.
		c, err := clientv3.New(cfg)
		if err != nil {
			return nil, err
		}
		c.Close()
	}
	g, err := take(cfg)
	if err != nil {
		return nil, fmt.Errorf("a gateway before %s: %w", strings.Join(cfg.Endpoints, ","), err)
	}
	cfg.Endpoints = slices.Clone(g.urls)
	if g.places != nil {
		cfg.DialOptions = append(slices.Clone(cfg.DialOptions), grpc.WithChainUnaryInterceptor(g.places.first))
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		g.leave()
		return nil, err
	}
	AtClose(c, g.leave)
	return c, nil
}

// AtClose makes a client call the function `then` once when it is closed.
func AtClose(c *clientv3.Client, then func()) {
	c.Lease = &closes{Lease: c.Lease, then: sync.OnceFunc(then)}
}

// closes replaces the Lease of a client. A client closes its Lease last, just before its
// connection.
type closes struct {
	clientv3.Lease
	then func()
}

func (c *closes) Close() error {
	defer c.then()
	return c.Lease.Close()
}

// take returns a gateway in front of the endpoints of cfg. It is a running gateway, or a new one.
func take(cfg clientv3.Config) (*gateway, error) {
	endpoints, err := absolute(cfg.Endpoints)
	if err != nil {
		return nil, err
	}
	certs, err := certificates(cfg.TLS, endpoints[0])
	if err != nil {
		return nil, err
	}
	key := strings.Join(append(slices.Clone(endpoints), certs.id), " ")
	running.Lock()
	defer running.Unlock()
	g := running.gateways[key]
	if g == nil {
		if g, err = start(endpoints, make([]string, len(endpoints)), certs); err != nil {
			certs.remove()
			return nil, err
		}
		g.key = key
		if path := os.Getenv(EnvSlots); path != "" {
			if g.places, err = NewPlacement(endpoints, cfg.TLS); err != nil {
				g.end()
				return nil, err
			}
		}
		running.gateways[key] = g
	} else {
		certs.remove()
	}
	g.clients++
	return g, nil
}

// leave is called when a client of a gateway is closed. It ends the gateway if no other client uses
// it.
func (g *gateway) leave() {
	running.Lock()
	defer running.Unlock()
	if g.clients--; g.clients == 0 {
		delete(running.gateways, g.key)
		g.end()
	}
}

// absolute makes endpoints valid in other directories. etcd's tests use sockets in the test's
// directory. A socket's path is limited to about a hundred bytes, and the tests have long names, so
// absolute uses a link to the directory.
func absolute(endpoints []string) (out []string, err error) {
	for _, e := range endpoints {
		scheme, rest, ok := strings.Cut(e, ":")
		switch {
		case ok && (scheme == "unix" || scheme == "unixs"):
			path, err := filepath.Abs(strings.TrimPrefix(rest, "//"))
			if err != nil {
				return nil, err
			}
			link, err := linkTo(filepath.Dir(path))
			if err != nil {
				return nil, err
			}
			e = scheme + "://" + filepath.Join(link, filepath.Base(path))
		case !strings.Contains(e, "://"):
			e = "http://" + e
		}
		out = append(out, e)
	}
	return out, nil
}

// links has short symbolic links to directories. They are removed with the tests' temporary
// directory.
var links = struct {
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

// linkTo returns a short name for a directory.
func linkTo(dir string) (string, error) {
	links.Lock()
	defer links.Unlock()
	if link := links.paths[dir]; link != "" {
		return link, nil
	}
	link := filepath.Join(os.TempDir(), fmt.Sprint("d", os.Getpid(), "-", len(links.paths)))
	if err := os.Symlink(dir, link); err != nil {
		return "", err
	}
	links.paths[dir] = link
	return link, nil
}

var errClosed = errors.New("the gateway ended before it was ready")

// first places the keys of a request before the request is sent. For a new role, it grants the
// permissions that docs/etcd.md requires.
func (p *Placement) first(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	for _, key := range keysOf(request) {
		p.Place(ctx, key)
	}
	err := invoke(ctx, method, request, reply, conn, opts...)
	if r, ok := request.(*pb.AuthRoleAddRequest); ok && err == nil {
		err = p.letWrite(ctx, r.Name)
	}
	return err
}
