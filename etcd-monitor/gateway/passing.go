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

// Methods of the key-value service that the gateway forwards, or serves without a gRPC server.
const (
	rangeMethod  = "/etcdserverpb.KV/Range"
	putMethod    = "/etcdserverpb.KV/Put"
	deleteMethod = "/etcdserverpb.KV/DeleteRange"
	txnMethod    = "/etcdserverpb.KV/Txn"
)

// passer is a key-value service that knows which requests the gateway may forward without
// understanding them. It also knows what to send to etcd for such a request. See guarded.Server.
type passer interface {
	Pass(method string, request []byte) *guarded.Passage
}

// prompt is a key-value service that can answer some reads without waiting. See guarded.Server.
type prompt interface {
	RangeNow(r *pb.RangeRequest) (*pb.RangeResponse, bool)
}

// passing is the relay's router. It decides which requests bypass this process's gRPC server and go
// to etcd.
type passing struct {
	g       *Gateway
	passer  passer      // if nil, no request is forwarded
	prompt  prompt      // if nil, no read is answered without waiting
	keys    pb.KVServer // serves the remaining requests; if nil, etcd serves keys, and all requests are forwarded
	methods map[string]bool
	ends    map[string]func(codes.Code, time.Duration) // functions that count a request's end, by its kind
}

// newPassing makes the router of a gateway whose keys server serves. If server is nil, etcd serves
// the keys.
func newPassing(g *Gateway, server pb.KVServer) (*passing, error) {
	p := &passing{g: g, methods: map[string]bool{}, ends: map[string]func(codes.Code, time.Duration){}}
	for _, kind := range []string{kindGet, kindRange, kindPut, kindDelete, kindDeleteRange, kindTxn} {
		p.ends[kind] = func(code codes.Code, took time.Duration) {
			g.metrics.Request(kind, code.String())
			g.metrics.Etcd(kind, took)
		}
	}
	p.keys = g.keys
	if len(g.names) == 0 { // a namespace changes every name
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
	if p.g.stopping.Err() != nil || metadata(readsource.Header) != "" { // the client has asked who answers
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

// first makes a request prefer a member, if it is connected, and counts whether the request went
// there. If member is "", no member is preferred.
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

// readAtLeader sends a read to the leader, if the leader has only few reads in progress.
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

// serve makes the key-value service answer a request, without this process's gRPC server. If serve
// returns nil, the request is malformed. The gRPC server then reports that.
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

// now answers a read of a placed key if that needs no waiting.
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

// count counts the keys of a request that is forwarded. It returns the request's kind, and the
// member to which the request should go.
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
