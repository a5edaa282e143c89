// Package inplace puts a gateway between etcd's own tests and their etcd: what their framework
// connects to a member is connected to a gateway before that member. The gateways are the command
// that ships, each a process of its own, because the tests count the goroutines of theirs.
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

// What the runner of the suites tells the tests' processes, in their environment.
const (
	// EnvGateway is the gateway's binary.
	EnvGateway = "NETCRAQ_SUITE_GATEWAY"
	// EnvFixtures is the directory of the certificates of etcd's tests.
	EnvFixtures = "NETCRAQ_SUITE_FIXTURES"
	// EnvLog is the file to which gateways write what they have to say.
	EnvLog = "NETCRAQ_SUITE_LOG"
	// EnvController is the admin API of the controller of the switches, and EnvSlots the file of
	// the slots in them that keys are placed in; without them nothing is placed.
	EnvController = "NETCRAQ_SUITE_CONTROLLER"
	EnvSlots      = "NETCRAQ_SUITE_SLOTS"
	// EnvPassword is the password that the tests give to root, where keys are placed: gateways have
	// business of their own in etcd, and do it as root.
	EnvPassword = "NETCRAQ_SUITE_PASSWORD"
	// EnvFlags are flags that gateways are given besides, with spaces between them.
	EnvFlags = "NETCRAQ_SUITE_FLAGS"
)

// running are the gateways that have clients, by what they stand before.
var running = struct {
	sync.Mutex
	gateways map[string]*gateway
}{gateways: map[string]*gateway{}}

// NewClient is clientv3.New, with a gateway before the endpoints. Clients of the same endpoints and
// certificates share one, which ends with the last of them.
func NewClient(cfg clientv3.Config) (*clientv3.Client, error) {
	if len(cfg.Endpoints) == 0 {
		return clientv3.New(cfg)
	}
	if secure := strings.HasPrefix(cfg.Endpoints[0], "https:") ||
		strings.HasPrefix(cfg.Endpoints[0], "unixs:"); secure || cfg.TLS != nil {
		// etcd's framework, too, connects to etcd first and then puts its proxy before it: who is
		// not let in has an error here.
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

// AtClose has something done once when a client is closed.
func AtClose(c *clientv3.Client, then func()) {
	c.Lease = &closes{Lease: c.Lease, then: sync.OnceFunc(then)}
}

// closes is a client's leases. A client closes them when it is closed, last of all but its
// connection.
type closes struct {
	clientv3.Lease
	then func()
}

func (c *closes) Close() error {
	defer c.then()
	return c.Lease.Close()
}

// take gives a gateway before the endpoints of cfg, another one's or a new one.
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

// leave is what a client does at its end.
func (g *gateway) leave() {
	running.Lock()
	defer running.Unlock()
	if g.clients--; g.clients == 0 {
		delete(running.gateways, g.key)
		g.end()
	}
}

// absolute are endpoints as a process in another directory has to name them, too: those of etcd's
// tests are sockets in the directory of the test. The path of a socket has a hundred bytes at most,
// and the tests have long names, so there is a link to that directory.
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

// links are to directories. They are removed with the tests' temporary directory.
var links = struct {
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

// linkTo gives a short name of a directory.
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

// first places what a request is about before it is sent, and does for a new role what docs/etcd.md
// asks for.
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
