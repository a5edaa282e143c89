package gateway

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"
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
