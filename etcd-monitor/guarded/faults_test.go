package guarded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/controlplane/placed"
	"github.com/netcraq/netcraq/etcd-monitor/cell"
	"github.com/netcraq/netcraq/etcd-monitor/internal/etcdtest"
)

// scene is a gateway, slots in memory, and a placement, before an etcd of one member.
type scene struct {
	*liveGateway
	t        *testing.T
	endpoint string
	slots    *memory
	p        *placement
}

func newScene(t *testing.T, size int, change func(*Config)) *scene {
	t.Helper()
	s := &scene{t: t, endpoint: startEtcd(t), slots: newMemory(size)}
	s.liveGateway = newLive(t, s.endpoint, s.slots, change)
	s.p = newPlacement(connect(t, s.endpoint), s.slots)
	return s
}

func (s *scene) place(key string) placed.Entry {
	e := s.p.place(s.t, key)
	s.knows(s.t, e)
	return e
}

func (s *scene) put(p *pb.PutRequest) {
	s.t.Helper()
	if _, err := s.Put(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
}

// reads reads a key, and says what it has and whether the network answered.
func (s *scene) reads(key string) (value string, there, network bool) {
	s.t.Helper()
	before := s.hitCount()
	r, err := s.Range(s.t.Context(), rangeOf(key))
	if err != nil {
		s.t.Fatal(err)
	}
	if len(r.Kvs) > 0 {
		value, there = string(r.Kvs[0].Value), true
	}
	return value, there, s.hitCount() > before
}

// settles waits until a key's slot is of a kind.
func (s *scene) settles(e placed.Entry, kind cell.Kind) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("the slot of %v is %v", e.ID, kind), func() bool { return s.slots.kind(e.ID) == kind })
}

// A value that does not fit is read from etcd, and the next one that fits from the network again.
func TestTooLarge(t *testing.T) {
	s := newScene(t, 64, nil)
	e := s.place("k")
	for _, size := range []int{10, 1000, 20, 70000, 30} {
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(i * i >> 3 * 7 / 3)
		}
		if size > 100 {
			copy(value, bytes.Repeat([]byte(fmt.Sprint(size)), 1)) // and nothing else repeats
			for i := 20; i < size; i++ {
				value[i] = byte((i*2654435761 + i*i*40503) >> 11)
			}
		}
		s.put(&pb.PutRequest{Key: []byte("k"), Value: value})
		want := cell.Value
		if size > 64 {
			want = cell.Unfit
		}
		s.settles(e, want)
		got, _, network := s.reads("k")
		if got != string(value) || network != (want == cell.Value) {
			t.Errorf("%d bytes: %d were read, by the network %v; the slot is %v", size, len(got), network, s.slots.kind(e.ID))
		}
	}
}

// A key that is attached to a lease is etcd's alone: it goes when its lease does, without a word to anybody.
func TestLease(t *testing.T) {
	s := newScene(t, 64, nil)
	e := s.place("k")
	s.put(putOf("k", "without"))
	s.settles(e, cell.Value)
	g, err := s.client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	s.put(&pb.PutRequest{Key: []byte("k"), Value: []byte("leased"), Lease: int64(g.ID)})
	s.settles(e, cell.Unfit)
	if v, _, network := s.reads("k"); v != "leased" || network {
		t.Errorf("%q, by the network %v", v, network)
	}
	if _, err := s.client.Revoke(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	if _, there, _ := s.reads("k"); there {
		t.Error("the key is read after its lease has ended")
	}
	// A key that was placed while it had a lease.
	g, err = s.client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	s.put(&pb.PutRequest{Key: []byte("l"), Value: []byte("leased"), Lease: int64(g.ID)})
	l := s.place("l")
	s.reads("l")
	s.settles(l, cell.Unfit)
}

// Keys are any bytes.
func TestBinaryKeys(t *testing.T) {
	s := newScene(t, 64, nil)
	for _, key := range []string{"\x00", "\xff", "\x00\x00", "a\x00", "\xff\xff\xff", "\xe4", livePrefix[:len(livePrefix)-1], livePrefix[:len(livePrefix)-1] + "0"} {
		e := s.place(key)
		s.put(putOf(key, "of "+key))
		s.settles(e, cell.Value)
		if v, _, network := s.reads(key); v != "of "+key || !network {
			t.Errorf("%q: %q, by the network %v", key, v, network)
		}
	}
	if _, err := s.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}); err != nil {
		t.Fatal(err)
	}
	for _, k := range s.follower.LookupRange("\x00", open) {
		s.settles(k.Entry, cell.Absent)
		if v, there, network := s.reads(k.Name); there || !network {
			t.Errorf("%q after its deletion: %q, by the network %v", k.Name, v, network)
		}
	}
}

