package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Lease keep-alives go to etcd on a few streams. All clients with the same identity share these
// streams. For each lease at most one request is in progress. Its answer goes to all clients that
// were waiting when the gateway sent it. So each client gets an answer to a renewal that came after
// its own request. The lease then lives for the TTL in the answer. A lease of several clients is
// renewed at most ten times a second.

const (
	keepStreams = 8                      // number of streams to etcd, which handles each one sequentially
	keepPace    = 100 * time.Millisecond // minimum interval between renewals of a lease that several clients keep alive
	keepMemory  = 10 * time.Second       // how long the last client of a lease is remembered
	keepQueue   = 1024                   // maximum number of unanswered requests of one client
)

// keeper manages the streams to etcd.
type keeper struct {
	g *Gateway

	mu      sync.Mutex
	streams map[string]*keepStream
}

// keepStream is one of the streams to etcd.
type keepStream struct {
	keeper *keeper
	name   string
	stop   context.CancelFunc
	etcd   *mailbox

	mu      sync.Mutex
	clients map[*keepClient]bool
	leases  map[int64]*keepLease
	swept   time.Time
	dead    error
}

// keepLease is a lease that clients keep alive.
type keepLease struct {
	waiting []chan pieces // clients waiting for the answer to the request in progress
	next    []chan pieces // clients waiting for the answer to the next request
	sent    time.Time
	asked   time.Time   // time of the last request
	by      *keepClient // client that sent the last request
	several time.Time   // when a second client last used the lease
	timed   bool
}

// keepClient is the keep-alive stream of one client.
type keepClient struct {
	failed  chan struct{}
	once    sync.Once
	err     error
	streams map[*keepStream]bool
}

func newKeeper(g *Gateway) *keeper { return &keeper{g: g, streams: map[string]*keepStream{}} }

func (c *keepClient) fail(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.failed)
	})
}

