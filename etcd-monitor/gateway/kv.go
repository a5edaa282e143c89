package gateway

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
)

// kv wraps the key-value service of [Config].KV. It counts requests, and records the revisions in
// the answers.
type kv struct {
	g    *Gateway
	next pb.KVServer
}

// answer is the common interface of all answers of the key-value service.
type answer interface{ GetHeader() *pb.ResponseHeader }

func serve[Q any, A answer](ctx context.Context, g *Gateway, kind string, serve func(context.Context, Q) (A,
	error), request Q) (A, error) {
	r, err := serve(ctx, request)
	if err != nil {
		err = notTheClients(ctx, err)
	}
	g.metrics.Request(kind, status.Code(err).String())
	if err == nil {
		g.newest.Saw(r.GetHeader().GetRevision())
	}
	return r, err
}

// notTheClients replaces an error that says that the client's deadline has passed or that the
// client has cancelled, unless that is true. etcd's client resends a request, even a write, if it
// gets DeadlineExceeded or Canceled while its own context is not done. But etcd may still execute
// the first request, for which this service has only stopped waiting.
func notTheClients(ctx context.Context, err error) error {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled:
		if ctx.Err() == nil {
			return status.Errorf(codes.Unavailable, "etcd-monitor: no answer in time; it is not known whether the request was executed: %s", status.Convert(err).Message())
		}
	}
	return err
}

// Range implements [pb.KVServer].
func (s kv) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return serve(ctx, s.g, s.g.lookRange(r), s.next.Range, r)
}

// Put implements [pb.KVServer].
func (s kv) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	s.g.countWrite(r.Key)
	return serve(ctx, s.g, kindPut, s.next.Put, r)
}

// DeleteRange implements [pb.KVServer].
func (s kv) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return serve(ctx, s.g, s.g.lookDelete(r), s.next.DeleteRange, r)
}

// Txn implements [pb.KVServer].
func (s kv) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.g.lookTxn(r)
	return serve(ctx, s.g, kindTxn, s.next.Txn, r)
}

// Compact implements [pb.KVServer].
func (s kv) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return serve(ctx, s.g, kindCompact, s.next.Compact, r)
}

// Forward returns a client of etcd's key-value service, for an implementation of [Config].KV. A
// call has the identity (token and other metadata) of the client whose request's context it gets.
// Forward also measures etcd's time.
func Forward(u *Upstream, m *hotkeys.Metrics) pb.KVClient {
	return forward{u, pb.NewKVClient(u.Conn()), m}
}

type forward struct {
	upstream *Upstream
	next     pb.KVClient
	metrics  *hotkeys.Metrics
}

func ask[Q any, A any](ctx context.Context, t forward, kind string, ask func(context.Context, Q,
	...grpc.CallOption) (A, error), request Q, opts []grpc.CallOption) (A, error) {
	began := time.Now()
	a, err := ask(outgoing(ctx), request, opts...)
	t.metrics.Etcd(kind, time.Since(began))
	return a, err
}

// write sends a request to etcd that changes something.
func write[Q any, A any](ctx context.Context, t forward, kind string, change func(context.Context, Q,
	...grpc.CallOption) (A, error), request Q, opts []grpc.CallOption) (a A, err error) {
	err = t.upstream.write(ctx, t.metrics, func(ctx context.Context) (err error) {
		a, err = ask(ctx, t, kind, change, request, opts)
		return err
	})
	return a, err
}

// write makes a call to etcd that changes something. The call goes to the leader, if the leader is
// known and connected.
func (u *Upstream) write(ctx context.Context, m *hotkeys.Metrics, call func(context.Context) error) error {
	leader, at := u.Leader(), new(choice)
	if leader != "" {
		at.address = dialAddress(leader)
	}
	err := call(withChoice(ctx, at))
	if !at.taken.Load() {
		leader = ""
	}
	m.EtcdWrite(leader)
	u.wrote(status.Code(err))
	return err
}

// mostLeaderReads is the maximum number of this gateway's concurrent reads at the leader. The
// leader then answers some ten thousand reads a second. Further reads go to all members in turn.
// All reads do so while the leader does not answer.
const mostLeaderReads = 64

// beginRead returns the leader as the target of a read, or "" if the read should go to the members
// in turn. The caller must call endRead after the read.
func (u *Upstream) beginRead() (leader string) {
	if leader = u.Leader(); leader == "" || u.readsInTurn.Load() {
		return ""
	}
	if u.reading.Add(1) > mostLeaderReads {
		u.reading.Add(-1)
		return ""
	}
	return leader
}

// endRead records the result of a read that beginRead has sent to the leader.
func (u *Upstream) endRead(code codes.Code) {
	u.reading.Add(-1)
	u.wrote(code)
}

// read makes a call for a linearizable read with a small answer. The call goes to the leader if it
// is known and connected and has few reads in progress.
func (u *Upstream) read(ctx context.Context, m *hotkeys.Metrics, call func(context.Context) error) error {
	leader, at := u.beginRead(), new(choice)
	if leader != "" {
		at.address = dialAddress(leader)
	}
	err := call(withChoice(ctx, at))
	if leader != "" {
		u.endRead(status.Code(err))
	}
	if !at.taken.Load() {
		leader = ""
	}
	m.EtcdRead(leader)
	return err
}

// wrote records the result of a write.
func (u *Upstream) wrote(code codes.Code) {
	if code == codes.Unavailable {
		u.leader.doubt()
	}
}

func (t forward) Range(ctx context.Context, r *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	kind := kindGet
	if len(r.RangeEnd) > 0 {
		kind = kindRange
	}
	at := t.upstream.sizes.aim(r)
	var a *pb.RangeResponse
	call := func(ctx context.Context) (err error) {
		a, err = ask(ctx, t, kind, t.next.Range, r, opts)
		return err
	}
	var err error
	if at.to == aRead {
		err = t.upstream.read(ctx, t.metrics, call)
	} else {
		err = call(ctx)
	}
	if err == nil {
		t.upstream.sizes.answered(at, a.Size())
	}
	return a, err
}

func (t forward) Put(ctx context.Context, r *pb.PutRequest, opts ...grpc.CallOption) (*pb.PutResponse, error) {
	return write(ctx, t, kindPut, t.next.Put, r, opts)
}

func (t forward) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest, opts ...grpc.CallOption) (
	*pb.DeleteRangeResponse, error) {
	return write(ctx, t, kindDelete, t.next.DeleteRange, r, opts)
}

func (t forward) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	if !changes(r) {
		return ask(ctx, t, kindTxn, t.next.Txn, r, opts)
	}
	return write(ctx, t, kindTxn, t.next.Txn, r, opts)
}

func (t forward) Compact(ctx context.Context, r *pb.CompactionRequest, opts ...grpc.CallOption) (
	*pb.CompactionResponse, error) {
	return write(ctx, t, kindCompact, t.next.Compact, r, opts)
}
