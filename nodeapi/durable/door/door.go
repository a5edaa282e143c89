// Package door restricts the requests that nodes can send to etcd. It permits only the requests
// that a node's store of durable keys (nodeapi/durable) needs. The agent of a node has no
// certificate for etcd or for its gateways. Only the leading agent has such a certificate. It runs
// a Door, which accepts a gRPC connection from each node, and forwards permitted requests to a
// gateway.
//
//	agent: durable.Store ──gRPC──▶ Door ──gRPC──▶ etcd-monitor ──▶ etcd
//	                               passes only keys that begin with /netcraq.io/, in a Store's form;
//	                               limits keys, bytes a second, and watches
//
// An attacker on a node can read and change all durable keys of all namespaces, and also all
// volatile keys. The attacker cannot access other keys in etcd, cannot exceed the quotas of keys,
// and cannot write to etcd faster than the node's rate.
package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/internal/oneconn"
	"github.com/netcraq/netcraq/nodeapi/durable"
)

// Options are the options of a Door. If a field is zero, the default in its comment applies.
type Options struct {
	// Etcd is the connection to the gateways.
	Etcd *durable.Connection
	// Keys is the maximum number of keys of a namespace. AllKeys is the maximum number of keys of
	// all namespaces together. The defaults are DefaultKeys and DefaultAllKeys.
	Keys, AllKeys int
	// NodeRate is the maximum number of bytes per second that one node may write, and Rate that of
	// all nodes together. The burst is sixteen times the rate. The defaults are DefaultNodeRate and
	// DefaultRate.
	NodeRate, Rate float64
	// Patience is how long a request waits for a connection to the gateways. The default is 3 s.
	Patience time.Duration
}

// These are limits for all nodes together. etcd keeps overwritten values until it is compacted,
// which the Kubernetes API server does every five minutes. So these writes take at most 600 MB of
// etcd's quota of 2 GB.
const (
	DefaultKeys     = durable.DefaultQuota
	DefaultAllKeys  = 100_000
	DefaultNodeRate = 512 << 10
	DefaultRate     = 2 << 20
	atOnce          = 16
)

// These are limits for the connection of one node.
const (
	streams      = 256     // maximum number of requests under way, including watch streams
	watchStreams = 4       // maximum number of watch streams
	watches      = 1024    // maximum number of watches; a store uses one watch for each namespace
	messageBytes = 1 << 20 // maximum size of a request in bytes
	valuesAtOnce = 64      // maximum number of entries with values that one range request may return
	namesAtOnce  = 1000    // maximum number of entries without values that one range request may return
	opsAtOnce    = 128     // maximum number of operations in a transaction, as in etcd
	// maximum length of an entry's name in bytes; the name consists of the prefix, a namespace and
	// a key
	maxName       = 400
	maxLease      = 24 * time.Hour
	leasesASecond = 1
)

// Door serves the connections of nodes. It is safe for concurrent use.
type Door struct {
	o       Options
	watches int64
	rate    *rate.Limiter // limits the writes of all nodes together

	mu     sync.Mutex
	nodes  map[string]*rate.Limiter // limits the writes of each node, over all of its connections
	making int                      // number of keys that are being created by transactions under way
}

// New makes a Door.
func New(o Options) *Door {
	o.Keys, o.AllKeys = cmp.Or(o.Keys, DefaultKeys), cmp.Or(o.AllKeys, DefaultAllKeys)
	o.NodeRate, o.Rate = cmp.Or(o.NodeRate, DefaultNodeRate), cmp.Or(o.Rate, DefaultRate)
	o.Patience = cmp.Or(o.Patience, 3*time.Second)
	return &Door{o: o, watches: watches, rate: limiter(o.Rate), nodes: map[string]*rate.Limiter{}}
}

func limiter(bytes float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(bytes), int(atOnce*bytes))
}

func (d *Door) limiterOf(node string) *rate.Limiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.nodes[node]
	if l == nil { // the map stays small, because node names come from the API server
		l = limiter(d.o.NodeRate)
		d.nodes[node] = l
	}
	return l
}

