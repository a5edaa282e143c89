package guarded

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/client/etcd/etcderrors"
	"github.com/netcraq/netcraq/client/etcd/placement"
)

// transaction is a write as a request to etcd, with the gateway's conditions.
type transaction struct {
	work   *work
	known  int64    // the revision up to which this gateway knows the directory
	lease  int64    // lease of the session that holds the guards; 0 if there are no guards
	guards []*guard // the write's guards
	read   bool     // whether to read the guarded keys after the write
}

// outcome is the result of a transaction that etcd has answered.
type outcome struct {
	// again means that a condition of the gateway did not hold, so nothing was executed. Of the
	// other fields, only sessionGone is then meaningful.
	again bool
	// whether the condition that did not hold is the condition on the session
	sessionGone bool
	answer      *pb.ResponseOp // answer to the client's operation
	header      *pb.ResponseHeader
	// results for the guarded keys, in order; nil if they were not read
	read []*pb.ResponseOp
}

// commit makes etcd execute a transaction. etcd accepts 128 operations (--max-txn-ops), and counts
// those of nested transactions together. If a transaction has too many operations, commit adds
// fewer operations, or regroups the client's operations. The client's own operations must be within
// etcd's limit.
func (s *Server) commit(ctx context.Context, t *transaction) (outcome, error) {
	read := t.read && len(t.guards) > 0
	out, err := s.wrapped(ctx, t, t.work.op, read)
	if (tooMany(err) || tooLarge(err)) && read {
		out, err = s.wrapped(ctx, t, t.work.op, false)
	}
	q := t.work.op.GetRequestTxn()
	if !tooMany(err) || q == nil {
		return out, err
	}
	if takes, err := s.takes(ctx, t.work.operations); err != nil {
		return out, err
	} else if !takes {
		return out, rpctypes.ErrGRPCTooManyOps
	}
	if len(q.Failure) == 0 || len(q.Compare) == 0 {
		if out, err = s.flat(ctx, t, q); !tooMany(err) {
			return out, err
		}
	}
	// etcd accepts the client's operations alone, but not with the gateway's operations.
	outer := max(len(s.conditions(t)), 1)
	for most := t.work.operations - 1; most >= t.work.operations-outer; most-- {
		spread, back, ok := spread(q, most)
		if !ok {
			continue
		}
		if out, err = s.wrapped(ctx, t, spread, false); err == nil && !out.again {
			out.answer = t.work.answer(back(out.answer))
		}
		if !tooMany(err) {
			return out, err
		}
	}
	return out, err
}

func tooMany(err error) bool { return errors.Is(err, rpctypes.ErrGRPCTooManyOps) }

func tooLarge(err error) bool { return errors.Is(err, rpctypes.ErrGRPCRequestTooLarge) }

// takes asks etcd whether it accepts a transaction with this number of operations.
func (s *Server) takes(ctx context.Context, operations int) (bool, error) {
	if int64(operations) <= s.taken.Load() {
		return true, nil
	}
	// these operations are in the branch that is not executed
	q := &pb.TxnRequest{Failure: make([]*pb.RequestOp, operations)}
	for i := range q.Failure {
		q.Failure[i] = rangeOp(countOf(open))
	}
	_, err := s.Etcd.Txn(ctx, q)
	switch {
	case tooMany(err), etcderrors.Code(err) == codes.ResourceExhausted && !etcderrors.Definite(err):
		// etcd does not even read a request with this many operations.
		return false, nil
	// If etcd denies the reads, it has accepted their number.
	case err != nil && !etcderrors.Definite(err):
		return false, err
	}
	s.taken.Store(int64(operations))
	return true, nil
}

// operations returns the number of operations of a request, as etcd counts them (checkTxnRequest).
// For each transaction, etcd takes the maximum of three numbers: the conditions and the operations
// in either branch. It adds the counts of nested transactions.
func operations(op *pb.RequestOp) int {
	t := op.GetRequestTxn()
	if t == nil {
		return 0
	}
	most := 0
	for _, branch := range [][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range branch {
			most = max(most, operations(op))
		}
	}
	return max(len(t.Compare), len(t.Success), len(t.Failure)) + most
}

