package leaderlink

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/netcraq/netcraq/cni-plugin/kube/adminrights"
	"github.com/netcraq/netcraq/cni-plugin/kube/logonce"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/internal/oneconn"
	"github.com/netcraq/netcraq/nodeapi/durable/door"
)

// Answerer connects the leader to each node's agent, and answers the requests that the agents send
// over these connections.
type Answerer struct {
	tls   *tls.Config
	serve http.Handler // the controller's admin API
	door  *door.Door   // forwards requests for durable keys; nil if there are none
	log   *slog.Logger

	// quota returns the maximum number of keys of a namespace, whatever a node requests.
	quota func(namespace string) int

	mu     sync.Mutex
	tasks  map[string]*task              // tasks by the name and addresses of their node
	shares map[string]*adminrights.Share // shares by the name of their node
}

// NewAnswerer makes an Answerer that has no nodes yet. quota returns the maximum number of keys of
// a namespace. d may be nil.
func NewAnswerer(conf *tls.Config, quota func(namespace string) int, serve http.Handler, d *door.Door,
	log *slog.Logger) *Answerer {
	return &Answerer{tls: conf, serve: serve, door: d, log: log, quota: quota, tasks: map[string]*task{},
		shares: map[string]*adminrights.Share{}}
}

// Follow makes the Answerer serve exactly these nodes, until ctx ends.
//
// hostOf returns a node's address as a host of the network. A node without such an address is not
// served.
func (a *Answerer) Follow(ctx context.Context, nodes []nodeview.Node, hostOf func(nodeview.Node) (netip.Addr, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted, there := map[string]bool{}, map[string]bool{}
	for _, n := range nodes {
		there[n.Name] = true
		if a.shares[n.Name] == nil {
			a.shares[n.Name] = adminrights.NewShare()
		}
		if !n.There || n.Status.Agent == "" {
			continue
		}
		host, err := hostOf(n)
		if err != nil { // the network omits this node's host, and reports why
			continue
		}
		key := n.Name + " " + n.Status.Agent + " " + host.String()
		wanted[key] = true
		if !a.tasks[key].running() {
			t := newTask(ctx)
			a.tasks[key] = t
			go a.one(t.ctx, n.Name, n.Status.Agent, host, a.shares[n.Name])
		}
	}
	endOthers(a.tasks, wanted)
	maps.DeleteFunc(a.shares, func(name string, _ *adminrights.Share) bool { return !there[name] })
}

func (a *Answerer) one(ctx context.Context, name, address string, host netip.Addr, share *adminrights.Share) {
	var failed logonce.Last
	retry := workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)
	for ctx.Err() == nil {
		began := time.Now()
		err := a.answer(ctx, name, address, host, share)
		if time.Since(began) > Beat {
			retry.Forget(name)
			failed = logonce.Last{}
		}
		if ctx.Err() == nil && failed.IsNew(err) {
			a.log.Warn("a node's agent cannot ask this controller", "node", name, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.When(name)):
		}
	}
}

// answer connects to an agent. It answers the agent's requests until the connection ends.
func (a *Answerer) answer(ctx context.Context, name, address string, host netip.Addr, share *adminrights.Share) error {
	conf := a.tls.Clone()
	conf.ServerName = name
	dialing, cancel := context.WithTimeout(ctx, Wait)
	defer cancel()
	nc, err := (&tls.Dialer{Config: conf}).DialContext(dialing, "tcp", address)
	if err != nil {
		return err
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	_ = nc.SetDeadline(time.Now().Add(Wait))
	if _, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Path, address, protocol); err != nil {
		return err
	}
	answer := &io.LimitedReader{R: nc, N: headerLimit}
	in := bufio.NewReader(answer)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("the agent says %.100s", resp.Status)
	}
	answer.N = math.MaxInt64 // removes the limit, because the server limits further input
	_ = nc.SetDeadline(time.Time{})
	server := &http.Server{Handler: serveDurable(a.door, name, adminrights.ByNode(name, host, share, a.quota, a.serve)),
		Protocols:         onlyHTTP2(),
		ReadHeaderTimeout: Wait, MaxHeaderBytes: headerLimit,
		BaseContext: func(net.Listener) context.Context { return ctx },
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: atOnce, SendPingTimeout: Beat, PingTimeout: Wait,
			MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: adminrights.BodyLimit}}
	if err := server.Serve(oneconn.Listen(&readAhead{nc, in})); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return errLinkEnded
}

// readAhead is a connection some of whose bytes were already read into a buffer.
type readAhead struct {
	net.Conn
	r *bufio.Reader
}

func (c *readAhead) Read(p []byte) (int, error) { return c.r.Read(p) }

var errLinkEnded = errors.New("the connection has ended")
