package guarded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/client/etcd/etcderrors"
)

// randomRequests makes requests of all kinds, valid and invalid.
type randomRequests struct{ r *rand.Rand }

func (q randomRequests) key() []byte { return []byte(fmt.Sprint("k", q.r.IntN(6))) }

func (q randomRequests) put() *pb.PutRequest {
	p := &pb.PutRequest{Key: q.key(), Value: []byte(fmt.Sprint("value ", q.r.IntN(1000))), PrevKv: q.r.IntN(3) == 0}
	switch q.r.IntN(20) {
	case 0:
		p.Key = nil
	case 1:
		p.Lease = 12345 // No lease has this number.
	case 2:
		p.IgnoreLease = true
	case 3:
		p.IgnoreValue = true
	case 4:
		p.IgnoreValue, p.Value = true, nil
	case 5:
		p.Value = nil
	case 6:
		p.Value = bytes.Repeat([]byte("x"), 3000)
	case 7:
		p.Value = make([]byte, 200)
		for i := range p.Value {
			p.Value[i] = byte(q.r.IntN(256))
		}
	}
	return p
}

func (q randomRequests) delete() *pb.DeleteRangeRequest {
	d := &pb.DeleteRangeRequest{Key: q.key(), PrevKv: q.r.IntN(3) == 0}
	switch q.r.IntN(6) {
	case 0:
		d.RangeEnd = q.key()
	case 1:
		d.Key, d.RangeEnd = []byte("k"), []byte("l")
	case 2:
		d.RangeEnd = []byte{0}
	case 3:
		if q.r.IntN(4) == 0 {
			d.Key = nil
		}
	}
	return d
}

func (q randomRequests) read() *pb.RangeRequest {
	r := &pb.RangeRequest{Key: q.key()}
	switch q.r.IntN(16) {
	case 0:
		r.RangeEnd = q.key()
	case 1:
		r.KeysOnly = true
	case 2:
		r.CountOnly = true
	case 3:
		r.Limit = int64(q.r.IntN(3))
	case 4:
		r.SortOrder, r.SortTarget = pb.RangeRequest_SortOrder(q.r.IntN(5)), pb.RangeRequest_SortTarget(q.r.IntN(7))
	case 5:
		r.Serializable = true
	case 6:
		r.MinModRevision = 5
	case 7:
		r.Revision = 1 + int64(q.r.IntN(30))
	case 8:
		r.Key, r.RangeEnd = []byte("k"), []byte("l")
	case 9:
		r.Key = nil
	}
	return r
}

func (q randomRequests) txn(depth int) *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for range q.r.IntN(3) {
		c := &pb.Compare{Key: q.key(), Result: pb.Compare_CompareResult(q.r.IntN(4))}
		switch q.r.IntN(4) {
		case 0:
			c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: int64(q.r.IntN(4))}
		case 1:
			c.Target, c.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: int64(q.r.IntN(2))}
		case 2:
			c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: int64(q.r.IntN(100))}
		case 3:
			c.Target, c.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: []byte("value 5")}
		}
		if q.r.IntN(4) == 0 {
			c.RangeEnd = []byte("k3")
		}
		if q.r.IntN(30) == 0 {
			c.Key = nil
		}
		t.Compare = append(t.Compare, c)
	}
	ops := func() (ops []*pb.RequestOp) {
		for range q.r.IntN(4) {
			switch q.r.IntN(8) {
			case 0, 1, 2:
				p := q.put()
				// etcd 3.6 panics if the same transaction has deleted the key whose value
				// IgnoreValue keeps.
				if !p.IgnoreValue || len(p.Value) > 0 {
					p.IgnoreLease = false
				} else {
					p.IgnoreValue = false
				}
				ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}})
			case 3:
				ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
					RequestDeleteRange: q.delete()}})
			case 4, 5:
				r := q.read()
				r.Revision = 0
				ops = append(ops, rangeOp(r))
			case 6:
				if depth > 0 {
					ops = append(ops, txnOp(q.txn(depth-1)))
				}
			case 7:
				if q.r.IntN(20) == 0 {
					ops = append(ops, &pb.RequestOp{})
				}
			}
		}
		return ops
	}
	t.Success, t.Failure = ops(), ops()
	if q.r.IntN(60) == 0 { // A transaction has more operations than etcd accepts.
		for len(t.Success) < 129 {
			t.Success = append(t.Success, rangeOp(&pb.RangeRequest{Key: []byte("k1")}))
		}
	}
	return t
}

