package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"google.golang.org/grpc"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// TestDifferential makes the same random requests to one etcd directly and to another etcd through
// a gateway. All answers and errors must be equal, including revisions. The watches' events must
// also be equal.
func TestDifferential(t *testing.T) {
	const steps = 600
	for _, name := range []string{"passed", "served", "namespace", "grpc"} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				t.Parallel()
				direct := etcdtest.New(t, 1, etcdtest.Options{})
				behind := etcdtest.New(t, 1, etcdtest.Options{})
				first := int64(1) // first revision of the store
				var g started
				if name == "namespace" {
					g = begin(t, Config{Namespace: "n/"}, behind.Endpoints()...)
					first = neighbours(t, direct.Endpoints()[0], behind.Endpoints()[0])
				} else if name == "grpc" { // --relay=false, so the gRPC server handles all requests
					g = beginAs(t, Config{}, UpstreamConfig{Endpoints: behind.Endpoints()}, "http", transport.TLSInfo{})
				} else {
					g = beginWay(t, ways[name], behind.Endpoints()...)
				}
				a, b := etcdtest.Client(t, direct.Endpoints()...).ActiveConnection(),
					etcdtest.Client(t, g.Endpoint).ActiveConnection()
				wa, wb := watchAll(t, a), watchAll(t, b)
				r := requests{rand.New(rand.NewPCG(seed, 1)), first, 1}
				refused, answered := 0, 0
				for i := range steps {
					call := r.next()
					if q, ok := call.what.(*pb.TxnRequest); ok && name == "namespace" && deletesToEnd(q) {
						continue
					}
					wantAnswer, wantErr := call.do(t.Context(), a)
					gotAnswer, gotErr := call.do(t.Context(), b)
					if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
						t.Fatalf("step %d, %v: %v; etcd itself says %v", i, call, gotErr, wantErr)
					}
					if wantErr != nil {
						refused++
						continue
					}
					answered++
					if diff := cmp.Diff(plain(wantAnswer), plain(gotAnswer)); diff != "" {
						t.Fatalf("step %d, %v: etcd itself and the gateway's answers differ:\n%s", i, call, diff)
					}
					if h := gotAnswer.(answer).GetHeader(); h.Revision > 0 {
						r.revision = h.Revision
					}
				}
				if got := g.Newest().Revision(); got != r.revision {
					t.Errorf("newest revision %d, want %d", got, r.revision)
				}
				if refused < steps/50 || answered < steps/2 {
					t.Errorf("%d answered, %d refused: the requests show too little", answered, refused)
				}
				seen := wa(r.revision)
				if len(seen) < steps/5 {
					t.Errorf("the watch saw %d events: the requests show too little", len(seen))
				}
				if diff := cmp.Diff(seen, wb(r.revision), cmp.Comparer(seenEvent.same)); diff != "" {
					t.Errorf("watches differ:\n%s", diff)
				}
				t.Logf("%d answered, %d refused, %d events, revision %d", answered, refused, len(seen), r.revision)
			})
		}
	}
}

