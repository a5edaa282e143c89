package guarded

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/netcraq/netcraq/client/etcd/reserved"
)

// span is the set of keys in [Key, End), as in etcd's requests.
type span = reserved.Span

// open is the end of a range that contains all keys from its first key on.
const open = reserved.Open

// work is a write. It has the operation for etcd, and the keys that the operation may change.
type work struct {
	// the client's operation, without the parts that the client may not read or change
	op    *pb.RequestOp
	spans []span // ranges of keys that the operation may change
	// operations is the number of operations that the client requests, as etcd counts them.
	operations int
	back       back // converts etcd's answer to the client's answer; nil if they are the same
	// rest is the work that remains after the client has its answer. It is nil if there is none.
	rest func()
}

// back converts etcd's answer for a replaced operation to the answer for the original operation. It
// is nil if the answers are the same.
type back func(*pb.ResponseOp) *pb.ResponseOp

// answer converts etcd's answer to a planned operation to the answer that the client's operation
// would have got.
func (w *work) answer(r *pb.ResponseOp) *pb.ResponseOp { return w.back.of(r) }

func (b back) of(r *pb.ResponseOp) *pb.ResponseOp {
	if b == nil {
		return r
	}
	return b(r)
}

// plan determines which keys a request may change, in any of its branches. It leaves out the
// operations that the client may not perform. It does not modify the request.
func (s *Server) plan(op *pb.RequestOp) (*work, error) {
	w := &work{operations: operations(op)}
	if s.MaxTxnOps > 0 && w.operations > s.MaxTxnOps {
		return nil, rpctypes.ErrGRPCTooManyOps
	}
	var err error
	if w.op, w.back, err = s.planOp(w, op); err != nil {
		return nil, err
	}
	if s.MaxRequestBytes > 0 && len(w.spans) > 0 && requestBytes(op) > s.MaxRequestBytes {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	return w, nil
}

// requestBytes returns the size that etcd counts for a write that is sent unchanged. It is the size
// of the log entry, with a request number of 9 bytes.
func requestBytes(op *pb.RequestOp) int {
	q := &pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: 1 << 62}}
	switch r := op.GetRequest().(type) {
	case *pb.RequestOp_RequestPut:
		q.Put = r.RequestPut
	case *pb.RequestOp_RequestDeleteRange:
		q.DeleteRange = r.RequestDeleteRange
	case *pb.RequestOp_RequestTxn:
		q.Txn = r.RequestTxn
	}
	return q.Size()
}

func (s *Server) planOp(w *work, op *pb.RequestOp) (*pb.RequestOp, back, error) {
	switch r := op.GetRequest().(type) {
	case *pb.RequestOp_RequestPut:
		if r.RequestPut == nil {
			return op, nil, nil
		}
		key := string(r.RequestPut.Key)
		if s.reserved.Has(key) {
			return nil, nil, s.reserved.Denied()
		}
		w.spans = append(w.spans, span{Key: key})
	case *pb.RequestOp_RequestDeleteRange:
		if r.RequestDeleteRange == nil {
			return op, nil, nil
		}
		return s.planDelete(w, op, r.RequestDeleteRange)
	case *pb.RequestOp_RequestRange:
		if r.RequestRange == nil {
			return op, nil, nil
		}
		return s.planRange(op, r.RequestRange)
	case *pb.RequestOp_RequestTxn:
		if r.RequestTxn == nil {
			return op, nil, nil
		}
		return s.planTxn(w, op, r.RequestTxn)
	}
	return op, nil, nil
}

