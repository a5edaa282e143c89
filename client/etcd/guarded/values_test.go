package guarded

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// If a value does not fit into the slot, etcd answers reads of the key. After a later value that
// fits, the slot answers again.
func TestTooLarge(t *testing.T) {
	s := newScene(t, 128, nil)
	e := s.place("k")
	for _, size := range []int{10, 1000, 20, 70000, 30} {
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(i * i >> 3 * 7 / 3)
		}
		if size > 100 {
			// The rest of the value has no repetitions, so it can hardly be compressed.
			copy(value, bytes.Repeat([]byte(fmt.Sprint(size)), 1))
			for i := 20; i < size; i++ {
				value[i] = byte((i*2654435761 + i*i*40503) >> 11)
			}
		}
		s.put(&pb.PutRequest{Key: []byte("k"), Value: value})
		want := slotcodec.Value
		if size > 128-seal.Overhead {
			want = slotcodec.Unfit
		}
		s.settles(e, want)
		got, _, network := s.reads("k")
		if got != string(value) || network != (want == slotcodec.Value) {
			t.Errorf("%d bytes: %d were read, by the network %v; the slot is %v", size, len(got), network, s.slots.kind(wire.Key(e.ID)))
		}
	}
}

// The slots do not have the state of a key that is attached to a lease, because etcd deletes such a
// key without notifying gateways.
func TestLease(t *testing.T) {
	s := newScene(t, 64, nil)
	e := s.place("k")
	s.put(putOf("k", "without"))
	s.settles(e, slotcodec.Value)
	g, err := s.client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	s.put(&pb.PutRequest{Key: []byte("k"), Value: []byte("leased"), Lease: int64(g.ID)})
	s.settles(e, slotcodec.Unfit)
	if v, _, network := s.reads("k"); v != "leased" || network {
		t.Errorf("%q, by the network %v", v, network)
	}
	if _, err := s.client.Revoke(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	if _, there, _ := s.reads("k"); there {
		t.Error("the key is read after its lease has ended")
	}
	// This key had a lease when it was placed.
	g, err = s.client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	s.put(&pb.PutRequest{Key: []byte("l"), Value: []byte("leased"), Lease: int64(g.ID)})
	l := s.place("l")
	s.reads("l")
	s.settles(l, slotcodec.Unfit)
}

// A key may contain any bytes.
func TestBinaryKeys(t *testing.T) {
	s := newScene(t, 64, nil)
	for _, key := range []string{"\x00", "\xff", "\x00\x00", "a\x00", "\xff\xff\xff", "\xe4",
		livePrefix[:len(livePrefix)-1], livePrefix[:len(livePrefix)-1] + "0"} {
		e := s.place(key)
		s.put(putOf(key, "of "+key))
		s.settles(e, slotcodec.Value)
		if v, _, network := s.reads(key); v != "of "+key || !network {
			t.Errorf("%q: %q, by the network %v", key, v, network)
		}
	}
	if _, err := s.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}); err != nil {
		t.Fatal(err)
	}
	for _, k := range s.follower.LookupRange("\x00", open) {
		s.settles(k.Entry, slotcodec.Absent)
		if v, there, network := s.reads(k.Name); there || !network {
			t.Errorf("%q after its deletion: %q, by the network %v", k.Name, v, network)
		}
	}
}

// A deletion by prefix is a write of all placed keys with the prefix. After it, slots answer that
// their keys are absent, until the keys are created again.
func TestPrefixDelete(t *testing.T) {
	s := newScene(t, 64, nil)
	var entries []placement.Entry
	for i := range 20 {
		entries = append(entries, s.place(fmt.Sprintf("p/%02d", i)))
		s.put(putOf(fmt.Sprintf("p/%02d", i), "v"))
	}
	outside := s.place("p0")
	s.put(putOf("p0", "outside"))
	r, err := s.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("p/"), RangeEnd: []byte("p0")})
	if err != nil || r.Deleted != 20 {
		t.Fatalf("%v, %v", r, err)
	}
	for i, e := range entries {
		s.settles(e, slotcodec.Absent)
		if _, there, network := s.reads(fmt.Sprintf("p/%02d", i)); there || !network {
			t.Errorf("p/%02d: there %v, by the network %v", i, there, network)
		}
	}
	if v, _, network := s.reads("p0"); v != "outside" || !network || s.slots.kind(wire.Key(outside.ID)) != slotcodec.Value {
		t.Errorf("p0: %q, by the network %v", v, network)
	}
	s.put(putOf("p/03", "again"))
	if v, _, _ := s.reads("p/03"); v != "again" {
		t.Errorf("p/03: %q", v)
	}
}

