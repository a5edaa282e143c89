package histories

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Through adapts the key-value interface of etcd's Go client to the interface of a gateway, which
// [History.Client] needs.
func Through(kv clientv3.KV) pb.KVServer { return &through{kv: kv} }

type through struct {
	pb.UnimplementedKVServer
	kv clientv3.KV
}

// Range implements pb.KVServer.
func (t *through) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	a, err := t.kv.Get(ctx, string(r.Key))
	return (*pb.RangeResponse)(a), err
}

// Put implements pb.KVServer.
func (t *through) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	a, err := t.kv.Put(ctx, string(r.Key), string(r.Value))
	return (*pb.PutResponse)(a), err
}

// DeleteRange implements pb.KVServer.
func (t *through) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	a, err := t.kv.Delete(ctx, string(r.Key))
	return (*pb.DeleteRangeResponse)(a), err
}

// Txn implements pb.KVServer.
func (t *through) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	var compare []clientv3.Cmp
	for _, c := range r.Compare {
		compare = append(compare, clientv3.Cmp(*c))
	}
	a, err := t.kv.Txn(ctx).If(compare...).Then(opsOf(r.Success)...).Else(opsOf(r.Failure)...).Commit()
	return (*pb.TxnResponse)(a), err
}

func opsOf(all []*pb.RequestOp) (out []clientv3.Op) {
	for _, op := range all {
		switch {
		case op.GetRequestPut() != nil:
			out = append(out, clientv3.OpPut(string(op.GetRequestPut().Key), string(op.GetRequestPut().Value)))
		case op.GetRequestRange() != nil:
			out = append(out, clientv3.OpGet(string(op.GetRequestRange().Key)))
		default:
			panic(fmt.Sprintf("no history asks for %v", op))
		}
	}
	return out
}