// keepAlives serves a client's stream. It answers the requests in their order, as etcd does.
func (g *Gateway) keepAlives(down grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(outgoing(down.Context()))
	defer cancel()
	defer context.AfterFunc(g.stopping, cancel)()
	md, _ := metadata.FromOutgoingContext(ctx)
	who := identity(md)
	c := &keepClient{failed: make(chan struct{}), streams: map[*keepStream]bool{}}
	answers := make(chan chan pieces, keepQueue)
	received := make(chan struct{})
	leases := &leaseFilter{g, map[int64]bool{}}
	if slices.Contains(md[rpctypes.MetadataRequireLeaderKey], rpctypes.MetadataHasLeader) {
		// etcd ends such a stream when it has no leader, even if the stream has kept no lease alive
		// yet.
		if err := g.keeper.join(c, who, md); err != nil {
			return g.unlessStopped(err)
		}
	}
	go func() { // this goroutine ends no later than the handler's stream
		defer close(received)
		defer close(answers)
		for {
			var f frame
			if err := down.RecvMsg(&f); err != nil {
				if !errors.Is(err, io.EOF) {
					c.fail(err)
				}
				return
			}
			var r pb.LeaseKeepAliveRequest
			if err := r.Unmarshal(f.bytes); err != nil {
				c.fail(status.Errorf(codes.Internal, "etcd-monitor: a request to keep a lease alive: %v", err))
				return
			}
			answer := make(chan pieces, 1)
			refused, err := leases.refused(down.Context(), r.ID)
			if err != nil {
				c.fail(err) // the client will retry
				return
			}
			if refused != nil {
				answer <- refused
			} else if !g.keeper.renew(c, who, md, &r, answer) {
				return
			}
			select {
			case answers <- answer:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		go func() { // the client may still have a keep-alive in progress on a shared stream
			<-received
			for st := range c.streams {
				st.leave(c)
			}
		}()
	}()
	for {
		answer, more := (chan pieces)(nil), true
		select {
		case answer, more = <-answers:
		case <-c.failed:
			return g.unlessStopped(c.err)
		case <-ctx.Done():
			return g.unlessStopped(status.FromContextError(ctx.Err()).Err())
		}
		if !more { // the client has sent its last request or has failed
			select {
			case <-c.failed:
				return g.unlessStopped(c.err)
			default:
				return nil
			}
		}
		select {
		case b := <-answer:
			if err := down.SendMsg(b); err != nil {
				return err
			}
		case <-c.failed:
			return g.unlessStopped(c.err)
		case <-ctx.Done():
			return g.unlessStopped(status.FromContextError(ctx.Err()).Err())
		}
	}
}

// renew renews a lease at etcd. It reports whether the client's stream continues.
func (k *keeper) renew(c *keepClient, who string, md metadata.MD, r *pb.LeaseKeepAliveRequest,
	answer chan pieces) bool {
	err := k.on(uint64(r.ID)%keepStreams, who, md, func(st *keepStream) error { return st.renew(c, r, answer) })
	if err != nil {
		c.fail(err)
	}
	return err == nil
}

// join adds a client to a stream to etcd. When etcd ends that stream, the client's stream ends,
// too.
func (k *keeper) join(c *keepClient, who string, md metadata.MD) error {
	return k.on(0, who, md, func(st *keepStream) error {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.use(c)
	})
}

// on calls the function do with a stream to etcd. It opens the stream if necessary.
func (k *keeper) on(number uint64, who string, md metadata.MD, do func(*keepStream) error) error {
	name := strconv.FormatUint(number, 10) + " " + who
	for {
		k.mu.Lock()
		st := k.streams[name]
		if st == nil {
			st = k.open(name, md)
		}
		k.mu.Unlock()
		if err := do(st); !errors.Is(err, errIdle) {
			return err
		}
	}
}

// errIdle means that the stream was closed because no client used it.
var errIdle = errors.New("the stream is closed")

// open opens a stream to etcd. The caller holds mu.
func (k *keeper) open(name string, md metadata.MD) *keepStream {
	ctx, stop := context.WithCancel(metadata.NewOutgoingContext(k.g.stopping, md))
	st := &keepStream{keeper: k, name: name, stop: stop, etcd: newMailbox(mailboxBytes),
		clients: map[*keepClient]bool{}, leases: map[int64]*keepLease{}, swept: time.Now()}
	k.streams[name] = st
	go func() {
		defer stop()
		st.fail(st.run(ctx))
	}()
	return st
}

// run processes etcd's answers until the stream ends, and returns the reason.
func (st *keepStream) run(ctx context.Context) error {
	g := st.keeper.g
	up, err := g.stream(ctx, keepAliveMethod)
	if err != nil {
		return err
	}
	go send(st.etcd, up)
	return receiveAll(up, func(f frame) error {
		var a pb.LeaseKeepAliveResponse
		if err := a.Unmarshal(f.bytes); err != nil {
			return fmt.Errorf("gateway: forwarding etcd's answer to a keep-alive of a lease: %w", err)
		}
		g.newest.Saw(a.GetHeader().GetRevision())
		st.answered(a.ID, pieces{f.bytes})
		return nil
	})
}

// fail ends the stream. It also ends the streams of all clients that have used it, as etcd would.
func (st *keepStream) fail(why error) {
	k := st.keeper
	k.mu.Lock()
	if k.streams[st.name] == st {
		delete(k.streams, st.name)
	}
	k.mu.Unlock()
	st.etcd.close(why)
	if errors.Is(why, io.EOF) {
		why = rpctypes.ErrGRPCStopped
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.dead == nil {
		st.dead = why
	}
	for c := range st.clients {
		c.fail(why)
	}
}

// leave removes a client from the stream. When the last client leaves, the stream is closed.
func (st *keepStream) leave(c *keepClient) {
	k := st.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.clients, c)
	if len(st.clients) > 0 || st.dead != nil {
		return
	}
	st.dead = errIdle
	if k.streams[st.name] == st {
		delete(k.streams, st.name)
	}
	st.stop()
}

// use adds a client to the stream. The caller holds mu.
func (st *keepStream) use(c *keepClient) error {
	if st.dead != nil {
		return st.dead
	}
	st.clients[c], c.streams[st] = true, true
	return nil
}

func (st *keepStream) renew(c *keepClient, r *pb.LeaseKeepAliveRequest, answer chan pieces) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.use(c); err != nil {
		return err
	}
	now := time.Now()
	st.sweep(now)
	l := st.leases[r.ID]
	if l == nil {
		l = &keepLease{}
		st.leases[r.ID] = l
	}
	if l.by != nil && l.by != c {
		l.several = now
	}
	l.by, l.asked = c, now
	l.next = append(l.next, answer)
	st.forward(r.ID, l)
	return nil
}

// forward sends a request to etcd for the waiting clients. It sends none if one is in progress or
// the lease was just renewed. The caller holds mu.
func (st *keepStream) forward(id int64, l *keepLease) {
	if len(l.waiting) > 0 || len(l.next) == 0 || l.timed || st.dead != nil {
		return
	}
	now := time.Now()
	if early := l.sent.Add(keepPace).Sub(now); early > 0 && now.Sub(l.several) < keepMemory {
		l.timed = true
		time.AfterFunc(early, func() {
			st.mu.Lock()
			defer st.mu.Unlock()
			l.timed = false
			st.forward(id, l)
		})
		return
	}
	l.sent, l.waiting, l.next = now, l.next, nil
	if b, err := (&pb.LeaseKeepAliveRequest{ID: id}).Marshal(); err == nil {
		st.etcd.force(pieces{b})
	}
}

func (st *keepStream) answered(id int64, answer pieces) {
	st.mu.Lock()
	defer st.mu.Unlock()
	l := st.leases[id]
	if l == nil {
		return
	}
	for _, to := range l.waiting {
		to <- answer // the channel to has room for one answer
	}
	l.waiting = nil
	st.forward(id, l)
}

// sweep forgets leases that no client has kept alive for a while. The caller holds mu.
func (st *keepStream) sweep(now time.Time) {
	if now.Sub(st.swept) < keepMemory {
		return
	}
	st.swept = now
	for id, l := range st.leases {
		if len(l.waiting)+len(l.next) == 0 && now.Sub(l.asked) > keepMemory {
			delete(st.leases, id)
		}
	}
}