// planTxn plans both branches of a transaction.
func (s *Server) planTxn(w *work, op *pb.RequestOp, t *pb.TxnRequest) (*pb.RequestOp, back, error) {
	ways, err := s.planCompare(t.Compare)
	if err != nil {
		return nil, nil, err
	}
	success, err := s.planOps(w, t.Success)
	if err != nil {
		return nil, nil, err
	}
	failure, err := s.planOps(w, t.Failure)
	if err != nil {
		return nil, nil, err
	}
	if ways == nil && !success.changed && !failure.changed {
		return op, nil, nil
	}
	if ways == nil {
		ways = [][]*pb.Compare{t.Compare}
	}
	// If the conditions of the first alternative do not hold, etcd tries the next alternatives in
	// order.
	otherwise := failure.ops
	for _, way := range slices.Backward(ways) {
		op = txnOp(&pb.TxnRequest{Compare: way, Success: success.ops, Failure: otherwise})
		otherwise = []*pb.RequestOp{op}
	}
	return op, func(r *pb.ResponseOp) *pb.ResponseOp {
		got := r.GetResponseTxn()
		if got == nil {
			return r
		}
		header := got.Header
		for range len(ways) - 1 {
			if got.Succeeded {
				break
			}
			got = got.Responses[0].GetResponseTxn()
		}
		got.Header = header
		backs := success.backs
		if !got.Succeeded {
			backs = failure.backs
		}
		for i := range got.Responses {
			got.Responses[i] = backs[i].of(got.Responses[i])
		}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: got}}
	}, nil
}

// planned is one branch of a transaction after planning.
type planned struct {
	ops     []*pb.RequestOp
	backs   []back
	changed bool
}

func (s *Server) planOps(w *work, ops []*pb.RequestOp) (planned, error) {
	p := planned{slices.Clone(ops), make([]back, len(ops)), false}
	for i, op := range ops {
		var err error
		if p.ops[i], p.backs[i], err = s.planOp(w, op); err != nil {
			return p, err
		}
		p.changed = p.changed || p.ops[i] != op
	}
	return p, nil
}

// planDelete leaves the reserved keys out of a deletion. If the deletion spans reserved keys, it
// becomes several deletions in a transaction without conditions, so that there is still a single
// answer.
func (s *Server) planDelete(w *work, op *pb.RequestOp, r *pb.DeleteRangeRequest) (*pb.RequestOp, back, error) {
	parts := s.reserved.Without(string(r.Key), string(r.RangeEnd))
	if len(parts) == 0 {
		return nil, nil, s.reserved.Denied()
	}
	w.spans = append(w.spans, parts...)
	if parts[0] == (span{Key: string(r.Key), End: string(r.RangeEnd)}) {
		return op, nil, nil
	}
	ops := make([]*pb.RequestOp, len(parts))
	for i, p := range parts {
		ops[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(p.Key), RangeEnd: []byte(p.End), PrevKv: r.PrevKv},
		}}
	}
	if len(ops) == 1 {
		return ops[0], nil, nil
	}
	return txnOp(&pb.TxnRequest{Success: ops}), deleted, nil
}

// deleted merges etcd's answers for parts of a deletion into the answer for the whole deletion.
func deleted(r *pb.ResponseOp) *pb.ResponseOp {
	all := &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{}}
	for _, part := range r.GetResponseTxn().GetResponses() {
		d := part.GetResponseDeleteRange()
		all.Header.Revision = max(all.Header.Revision, d.GetHeader().GetRevision())
		all.Deleted += d.GetDeleted()
		all.PrevKvs = append(all.PrevKvs, d.GetPrevKvs()...)
	}
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: all}}
}

func txnOp(t *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: t}}
}

// boundingRange returns the smallest span that contains all given spans.
func boundingRange(spans []span) span {
	h := spans[0]
	for _, s := range spans[1:] {
		if s == h {
			continue
		}
		h = span{Key: min(h.Key, s.Key), End: later(upTo(h), upTo(s))}
	}
	return h
}

// upTo returns the end of a span, even of a span with a single key.
func upTo(s span) string {
	if s.End == "" {
		return s.Key + "\x00"
	}
	return s.End
}

// later returns the later one of two ends that are not "".
func later(a, b string) string {
	if a == open || b == open {
		return open
	}
	return max(a, b)
}

// placedIn returns the placed keys that a write may change, in order and without duplicates.
func (s *Server) placedIn(w *work) []placedKey {
	var keys []placedKey
	for _, sp := range w.spans {
		keys = append(keys, s.Directory.LookupRange(sp.Key, sp.End)...)
	}
	slices.SortFunc(keys, func(a, b placedKey) int { return compare(a.Name, b.Name) })
	return slices.CompactFunc(keys, func(a, b placedKey) bool { return a.Name == b.Name })
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// only returns the single key-value pair of an answer, or nil.
func only(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}
