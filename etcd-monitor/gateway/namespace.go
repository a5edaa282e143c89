package gateway

import (
	"bytes"
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A namespace is a prefix of all of the clients' keys at etcd. Clients do not see it. (etcd's
// client/v3/namespace does the same for calls of its own client.) The gateway adds it first.
// Counters, placement and all other code use the names at etcd.

// namespace is the prefix; "" means none.
type namespace []byte

// in converts a key, or the beginning of a range, to its name at etcd. An empty key stays empty,
// because etcd refuses it.
func (n namespace) in(key []byte) []byte {
	if len(key) == 0 {
		return key
	}
	return append(bytes.Clone(n), key...)
}

// end converts the end of a range. A range up to the last key becomes a range up to the namespace's
// last key.
func (n namespace) end(end []byte) []byte {
	switch {
	case len(end) == 0:
		return end
	case string(end) == "\x00":
		return []byte(clientv3.GetPrefixRangeEnd(string(n)))
	}
	return n.in(end)
}

// out removes the namespace from the names of keys in etcd's answers.
func (n namespace) out(kvs ...*mvccpb.KeyValue) {
	for _, kv := range kvs {
		if kv != nil {
			kv.Key = bytes.TrimPrefix(kv.Key, n)
		}
	}
}

// namespaced is a key-value service for clients in a namespace.
type namespaced struct {
	namespace
	next pb.KVServer
}

// Range implements [pb.KVServer].
func (s namespaced) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	a, err := s.next.Range(ctx, s.rangeIn(r))
	if err == nil {
		s.out(a.Kvs...)
	}
	return a, err
}

// Put implements [pb.KVServer].
func (s namespaced) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	a, err := s.next.Put(ctx, s.putIn(r))
	if err == nil {
		s.out(a.PrevKv)
	}
	return a, err
}

// DeleteRange implements [pb.KVServer].
func (s namespaced) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	a, err := s.next.DeleteRange(ctx, s.deleteIn(r))
	if err == nil {
		s.out(a.PrevKvs...)
	}
	return a, err
}

// Txn implements [pb.KVServer].
func (s namespaced) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	a, err := s.next.Txn(ctx, s.txnIn(r))
	if err == nil {
		s.txnOut(a)
	}
	return a, err
}

// Compact implements [pb.KVServer].
func (s namespaced) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return s.next.Compact(ctx, r)
}

func (n namespace) rangeIn(r *pb.RangeRequest) *pb.RangeRequest {
	if r == nil {
		return nil
	}
	q := *r
	q.Key, q.RangeEnd = n.in(r.Key), n.end(r.RangeEnd)
	return &q
}

func (n namespace) putIn(r *pb.PutRequest) *pb.PutRequest {
	if r == nil {
		return nil
	}
	q := *r
	q.Key = n.in(r.Key)
	return &q
}

func (n namespace) deleteIn(r *pb.DeleteRangeRequest) *pb.DeleteRangeRequest {
	if r == nil {
		return nil
	}
	q := *r
	q.Key, q.RangeEnd = n.in(r.Key), n.end(r.RangeEnd)
	return &q
}

func (n namespace) txnIn(r *pb.TxnRequest) *pb.TxnRequest {
	if r == nil {
		return nil
	}
	q := &pb.TxnRequest{Success: n.opsIn(r.Success), Failure: n.opsIn(r.Failure)}
	for _, c := range r.Compare {
		if c != nil {
			d := *c
			d.Key, d.RangeEnd = n.in(c.Key), n.end(c.RangeEnd)
			c = &d
		}
		q.Compare = append(q.Compare, c)
	}
	return q
}

func (n namespace) opsIn(ops []*pb.RequestOp) (out []*pb.RequestOp) {
	for _, op := range ops {
		switch r := op.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
			op = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: n.rangeIn(r.RequestRange)}}
		case *pb.RequestOp_RequestPut:
			op = &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: n.putIn(r.RequestPut)}}
		case *pb.RequestOp_RequestDeleteRange:
			op = &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: n.deleteIn(
				r.RequestDeleteRange)}}
		case *pb.RequestOp_RequestTxn:
			op = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: n.txnIn(r.RequestTxn)}}
		}
		out = append(out, op)
	}
	return out
}

func (n namespace) txnOut(a *pb.TxnResponse) {
	for _, r := range a.GetResponses() {
		n.out(r.GetResponseRange().GetKvs()...)
		n.out(r.GetResponsePut().GetPrevKv())
		n.out(r.GetResponseDeleteRange().GetPrevKvs()...)
		n.txnOut(r.GetResponseTxn())
	}
}

// watchIn converts a client's watch request to the names at etcd.
func (n namespace) watchIn(q *pb.WatchCreateRequest) {
	if len(n) == 0 {
		return
	}
	if len(q.Key) == 0 { // etcd treats an empty key as the first key
		q.Key = []byte{0}
	}
	q.Key, q.RangeEnd = n.in(q.Key), n.end(q.RangeEnd)
}

// watchOut removes the namespace from an answer to a watch.
func (n namespace) watchOut(r *pb.WatchResponse) {
	for _, e := range r.Events {
		n.out(e.Kv, e.PrevKv)
	}
}

// leaseOut removes the keys outside of the namespace from an answer to LeaseTimeToLive.
func (n namespace) leaseOut(_ context.Context, answer []byte) ([]byte, error) {
	var r pb.LeaseTimeToLiveResponse
	if err := r.Unmarshal(answer); err != nil {
		return nil, fmt.Errorf("gateway: what etcd says of a lease: %w", err)
	}
	var keys [][]byte
	for _, k := range r.Keys {
		if bytes.HasPrefix(k, n) {
			keys = append(keys, k[len(n):])
		}
	}
	r.Keys = keys
	b, err := r.Marshal()
	if err != nil {
		return nil, fmt.Errorf("gateway: what etcd says of a lease: %w", err)
	}
	return b, nil
}

// forwarded is a key-value service that forwards all requests to etcd.
type forwarded struct{ next pb.KVClient }

// Range implements [pb.KVServer].
func (s forwarded) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return s.next.Range(ctx, r)
}

// Put implements [pb.KVServer].
func (s forwarded) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return s.next.Put(ctx, r)
}

// DeleteRange implements [pb.KVServer].
func (s forwarded) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return s.next.DeleteRange(ctx, r)
}

// Txn implements [pb.KVServer].
func (s forwarded) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return s.next.Txn(ctx, r)
}

// Compact implements [pb.KVServer].
func (s forwarded) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return s.next.Compact(ctx, r)
}
