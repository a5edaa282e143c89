package guarded

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/client/etcd/seal"
)

// testReserved are the prefix of the controllers' keys and another reserved prefix.
var testReserved = []string{"/netcraq/", "/p/own/"}

// Reserved keys are neither read nor written through a gateway, whatever the request is. The error
// says that they are reserved.
func TestReservedIsDenied(t *testing.T) {
	slots := newMemory(128)
	g := newLive(t, startEtcd(t), slots, func(c *Config) { c.Reserved = testReserved })
	ctx := t.Context()
	own := []string{seal.Prefix(livePrefix) + "keys", livePrefix + "placed/k", "/netcraq/leader", "/p/own/", "/p/own/x"}
	for _, key := range own {
		if _, err := g.client.Put(ctx, key, "own"); err != nil {
			t.Fatal(err)
		}
	}
	denied := func(what any, a any, err error) {
		t.Helper()
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%v: %v, %v", what, a, err)
		}
	}
	for _, key := range own {
		var ops []*pb.RequestOp
		for _, r := range []*pb.RangeRequest{
			{Key: []byte(key)}, {Key: []byte(key), Serializable: true}, {Key: []byte(key), KeysOnly: true},
			{Key: []byte(key), RangeEnd: []byte(key + "\x00")}, {Key: []byte(key), RangeEnd: []byte(key + "z"),
				CountOnly: true},
		} {
			a, err := g.Range(ctx, r)
			denied(r, a, err)
			ops = append(ops, rangeOp(r))
		}
		a, err := g.Put(ctx, putOf(key, "x"))
		denied("put "+key, a, err)
		for _, end := range []string{"", key + "\x00", key + "z"} {
			d := deleteOp(key, end)
			a, err := g.DeleteRange(ctx, d.GetRequestDeleteRange())
			denied(d, a, err)
			ops = append(ops, d)
		}
		for _, op := range append(ops, putOp(key, "x")) {
			for _, txn := range []*pb.TxnRequest{
				{Success: []*pb.RequestOp{op}}, {Failure: []*pb.RequestOp{op}},
				{Success: []*pb.RequestOp{putOp("x", ""), op}},
				{Success: []*pb.RequestOp{txnOp(&pb.TxnRequest{Failure: []*pb.RequestOp{op}})}},
			} {
				a, err := g.Txn(ctx, txn)
				denied(txn, a, err)
			}
		}
		for target := range pb.Compare_CompareTarget_name {
			c := &pb.TxnRequest{Compare: []*pb.Compare{{Target: pb.Compare_CompareTarget(target),
				Result: pb.Compare_NOT_EQUAL, Key: []byte(key), RangeEnd: []byte(key + "z")}}}
			for _, txn := range []*pb.TxnRequest{c, {Success: []*pb.RequestOp{txnOp(c)}}} {
				a, err := g.Txn(ctx, txn)
				denied(txn, a, err)
			}
		}
	}
	for _, key := range own {
		if r, err := g.client.Get(ctx, key); err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "own" {
			t.Errorf("%s: %v, %v", key, r, err)
		}
	}
}

// spansRequests generates requests for ranges that include reserved keys.
type spansRequests struct {
	r    *rand.Rand
	keys []string
	n    int
}

func (q *spansRequests) key() string { return q.keys[q.r.IntN(len(q.keys))] }

func (q *spansRequests) span() span {
	for {
		s := span{Key: q.key(), End: q.key()}
		switch q.r.IntN(6) {
		case 0:
			s.Key = "\x00"
		case 1:
			s.End = open
		case 2:
			s = span{Key: "\x00", End: open}
		case 3:
			s.Key = "/netcraq/x" // the range begins at a reserved key
		case 4:
			s.End = "/p/own/x"
		}
		if (s.Key < s.End || s.End == open) && len(reserved.With(testReserved...).Without(s.Key, s.End)) > 0 {
			return s
		}
	}
}

func (q *spansRequests) read() *pb.RangeRequest {
	s := q.span()
	r := &pb.RangeRequest{Key: []byte(s.Key), RangeEnd: []byte(s.End), SortOrder: pb.RangeRequest_SortOrder(
		q.r.IntN(3)), SortTarget: pb.RangeRequest_SortTarget(q.r.IntN(5)), Limit: int64(q.r.IntN(12)),
		KeysOnly: q.r.IntN(4) == 0, CountOnly: q.r.IntN(5) == 0, Serializable: q.r.IntN(3) == 0}
	switch q.r.IntN(6) {
	case 0:
		r.MaxModRevision = int64(1 + q.r.IntN(200))
	case 1:
		r.MinCreateRevision = int64(1 + q.r.IntN(200))
	case 2:
		r.Limit = math.MaxInt64 - int64(q.r.IntN(2))
	}
	return r
}

func (q *spansRequests) delete() *pb.DeleteRangeRequest {
	s := q.span()
	return &pb.DeleteRangeRequest{Key: []byte(s.Key), RangeEnd: []byte(s.End), PrevKv: q.r.IntN(2) == 0}
}

func (q *spansRequests) put() *pb.PutRequest {
	q.n++
	return &pb.PutRequest{Key: []byte(q.key()), Value: []byte(fmt.Sprint("v", q.r.IntN(5), ".", q.n)),
		PrevKv: q.r.IntN(3) == 0}
}

