package gateway

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/client/etcd/guarded"
	"github.com/netcraq/netcraq/client/etcd/readsource"
	"github.com/netcraq/netcraq/etcd-monitor/relay"
)

// Methods of the key-value service that are passed on, or served without a gRPC server.
const (
	rangeMethod  = "/etcdserverpb.KV/Range"
	putMethod    = "/etcdserverpb.KV/Put"
	deleteMethod = "/etcdserverpb.KV/DeleteRange"
	txnMethod    = "/etcdserverpb.KV/Txn"
)

// passer is a key-value service that knows which requests need not be understood, and what to send
// to etcd for them. See guarded.Server.
type passer interface {
	Pass(method string, request []byte) *guarded.Passage
}

// prompt is a key-value service that answers some reads without waiting. See guarded.Server.
type prompt interface {
	RangeNow(r *pb.RangeRequest) (*pb.RangeResponse, bool)
}

// passing is the relay's router. It decides which requests bypass this process's gRPC server and go
// to etcd.
type passing struct {
	g       *Gateway
	passer  passer      // nil: no request is passed on
	prompt  prompt      // nil: no read is answered without waiting
	keys    pb.KVServer // serves the remaining requests; nil: etcd serves keys, and all are passed on
	methods map[string]bool
	ends    map[string]func(codes.Code, time.Duration) // counts the end of a request, by its kind
}

// newPassing makes the router of a gateway whose keys server serves; nil: etcd does.
func newPassing(g *Gateway, server pb.KVServer) (*passing, error) {
	p := &passing{g: g, methods: map[string]bool{}, ends: map[string]func(codes.Code, time.Duration){}}
	for _, kind := range []string{kindGet, kindRange, kindPut, kindDelete, kindDeleteRange, kindTxn} {
		p.ends[kind] = func(code codes.Code, took time.Duration) {
			g.metrics.Request(kind, code.String())
			g.metrics.Etcd(kind, took)
		}
	}
	p.keys = g.keys
	if len(g.names) == 0 { // otherwise every name is changed
		p.passer, _ = server.(passer)
		p.prompt, _ = server.(prompt)
	}
	for _, m := range []string{rangeMethod, putMethod, deleteMethod, txnMethod} {
		p.methods[m] = true
	}
	return p, nil
}

// May implements relay.Router.
func (p *passing) May(method string) bool { return p.methods[method] }

// Plan implements relay.Router.
func (p *passing) Plan(method string, metadata func(string) string, message []byte) *relay.Plan {
	if p.g.stopping.Err() != nil || metadata(readsource.Header) != "" { // the client wants to know who has answered
		return nil
	}
	if p.keys == nil {
		kind, at := p.g.look(method, message)
		plan := &relay.Plan{Message: [][]byte{message}, See: p.see, Done: p.ends[kind]}
		p.aim(plan, at)
		return plan
	}
	var at *guarded.Passage
	if p.passer != nil {
		at = p.passer.Pass(method, message)
	}
	if at == nil {
		return p.serve(method, message)
	}
	plan := &relay.Plan{Message: at.Request, Method: at.Method, Answer: at.Answer, Refused: at.Refused}
	if at.See != nil {
		plan.See = func(head []byte, _ int) { at.See(head) }
	}
	kind, towards := p.count(at)
	plan.Done = p.ends[kind]
	p.aim(plan, towards)
	return plan
}

// aim chooses the member for a request, and records the size of its answer.
func (p *passing) aim(plan *relay.Plan, at aim) {
	if at.name != 0 {
		see := plan.See
		plan.See = func(head []byte, size int) {
			see(head, size)
			p.g.upstream.sizes.answered(at, size)
		}
	}
	switch at.to {
	case aWrite:
		p.toLeader(plan)
	case aRead:
		p.readAtLeader(plan)
	}
}

// first prefers a connected member for a request, and counts whether the request went there; ""
// means any.
func first(plan *relay.Plan, member string, count func(member string)) {
	plan.First = member
	plan.Sent = func(there bool) {
		if there {
			count(member)
		} else {
			count("")
		}
	}
}

// readAtLeader sends a read to the leader, if the leader has few reads in progress.
func (p *passing) readAtLeader(plan *relay.Plan) {
	u, done := p.g.upstream, plan.Done
	leader := u.beginRead()
	first(plan, leader, p.g.metrics.EtcdRead)
	if leader == "" {
		return
	}
	plan.Done = func(code codes.Code, took time.Duration) {
		u.endRead(code)
		done(code, took)
	}
}

// toLeader sends a write to the leader.
func (p *passing) toLeader(plan *relay.Plan) {
	u := p.g.upstream
	done, leader := plan.Done, u.Leader()
	first(plan, leader, p.g.metrics.EtcdWrite)
	plan.Done = func(code codes.Code, took time.Duration) {
		u.wrote(code)
		done(code, took)
	}
}

// serve makes the key-value service answer a request, bypassing this process's gRPC server. nil
// means that the request is malformed, which that server reports.
func (p *passing) serve(method string, message []byte) *relay.Plan {
	switch method {
	case rangeMethod:
		r := new(pb.RangeRequest)
		plan := serves(p.g, message, r, p.keys.Range)
		if plan != nil && p.prompt != nil {
			plan.Now = func() (relay.Message, bool) { return p.now(r) }
		}
		return plan
	case putMethod:
		return serves(p.g, message, new(pb.PutRequest), p.keys.Put)
	case deleteMethod:
		return serves(p.g, message, new(pb.DeleteRangeRequest), p.keys.DeleteRange)
	case txnMethod:
		return serves(p.g, message, new(pb.TxnRequest), p.keys.Txn)
	}
	return nil
}

// now answers a read of a placed key if that requires no waiting.
func (p *passing) now(r *pb.RangeRequest) (relay.Message, bool) {
	answer, ok := p.prompt.RangeNow(r)
	if !ok {
		return nil, false
	}
	p.g.metrics.Request(p.g.lookRange(r), codes.OK.String())
	p.g.newest.Saw(answer.Header.Revision)
	return answer, true
}

func serves[Q interface{ Unmarshal(b []byte) error }, A relay.Message](g *Gateway, message []byte, q Q,
	serve func(context.Context, Q) (A, error)) *relay.Plan {
	if q.Unmarshal(message) != nil {
		return nil
	}
	return &relay.Plan{Serve: func(ctx context.Context) (relay.Message, error) {
		ctx, end := g.whileServing(ctx)
		defer end()
		answer, err := serve(ctx, q)
		if err != nil {
			return nil, g.unlessStopped(err)
		}
		return answer, nil
	}}
}

// see records the revision of an answer.
func (p *passing) see(head []byte, _ int) { p.g.newest.Saw(revisionOf(head)) }

// count counts the keys of a passed-on request. It returns the request's kind, and the member it
// should go to.
func (p *passing) count(at *guarded.Passage) (kind string, towards aim) {
	switch {
	case at.Range != nil:
		return p.g.lookRange(at.Range), p.g.upstream.sizes.aim(at.Range)
	case at.Put != nil:
		p.g.countWrite(at.Put)
		return kindPut, aim{to: aWrite}
	case at.DeleteRange != nil:
		return p.g.lookDelete(at.DeleteRange), aim{to: aWrite}
	}
	p.g.lookTxn(at.Txn)
	return kindTxn, aimOfTxn(at.Txn)
}