// message is a request or an answer of etcd.
type message interface{ Marshal() ([]byte, error) }

// same compares two answers, except for the ids of cluster and member.
func same(t *testing.T, what string, a, b message, errA, errB error, headers ...*pb.ResponseHeader) {
	t.Helper()
	if (errA == nil) != (errB == nil) || status.Code(errA) != status.Code(errB) ||
		errA != nil && errA.Error() != errB.Error() {
		t.Fatalf("%s: etcd says %v, the gateway %v", what, errA, errB)
	}
	if errA != nil {
		return
	}
	for _, h := range headers {
		h.ClusterId, h.MemberId, h.RaftTerm = 1, 1, 1
	}
	x, errX := a.Marshal()
	y, errY := b.Marshal()
	if errX != nil || errY != nil || !bytes.Equal(x, y) {
		t.Fatalf("%s: etcd answers\n%v\nthe gateway\n%v", what, a, b)
	}
}

// both sends a request to an etcd and to a gateway in front of another etcd, compares the answers,
// and returns etcd's error.
func both[Q any, A interface {
	message
	GetHeader() *pb.ResponseHeader
}](t *testing.T, n int, request Q, etcd func(context.Context, Q, ...grpc.CallOption) (A, error),
	gateway func(context.Context, Q) (A, error)) error {
	t.Helper()
	a, errA := etcd(t.Context(), request)
	b, errB := gateway(t.Context(), request)
	same(t, fmt.Sprintf("%d: %v", n, request), a, b, errA, errB, a.GetHeader(), b.GetHeader())
	return errA
}

// A gateway gives byte for byte the same answers as an etcd, except for the ids of cluster and
// member. None, some or all of the keys are placed.
func TestSameAnswers(t *testing.T) {
	for _, placing := range []struct {
		name  string
		keys  int
		bytes bool // whether requests are passed as bytes if that is possible
	}{{"none placed", 0, false}, {"some placed", 3, false}, {"all placed", 6, false}, {"none placed, bytes", 0, true},
		{"some placed, bytes", 3, true}} {
		t.Run(placing.name, func(t *testing.T) {
			direct, behind := connect(t, startEtcd(t)), startEtcd(t)
			slots := newMemory(128)
			g := newLive(t, behind, slots, nil)
			p := newPlacement(g.client, slots)
			for i := range placing.keys {
				g.knows(t, p.place(t, fmt.Sprint("k", i)))
			}
			etcd := pb.NewKVClient(direct.ActiveConnection())
			ctx := t.Context()
			// These writes make the revisions equal. The gateway and placement have made as many
			// writes.
			for range placing.keys + 1 {
				if _, err := etcd.Put(ctx, putOf(livePrefix+"x", "")); err != nil {
					t.Fatal(err)
				}
			}
			var way pb.KVServer = g
			s := &asBytes{Server: g.Server}
			if placing.bytes {
				way = s
			}
			q := randomRequests{rand.New(rand.NewPCG(uint64(placing.keys), 5))}
			errors := 0
			for i := range requests(3000) {
				var err error
				switch n := q.r.IntN(100); {
				case n < 50:
					err = both(t, i, q.read(), etcd.Range, way.Range)
				case n < 65:
					err = both(t, i, q.put(), etcd.Put, way.Put)
				case n < 75:
					err = both(t, i, q.delete(), etcd.DeleteRange, way.DeleteRange)
				case n < 99:
					err = both(t, i, q.txn(2), etcd.Txn, way.Txn)
				default:
					err = both(t, i, &pb.CompactionRequest{Revision: int64(q.r.IntN(2000))}, etcd.Compact, g.Compact)
				}
				if err != nil {
					errors++
				}
			}
			t.Logf(
				"%d requests, %d of them refused; %d reads were answered by the network; etcd answered for: %v",
				requests(3000),
				errors,
				g.hitCount(),
				g.misses,
			)
			if placing.bytes && (s.passed.Load() < int64(requests(900)) || placing.keys > 0 && s.served.Load() == 0) {
				t.Errorf("%d requests were passed as bytes, %d served", s.passed.Load(), s.served.Load())
			}
			if placing.keys == 6 && g.hitCount() < requests(200) {
				t.Errorf("the network answered %d reads", g.hitCount())
			}
		})
	}
}