// A deletion by prefix is a write of all placed keys within; an absence is read from the network, until somebody creates the key.
func TestPrefixDelete(t *testing.T) {
	s := newScene(t, 64, nil)
	var entries []placed.Entry
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
		s.settles(e, cell.Absent)
		if _, there, network := s.reads(fmt.Sprintf("p/%02d", i)); there || !network {
			t.Errorf("p/%02d: there %v, by the network %v", i, there, network)
		}
	}
	if v, _, network := s.reads("p0"); v != "outside" || !network || s.slots.kind(outside.ID) != cell.Value {
		t.Errorf("p0: %q, by the network %v", v, network)
	}
	s.put(putOf("p/03", "again"))
	if v, _, _ := s.reads("p/03"); v != "again" {
		t.Errorf("p/03: %q", v)
	}
}

// What the network says is the present, which compaction does not touch; the past is etcd's.
func TestCompaction(t *testing.T) {
	s := newScene(t, 64, nil)
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, cell.Value)
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

// A network that is gone costs reads a few milliseconds, keys that are not placed nothing, and makes the others unwritable until they are taken out of it.
func TestNetworkGone(t *testing.T) {
	s := newScene(t, 64, func(c *Config) { c.Patience = 700 * time.Millisecond })
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, cell.Value)
	s.slots.down.Store(true)
	begun := time.Now()
	if v, _, network := s.reads("k"); v != "v" || network {
		t.Errorf("%q, by the network %v", v, network)
	}
	if d := time.Since(begun); d > 500*time.Millisecond {
		t.Errorf("a read took %v", d)
	}
	s.put(putOf("other", "v"))
	begun = time.Now()
	_, err := s.Put(t.Context(), putOf("k", "w"))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the network") {
		t.Errorf("a write without a network: %v", err)
	}
	if d := time.Since(begun); d < 600*time.Millisecond || d > 3*time.Second {
		t.Errorf("it was refused after %v", d)
	}
	s.counter.mu.Lock()
	if !slices.Contains(s.evict, "k") {
		t.Errorf("nobody was asked to take k out of the network, but %q", s.evict)
	}
	s.counter.mu.Unlock()
	// It is taken out while a write waits.
	time.AfterFunc(100*time.Millisecond, func() { s.p.remove(t, "k") })
	if _, err := s.Put(t.Context(), putOf("k", "x")); err != nil {
		t.Errorf("a write of a key that is taken out of the network: %v", err)
	}
	if v, _, _ := s.reads("k"); v != "x" {
		t.Errorf("%q; want x", v)
	}
}

