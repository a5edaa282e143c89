package guarded

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// This file handles the project's own keys in etcd, which clients must not see. The gateway refuses
// requests that name such keys, leaves them out of ranges, and hides them from comparisons.

// planRange leaves the reserved keys out of a read. If the range spans reserved keys, it becomes
// several ranges in a transaction, so that there is still one answer.
func (s *Server) planRange(op *pb.RequestOp, r *pb.RangeRequest) (*pb.RequestOp, back, error) {
	if !s.reserved.Touches(string(r.Key), string(r.RangeEnd)) {
		return op, nil, nil
	}
	parts := s.reserved.Without(string(r.Key), string(r.RangeEnd))
	if len(parts) == 0 {
		return nil, nil, s.reserved.Denied()
	}
	var ops []*pb.RequestOp
	for _, p := range parts {
		q := *r
		q.Key, q.RangeEnd = []byte(p.Key), []byte(p.End)
		if len(parts) > 1 {
			if q.SortTarget == pb.RangeRequest_VALUE {
				q.KeysOnly = false // The values are needed for sorting.
			}
			if limitedByKey(r) {
				q.SortTarget, q.Limit = pb.RangeRequest_KEY, q.Limit+1
			}
		}
		ops = append(ops, rangeOp(&q))
	}
	if len(ops) == 1 {
		return ops[0], nil, nil
	}
	return txnOp(&pb.TxnRequest{Success: ops}), func(got *pb.ResponseOp) *pb.ResponseOp {
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: joined(r,
			got.GetResponseTxn().GetResponses())}}
	}, nil
}

// planCompare leaves the reserved keys out of a transaction's conditions. It returns alternative
// lists of conditions; the original conditions hold if all conditions of one list hold. If it
// returns nil, the conditions need no change.
//
// etcd applies a condition on a range to each key of the range. If the range has no key, etcd
// applies the condition to a key that does not exist. The revision, version and lease of such a key
// are 0, and its value equals no value. If a condition holds for such a key, it holds for a range
// if it holds for each part of the range. Any other condition holds for a range if it holds for at
// least one part and the other parts have no keys.
func (s *Server) planCompare(all []*pb.Compare) (ways [][]*pb.Compare, err error) {
	touches := func(c *pb.Compare) bool { return s.reserved.Touches(string(c.Key), string(c.RangeEnd)) }
	if !slices.ContainsFunc(all, touches) {
		return nil, nil
	}
	ways = [][]*pb.Compare{nil}
	for _, c := range all {
		parts := [][]*pb.Compare{{c}}
		if touches(c) {
			if parts = compareParts(c, s.reserved.Without(string(c.Key), string(c.RangeEnd))); len(parts) == 0 {
				return nil, s.reserved.Denied()
			}
		}
		if len(ways)*len(parts) > mostWays {
			return nil, status.Errorf(codes.ResourceExhausted, "etcd-monitor: too many conditions of this transaction are about ranges that span the keys under %s: give ranges beside them", strings.Join(s.reserved.Prefixes(), ", "))
		}
		var next [][]*pb.Compare
		for _, way := range ways {
			for _, p := range parts {
				next = append(next, slices.Concat(way, p))
			}
		}
		ways = next
	}
	return ways, nil
}

// mostWays bounds the number of nested transactions into which a transaction may be split. The
// bound allows two conditions on ranges that span the reserved keys, if all reserved keys have the
// same prefix. etcd would not accept many more nested transactions.
const mostWays = 9

// compareParts turns a condition on a range into conditions on the parts of the range. It returns
// the alternatives in which the condition on the whole range holds.
func compareParts(c *pb.Compare, parts []span) (ways [][]*pb.Compare) {
	on := func(p span, c pb.Compare) *pb.Compare {
		c.Key, c.RangeEnd = []byte(p.Key), []byte(p.End)
		return &c
	}
	if len(parts) == 1 || holdsForNone(c) {
		var all []*pb.Compare
		for _, p := range parts {
			all = append(all, on(p, *c))
		}
		if all != nil {
			ways = [][]*pb.Compare{all}
		}
		return ways
	}
	none := pb.Compare{Target: pb.Compare_CREATE, Result: pb.Compare_LESS,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 1}}
	// `some` is a bit set of the parts that have keys.
	for some := 1; some < 1<<len(parts); some++ {
		var way []*pb.Compare
		for i, p := range parts {
			if some>>i&1 == 1 {
				way = append(way, on(p, *c))
			} else {
				way = append(way, on(p, none))
			}
		}
		ways = append(ways, way)
	}
	return ways
}

// holdsForNone reports whether a condition holds for a key that does not exist.
func holdsForNone(c *pb.Compare) bool {
	var with int64
	switch c.Target {
	case pb.Compare_VALUE:
		return false
	case pb.Compare_CREATE:
		with = c.GetCreateRevision()
	case pb.Compare_MOD:
		with = c.GetModRevision()
	case pb.Compare_VERSION:
		with = c.GetVersion()
	case pb.Compare_LEASE:
		with = c.GetLease()
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return with == 0
	case pb.Compare_NOT_EQUAL:
		return with != 0
	case pb.Compare_GREATER:
		return with < 0
	case pb.Compare_LESS:
		return with > 0
	}
	return true
}

// limitedByKey reports whether etcd applies the limit of a request before it sorts. If a request
// has a sort target but no order, etcd takes only the first keys (one more than the limit), and
// sorts those.
func limitedByKey(r *pb.RangeRequest) bool {
	return r.Limit > 0 && r.SortOrder == pb.RangeRequest_NONE && r.MinModRevision == 0 &&
		r.MaxModRevision == 0 && r.MinCreateRevision == 0 && r.MaxCreateRevision == 0
}

// joined merges etcd's answers for the parts of a range into the answer for the whole range, as
// etcd's function Range does (etcd: server/etcdserver/txn).
func joined(r *pb.RangeRequest, parts []*pb.ResponseOp) *pb.RangeResponse {
	out := &pb.RangeResponse{}
	for _, p := range parts {
		a := p.GetResponseRange()
		out.Header = a.Header
		out.Kvs = append(out.Kvs, a.Kvs...)
		out.Count += a.Count
		out.More = out.More || a.More
	}
	if limitedByKey(r) && r.Limit < int64(len(out.Kvs)) {
		out.Kvs = out.Kvs[:r.Limit+1]
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

// sorted sorts key-value pairs as etcd does. The default is by key, in ascending order.
func sorted(kvs []*mvccpb.KeyValue, target pb.RangeRequest_SortTarget, order pb.RangeRequest_SortOrder) {
	by := map[pb.RangeRequest_SortTarget]func(a, b *mvccpb.KeyValue) int{
		pb.RangeRequest_KEY:     func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) },
		pb.RangeRequest_VERSION: func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.Version, b.Version) },
		pb.RangeRequest_CREATE: func(a, b *mvccpb.KeyValue) int {
			return cmp.Compare(a.CreateRevision, b.CreateRevision)
		},
		pb.RangeRequest_MOD:   func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) },
		pb.RangeRequest_VALUE: func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Value, b.Value) },
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
