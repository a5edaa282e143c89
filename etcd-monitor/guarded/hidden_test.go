package guarded

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/etcd-monitor/seal"
)

// What cells are sealed with is read by nobody through a gateway, whatever he asks; and what else he asks for has the answer that an etcd without those keys gives.
func TestHidden(t *testing.T) {
	direct, behind := connect(t, startEtcd(t)), connect(t, startEtcd(t))
	g := newLiveAt(t, behind, behind, newMemory(128), nil)
	etcd := pb.NewKVClient(direct.ActiveConnection())
	ctx := t.Context()
	secret := seal.Prefix(livePrefix) + "keys"
	keys := []string{"/a", "/netcraq/a", livePrefix + "a", livePrefix + "seal", livePrefix + "seal0", livePrefix + "z", "/z", "b"}
	lease, err := g.leases.Current(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := direct.Put(ctx, g.leases.Key(lease), ""); err != nil { // so that both have the same, but for what is hidden
		t.Fatal(err)
	}
	for i, key := range keys {
		value := fmt.Sprint("value ", (i*7)%len(keys))
		if _, err := direct.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
		if _, err := behind.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := behind.Put(ctx, secret, "secret"); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*pb.RangeRequest{
		{Key: []byte(secret)}, {Key: []byte(secret), Serializable: true}, {Key: []byte(secret), KeysOnly: true}, {Key: []byte(secret), RangeEnd: []byte(secret + "\x00")},
		{Key: []byte(seal.Prefix(livePrefix)), RangeEnd: []byte(livePrefix + "seal0")}, {Key: []byte(livePrefix + "seal/a"), RangeEnd: []byte(livePrefix + "seal/z"), CountOnly: true},
	} {
		if a, err := g.Range(ctx, r); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%v: %v, %v", r, a, err)
		}
		for _, txn := range []*pb.TxnRequest{
			{Success: []*pb.RequestOp{rangeOp(r)}}, {Failure: []*pb.RequestOp{rangeOp(r)}}, {Success: []*pb.RequestOp{putOp("x", ""), rangeOp(r)}},
			{Success: []*pb.RequestOp{txnOp(&pb.TxnRequest{Failure: []*pb.RequestOp{rangeOp(r)}})}},
		} {
			if a, err := g.Txn(ctx, txn); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%v: %v, %v", txn, a, err)
			}
		}
	}
	value := func(key, end string) *pb.TxnRequest {
		return &pb.TxnRequest{Compare: []*pb.Compare{{Target: pb.Compare_VALUE, Result: pb.Compare_GREATER, Key: []byte(key), RangeEnd: []byte(end), TargetUnion: &pb.Compare_Value{Value: []byte("s")}}}}
	}
	for _, txn := range []*pb.TxnRequest{value(secret, ""), value("/", "0"), value("\x00", "\x00"), {Success: []*pb.RequestOp{txnOp(value(secret, ""))}}} {
		if a, err := g.Txn(ctx, txn); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%v: %v, %v", txn, a, err)
		}
	}
	if a, err := g.Txn(ctx, value("/a", "/b")); err != nil || !a.Succeeded {
		t.Errorf("a comparison of other keys: %v, %v", a, err)
	}

	spans := []span{{"\x00", "\x00"}, {"/", "0"}, {"/", "\x00"}, {livePrefix, livePrefix[:len(livePrefix)-1] + "0"}, {livePrefix + "seal", livePrefix + "seal1"}, {livePrefix + "seal/x", "z"}, {livePrefix + "a", livePrefix + "seal/x"}}
	r := rand.New(rand.NewPCG(7, 7))
	compared, two := 0, 0
	for i := range 4000 {
		sp := spans[r.IntN(len(spans))]
		q := &pb.RangeRequest{Key: []byte(sp.key), RangeEnd: []byte(sp.end), SortOrder: pb.RangeRequest_SortOrder(r.IntN(3)), SortTarget: pb.RangeRequest_SortTarget(r.IntN(5)), Limit: int64(r.IntN(12)),
			KeysOnly: r.IntN(4) == 0, CountOnly: r.IntN(5) == 0, Serializable: r.IntN(3) == 0}
		if r.IntN(4) == 0 {
			q.MaxModRevision = int64(1 + r.IntN(12))
		}
		if len(g.visible(sp.key, sp.end)) == 2 {
			two++
		}
		ask := func(kv interface {
			Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error)
		}) *pb.RangeResponse {
			a, err := kv.Range(ctx, q)
			if err != nil {
				t.Fatalf("%d: %v: %v", i, q, err)
			}
			return a
		}
		want, got := ask(asServer{etcd}), ask(g)
		if i%2 == 1 { // within a transaction
			a, err := g.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{rangeOp(rangeOf("b")), rangeOp(q)}})
			if err != nil || len(a.Responses) != 2 || string(a.Responses[0].GetResponseRange().Kvs[0].Key) != "b" {
				t.Fatalf("%v: %v, %v", q, a, err)
			}
			got = a.Responses[1].GetResponseRange()
		}
		if !sameKeys(want, got) {
			t.Fatalf("%d: %v:\netcd answers\n%v\nthe gateway\n%v", i, q, want, got)
		}
		compared++
	}
	if compared == 0 || two == 0 {
		t.Error("too little was compared")
	}
}

// asServer is a client as a server.
type asServer struct{ pb.KVClient }

func (a asServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return a.KVClient.Range(ctx, r)
}

// sameKeys compares two answers by their keys, how many there are, and whether there are more. (Etcd's order of keys that are equal in what they are sorted by is not always the same.)
func sameKeys(want, got *pb.RangeResponse) bool {
	if want.Count != got.Count || want.More != got.More || len(want.Kvs) != len(got.Kvs) {
		return false
	}
	for i := range want.Kvs {
		if string(want.Kvs[i].Key) != string(got.Kvs[i].Key) || string(want.Kvs[i].Value) != string(got.Kvs[i].Value) {
			return false
		}
	}
	return true
}