// A slot that is gone while its entry is there (its removal was begun by somebody who died) makes writes wait and reads go to etcd, and nothing is put into it.
func TestHalfRemoved(t *testing.T) {
	s := newScene(t, 64, func(c *Config) { c.Patience = 300 * time.Millisecond })
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, cell.Value)
	s.slots.mu.Lock()
	s.slots.slots[e.ID].gone = true
	s.slots.mu.Unlock()
	for range 3 {
		if v, _, network := s.reads("k"); v != "v" || network {
			t.Errorf("%q, by the network %v", v, network)
		}
	}
	if _, err := s.Put(t.Context(), putOf("k", "w")); status.Code(err) != codes.Unavailable {
		t.Errorf("a write: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { s.p.remove(t, "k") })
	s.put(putOf("k", "w"))
	if v, _, _ := s.reads("k"); v != "w" {
		t.Errorf("%q; want w", v)
	}
}

// The guard of a gateway that died is lifted when its session has run out, not before, by readers alone.
func TestDeadGateway(t *testing.T) {
	s := newScene(t, 64, nil)
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, cell.Value)
	g, err := s.client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Put(t.Context(), s.leases.Key(int64(g.ID)), "", clientv3.WithLease(g.ID)); err != nil {
		t.Fatal(err)
	}
	b, err := s.Codec.Codec().Encode(cell.Cell{Kind: cell.Guard, Lease: int64(g.ID), Number: 5}, 64)
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := s.slots.Read(t.Context(), e.ID)
	if _, err := s.slots.CAS(t.Context(), e.ID, version, b); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if v, _, network := s.reads("k"); v != "v" || network || s.slots.kind(e.ID) != cell.Guard {
			t.Fatalf("%q, by the network %v, slot %v, while the session is there", v, network, s.slots.kind(e.ID))
		}
	}
	blocked, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Put(blocked, putOf("k", "w")); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a write while another's guard is there: %v", err)
	}
	if _, err := s.client.Revoke(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	until(t, "the network answers again", func() bool {
		v, _, network := s.reads("k")
		return v == "v" && network
	})
}

// If it is not known whether a write was executed, the session ends, the write cannot land any more, and the key comes back into use.
func TestUnknownOutcome(t *testing.T) {
	var held *hold
	s := newScene(t, 64, func(c *Config) {
		held = &hold{KVClient: c.Etcd}
		c.Etcd = held
	})
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, cell.Value)
	lease, err := s.leases.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held.next = true
	if _, err := s.Put(t.Context(), putOf("k", "late")); status.Code(err) != codes.Unavailable {
		t.Fatalf("a write whose answer is lost: %v", err)
	}
	if s.slots.kind(e.ID) != cell.Guard {
		t.Errorf("the slot is %v; want a guard", s.slots.kind(e.ID))
	}
	until(t, "there is another session", func() bool {
		now, err := s.leases.Current(t.Context())
		return err == nil && now != lease
	})
	s.put(putOf("k", "w"))
	if r, err := held.KVClient.Txn(t.Context(), held.request); err != nil || r.Succeeded {
		t.Errorf("the late write was executed: %v, %v", r, err)
	}
	s.settles(e, cell.Value)
	if v, _, network := s.reads("k"); v != "w" || !network {
		t.Errorf("%q, by the network %v", v, network)
	}
}

// hold keeps a transaction back, once.
type hold struct {
	pb.KVClient
	next    bool
	request *pb.TxnRequest
}

func (h *hold) Txn(ctx context.Context, r *pb.TxnRequest, o ...grpc.CallOption) (*pb.TxnResponse, error) {
	if h.next {
		h.next, h.request = false, r
		return nil, status.Error(codes.Unavailable, "the answer is lost")
	}
	return h.KVClient.Txn(ctx, r, o...)
}

// Clients that do not wait leave nothing behind.
func TestImpatientClients(t *testing.T) {
	s := newScene(t, 64, nil)
	s.slots.setFaults(0.2)
	e := s.place("k")
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%7)*300*time.Microsecond)
		s.Put(ctx, putOf("k", fmt.Sprint(i)))
		cancel()
	}
	s.slots.setFaults(0)
	s.put(putOf("k", "last"))
	s.settles(e, cell.Value)
	if v, _, network := s.reads("k"); v != "last" || !network {
		t.Errorf("%q, by the network %v", v, network)
	}
	until(t, "nobody waits for the key", func() bool {
		s.queues.mu.Lock()
		defer s.queues.mu.Unlock()
		return len(s.queues.keys) == 0
	})
}

// Kubernetes' health check proves that etcd answers: it is not answered by the network though its key is placed.
func TestHealthKey(t *testing.T) {
	s := newScene(t, 64, nil)
	s.place("/registry/health")
	for range 3 {
		if _, there, network := s.reads("/registry/health"); there || network {
			t.Errorf("there %v, by the network %v", there, network)
		}
	}
}