// spread returns an equivalent transaction that has at most `most` operations, as etcd counts them.
// For this it groups consecutive operations in nested transactions without conditions. ok is false
// if that is not possible.
func spread(t *pb.TxnRequest, most int) (*pb.RequestOp, back, bool) {
	for slots := max(len(t.Compare), 1); slots < most; slots++ {
		success, ok := groups(t.Success, slots, most-slots)
		failure, ok2 := groups(t.Failure, slots, most-slots)
		if !ok || !ok2 {
			continue
		}
		return txnOp(&pb.TxnRequest{Compare: t.Compare, Success: success, Failure: failure}),
			func(r *pb.ResponseOp) *pb.ResponseOp {
				got := r.GetResponseTxn()
				ops, of := success, t.Success
				if !got.Succeeded {
					ops, of = failure, t.Failure
				}
				if len(ops) == len(of) {
					return r
				}
				var all []*pb.ResponseOp
				for i, answer := range got.Responses {
					if ops[i].GetRequestTxn() != nil && ops[i] != of[len(all)] {
						all = append(all, answer.GetResponseTxn().Responses...)
					} else {
						all = append(all, answer)
					}
				}
				got.Responses = all
				return r
			}, true
	}
	return nil, nil, false
}

// groups arranges operations so that they take at most `slots` places. A place has one operation,
// or a nested transaction with up to `size` operations.
func groups(ops []*pb.RequestOp, slots, size int) (out []*pb.RequestOp, ok bool) {
	whole := len(ops) <= slots
	var group *pb.TxnRequest
	for _, op := range ops {
		if operations(op) > size {
			return nil, false
		}
		if whole || op.GetRequestTxn() != nil {
			out, group = append(out, op), nil
			continue
		}
		if group == nil || len(group.Success) == size {
			group = &pb.TxnRequest{}
			out = append(out, txnOp(group))
		}
		group.Success = append(group.Success, op)
	}
	return out, len(out) <= slots
}

// conditions returns the conditions that the gateway adds to a transaction.
func (s *Server) conditions(t *transaction) []*pb.Compare {
	h := boundingRange(t.work.spans)
	all := []*pb.Compare{placement.Fence(s.Prefix, h.Key, h.End, t.known)}
	if t.lease != 0 {
		all = append(all, &pb.Compare{
			Target: pb.Compare_CREATE, Result: pb.Compare_GREATER, Key: []byte(s.Sessions.Key(t.lease)),
			TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0},
		})
	}
	return all
}

// wrapped returns a transaction with the gateway's conditions whose first operation is the client's
// operation.
func (s *Server) wrapped(ctx context.Context, t *transaction, op *pb.RequestOp, read bool) (outcome, error) {
	q := &pb.TxnRequest{Compare: s.conditions(t), Success: []*pb.RequestOp{op}}
	if t.lease != 0 {
		q.Failure = []*pb.RequestOp{rangeOp(countOf(s.Sessions.Key(t.lease)))}
	}
	if read {
		for _, g := range t.guards {
			q.Success = append(q.Success, rangeOp(&pb.RangeRequest{Key: []byte(g.key.Name)}))
		}
	}
	r, err := s.Etcd.Txn(ctx, q)
	if err != nil {
		return outcome{}, err
	}
	s.saw(r.Header)
	if !r.Succeeded {
		return outcome{again: true, sessionGone: t.lease != 0 && r.Responses[0].GetResponseRange().GetCount() == 0}, nil
	}
	out := outcome{answer: r.Responses[0], header: r.Header}
	if op == t.work.op {
		out.answer = t.work.answer(out.answer)
	}
	if read {
		out.read = r.Responses[1:]
	}
	return out, nil
}

// flat adds the gateway's conditions to the client's conditions. The client's transaction must do
// nothing if a condition does not hold. If a condition fails, the transaction reads the keys of the
// gateway's conditions, to find out whether one of these conditions failed.
func (s *Server) flat(ctx context.Context, t *transaction, client *pb.TxnRequest) (outcome, error) {
	h := boundingRange(t.work.spans)
	from, to := placement.Range(s.Prefix, h.Key, h.End)
	newer := &pb.RangeRequest{Key: []byte(from), MinModRevision: t.known + 1, Limit: 1, KeysOnly: true}
	if to != "" {
		newer.RangeEnd = []byte(to)
	}
	q := &pb.TxnRequest{Compare: append(s.conditions(t), client.Compare...), Success: client.Success,
		Failure: []*pb.RequestOp{rangeOp(newer)}}
	if t.lease != 0 {
		q.Failure = append(q.Failure, rangeOp(countOf(s.Sessions.Key(t.lease))))
	}
	r, err := s.Etcd.Txn(ctx, q)
	if err != nil {
		return outcome{}, err
	}
	s.saw(r.Header)
	answer := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: r.Succeeded}
	if r.Succeeded {
		answer.Responses = r.Responses
	} else {
		sessionGone := t.lease != 0 && r.Responses[1].GetResponseRange().GetCount() == 0
		if sessionGone || len(r.Responses[0].GetResponseRange().GetKvs()) > 0 {
			return outcome{again: true, sessionGone: sessionGone}, nil
		}
	}
	return outcome{answer: t.work.answer(
		&pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: answer}}), header: r.Header}, nil
}