// The gateway finds all keys that any branch of a write may change. The write leaves out the
// gateways' own keys.
func TestOwnKeys(t *testing.T) {
	slots := newMemory(128)
	g := newLive(t, startEtcd(t), slots, nil)
	p := newPlacement(g.client, slots)
	ctx := t.Context()
	for _, key := range []string{livePrefix, livePrefix + "placed/k", livePrefix + "sessions/1"} {
		if _, err := g.Put(ctx, putOf(key, "")); status.Code(err) != codes.PermissionDenied {
			t.Errorf("put %s: %v", key, err)
		}
		if _, err := g.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(key)}); status.Code(
			err) != codes.PermissionDenied {
			t.Errorf("delete %s: %v", key, err)
		}
		deep := &pb.TxnRequest{Failure: []*pb.RequestOp{txnOp(
			&pb.TxnRequest{Success: []*pb.RequestOp{putOp(key, "")}})}}
		if _, err := g.Txn(ctx, deep); status.Code(err) != codes.PermissionDenied {
			t.Errorf("txn on %s: %v", key, err)
		}
	}
	before, last := "/a", "z"
	for _, d := range []struct {
		key, end string
		deleted  int64 // number of deleted keys, without the gateways' own keys
	}{
		{"/", "\x00", 2}, {"/", "0", 1}, {livePrefix, "\x00", 1}, {"/a", livePrefix + "placed/x", 1},
		{"\x00", "\x00", 2}, {livePrefix + "p", "zz", 1}, {"zz", "\x00", 0}, {"b", "a", 0},
	} {
		e := p.place(t, before)
		g.knows(t, e)
		for _, key := range []string{before, last} {
			if _, err := g.Put(ctx, putOf(key, "v")); err != nil {
				t.Fatal(err)
			}
		}
		own, err := g.client.Get(ctx, livePrefix+"\x00", clientv3.WithRange(clientv3.GetPrefixRangeEnd(livePrefix)))
		if err != nil || own.Count < 2 {
			t.Fatalf("%v, %v", own, err)
		}
		var got *pb.DeleteRangeResponse
		if d.end == "0" { // This deletion is part of a transaction.
			r, err := g.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{rangeOp(rangeOf("z")),
				deleteOp(d.key, d.end), putOp("zz", "")}})
			if err != nil {
				t.Fatal(err)
			}
			got = r.Responses[1].GetResponseDeleteRange()
			if r.Responses[0].GetResponseRange() == nil || r.Responses[2].GetResponsePut() == nil {
				t.Errorf("the answers of a transaction with a split deletion: %v", r)
			}
			if _, err := g.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("zz")}); err != nil {
				t.Fatal(err)
			}
		} else if got, err = g.DeleteRange(ctx, deleteOp(d.key, d.end).GetRequestDeleteRange()); err != nil {
			t.Fatalf("delete [%q, %q): %v", d.key, d.end, err)
		}
		if got.Deleted != d.deleted || len(got.PrevKvs) != int(d.deleted) || got.Header.Revision == 0 {
			t.Errorf("delete [%q, %q): %v; want %d deleted", d.key, d.end, got, d.deleted)
		}
		if now, err := g.client.Get(ctx, livePrefix+"\x00", clientv3.WithRange(clientv3.GetPrefixRangeEnd(
			livePrefix))); err != nil || now.Count != own.Count {
			t.Fatalf("after deleting [%q, %q): %v, %v; want %d own keys", d.key, d.end, now, err, own.Count)
		}
		r, err := g.Range(ctx, rangeOf(before))
		want := 1
		if d.key <= before && (d.end == open || d.end > before) {
			want = 0
		}
		if err != nil || len(r.Kvs) != want {
			t.Errorf("after deleting [%q, %q): %v, %v", d.key, d.end, r, err)
		}
		p.remove(t, before)
	}
}

// boundingRange returns the smallest span that contains all spans.
func TestHull(t *testing.T) {
	of := func(key, end string) span { return span{Key: key, End: end} }
	for _, test := range []struct {
		spans []span
		want  span
	}{
		{[]span{of("a", "")}, of("a", "")},
		{[]span{of("a", ""), of("a", "")}, of("a", "")},
		{[]span{of("b", ""), of("a", "")}, of("a", "b\x00")},
		{[]span{of("b", "d"), of("c", "")}, of("b", "d")},
		{[]span{of("b", "d"), of("d", "")}, of("b", "d\x00")},
		{[]span{of("b", open), of("a", "c")}, of("a", open)},
		{[]span{of("a", "c"), of("b", open), of("z", "")}, of("a", open)},
	} {
		if got := boundingRange(test.spans); got != test.want {
			t.Errorf("%q: %q; want %q", test.spans, got, test.want)
		}
	}
}