// etcd takes 128 operations, and so does a gateway, whether keys are placed or not, but for transactions that do something either way: of those it takes 126.
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
		return []*pb.Compare{{Target: pb.Compare_CREATE, Result: result, Key: []byte(key), TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0}}}
	}
	for _, n := range []int{1, 100, 125, 126, 127, 128} {
		for _, prefix := range []string{"k", "not placed "} {
			r, err := txn(n, prefix, nil, nil)
			if err != nil || !r.Succeeded || len(r.Responses) != n || r.Responses[n-1].GetResponsePut().GetHeader().GetRevision() != r.Header.Revision {
				t.Errorf("%d operations on %q: %v, %v", n, prefix, r, err)
			}
			before := s.Revision()
			if r, err = txn(n, prefix, is(prefix+"000", false), nil); err != nil || r.Succeeded || len(r.Responses) != 0 || s.Revision() != before {
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
		s.settles(e, cell.Value)
	}
	if _, err := txn(129, "k", nil, nil); !errors.Is(err, rpctypes.ErrGRPCTooManyOps) {
		t.Errorf("129 operations: %v", err)
	}
	for n, want := range map[int]error{126: nil, 127: rpctypes.ErrGRPCTooManyOps} {
		if _, err := txn(n, "k", is("k000", true), []*pb.RequestOp{putOp("k", "")}); !errors.Is(err, want) {
			t.Errorf("%d operations, or another one: %v; want %v", n, err, want)
		}
	}
	if v, _, _ := s.reads("k000"); v != "126" {
		t.Errorf("%q is read; want 126", v)
	}
	// A placement that the gateway has not heard of, and a session that has run out, are found out in either form.
	for _, n := range []int{2, 128} {
		key := fmt.Sprintf("late%d 000", n)
		late := s.p.place(t, key)
		if _, err := txn(n, fmt.Sprintf("late%d ", n), nil, nil); err != nil {
			t.Error(err)
		}
		if kind := s.slots.kind(late.ID); kind != cell.Value && n == 2 {
			t.Errorf("%d operations on a key that was just placed: its slot is %v", n, kind)
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

// A gateway whose reads are all answered by the network hears of etcd's revision nevertheless.
func TestRevisionFollows(t *testing.T) {
	s := newScene(t, 64, nil)
	everybody := NewEverybody(s.client, livePrefix, s.counter)
	t.Cleanup(everybody.Close)
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, cell.Value)
	other, err := connect(t, s.endpoint).Put(t.Context(), "other", "")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "an answer of the network has a revision that another gateway's client was told", func() bool {
		before := s.hitCount()
		r, err := s.Range(t.Context(), rangeOf("k"))
		if err != nil || s.hitCount() == before {
			t.Fatalf("%v, %v: not from the network", r, err)
		}
		return r.Header.Revision >= other.Header.Revision
	})
}

// Where etcd looks at who asks, it is etcd that answers, and nobody gets around it.
func TestAuthentication(t *testing.T) {
	var everybody *Everybody
	s := &scene{t: t, endpoint: startEtcd(t), slots: newMemory(64)}
	own := etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{s.endpoint}, Username: "gateway", Password: "g"}) // there is no such user yet, and nobody asks
	s.liveGateway = newLiveAt(t, own, connect(t, s.endpoint), s.slots, func(c *Config) { c.Open = func() bool { return everybody.Open() } })
	s.p = newPlacement(own, s.slots)
	everybody = NewEverybody(s.client, livePrefix, s.counter)
	t.Cleanup(everybody.Close)
	until(t, "everybody may read", everybody.Open)
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, cell.Value)
	if _, _, network := s.reads("k"); !network {
		t.Fatal("not read from the network")
	}
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.client.UserAdd(ctx, "root", "r"))
	must(s.client.UserGrantRole(ctx, "root", "root"))
	must(s.client.UserAdd(ctx, "u", "u"))
	must(s.client.RoleAdd(ctx, "writer"))
	must(s.client.RoleGrantPermission(ctx, "writer", "k", "", clientv3.PermissionType(clientv3.PermReadWrite)))
	must(s.client.UserGrantRole(ctx, "u", "writer"))
	must(s.client.UserAdd(ctx, "gateway", "g"))
	must(s.client.RoleAdd(ctx, "gateway"))
	must(s.client.RoleGrantPermission(ctx, "gateway", livePrefix, after(livePrefix), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(s.client.UserGrantRole(ctx, "gateway", "gateway"))
	must(s.client.AuthEnable(ctx))
	until(t, "not everybody may read", func() bool { return !everybody.Open() })
	if _, err := s.Range(ctx, rangeOf("k")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a read by nobody: %v", err)
	}
	as := func(name, password string) (context.Context, *clientv3.Client) {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint}, Username: name, Password: password})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		token, err := s.client.Authenticate(ctx, name, password)
		if err != nil {
			t.Fatal(err)
		}
		return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token.Token), c
	}
	asUser, _ := as("u", "u")
	asRoot, root := as("root", "r")
	if r, err := s.Range(asUser, rangeOf("k")); err != nil || string(r.Kvs[0].Value) != "v" {
		t.Errorf("a read by who may: %v, %v", r, err)
	}
	if _, err := s.Range(asUser, rangeOf("other")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a read by who may not: %v", err)
	}
	// A write is conditional on keys under the prefix, which its user has to be allowed to read.
	if _, err := s.Put(asUser, putOf("k", "w")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a write by who may not read the prefix: %v", err)
	}
	must(root.RoleGrantPermission(asRoot, "writer", livePrefix, after(livePrefix), clientv3.PermissionType(clientv3.PermRead)))
	if _, err := s.Put(asUser, putOf("k", "w")); err != nil {
		t.Errorf("a write by who may: %v", err)
	}
	if r, err := s.Range(asUser, rangeOf("k")); err != nil || string(r.Kvs[0].Value) != "w" {
		t.Errorf("a read by who may: %v, %v", r, err)
	}
	if s.slots.kind(e.ID) == cell.Guard {
		t.Error("the guard was left")
	}
	must(root.AuthDisable(ctx))
	until(t, "the network answers again", func() bool {
		v, _, network := s.reads("k")
		return v == "w" && network
	})
}

