package gateway

import (
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/client/etcd/guarded"
	"github.com/netcraq/netcraq/client/etcd/readsource"
	"github.com/netcraq/netcraq/etcd-monitor/relay"
)

// passer is a key-value service that says which requests need not be understood, and what etcd is
// to be asked for them. See guarded.Server's.
type passer interface {
	Pass(method string, request []byte) *guarded.Passage
}

// passing is what the relay is told: which requests go to etcd past this process's own server.
type passing struct {
	g       *Gateway
	passer  passer // nil: etcd serves keys
	methods map[string]bool
	ends    map[string]func(codes.Code, time.Duration) // what counts the end of a request, by its kind
}

// newPassing makes it for a gateway whose keys a service serves; nil: etcd does.
func newPassing(g *Gateway, server pb.KVServer) (*passing, error) {
	p := &passing{g: g, methods: map[string]bool{}, ends: map[string]func(codes.Code, time.Duration){}}
	for _, kind := range []string{kindGet, kindRange, kindPut, kindDelete, kindDeleteRange, kindTxn} {
		p.ends[kind] = func(code codes.Code, took time.Duration) {
			g.metrics.Request(kind, code.String())
			g.metrics.Etcd(kind, took)
		}
	}
	if len(g.names) > 0 { // every name is changed
		return p, nil
	}
	if server != nil {
		var ok bool
		if p.passer, ok = server.(passer); !ok {
			return p, nil
		}
	}
	for _, m := range []string{"Range", "Put", "DeleteRange", "Txn"} {
		p.methods["/etcdserverpb.KV/"+m] = true
	}
	return p, nil
}

// May implements relay.Router.
func (p *passing) May(method string) bool { return p.methods[method] }

// Plan implements relay.Router.
func (p *passing) Plan(method string, metadata func(string) string, message []byte) *relay.Plan {
	if p.g.stopping.Err() != nil || metadata(readsource.Header) != "" { // it is told who has answered
		return nil
	}
	if p.passer == nil {
		kind := p.g.look(method, message)
		return &relay.Plan{Message: [][]byte{message}, See: p.see, Done: p.ends[kind]}
	}
	at := p.passer.Pass(method, message)
	if at == nil {
		return nil
	}
	plan := &relay.Plan{Message: at.Request, Method: at.Method, See: at.See, Answer: at.Answer, Refused: at.Refused}
	kind := p.count(at)
	plan.Done = p.ends[kind]
	return plan
}

// see takes note of the revision of an answer.
func (p *passing) see(head []byte) { p.g.newest.Saw(revisionOf(head)) }

// count counts the keys of a request that is passed on, and says of which kind it is.
func (p *passing) count(at *guarded.Passage) string {
	switch {
	case at.Range != nil:
		return p.g.lookRange(at.Range)
	case at.Put != nil:
		p.g.countWrite(at.Put)
		return kindPut
	case at.DeleteRange != nil:
		return p.g.lookDelete(at.DeleteRange)
	}
	p.g.lookTxn(at.Txn)
	return kindTxn
}