func (q *spansRequests) compare() *pb.Compare {
	s := q.span()
	if q.r.IntN(4) == 0 {
		s = span{Key: q.key()}
	}
	c := &pb.Compare{Key: []byte(s.Key), RangeEnd: []byte(s.End), Result: pb.Compare_CompareResult(q.r.IntN(4))}
	number := int64(q.r.IntN(3)) * int64(q.r.IntN(300)) / 2
	switch q.r.IntN(5) {
	case 0:
		c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: int64(q.r.IntN(4))}
	case 1:
		c.Target, c.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: number}
	case 2:
		c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: number}
	case 3:
		c.Target, c.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: []byte("v2")}
	case 4:
		c.Target, c.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{Lease: number % 2}
	}
	return c
}

func (q *spansRequests) txn(depth int) *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for range q.r.IntN(3) {
		c := q.compare()
		if len(t.Compare) > 0 {
			// One condition with several alternatives is enough for each transaction.
			c.RangeEnd = nil
			c.Key = []byte(q.key())
		}
		t.Compare = append(t.Compare, c)
	}
	ops := func() (ops []*pb.RequestOp) {
		for range q.r.IntN(3) {
			switch q.r.IntN(6) {
			case 0, 1:
				ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: q.put()}})
			case 2:
				if q.r.IntN(4) == 0 { // Deletions are rare, so that some keys exist.
					d := q.delete()
					if string(d.RangeEnd) == open {
						// etcd does not notice that keys of puts in the same transaction are in
						// such an open range.
						d.RangeEnd = []byte("zz")
					}
					ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: d}})
				}
			case 3, 4:
				ops = append(ops, rangeOp(q.read()))
			case 5:
				if depth > 0 {
					ops = append(ops, txnOp(q.txn(depth-1)))
				}
			}
		}
		return ops
	}
	t.Success, t.Failure = ops(), ops()
	return t
}

// A request that spans reserved keys gets the same answer, byte for byte, as from an etcd without
// these keys. The requests are ranges in each order, with limits and counts, deletions, conditions
// on ranges, and transactions of all these. No client can detect or delete the reserved keys. Some
// of the other keys are placed.
func TestReservedIsOutOfSight(t *testing.T) {
	direct, behind := connect(t, startEtcd(t)), connect(t, startEtcd(t))
	slots := newMemory(128)
	g := newLiveAt(t, behind, behind, slots, func(c *Config) { c.Reserved = testReserved })
	p := newPlacement(behind, slots)
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// noise makes as many revisions as the writes of the reserved keys have made.
	noise := func(n int) {
		for i := range n {
			if i == n-1 && n > 1 {
				must(direct.Delete(ctx, "noise"))
			} else {
				must(direct.Put(ctx, "noise", ""))
			}
		}
	}
	for _, key := range []string{"/netcraq", "z"} {
		g.knows(t, p.place(t, key))
	}
	own := []string{"/netcraq/leader", livePrefix + "seal/keys", "/p/own/", "/p/own/x"}
	for _, key := range own {
		must(behind.Put(ctx, key, "own"))
	}
	noise(1 + 2 + len(own)) // The 1 counts the session's key.
	// There are fewer than 12 keys, because Go's sort, which etcd uses, keeps equal elements in
	// order only in so short lists.
	q := &spansRequests{r: rand.New(rand.NewPCG(7, 7)), keys: []string{"/a", "/b", "/netcraq", "/netcraq0", "/o", "/p/a", "/p/own", "/p/z", "z"}}
	etcd := pb.NewKVClient(direct.ActiveConnection())
	compares, ways := 0, 0
	for i := range requests(4000) {
		switch n := q.r.IntN(100); {
		case n < 30:
			both(t, i, q.read(), etcd.Range, g.Range)
		case n < 50:
			both(t, i, q.put(), etcd.Put, g.Put)
		case n < 53:
			both(t, i, q.delete(), etcd.DeleteRange, g.DeleteRange)
		case n < 55:
			key := own[q.r.IntN(len(own))]
			must(behind.Put(ctx, key, fmt.Sprint("v", i)))
			must(behind.Put(ctx, key, "own"))
			noise(2)
		default:
			txn := q.txn(2)
			if s, err := g.planCompare(txn.Compare); err != nil {
				t.Fatal(err)
			} else if compares++; len(s) > 1 {
				ways++
			}
			both(t, i, txn, etcd.Txn, g.Txn)
		}
	}
	for _, key := range append(slices.Clone(own), livePrefix+"placed/z") {
		if r, err := behind.Get(ctx, key); err != nil || len(r.Kvs) != 1 {
			t.Errorf("%s: %v, %v", key, r, err)
		}
	}
	t.Logf("%d transactions, %d of them with a condition that may hold in several ways", compares, ways)
	if ways < requests(100) {
		t.Errorf("only %d transactions have a condition that may hold in several ways", ways)
	}
	all, err := g.Range(ctx, &pb.RangeRequest{Key: []byte("\x00"), RangeEnd: []byte("\x00"), CountOnly: true})
	now, errNow := direct.Get(ctx, "\x00", clientv3.WithFromKey())
	if err != nil || errNow != nil || all.Count != now.Count {
		t.Errorf("%v, %v; %v, %v", all, err, now, errNow)
	}
}