// The simulator's etcd answers as etcd does.
func TestFakeEtcd(t *testing.T) {
	etcd := pb.NewKVClient(connect(t, startEtcd(t)).ActiveConnection())
	fake := newFakeEtcd()
	q := randomRequests{rand.New(rand.NewPCG(3, 4))}
	agreed, refused := 0, map[string]int{}
	for i := range 3000 {
		r := q.txn(2)
		a, errA := etcd.Txn(t.Context(), r)
		if errors.Is(rpctypes.Error(errA), rpctypes.ErrDuplicateKey) {
			continue // The fake etcd does not check for duplicate keys.
		}
		b, errB := fake.Txn(r)
		switch {
		case errA == nil && errB == nil && !simple(r):
			// Both have executed the request, but the fake etcd may lack parts of the answer.
		case errA != nil || errB != nil:
			same(t, fmt.Sprintf("%d: %v", i, r), a, b, errA, errB)
			refused[status.Convert(errA).Message()]++
		default:
			same(t, fmt.Sprintf("%d: %v", i, r), a, b, nil, nil, a.Header, b.Header)
			agreed++
		}
	}
	many := &pb.TxnRequest{Success: []*pb.RequestOp{txnOp(&pb.TxnRequest{Compare: make([]*pb.Compare, maxTxnOps)})}}
	for i := range many.Success[0].GetRequestTxn().Compare {
		many.Success[0].GetRequestTxn().Compare[i] = &pb.Compare{Key: []byte("k")}
	}
	_, errA := etcd.Txn(t.Context(), many)
	_, errB := fake.Txn(many)
	same(t, "too many operations", nil, nil, errA, errB)
	for range 200 {
		r := q.read()
		a, errA := etcd.Range(t.Context(), r)
		if b, errB := fake.Range(r); errA != nil || errB != nil {
			same(t, r.String(), a, b, errA, errB)
			refused[status.Convert(errA).Message()]++
		}
	}
	t.Logf("%d answers and %v refusals are the same", agreed, refused)
	if len(refused) < 6 {
		t.Errorf("only %d kinds of refusals were compared: %v", len(refused), refused)
	}
	if agreed < 500 {
		t.Errorf("only %d transactions were compared", agreed)
	}
}

// TestWords checks that etcd and gRPC return the same errors as the simulator, and that the server
// classifies these errors correctly.
func TestWords(t *testing.T) {
	for _, err := range refusals {
		if !etcderrors.Definite(err) || !etcderrors.Definite(rpctypes.Error(err)) {
			t.Errorf("%v: etcd has not executed that", err)
		}
	}
	for _, err := range silences {
		if etcderrors.Definite(err) || etcderrors.Definite(rpctypes.Error(err)) {
			t.Errorf("%v: etcd may have executed that", err)
		}
	}
	words := func(err error) string { return regexp.MustCompile(`\d+`).ReplaceAllString(err.Error(), "N") }
	says := func(err error) bool {
		return err != nil && slices.ContainsFunc(slices.Concat(refusals, silences),
			func(e error) bool { return words(e) == words(err) })
	}
	etcd := pb.NewKVClient(connect(t, startEtcd(t)).ActiveConnection())
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for _, ctx := range []context.Context{canceled, late} {
		if _, err := etcd.Put(ctx, putOf("k", "")); !says(err) {
			t.Errorf("%v: the simulator does not say that", err)
		}
	}
	if _, err := etcd.Put(t.Context(), putOf("k", strings.Repeat("x", 1600<<10))); !says(err) {
		t.Errorf("%v: the simulator does not say that", err)
	}
	// The write was executed, but the client does not accept the answer.
	if _, err := etcd.Put(t.Context(), putOf("k", "v"), grpc.MaxCallRecvMsgSize(1)); !says(err) {
		t.Errorf("%v: the simulator does not say that", err)
	}
	if r, err := etcd.Range(t.Context(), rangeOf("k")); err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "v" {
		t.Errorf("%v, %v", r, err)
	}
}

// simple reports whether the fake etcd supports everything in a transaction.
func simple(t *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			if r := op.GetRequestRange(); r != nil && (r.KeysOnly || r.Limit != 0 || r.SortOrder != 0 ||
				r.SortTarget != 0 || r.MinModRevision != 0) {
				return false
			}
			if in := op.GetRequestTxn(); in != nil && !simple(in) {
				return false
			}
		}
	}
	return true
}

func deleteOp(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{
		Key:      []byte(key),
		RangeEnd: []byte(end), PrevKv: true}}}
}