// Slots have only the present state, which compaction does not affect. etcd answers reads of older
// revisions.
func TestCompaction(t *testing.T) {
	s := newScene(t, 64, nil)
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, slotcodec.Value)
	for range 5 {
		s.put(putOf("other", "v"))
	}
	now := s.Revision()
	if _, err := s.Compact(t.Context(), &pb.CompactionRequest{Revision: now}); err != nil {
		t.Fatal(err)
	}
	if v, _, network := s.reads("k"); v != "v" || !network {
		t.Errorf("%q, by the network %v", v, network)
	}
	past := rangeOf("k")
	past.Revision = now - 2
	if _, err := s.Range(t.Context(), past); status.Code(err) != codes.OutOfRange {
		t.Errorf("a compacted revision: %v", err)
	}
	past.Revision = now
	if r, err := s.Range(t.Context(), past); err != nil || len(r.Kvs) != 1 {
		t.Errorf("the newest revision: %v, %v", r, err)
	}
}

// Kubernetes' health check tests whether etcd answers. So etcd answers it even if its key is
// placed.
func TestHealthKey(t *testing.T) {
	s := newScene(t, 64, nil)
	s.place("/registry/health")
	for range 3 {
		if _, there, network := s.reads("/registry/health"); there || network {
			t.Errorf("there %v, by the network %v", there, network)
		}
	}
}

// A gateway accepts 128 operations, as etcd does, whether the keys are placed or not.
func TestManyOperations(t *testing.T) {
	s := newScene(t, 64, nil)
	e := s.place("k000")
	txn := func(n int, prefix string, compare []*pb.Compare, failure []*pb.RequestOp) (*pb.TxnResponse, error) {
		q := &pb.TxnRequest{Compare: compare, Failure: failure}
		for i := range n {
			q.Success = append(q.Success, putOp(fmt.Sprintf("%s%03d", prefix, i), fmt.Sprint(n)))
		}
		return s.Txn(t.Context(), q)
	}
	is := func(key string, there bool) []*pb.Compare {
		result := pb.Compare_GREATER
		if !there {
			result = pb.Compare_EQUAL
		}
		return []*pb.Compare{{Target: pb.Compare_CREATE, Result: result, Key: []byte(key),
			TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0}}}
	}
	for _, n := range []int{1, 100, 125, 126, 127, 128} {
		for _, prefix := range []string{"k", "not placed "} {
			r, err := txn(n, prefix, nil, nil)
			if err != nil || !r.Succeeded || len(r.Responses) != n ||
				r.Responses[n-1].GetResponsePut().GetHeader().GetRevision() != r.Header.Revision {
				t.Errorf("%d operations on %q: %v, %v", n, prefix, r, err)
			}
			before := s.Revision()
			if r, err = txn(n, prefix, is(prefix+"000", false), nil); err != nil || r.Succeeded ||
				len(r.Responses) != 0 || s.Revision() != before {
				t.Errorf("%d operations on %q on a condition that does not hold: %v, %v", n, prefix, r, err)
			}
			if r, err = txn(n, prefix, is(prefix+"000", true), nil); err != nil || !r.Succeeded || len(r.Responses) != n {
				t.Errorf("%d operations on %q on a condition that holds: %v, %v", n, prefix, r, err)
			}
		}
		if v, _, _ := s.reads("k000"); v != fmt.Sprint(n) {
			t.Errorf("%d operations: %q is read", n, v)
		}
		s.reads("k000")
		s.settles(e, slotcodec.Value)
	}
	if _, err := txn(129, "k", nil, nil); !errors.Is(err, rpctypes.ErrGRPCTooManyOps) {
		t.Errorf("129 operations: %v", err)
	}
	for n, want := range map[int]error{126: nil, 127: nil, 128: nil, 129: rpctypes.ErrGRPCTooManyOps} {
		r, err := txn(n, "k", is("k000", true), []*pb.RequestOp{putOp("k", "")})
		if !errors.Is(err, want) {
			t.Errorf("%d operations, or another one: %v; want %v", n, err, want)
			continue
		}
		if v, _, _ := s.reads("k000"); want == nil && (len(r.Responses) != n || v != fmt.Sprint(n)) {
			t.Errorf("%d operations: %q is read after %v", n, v, r)
		}
	}
	// With few and with many operations, the gateway sends different forms of the transaction. In
	// both, it detects a placement that it does not know yet, and a session that has expired.
	for _, n := range []int{2, 128} {
		key := fmt.Sprintf("late%d 000", n)
		late := s.p.place(t, key)
		if _, err := txn(n, fmt.Sprintf("late%d ", n), nil, nil); err != nil {
			t.Error(err)
		}
		if n == 2 {
			s.settles(late, slotcodec.Value)
		}
		lease, err := s.leases.Current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.client.Delete(t.Context(), s.leases.Key(lease)); err != nil {
			t.Fatal(err)
		}
		if _, err := txn(n, fmt.Sprintf("late%d ", n), nil, nil); err != nil {
			t.Error(err)
		}
		if now, err := s.leases.Current(t.Context()); err != nil || now == lease {
			t.Errorf("%d operations: session %x, %v, after it has run out", n, now, err)
		}
	}
}
