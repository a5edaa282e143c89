package gateway

import (
	"bytes"
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A namespace is what the names of all of the clients' keys begin with at etcd; the clients do not
// see it (etcd's client/v3/namespace does the same to the calls of its own client). All that is
// behind it, what is counted and placed too, has the names that etcd has.

// namespace is the beginning of the names; "": none.
type namespace []byte

// in is a key, or the beginning of a range, as etcd has it. One without a name stays so, because
// etcd refuses it.
func (n namespace) in(key []byte) []byte {
	if len(key) == 0 {
		return key
	}
	return append(bytes.Clone(n), key...)
}

// end is the end of a range as etcd has it: of a range to the last key it is the namespace's.
func (n namespace) end(end []byte) []byte {
	switch {
	case len(end) == 0:
		return end
	case string(end) == "\x00":
		return []byte(clientv3.GetPrefixRangeEnd(string(n)))
	}
	return n.in(end)
}

// out takes the namespace off the names of keys that etcd has answered with.
func (n namespace) out(kvs ...*mvccpb.KeyValue) {
	for _, kv := range kvs {
		if kv != nil {
			kv.Key = bytes.TrimPrefix(kv.Key, n)
		}
	}
}

// namespaced is the key-value service of a namespace.
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

// watchIn makes a client's request for a watch one for the keys as etcd has them.
func (n namespace) watchIn(q *pb.WatchCreateRequest) {
	if len(n) == 0 {
		return
	}
	if len(q.Key) == 0 { // etcd takes it for the first key
		q.Key = []byte{0}
	}
	q.Key, q.RangeEnd = n.in(q.Key), n.end(q.RangeEnd)
}

// watchOut takes the namespace out of an answer to a watch.
func (n namespace) watchOut(r *pb.WatchResponse) {
	for _, e := range r.Events {
		n.out(e.Kv, e.PrevKv)
	}
}

// leaseOut leaves in the answer to LeaseTimeToLive the keys that are the namespace's.
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

// forwarded is the key-value service that etcd serves.
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