// neighbours writes keys next to the namespace n/ into the etcd behind a gateway. It brings the
// other etcd to the same revision with different keys.
func neighbours(t *testing.T, direct, behind string) (revision int64) {
	t.Helper()
	a, b := etcdtest.Client(t, direct), etcdtest.Client(t, behind)
	for _, do := range []func() error{
		func() error {
			return second(b.Put(t.Context(), "n.", "before"))
		}, func() error { return second(b.Put(t.Context(), "n0", "after")) },
		func() error {
			return second(a.Put(t.Context(), "k", ""))
		}, func() error { return second(a.Delete(t.Context(), "k")) },
		func() error {
			return second(a.Compact(t.Context(), 3))
		}, func() error { return second(b.Compact(t.Context(), 3)) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	return 3
}

// deletesToEnd reports whether a transaction deletes all keys from some key on. etcd refuses a
// transaction that deletes and puts the same key, but does not check this for such a deletion. It
// does check it for a range with an end, and in a namespace the deletion has an end.
func deletesToEnd(q *pb.TxnRequest) bool {
	for _, op := range slices.Concat(q.Success, q.Failure) {
		if string(op.GetRequestDeleteRange().GetRangeEnd()) == "\x00" ||
			op.GetRequestTxn() != nil && deletesToEnd(op.GetRequestTxn()) {
			return true
		}
	}
	return false
}

// plain returns an answer as text, without the fields that differ between clusters.
func plain(a any) string {
	h := a.(answer).GetHeader()
	h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
	nested(a)
	return fmt.Sprint(a)
}

// nested removes the fields that differ between clusters from the answers inside a transaction's
// answer.
func nested(a any) {
	t, ok := a.(*pb.TxnResponse)
	if !ok {
		return
	}
	for _, r := range t.Responses {
		for _, n := range []answer{r.GetResponseRange(), r.GetResponsePut(), r.GetResponseDeleteRange(),
			r.GetResponseTxn()} {
			if h := n.GetHeader(); h != nil {
				h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
			}
		}
		if r.GetResponseTxn() != nil {
			nested(r.GetResponseTxn())
		}
	}
}

// seenEvent is a watch event and the key's previous value, as text.
type seenEvent struct{ event, former string }

// same reports whether two events are equal. It accepts a missing previous value, because etcd
// omits values that were compacted before it sends the event.
func (e seenEvent) same(other seenEvent) bool {
	none := (*mvccpb.KeyValue)(nil).String()
	return e.event == other.event && (e.former == other.former || e.former == none || other.former == none)
}

// watchAll watches all keys, with a fragmenting stream. It returns a function that returns the
// events up to a revision.
func watchAll(t *testing.T, c *grpc.ClientConn) func(revision int64) []seenEvent {
	t.Helper()
	s, err := pb.NewWatchClient(c).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte{0},
			RangeEnd: []byte{0}, PrevKv: true, Fragment: true}}}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Recv(); err != nil || !r.Created {
		t.Fatalf("the watch: %v, %v", r, err)
	}
	events := make(chan seenEvent, 10_000)
	newest := make(chan int64, 10_000)
	go func() {
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			for _, e := range r.Events {
				events <- seenEvent{fmt.Sprint(e.Type, e.Kv), e.PrevKv.String()}
				newest <- e.Kv.ModRevision
			}
		}
	}()
	return func(revision int64) (out []seenEvent) {
		for {
			select {
			case e := <-events:
				out = append(out, e)
				if <-newest >= revision && len(events) == 0 {
					return out
				}
			// The last revision may have no events, or its events may come in two messages.
			case <-time.After(2 * time.Second):
				return out
			}
		}
	}
}

// requests generates random requests.
type requests struct {
	*rand.Rand
	revision int64 // the store's revision
	lease    int64 // ID of the next lease
}

type request struct {
	do   func(context.Context, *grpc.ClientConn) (any, error)
	what any
}

func (r request) String() string { return fmt.Sprintf("%T{%v}", r.what, r.what) }

func (r *requests) next() request {
	switch n := r.IntN(100); {
	case n < 30:
		q := r.rangeOf()
		return request{func(ctx context.Context, c *grpc.ClientConn) (any, error) {
			return pb.NewKVClient(c).Range(ctx, q)
		}, q}
	case n < 55:
		q := r.put()
		return request{func(ctx context.Context, c *grpc.ClientConn) (any, error) {
			return pb.NewKVClient(c).Put(ctx, q)
		}, q}
	case n < 65:
		q := r.deleteRange()
		return request{func(ctx context.Context, c *grpc.ClientConn) (any, error) {
			return pb.NewKVClient(c).DeleteRange(ctx, q)
		}, q}
	case n < 88:
		q := r.txn(2)
		return request{func(ctx context.Context, c *grpc.ClientConn) (any, error) {
			return pb.NewKVClient(c).Txn(ctx, q)
		}, q}
	case n < 90:
		q := &pb.CompactionRequest{Revision: max(0, r.revision-r.Int64N(20)+1), Physical: true}
		return request{func(ctx context.Context, c *grpc.ClientConn) (any, error) {
			return pb.NewKVClient(c).Compact(ctx, q)
		}, q}
	case n < 95:
		q := &pb.LeaseGrantRequest{ID: r.lease, TTL: 600}
		if r.IntN(4) > 0 {
			r.lease++
		}
		return request{func(ctx context.Context, c *grpc.ClientConn) (any, error) {
			return pb.NewLeaseClient(c).LeaseGrant(ctx, q)
		}, q}
	default:
		q := &pb.LeaseRevokeRequest{ID: 1 + r.Int64N(r.lease+1)}
		return request{func(ctx context.Context, c *grpc.ClientConn) (any, error) {
			return pb.NewLeaseClient(c).LeaseRevoke(ctx, q)
		}, q}
	}
}