// Serve serves the connection nc of a node until the connection or ctx ends.
func (d *Door) Serve(ctx context.Context, node string, nc net.Conn) {
	v := &visit{d: d, node: node, rate: d.limiterOf(node), leases: rate.NewLimiter(leasesASecond, 10)}
	unknown := func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		return v.deny("%s", method)
	}
	s := grpc.NewServer(grpc.MaxConcurrentStreams(streams), grpc.MaxRecvMsgSize(messageBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.ConnectionTimeout(5*time.Second), grpc.UnaryInterceptor(v.unary), grpc.UnknownServiceHandler(unknown))
	pb.RegisterKVServer(s, v)
	pb.RegisterWatchServer(s, &watching{v: v})
	pb.RegisterLeaseServer(s, &leasing{v: v})
	defer context.AfterFunc(ctx, s.Stop)()
	_ = s.Serve(oneconn.Listen(nc)) // Serve returns when the connection ends
	s.Stop()
}

// visit is one connection of a node.
type visit struct {
	pb.UnimplementedKVServer
	d      *Door
	node   string
	rate   *rate.Limiter
	leases *rate.Limiter

	mu      sync.Mutex
	streams int // number of watch streams
}

// deny returns the error for a refused request. The error also says what a node may do.
func (v *visit) deny(format string, args ...any) error {
	return status.Errorf(codes.PermissionDenied, "node %s: %s: by this way a node reads, watches and writes keys that begin with %s, in the form that the node API does",
		v.node, fmt.Sprintf(format, args...), durable.Prefix)
}

var unaries = map[string]bool{"/etcdserverpb.KV/Range": true, "/etcdserverpb.KV/Txn": true,
	"/etcdserverpb.Lease/LeaseGrant": true}

func (v *visit) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any,
	error) {
	if !unaries[info.FullMethod] {
		return nil, v.deny("%s", info.FullMethod)
	}
	return handle(ctx, request)
}

// etcd returns the client for etcd. If it returns an error, nothing was sent to etcd.
func (v *visit) etcd(ctx context.Context) (*clientv3.Client, error) {
	client, err := v.d.o.Etcd.Wait(ctx, v.d.o.Patience)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return client, nil
}

// Range implements Range of etcd's KV service.
func (v *visit) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := v.mayRange(r); err != nil {
		return nil, err
	}
	client, err := v.etcd(ctx)
	if err != nil {
		return nil, err
	}
	return pb.NewKVClient(client.ActiveConnection()).Range(ctx, r)
}

// Txn implements Txn of etcd's KV service.
func (v *visit) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	made, size, err := v.mayTxn(r)
	if err != nil {
		return nil, err
	}
	client, err := v.etcd(ctx)
	if err != nil {
		return nil, err
	}
	if size > 0 {
		now := time.Now()
		if !v.rate.AllowN(now, size) || !v.d.rate.AllowN(now, size) {
			// etcd uses this error for too many requests, so the node knows that nothing was done
			return nil, rpctypes.ErrGRPCRequestTooManyRequests
		}
	}
	if made.keys > 0 {
		underWay, done := v.d.makes(made.keys)
		defer done()
		if err := v.room(ctx, client, made, underWay); err != nil {
			return nil, err
		}
	}
	return pb.NewKVClient(client.ActiveConnection()).Txn(ctx, r)
}

// makes counts n keys as being created until done is called. It returns the number of keys that are
// being created, including these n keys.
func (d *Door) makes(n int) (underWay int, done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.making += n
	return d.making, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.making -= n
	}
}

