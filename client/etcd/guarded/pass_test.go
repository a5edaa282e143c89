package guarded

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// asBytes is a server that passes requests to etcd as bytes if it can, as a relay does.
type asBytes struct {
	*Server
	passed, served atomic.Int64
}

type coded interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// do sends a request to etcd as bytes if that is possible. Otherwise it makes the server serve the
// request.
func do[Q, A coded](ctx context.Context, s *asBytes, method string, q Q, a A,
	serve func(context.Context, Q) (A, error)) (A, error) {
	b, err := q.Marshal()
	if err != nil {
		return a, err
	}
	p := s.Pass(method, b)
	if p == nil {
		s.served.Add(1)
		return serve(ctx, q)
	}
	if p.Method == "" {
		p.Method = method
	}
	var answer coded
	sent := bytes.Join(p.Request, nil)
	switch p.Method {
	case rangeMethod:
		r := new(pb.RangeRequest)
		if err := r.Unmarshal(sent); err != nil {
			return a, err
		}
		answer, err = s.Etcd.Range(ctx, r)
	default:
		r := new(pb.TxnRequest)
		if err := r.Unmarshal(sent); err != nil {
			return a, err
		}
		answer, err = s.Etcd.Txn(ctx, r)
	}
	if err != nil {
		if p.Refused != nil && p.Refused(status.Code(err), status.Convert(err).Message()) {
			return serve(ctx, q)
		}
		return a, err
	}
	got, err := answer.Marshal()
	if err != nil {
		return a, err
	}
	if p.See != nil {
		p.See(got[:min(len(got), 64)])
	}
	if p.Answer != nil {
		parts, ok := p.Answer(got)
		if !ok {
			return serve(ctx, q)
		}
		got = bytes.Join(parts, nil)
	}
	s.passed.Add(1)
	return a, a.Unmarshal(got)
}

func (s *asBytes) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	return do(ctx, s, rangeMethod, q, new(pb.RangeResponse), s.Server.Range)
}

func (s *asBytes) Put(ctx context.Context, q *pb.PutRequest) (*pb.PutResponse, error) {
	return do(ctx, s, putMethod, q, new(pb.PutResponse), s.Server.Put)
}

func (s *asBytes) DeleteRange(ctx context.Context, q *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return do(ctx, s, deleteMethod, q, new(pb.DeleteRangeResponse), s.Server.DeleteRange)
}

func (s *asBytes) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	return do(ctx, s, txnMethod, q, new(pb.TxnResponse), s.Server.Txn)
}

// TestPassFenced checks that a passed write does nothing at etcd if a key that it may change was
// placed and this gateway does not know that yet. Then the server serves the write, under the key's
// guard.
func TestPassFenced(t *testing.T) {
	slots := newMemory(128)
	g := newLive(t, startEtcd(t), slots, nil)
	p := newPlacement(g.client, slots)
	s := &asBytes{Server: g.Server}
	put, err := putOf("k", "1").Marshal()
	if err != nil {
		t.Fatal(err)
	}
	before := s.Pass(putMethod, put)
	if before == nil {
		t.Fatal("a key that is not placed is not passed")
	}
	e := p.place(t, "k")
	q := new(pb.TxnRequest)
	if err := q.Unmarshal(bytes.Join(before.Request, nil)); err != nil {
		t.Fatal(err)
	}
	r, err := s.Etcd.Txn(t.Context(), q)
	if err != nil || r.Succeeded {
		t.Fatalf("a write past the guard: %v, %v", r, err)
	}
	b, _ := r.Marshal()
	if _, ok := before.Answer(b); ok {
		t.Error("it is taken for an answer")
	}
	g.knows(t, e)
	if s.Pass(putMethod, put) != nil {
		t.Error("a placed key is passed")
	}
	if _, err := s.Put(t.Context(), putOf("k", "2")); err != nil || s.served.Load() != 1 {
		t.Error(err, s.served.Load())
	}
}

// TestPassDoubt checks that some requests are not passed as bytes. These are requests with two
// keys, of which etcd takes the last one, requests with an unknown field, and requests with
// reserved keys.
func TestPassDoubt(t *testing.T) {
	slots := newMemory(128)
	g := newLive(t, startEtcd(t), slots, nil)
	key := func(k string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, putKeyField, protowire.BytesType), k)
	}
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 1)
	number := protowire.AppendVarint(protowire.AppendTag(nil, putKeyField, protowire.VarintType), 1)
	if g.Pass(putMethod, key("a")) == nil {
		t.Error("one key is not passed")
	}
	for name, b := range map[string][]byte{
		"two keys":      slices.Concat(key("a"), key(livePrefix+"placed/a")),
		"unknown field": slices.Concat(key("a"), unknown),
		"no key":        nil,
		"a number":      number,
		"cut":           key("abc")[:3],
		"reserved":      key(livePrefix + "placed/a"),
	} {
		if g.Pass(putMethod, b) != nil {
			t.Errorf("%s: it is passed", name)
		}
	}
	for name, q := range map[string]coded{
		rangeMethod:  &pb.RangeRequest{Key: []byte("/"), RangeEnd: []byte("0")},
		deleteMethod: &pb.DeleteRangeRequest{Key: []byte("/"), RangeEnd: []byte("0")},
		txnMethod:    &pb.TxnRequest{Success: []*pb.RequestOp{putOp(livePrefix+"sessions/1", "")}},
	} {
		b, err := q.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if g.Pass(name, b) != nil {
			t.Errorf("%s of reserved keys is passed", name)
		}
	}
}
