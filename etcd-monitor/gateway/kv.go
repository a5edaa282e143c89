package gateway

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/etcd-monitor/heat"
)

// kv is the key-value service where [Config].KV serves it: it counts, looks at the revisions, and hands the client's metadata on.
type kv struct {
	g    *Gateway
	next pb.KVServer
}

// answer is what all answers of the key-value service are.
type answer interface{ GetHeader() *pb.ResponseHeader }

func serve[Q any, A answer](ctx context.Context, g *Gateway, kind string, serve func(context.Context, Q) (A, error), request Q) (A, error) {
	r, err := serve(ctx, request)
	g.metrics.Request(kind, status.Code(err).String())
	if err == nil {
		g.newest.Saw(r.GetHeader().GetRevision())
	}
	return r, err
}

// Range implements [pb.KVServer].
func (s kv) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return serve(ctx, s.g, s.g.lookRange(r), s.next.Range, r)
}

// Put implements [pb.KVServer].
func (s kv) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	s.g.metrics.Keys.Write(r.Key)
	return serve(ctx, s.g, kindPut, s.next.Put, r)
}

// DeleteRange implements [pb.KVServer].
func (s kv) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return serve(ctx, s.g, s.g.lookDelete(r), s.next.DeleteRange, r)
}

// Txn implements [pb.KVServer].
func (s kv) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.g.lookTxn(r)
	return serve(ctx, s.g, kindTxn, s.next.Txn, r)
}

// Compact implements [pb.KVServer].
func (s kv) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return serve(ctx, s.g, kindCompact, s.next.Compact, r)
}

// Timed is etcd's key-value service on the connection that all passes over, with the time that etcd takes counted: for who serves [Config].KV.
func Timed(u *Upstream, m *heat.Metrics) pb.KVClient { return timed{pb.NewKVClient(u.Conn()), m} }

type timed struct {
	next    pb.KVClient
	metrics *heat.Metrics
}

func ask[Q any, A any](ctx context.Context, t timed, kind string, ask func(context.Context, Q, ...grpc.CallOption) (A, error), request Q, opts []grpc.CallOption) (A, error) {
	began := time.Now()
	a, err := ask(ctx, request, opts...)
	t.metrics.Etcd(kind, time.Since(began))
	return a, err
}

func (t timed) Range(ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	kind := kindGet
	if len(r.RangeEnd) > 0 {
		kind = kindRange
	}
	return ask(ctx, t, kind, t.next.Range, r, opts)
}

func (t timed) Put(ctx context.Context, r *pb.PutRequest, opts ...grpc.CallOption) (*pb.PutResponse, error) {
	return ask(ctx, t, kindPut, t.next.Put, r, opts)
}

func (t timed) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest, opts ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	return ask(ctx, t, kindDelete, t.next.DeleteRange, r, opts)
}

func (t timed) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	return ask(ctx, t, kindTxn, t.next.Txn, r, opts)
}

func (t timed) Compact(ctx context.Context, r *pb.CompactionRequest, opts ...grpc.CallOption) (*pb.CompactionResponse, error) {
	return ask(ctx, t, kindCompact, t.next.Compact, r, opts)
}