// With etcd's leader gone, and with its quorum gone, reads of placed keys are answered, writes are refused in time, and nothing is wrong afterwards.
func TestCluster(t *testing.T) {
	cluster := etcdtest.New(t, 3, etcdtest.Options{})
	slots := newMemory(64)
	client := etcdtest.Client(t, cluster.Endpoints()...)
	g := newLiveAt(t, client, client, slots, nil)
	s := &scene{liveGateway: g, t: t, slots: slots, p: newPlacement(client, slots)}
	e := s.place("k")
	s.put(putOf("k", "0"))
	s.settles(e, cell.Value)

	last := "0"
	write := func(value string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := s.Put(ctx, putOf("k", value))
		if d := time.Since(begun); d > 3*time.Second {
			t.Errorf("a write took %v", d)
		}
		return err
	}
	// The leader dies: soon after, writes are done again. What was not acknowledged may or may not have been.
	leader := cluster.Leader()
	cluster.Stop(leader)
	written := 1
	until(t, "a write is done with another leader", func() bool {
		last = fmt.Sprint(written)
		written++
		return write(last) == nil
	})
	s.settles(e, cell.Value)
	if v, _, network := s.reads("k"); v != last || !network {
		t.Errorf("%q, by the network %v; want %s", v, network, last)
	}

	// The quorum is gone.
	other := (leader + 1) % 3
	cluster.Stop(other)
	if v, _, network := s.reads("k"); v != last || !network {
		t.Errorf("without a quorum: %q, by the network %v; want %s", v, network, last)
	}
	if err := write("never"); err == nil {
		t.Error("a write was done without a quorum")
	}
	cluster.Start(leader)
	cluster.Start(other)
	until(t, "a write is done with a quorum", func() bool {
		last = fmt.Sprint(written)
		written++
		return write(last) == nil
	})
	until(t, "the network answers again", func() bool {
		v, _, network := s.reads("k")
		if v != last {
			t.Fatalf("%q is read; want %s", v, last)
		}
		return network
	})
}