// key returns one of a few keys. Some are text and some are bytes, and rarely it is the empty key.
func (r *requests) key() []byte {
	if r.maybe(40) {
		return nil
	}
	return []byte([]string{"a", "b", "b\x00", "c", "\x00", "\xff\xfe", "registry/x", "registry/y", "registry/yy", "z"}[r.IntN(10)])
}

// end returns the end of a range. In most cases it is empty, which means a single key.
func (r *requests) end() []byte {
	switch r.IntN(6) {
	case 0:
		return r.key()
	case 1:
		return []byte{0}
	case 2:
		return []byte("registry0")
	}
	return nil
}

func (r *requests) maybe(n int) bool { return r.IntN(n) == 0 }

func (r *requests) rangeOf() *pb.RangeRequest {
	q := &pb.RangeRequest{Key: r.key(), RangeEnd: r.end(), Serializable: r.maybe(5), KeysOnly: r.maybe(6),
		CountOnly: r.maybe(8)}
	if r.maybe(4) {
		q.Revision = r.revision - r.Int64N(15) + 2
	}
	if r.maybe(5) {
		q.Limit = r.Int64N(3)
	}
	if r.maybe(5) {
		q.SortOrder, q.SortTarget = pb.RangeRequest_SortOrder(r.IntN(4)), pb.RangeRequest_SortTarget(r.IntN(6))
	}
	if r.maybe(8) {
		q.MinModRevision, q.MaxCreateRevision = r.Int64N(r.revision+1), r.Int64N(r.revision+1)
	}
	return q
}

func (r *requests) put() *pb.PutRequest {
	q := &pb.PutRequest{Key: r.key(), Value: fmt.Appendf(nil, "v%d\xff", r.IntN(50)), PrevKv: r.maybe(3)}
	if r.maybe(5) {
		q.Lease = 1 + r.Int64N(r.lease+1)
	}
	if r.maybe(10) {
		q.IgnoreValue = true
		if !r.maybe(4) {
			q.Value = nil
		}
	}
	if r.maybe(12) {
		q.IgnoreLease = true
	}
	return q
}

func (r *requests) deleteRange() *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: r.key(), RangeEnd: r.end(), PrevKv: r.maybe(2)}
}

func (r *requests) txn(depth int) *pb.TxnRequest {
	q := &pb.TxnRequest{}
	for range r.IntN(3) {
		c := &pb.Compare{Key: r.key(), Result: pb.Compare_CompareResult(r.IntN(4))}
		if r.maybe(5) {
			c.RangeEnd = r.end()
		}
		switch r.IntN(5) {
		case 0:
			c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: r.Int64N(4)}
		case 1:
			c.Target, c.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: r.Int64N(
				r.revision + 1)}
		case 2:
			c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: r.revision - r.Int64N(5)}
		case 3:
			c.Target, c.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: fmt.Appendf(nil, "v%d\xff", r.IntN(50))}
		case 4:
			c.Target, c.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{Lease: r.Int64N(r.lease)}
		}
		q.Compare = append(q.Compare, c)
	}
	q.Success, q.Failure = r.ops(depth), r.ops(depth)
	return q
}

func (r *requests) ops(depth int) (out []*pb.RequestOp) {
	n := r.IntN(4)
	if r.maybe(40) {
		n = 129 // one more operation than etcd permits
	}
	for range n {
		switch k := r.IntN(8); {
		case k < 3:
			out = append(out, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r.put()}})
		case k < 5:
			out = append(out, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r.rangeOf()}})
		case k < 7 || depth == 0:
			out = append(out, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
				RequestDeleteRange: r.deleteRange()}})
		default:
			out = append(out, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r.txn(depth - 1)}})
		}
	}
	return out
}