// room returns an error if a namespace may not have more keys. The node has counted the keys
// earlier, and room counts them again. The transaction succeeds only if no other key was created in
// the namespace since the node's count. Therefore room refuses a transaction that expects a later
// revision of the namespace's MadeName. Keys of other namespaces may be created at the same time.
// Therefore all keys that are being created count towards AllKeys.
func (v *visit) room(ctx context.Context, client *clientv3.Client, more making, underWay int) error {
	count := func(prefix string) clientv3.Op {
		return clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	}
	got, err := client.Txn(ctx).Then(count(durable.NamesOf(more.namespace)), count(durable.KeysPrefix),
		clientv3.OpGet(durable.MadeName(more.namespace))).Commit()
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	counted := int64(0)
	for _, kv := range got.Responses[2].GetResponseRange().Kvs {
		counted = kv.ModRevision
	}
	if more.counted > counted {
		return v.deny("making keys on a count that is not there yet")
	}
	o := v.d.o
	here, all := got.Responses[0].GetResponseRange().Count, got.Responses[1].GetResponseRange().Count
	if here+int64(more.keys) > int64(o.Keys) || all+int64(underWay) > int64(o.AllKeys) {
		return status.Errorf(codes.FailedPrecondition,
			"the namespace %s has %d durable keys of %d that it may have, and all namespaces %d of %d; this makes %d more, "+
				"and all that are under way %d", more.namespace, here, o.Keys, all, o.AllKeys, more.keys, underWay)
	}
	return nil
}

// leasing implements etcd's lease service, for the leases of tombstones.
type leasing struct {
	pb.UnimplementedLeaseServer
	v *visit
}

// LeaseGrant implements LeaseGrant of etcd's lease service.
func (l *leasing) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if r.ID != 0 || r.TTL <= 0 || r.TTL > int64(maxLease/time.Second) {
		return nil, l.v.deny("a lease %d of %d s", r.ID, r.TTL)
	}
	client, err := l.v.etcd(ctx)
	if err != nil {
		return nil, err
	}
	if !l.v.leases.Allow() {
		return nil, rpctypes.ErrGRPCRequestTooManyRequests
	}
	return pb.NewLeaseClient(client.ActiveConnection()).LeaseGrant(ctx, r)
}

// LeaseKeepAlive refuses the call, because leases of tombstones are never renewed.
func (l *leasing) LeaseKeepAlive(pb.Lease_LeaseKeepAliveServer) error {
	return l.v.deny("keeping leases alive")
}

// watching implements etcd's watch service.
type watching struct {
	pb.UnimplementedWatchServer
	v *visit
}

// Watch implements Watch of etcd's watch service.
func (w *watching) Watch(from pb.Watch_WatchServer) error {
	v := w.v
	v.mu.Lock()
	tooMany := v.streams >= watchStreams
	if !tooMany {
		v.streams++
	}
	v.mu.Unlock()
	if tooMany {
		return v.deny("more than %d streams of watches", watchStreams)
	}
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.streams--
	}()
	ctx, cancel := context.WithCancel(from.Context())
	defer cancel()
	client, err := v.etcd(ctx)
	if err != nil {
		return err
	}
	// Require a leader, because a member that is cut off from its cluster does not learn of
	// changes.
	to, err := pb.NewWatchClient(client.ActiveConnection()).Watch(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return err
	}
	refused := make(chan error, 1)
	var there atomic.Int64 // number of watches that exist; it decreases when an answer reports the end of a watch
	go func() {
		defer cancel()
		for {
			r, err := from.Recv()
			if err != nil {
				return
			}
			if c := r.GetCreateRequest(); c != nil {
				if there.Add(1) > v.d.watches {
					refused <- v.deny("more than %d watches", v.d.watches)
					return
				}
				if err := v.mayWatch(c); err != nil {
					refused <- err
					return
				}
			}
			if to.Send(r) != nil {
				return
			}
		}
	}()
	for {
		answer, err := to.Recv()
		if err == nil {
			if answer.Canceled {
				there.Add(-1)
			}
			err = from.Send(answer)
		}
		if err == nil {
			continue
		}
		select {
		case no := <-refused:
			return no
		default:
		}
		if errors.Is(from.Context().Err(), context.Canceled) {
			return status.FromContextError(from.Context().Err()).Err()
		}
		return err
	}
}
