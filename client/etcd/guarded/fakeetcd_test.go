package guarded

import (
	"bytes"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// fakeEtcd simulates the part of etcd's store that the simulator needs. It executes one request at
// a time. TestFakeEtcd compares its answers and refusals with etcd's.
type fakeEtcd struct {
	revision int64
	leases   map[int64]bool
	keys     map[string]*mvccpb.KeyValue // the pairs that the map points to never change
	// changed is called for each change of a key; kv is nil for a deletion.
	changed func(key string, kv *mvccpb.KeyValue)
}

func newFakeEtcd() *fakeEtcd {
	return &fakeEtcd{revision: 1, leases: map[int64]bool{}, keys: map[string]*mvccpb.KeyValue{},
		changed: func(string, *mvccpb.KeyValue) {}}
}

func (e *fakeEtcd) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, MemberId: 2, RaftTerm: 3, Revision: e.revision}
}

func (e *fakeEtcd) find(key, end []byte) []*mvccpb.KeyValue {
	var found []*mvccpb.KeyValue
	for name, kv := range e.keys {
		if len(end) == 0 && name == string(key) || len(end) > 0 && name >= string(key) &&
			(string(end) == open || name < string(end)) {
			found = append(found, kv)
		}
	}
	slices.SortFunc(found, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return found
}

// maxTxnOps is the default of etcd's flag --max-txn-ops.
const maxTxnOps = 128

// Range answers as etcd does, or fails with etcd's error.
func (e *fakeEtcd) Range(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := checkOp(rangeOp(r), 0); err != nil {
		return nil, err
	}
	if err := e.checkApplied(rangeOp(r), nil); err != nil {
		return nil, err
	}
	return e.doRange(r), nil
}

// Txn answers as etcd does, or fails with etcd's error.
func (e *fakeEtcd) Txn(t *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkOp(txnOp(t), maxTxnOps); err != nil {
		return nil, err
	}
	paths := e.paths(t)
	if err := e.checkApplied(txnOp(t), &paths); err != nil {
		return nil, err
	}
	return e.doTxn(t), nil
}

// checkOp checks a request before anything is proposed (etcd: server/etcdserver/api/v3rpc/key.go).
// It does not check for keys that a transaction writes twice, because the simulator sends no such
// transaction.
func checkOp(op *pb.RequestOp, most int) error {
	switch q := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		_, order := pb.RangeRequest_SortOrder_name[int32(q.RequestRange.SortOrder)]
		_, target := pb.RangeRequest_SortTarget_name[int32(q.RequestRange.SortTarget)]
		switch {
		case len(q.RequestRange.Key) == 0:
			return rpctypes.ErrGRPCEmptyKey
		case !order || !target:
			return rpctypes.ErrGRPCInvalidSortOption
		}
	case *pb.RequestOp_RequestPut:
		switch p := q.RequestPut; {
		case len(p.Key) == 0:
			return rpctypes.ErrGRPCEmptyKey
		case p.IgnoreValue && len(p.Value) != 0:
			return rpctypes.ErrGRPCValueProvided
		case p.IgnoreLease && p.Lease != 0:
			return rpctypes.ErrGRPCLeaseProvided
		}
	case *pb.RequestOp_RequestDeleteRange:
		if len(q.RequestDeleteRange.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	case *pb.RequestOp_RequestTxn:
		t := q.RequestTxn
		operations := max(len(t.Compare), len(t.Success), len(t.Failure))
		if operations > most {
			return rpctypes.ErrGRPCTooManyOps
		}
		for _, c := range t.Compare {
			if len(c.Key) == 0 {
				return rpctypes.ErrGRPCEmptyKey
			}
		}
		for _, op := range slices.Concat(t.Success, t.Failure) {
			if err := checkOp(op, most-operations); err != nil {
				return err
			}
		}
	default:
		return rpctypes.ErrGRPCKeyNotFound
	}
	return nil
}

// checkApplied checks a request just before its execution (etcd: server/etcdserver/txn/txn.go).
func (e *fakeEtcd) checkApplied(op *pb.RequestOp, paths *[]bool) error {
	switch q := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		if q.RequestRange.Revision > e.revision {
			return rpctypes.ErrGRPCFutureRev
		}
	case *pb.RequestOp_RequestPut:
		switch p := q.RequestPut; {
		case (p.IgnoreValue || p.IgnoreLease) && e.keys[string(p.Key)] == nil:
			return rpctypes.ErrGRPCKeyNotFound
		case p.Lease != 0 && !e.leases[p.Lease]:
			return rpctypes.ErrGRPCLeaseNotFound
		}
	case *pb.RequestOp_RequestTxn:
		ok := (*paths)[0]
		*paths = (*paths)[1:]
		for _, op := range branch(q.RequestTxn, ok) {
			if err := e.checkApplied(op, paths); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *fakeEtcd) doRange(r *pb.RangeRequest) *pb.RangeResponse {
	found := e.find(r.Key, r.RangeEnd)
	answer := &pb.RangeResponse{Header: e.header(), Count: int64(len(found))}
	if !r.CountOnly {
		answer.Kvs = found
	}
	return answer
}

func (e *fakeEtcd) doTxn(t *pb.TxnRequest) *pb.TxnResponse {
	before, revision := e.revision, e.revision+1
	paths := e.paths(t)
	answer := e.execute(t, &paths, revision)
	answer.Header = e.header()
	if e.revision == before {
		answer.Header.Revision = before
	}
	return answer
}

// paths returns the branch that a transaction takes, followed by the branches of the transactions
// within that branch. All branches are determined before anything is executed.
func (e *fakeEtcd) paths(t *pb.TxnRequest) []bool {
	ok := true
	for _, c := range t.Compare {
		found := e.find(c.Key, c.RangeEnd)
		if len(found) == 0 {
			if c.Target == pb.Compare_VALUE {
				ok = false
			}
			found = []*mvccpb.KeyValue{{}}
		}
		for _, kv := range found {
			ok = ok && compares(c, kv)
		}
	}
	all := []bool{ok}
	for _, op := range branch(t, ok) {
		if inner := op.GetRequestTxn(); inner != nil {
			all = append(all, e.paths(inner)...)
		}
	}
	return all
}

func branch(t *pb.TxnRequest, ok bool) []*pb.RequestOp {
	if ok {
		return t.Success
	}
	return t.Failure
}

func compares(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	var order int
	number := func(a, b int64) int {
		switch {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	}
	switch c.Target {
	case pb.Compare_MOD:
		order = number(kv.ModRevision, c.GetModRevision())
	case pb.Compare_CREATE:
		order = number(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_VERSION:
		order = number(kv.Version, c.GetVersion())
	case pb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_LEASE:
		order = number(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	}
	return order < 0
}

func (e *fakeEtcd) execute(t *pb.TxnRequest, paths *[]bool, revision int64) *pb.TxnResponse {
	ok := (*paths)[0]
	*paths = (*paths)[1:]
	answer := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: ok}
	for _, op := range branch(t, ok) {
		r := &pb.ResponseOp{}
		switch q := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			in := e.doRange(q.RequestRange)
			in.Header = &pb.ResponseHeader{Revision: e.revision}
			r.Response = &pb.ResponseOp_ResponseRange{ResponseRange: in}
		case *pb.RequestOp_RequestPut:
			r.Response = &pb.ResponseOp_ResponsePut{ResponsePut: e.put(q.RequestPut, revision)}
		case *pb.RequestOp_RequestDeleteRange:
			r.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: e.delete(q.RequestDeleteRange,
				revision)}
		case *pb.RequestOp_RequestTxn:
			r.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: e.execute(q.RequestTxn, paths, revision)}
		}
		answer.Responses = append(answer.Responses, r)
	}
	return answer
}

func (e *fakeEtcd) put(p *pb.PutRequest, revision int64) *pb.PutResponse {
	e.revision = revision
	kv := &mvccpb.KeyValue{Key: p.Key, Value: p.Value, Lease: p.Lease,
		CreateRevision: revision, ModRevision: revision, Version: 1}
	answer := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: revision}}
	if old := e.keys[string(p.Key)]; old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
		if p.IgnoreValue {
			kv.Value = old.Value
		}
		if p.IgnoreLease {
			kv.Lease = old.Lease
		}
		if p.PrevKv {
			answer.PrevKv = old
		}
	}
	e.keys[string(p.Key)] = kv
	e.changed(string(p.Key), kv)
	return answer
}

func (e *fakeEtcd) delete(d *pb.DeleteRangeRequest, revision int64) *pb.DeleteRangeResponse {
	found := e.find(d.Key, d.RangeEnd)
	answer := &pb.DeleteRangeResponse{Deleted: int64(len(found))}
	for _, kv := range found {
		e.revision = revision
		delete(e.keys, string(kv.Key))
		e.changed(string(kv.Key), nil)
	}
	if d.PrevKv {
		answer.PrevKvs = found
	}
	answer.Header = &pb.ResponseHeader{Revision: e.revision}
	return answer
}
