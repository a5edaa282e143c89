package guarded

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// span is the keys in [key, end), as in etcd's requests: no end is the one key, an end of one zero byte is all keys from key on.
type span struct{ key, end string }

// open is the end that is none: all keys from the first on.
const open = "\x00"

// work is a write: what is sent to etcd for it, and what it may change.
type work struct {
	client *pb.RequestOp // what the client asks for
	op     *pb.RequestOp // the same, but for deletions and ranges that are split
	spans  []span        // what it may change
	split  bool          // op has some that are split
}

// plan finds out what a request may change, in any of its branches, and leaves out what is not the client's to change or to read. The request itself is not changed.
func (s *Server) plan(op *pb.RequestOp) (*work, error) {
	w := &work{client: op}
	var err error
	w.op, err = s.planOp(w, op)
	return w, err
}

func (s *Server) planOp(w *work, op *pb.RequestOp) (*pb.RequestOp, error) {
	switch r := op.GetRequest().(type) {
	case *pb.RequestOp_RequestPut:
		if r.RequestPut == nil {
			return op, nil
		}
		key := string(r.RequestPut.Key)
		if s.isOwn(key) {
			return nil, s.own()
		}
		w.spans = append(w.spans, span{key, ""})
	case *pb.RequestOp_RequestDeleteRange:
		if r.RequestDeleteRange == nil {
			return op, nil
		}
		return s.planDelete(w, op, r.RequestDeleteRange)
	case *pb.RequestOp_RequestRange:
		if r.RequestRange == nil {
			return op, nil
		}
		return s.planRange(w, op, r.RequestRange)
	case *pb.RequestOp_RequestTxn:
		if r.RequestTxn == nil {
			return op, nil
		}
		if err := s.planCompare(r.RequestTxn.Compare); err != nil {
			return nil, err
		}
		before := w.split
		w.split = false
		success, err := s.planOps(w, r.RequestTxn.Success)
		if err != nil {
			return nil, err
		}
		failure, err := s.planOps(w, r.RequestTxn.Failure)
		if err != nil {
			return nil, err
		}
		if w.split {
			op = txnOp(&pb.TxnRequest{Compare: r.RequestTxn.Compare, Success: success, Failure: failure})
		}
		w.split = w.split || before
	}
	return op, nil
}

func (s *Server) planOps(w *work, ops []*pb.RequestOp) ([]*pb.RequestOp, error) {
	planned := slices.Clone(ops)
	for i, op := range ops {
		var err error
		if planned[i], err = s.planOp(w, op); err != nil {
			return nil, err
		}
	}
	return planned, nil
}

// planDelete leaves the gateways' own keys out of a deletion. One that spans them becomes two, in a transaction without conditions, so that there is one answer in its place.
func (s *Server) planDelete(w *work, op *pb.RequestOp, r *pb.DeleteRangeRequest) (*pb.RequestOp, error) {
	key, end := string(r.Key), string(r.RangeEnd)
	first, next := s.Prefix, clientv3.GetPrefixRangeEnd(s.Prefix) // the gateways' own are [first, next)
	switch {
	case end == "" && s.isOwn(key), key >= first && key < next && end != "" && (end != open && end <= next):
		return nil, s.own()
	case end == "" || end != open && end <= first || key >= next || end != open && end <= key:
		w.spans = append(w.spans, span{key, end})
		return op, nil
	}
	var parts []*pb.RequestOp
	part := func(key, end string) {
		w.spans = append(w.spans, span{key, end})
		parts = append(parts, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end), PrevKv: r.PrevKv},
		}})
	}
	if key < first && key != "" {
		part(key, first)
	}
	if key == "" { // etcd refuses it
		part(key, end)
	} else if end == open || end > next {
		part(next, end)
	}
	w.split = true
	return txnOp(&pb.TxnRequest{Success: parts}), nil
}

func txnOp(t *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: t}}
}

// answer is etcd's answer to a planned operation as its answer to the client's would have been.
func (w *work) answer(r *pb.ResponseOp) *pb.ResponseOp {
	if !w.split {
		return r
	}
	return unsplit(w.client, r)
}

func unsplit(client *pb.RequestOp, r *pb.ResponseOp) *pb.ResponseOp {
	got := r.GetResponseTxn()
	if got == nil {
		return r
	}
	switch q := client.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: joined(q.RequestRange, got.Responses)}}
	case *pb.RequestOp_RequestDeleteRange:
		all := &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{}}
		for _, part := range got.Responses {
			d := part.GetResponseDeleteRange()
			all.Header.Revision = max(all.Header.Revision, d.GetHeader().GetRevision())
			all.Deleted += d.GetDeleted()
			all.PrevKvs = append(all.PrevKvs, d.GetPrevKvs()...)
		}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: all}}
	case *pb.RequestOp_RequestTxn:
		ops := q.RequestTxn.Success
		if !got.Succeeded {
			ops = q.RequestTxn.Failure
		}
		for i := range got.Responses {
			got.Responses[i] = unsplit(ops[i], got.Responses[i])
		}
	}
	return r
}

// hull is the smallest span that has all spans.
func hull(spans []span) span {
	h := spans[0]
	for _, s := range spans[1:] {
		if s == h {
			continue
		}
		h = span{min(h.key, s.key), later(h.upTo(), s.upTo())}
	}
	return h
}

// upTo is the end of a span, also of one key's.
func (s span) upTo() string {
	if s.end == "" {
		return s.key + "\x00"
	}
	return s.end
}

// later is the later of two ends that are not "".
func later(a, b string) string {
	if a == open || b == open {
		return open
	}
	return max(a, b)
}

// placedIn is the placed keys that a write may change, in their order, each once.
func (s *Server) placedIn(w *work) []wanted {
	var keys []wanted
	for _, sp := range w.spans {
		keys = append(keys, s.Directory.LookupRange(sp.key, sp.end)...)
	}
	slices.SortFunc(keys, func(a, b wanted) int { return compare(a.Name, b.Name) })
	return slices.CompactFunc(keys, func(a, b wanted) bool { return a.Name == b.Name })
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

// only is the one key-value pair of an answer, or nil.
func only(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}
