package guarded

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/netcraq/netcraq/controlplane/placed"
)

// transaction is what is sent to etcd for a write.
type transaction struct {
	work   *work
	known  int64    // the revision as of which the directory is known
	lease  int64    // of the session that holds the guards; 0: there are none
	guards []*guard // their keys are read after the write, if
	read   bool     // says so
}

// outcome is what came of a transaction that etcd has answered.
type outcome struct {
	again       bool           // a condition of the gateway's does not hold, and nothing was executed; of the rest only sessionGone means something
	sessionGone bool           // it is that on the session
	answer      *pb.ResponseOp // to the client's operation
	header      *pb.ResponseHeader
	read        []*pb.ResponseOp // what was read of the guarded keys, in their order; nil: nothing
}

// commit has etcd execute a transaction. etcd takes 128 operations (--max-txn-ops), and counts those of a transaction within another together with those around it. So what is added to the client's is made
// less where there are too many.
func (s *Server) commit(ctx context.Context, t *transaction) (outcome, error) {
	out, err := s.wrapped(ctx, t, t.read)
	if tooMany(err) && t.read && len(t.guards) > 0 {
		out, err = s.wrapped(ctx, t, false)
	}
	if q := t.work.op.GetRequestTxn(); tooMany(err) && q != nil && (len(q.Failure) == 0 || len(q.Compare) == 0) {
		out, err = s.flat(ctx, t, q)
	}
	return out, err
}

func tooMany(err error) bool { return errors.Is(err, rpctypes.ErrGRPCTooManyOps) }

// conditions are the gateway's.
func (s *Server) conditions(t *transaction) []*pb.Compare {
	var all []*pb.Compare
	if !s.without.directory {
		h := hull(t.work.spans)
		all = append(all, placed.Fence(s.Prefix, h.Key, h.End, t.known))
	}
	if t.lease != 0 && !s.without.session {
		all = append(all, &pb.Compare{
			Target: pb.Compare_CREATE, Result: pb.Compare_GREATER, Key: []byte(s.Sessions.Key(t.lease)), TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0},
		})
	}
	return all
}

// wrapped makes the client's operation the first one of a transaction on the gateway's conditions.
func (s *Server) wrapped(ctx context.Context, t *transaction, read bool) (outcome, error) {
	q := &pb.TxnRequest{Compare: s.conditions(t), Success: []*pb.RequestOp{t.work.op}}
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
	out := outcome{answer: t.work.answer(r.Responses[0]), header: r.Header}
	if read {
		out.read = r.Responses[1:]
	}
	return out, nil
}

// flat puts the gateway's conditions among the client's, for a transaction that does nothing if a condition does not hold. Whose did not is found out by reading what the gateway's are about.
func (s *Server) flat(ctx context.Context, t *transaction, client *pb.TxnRequest) (outcome, error) {
	h := hull(t.work.spans)
	from, to := placed.Range(s.Prefix, h.Key, h.End)
	newer := &pb.RangeRequest{Key: []byte(from), MinModRevision: t.known + 1, Limit: 1, KeysOnly: true}
	if to != "" {
		newer.RangeEnd = []byte(to)
	}
	q := &pb.TxnRequest{Compare: append(s.conditions(t), client.Compare...), Success: client.Success, Failure: []*pb.RequestOp{rangeOp(newer)}}
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
	return outcome{answer: t.work.answer(&pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: answer}}), header: r.Header}, nil
}
