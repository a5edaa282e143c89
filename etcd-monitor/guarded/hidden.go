package guarded

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/etcd-monitor/seal"
)

// The keys that cells are sealed with are in etcd, and no client reads them through a gateway: not by their names, which is refused, nor among others, which leaves them out, nor by comparing them with a guess.

// hidden is the answer to whoever would read them.
func (s *Server) hidden() error {
	return status.Errorf(codes.PermissionDenied, "etcd-monitor: the keys under %s are the gateways' own and cannot be read through a gateway", s.secret.key)
}

// hides says whether a span has hidden keys: any that are not the client's to read.
func (s *Server) hides(key, end []byte) bool {
	switch {
	case len(key) == 0: // etcd refuses it
		return false
	case len(end) == 0:
		return strings.HasPrefix(string(key), s.secret.key)
	}
	toEnd := string(end) == open
	return string(key) < s.secret.end && (toEnd || string(end) > s.secret.key && string(end) > string(key))
}

// visible is the parts of a span with hidden keys that have none.
func (s *Server) visible(key, end string) (parts []span) {
	if end == "" {
		return nil
	}
	if key < s.secret.key {
		parts = append(parts, span{key, s.secret.key})
	}
	if end == open || end > s.secret.end {
		parts = append(parts, span{s.secret.end, end})
	}
	return parts
}

func secretOf(prefix string) span {
	return span{seal.Prefix(prefix), clientv3.GetPrefixRangeEnd(seal.Prefix(prefix))}
}

// planRange leaves the hidden keys out of what is read. A range that spans them becomes two, in a transaction, so that there is one answer in its place.
func (s *Server) planRange(w *work, op *pb.RequestOp, r *pb.RangeRequest) (*pb.RequestOp, error) {
	if !s.hides(r.Key, r.RangeEnd) {
		return op, nil
	}
	parts := s.visible(string(r.Key), string(r.RangeEnd))
	if len(parts) == 0 {
		return nil, s.hidden()
	}
	w.split = true
	var ops []*pb.RequestOp
	for _, p := range parts {
		q := *r
		q.Key, q.RangeEnd = []byte(p.key), []byte(p.end)
		if len(parts) > 1 {
			if q.SortTarget == pb.RangeRequest_VALUE {
				q.KeysOnly = false // to be sorted by what it has
			}
			if limitedByKey(r) {
				q.SortTarget, q.Limit = pb.RangeRequest_KEY, q.Limit+1
			}
		}
		ops = append(ops, rangeOp(&q))
	}
	if len(ops) == 1 {
		return ops[0], nil
	}
	return txnOp(&pb.TxnRequest{Success: ops}), nil
}

// planCompare refuses comparisons from which a hidden key's value could be found out.
func (s *Server) planCompare(all []*pb.Compare) error {
	for _, c := range all {
		if s.hides(c.Key, c.RangeEnd) && (c.Target == pb.Compare_VALUE || len(s.visible(string(c.Key), string(c.RangeEnd))) == 0) {
			return s.hidden()
		}
	}
	return nil
}

// limitedByKey says whether etcd takes the first keys, one more than the limit, and sorts only those: it does where a target is given and no order.
func limitedByKey(r *pb.RangeRequest) bool {
	return r.Limit > 0 && r.SortOrder == pb.RangeRequest_NONE && r.MinModRevision == 0 && r.MaxModRevision == 0 && r.MinCreateRevision == 0 && r.MaxCreateRevision == 0
}

// joined is etcd's answer to a range of which two parts were asked for, as it would have been to the whole (etcd: server/etcdserver/txn, Range).
func joined(r *pb.RangeRequest, parts []*pb.ResponseOp) *pb.RangeResponse {
	out := &pb.RangeResponse{}
	for _, p := range parts {
		a := p.GetResponseRange()
		out.Header = a.Header
		out.Kvs = append(out.Kvs, a.Kvs...)
		out.Count += a.Count
		out.More = out.More || a.More
	}
	if limitedByKey(r) {
		out.Kvs = out.Kvs[:min(int64(len(out.Kvs)), r.Limit+1)]
	}
	sorted(out.Kvs, r.SortTarget, r.SortOrder)
	if r.Limit > 0 && int64(len(out.Kvs)) > r.Limit {
		out.Kvs, out.More = out.Kvs[:r.Limit], true
	}
	if r.KeysOnly {
		for _, kv := range out.Kvs {
			kv.Value = nil
		}
	}
	return out
}

// sorted sorts as etcd does: by keys, in rising order, if nothing else is said.
func sorted(kvs []*mvccpb.KeyValue, target pb.RangeRequest_SortTarget, order pb.RangeRequest_SortOrder) {
	by := map[pb.RangeRequest_SortTarget]func(a, b *mvccpb.KeyValue) int{
		pb.RangeRequest_KEY:     func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) },
		pb.RangeRequest_VERSION: func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.Version, b.Version) },
		pb.RangeRequest_CREATE:  func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) },
		pb.RangeRequest_MOD:     func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) },
		pb.RangeRequest_VALUE:   func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Value, b.Value) },
	}[target]
	if by == nil {
		return
	}
	slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) int {
		if order == pb.RangeRequest_DESCEND {
			return by(b, a)
		}
		return by(a, b)
	})
}
