package durable

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/internal/grpcconn"
	"github.com/netcraq/netcraq/nodeapi/durable/etcdlink"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// links has connections to the endpoints for single calls, in addition to the connections of gRPC's
// client. A call over a link takes less processor time (see package etcdlink). The calls are
// distributed over the endpoints in turn. If there is no link, gRPC's client makes the call.
type links struct {
	pb.KVClient // gRPC's client, for all methods that links does not implement

	stop context.CancelFunc
	work sync.WaitGroup
	turn atomic.Uint32
	up   atomic.Pointer[[]*etcdlink.Conn] // the links that are up; the slice is replaced by a new one at each change
	mu   sync.Mutex                       // guards changes of up

	endpoints []grpcconn.Endpoint
	watches   struct {
		under atomic.Int32 // number of watches that use conn, or begin to use it
		mu    sync.Mutex
		conn  *etcdlink.Conn // the connection for watches; nil if none is known
	}
}

// dialLinks begins to connect to the endpoints of a client, and makes the client use the links.
func dialLinks(client *clientv3.Client, config clientv3.Config) *links {
	l := &links{KVClient: clientv3.RetryKVClient(client)}
	l.up.Store(new([]*etcdlink.Conn))
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	for _, text := range config.Endpoints {
		if at, ok := parseEndpoint(text, config.TLS); ok {
			l.endpoints = append(l.endpoints, at)
			l.work.Go(func() { l.keep(ctx, at) })
		}
	}
	client.KV = clientv3.NewKVFromKVClient(l, client)
	return l
}

func (l *links) close() {
	l.stop()
	l.work.Wait()
	l.watches.mu.Lock()
	defer l.watches.mu.Unlock()
	if l.watches.conn != nil {
		l.watches.conn.Close()
	}
	l.endpoints = nil
}

// parseEndpoint parses an endpoint, which is HOST:PORT or an http or https URL with a port. For
// other endpoints it returns false, and no link is made.
func parseEndpoint(text string, secure *tls.Config) (grpcconn.Endpoint, bool) {
	at := grpcconn.Parse(text, secure)
	_, _, err := net.SplitHostPort(at.Address)
	return at, err == nil && at.Network == "tcp" && !strings.Contains(at.Address, "/")
}

// linkTime is the time limit for an attempt to connect.
const linkTime = 5 * time.Second

// keep keeps a link to an endpoint until ctx ends.
func (l *links) keep(ctx context.Context, at grpcconn.Endpoint) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if conn, err := connect(ctx, &at, keepAliveTime, keepAliveTimeout); err == nil {
			l.change(func(up []*etcdlink.Conn) []*etcdlink.Conn { return append(up, conn) })
			select {
			case <-ctx.Done():
			case <-conn.Done():
			}
			l.change(func(up []*etcdlink.Conn) []*etcdlink.Conn {
				return slices.DeleteFunc(up, func(c *etcdlink.Conn) bool { return c == conn })
			})
			conn.Close()
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (l *links) change(f func([]*etcdlink.Conn) []*etcdlink.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	up := f(slices.Clone(*l.up.Load()))
	l.up.Store(&up)
}

func connect(ctx context.Context, at *grpcconn.Endpoint, silence, answer time.Duration) (*etcdlink.Conn,
	error) {
	ctx, cancel := context.WithTimeout(ctx, linkTime)
	defer cancel()
	nc, err := at.Dial(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := etcdlink.New(ctx, nc, etcdlink.Options{Scheme: at.Scheme, Authority: at.Authority, UserAgent: "netcraq",
		Silence: silence, Answer: answer})
	if err != nil {
		nc.Close()
		return nil, err
	}
	return conn, nil
}

// isUp reports whether at least one link is up.
func (l *links) isUp() bool { return l != nil && len(*l.up.Load()) > 0 }

// link returns one of the links that are up, or nil.
func (l *links) link() *etcdlink.Conn {
	up := *l.up.Load()
	if len(up) == 0 {
		return nil
	}
	return up[l.turn.Add(1)%uint32(len(up))]
}

// Range executes a read. If the link is lost during the read, the read is repeated.
func (l *links) Range(ctx context.Context, in *pb.RangeRequest, o ...grpc.CallOption) (*pb.RangeResponse, error) {
	if at := l.link(); at != nil {
		store.SoonAnswered(ctx)
		out := new(pb.RangeResponse)
		err := at.Invoke(ctx, "/etcdserverpb.KV/Range", in, out)
		if !errors.Is(err, etcdlink.ErrNotSent) && status.Code(err) != codes.Unavailable {
			return out, err
		}
	}
	return l.KVClient.Range(ctx, in, o...)
}

// Txn executes a transaction. It is repeated only if it was not sent.
func (l *links) Txn(ctx context.Context, in *pb.TxnRequest, o ...grpc.CallOption) (*pb.TxnResponse, error) {
	if at := l.link(); at != nil {
		store.SoonAnswered(ctx)
		out := new(pb.TxnResponse)
		if err := at.Invoke(ctx, "/etcdserverpb.KV/Txn", in, out); !errors.Is(err, etcdlink.ErrNotSent) {
			return out, err
		}
	}
	return l.KVClient.Txn(ctx, in, o...)
}

// watchSilence is longer than 5 s, because etcd refuses clients that send pings more often than
// every 5 s while nothing happens.
const watchSilence, watchAnswer = 10 * time.Second, 3 * time.Second

// forWatches returns the connection that watches use.
func (l *links) forWatches(ctx context.Context) (*etcdlink.Conn, error) {
	l.watches.mu.Lock()
	defer l.watches.mu.Unlock()
	if conn := l.watches.conn; conn != nil && conn.Usable() {
		return conn, nil
	}
	err := etcdlink.ErrNotSent
	for range l.endpoints {
		var conn *etcdlink.Conn
		at := &l.endpoints[l.turn.Add(1)%uint32(len(l.endpoints))]
		if conn, err = connect(ctx, at, watchSilence, watchAnswer); err == nil {
			l.watches.conn = conn
			return conn, nil
		}
	}
	return nil, err
}

// mostWatches is the maximum number of watches that use links. Each of them is a stream in etcd.
// Further watches use etcd's client, which has one stream for all of them.
const mostWatches = 16

var errWatchEnded = errors.New("etcd has ended the watch")

// watch watches all keys with a prefix from now on. It calls tell with each answer of etcd. tell
// must not wait. The error ErrNotSent means that the watch has not begun.
func (l *links) watch(ctx context.Context, prefix string, tell func(created bool, events []*mvccpb.Event)) error {
	defer l.watches.under.Add(-1)
	if l.watches.under.Add(1) > mostWatches {
		return etcdlink.ErrNotSent
	}
	conn, err := l.forWatches(ctx)
	if err != nil {
		return etcdlink.ErrNotSent
	}
	request := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix))}}}
	return conn.Stream(ctx, "/etcdserverpb.Watch/Watch", request, func(message []byte) error {
		var answer pb.WatchResponse
		if err := answer.Unmarshal(message); err != nil {
			return err
		}
		if answer.Canceled || answer.CompactRevision != 0 {
			return errWatchEnded
		}
		tell(answer.Created, answer.Events)
		return nil
	}, requireLeader)
}

// requireLeader makes etcd end a watch at a member that is cut off from its cluster, because such a
// member does not learn of changes.
var requireLeader = hpack.HeaderField{Name: rpctypes.MetadataRequireLeaderKey, Value: rpctypes.MetadataHasLeader}
