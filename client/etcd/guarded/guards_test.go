package guarded

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// meeting provides slots that can make each operation wait until several operations are under way.
type meeting struct {
	*memory
	several int

	mu    sync.Mutex
	there int
	met   chan struct{}
	on    bool
	alone int // operations that waited in vain for other operations
}

func (m *meeting) meet() {
	m.mu.Lock()
	if !m.on {
		m.mu.Unlock()
		return
	}
	if m.there == 0 {
		m.met = make(chan struct{})
	}
	met := m.met
	if m.there++; m.there == m.several {
		m.there = 0
		close(met)
	}
	m.mu.Unlock()
	select {
	case <-met:
	case <-time.After(20 * time.Second):
		m.mu.Lock()
		m.alone++
		m.on = false
		m.mu.Unlock()
	}
}

func (m *meeting) begin(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on = on
}

func (m *meeting) Read(ctx context.Context, id wire.Key) ([]byte, wire.Version, error) {
	m.meet()
	return m.memory.Read(ctx, id)
}

func (m *meeting) CAS(ctx context.Context, id wire.Key, expected wire.Version, value []byte) (wire.Version, error) {
	m.meet()
	return m.memory.CAS(ctx, id, expected, value)
}

// A transaction guards and publishes its keys in parallel.
func TestSideBySide(t *testing.T) {
	m := &meeting{memory: newMemory(64), several: 3}
	s := &scene{t: t, endpoint: startEtcd(t), slots: m.memory}
	s.liveGateway = newLive(t, s.endpoint, m, nil)
	s.p = newPlacement(connect(t, s.endpoint), m.memory)
	var ops []*pb.RequestOp
	var entries []placement.Entry
	for i := range m.several {
		key := fmt.Sprint("k", i)
		e := s.place(key)
		entries = append(entries, e)
		s.put(putOf(key, "first"))
		s.settles(e, slotcodec.Value)
		ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: putOf(key, "second")}})
	}
	m.begin(true)
	if _, err := s.Txn(t.Context(), &pb.TxnRequest{Success: ops}); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		s.settles(e, slotcodec.Value)
	}
	m.begin(false)
	if m.alone > 0 || m.there > 0 {
		t.Errorf("%d operations waited for the others in vain, %d are waiting", m.alone, m.there)
	}
	for i := range m.several {
		if v, _, network := s.reads(fmt.Sprint("k", i)); v != "second" || !network {
			t.Errorf("%q, by the network %v", v, network)
		}
	}
}

// counting provides slots and counts their changes.
type counting struct {
	*memory
	changes atomic.Int64
}

func (c *counting) CAS(ctx context.Context, id wire.Key, expected wire.Version, value []byte) (wire.Version, error) {
	c.changes.Add(1)
	return c.memory.CAS(ctx, id, expected, value)
}

// waiting is an etcd client that calls until before each transaction.
type waiting struct {
	pb.KVClient
	until func()
}

func (w waiting) Txn(ctx context.Context, r *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	w.until()
	return w.KVClient.Txn(ctx, r, opts...)
}

// A guard is handed from each write to the next, and the last of these writes publishes its result.
// After inARow writes, another gateway may take the guard.
func TestHandedOn(t *testing.T) {
	const writes = 4 * inARow
	c := &counting{memory: newMemory(64)}
	s := &scene{t: t, endpoint: startEtcd(t), slots: c.memory}
	var together atomic.Bool
	s.liveGateway = newLive(t, s.endpoint, c, func(cfg *Config) {
		cfg.Etcd = waiting{cfg.Etcd, func() {
			if !together.Load() {
				return
			}
			until(t, "all writes are there", func() bool {
				s.queues.mu.Lock()
				defer s.queues.mu.Unlock()
				k := s.queues.keys["k"]
				return k != nil && len(k.turns) == writes
			})
			together.Store(false)
		}}
	})
	s.p = newPlacement(connect(t, s.endpoint), c.memory)
	e := s.place("k")
	s.put(putOf("k", "first"))
	s.settles(e, slotcodec.Value)
	before := c.changes.Load()
	together.Store(true)
	var all sync.WaitGroup
	for i := range writes {
		all.Go(func() { s.put(putOf("k", fmt.Sprint(i))) })
	}
	all.Wait()
	s.settles(e, slotcodec.Value)
	if n := c.changes.Load() - before; n != 2*writes/inARow {
		t.Errorf("%d changes of the slot for %d writes; want a guard and a publication for %d of them", n, writes, inARow)
	}
	got, there, network := s.reads("k")
	r, err := s.client.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if !there || !network || got != string(r.Kvs[0].Value) {
		t.Errorf("the slot has %q (%v, by the network %v), and etcd %q", got, there, network, r.Kvs[0].Value)
	}
}

// A write guards several keys in parallel, and another gateway holds the guard of one of these
// keys. Before the write waits for that key, it releases the guards of later keys, because the
// other gateway may need them.
func TestGivenBack(t *testing.T) {
	c := &counting{memory: newMemory(64)}
	s := &scene{t: t, endpoint: startEtcd(t), slots: c.memory}
	s.liveGateway = newLive(t, s.endpoint, c, nil)
	s.p = newPlacement(connect(t, s.endpoint), c.memory)
	other := newLive(t, s.endpoint, c.memory, nil)
	lease, err := other.leases.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, b := s.place("a"), s.place("b")
	other.knows(t, b)
	for key, e := range map[string]placement.Entry{"a": a, "b": b} {
		s.put(putOf(key, "first"))
		s.settles(e, slotcodec.Value)
	}
	_, version := s.slots.bytes(wire.Key(a.ID))
	others := slotcodec.Cell{Kind: slotcodec.Guard, Lease: lease, Number: 1}
	s.slots.write(wire.Key(a.ID), sealed(t, a, "a", version+1, others))
	before := c.changes.Load()
	done := make(chan error, 1)
	go func() {
		_, err := s.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestPut{RequestPut: putOf("a", "second")}},
			{Request: &pb.RequestOp_RequestPut{RequestPut: putOf("b", "second")}},
		}})
		done <- err
	}()
	until(t, "b was guarded and given back", func() bool {
		// One of the three changes is the failed attempt to guard a.
		return c.changes.Load() == before+3 && s.slots.kind(wire.Key(b.ID)) == slotcodec.Value
	})
	if _, err := other.Put(t.Context(), putOf("b", "between")); err != nil {
		t.Error(err)
	}
	select {
	case err := <-done:
		t.Fatalf("the write of a key that is guarded by another ended: %v", err)
	default:
	}
	s.slots.write(wire.Key(a.ID), sealed(t, a, "a", version+2, slotcodec.Cell{Kind: slotcodec.Clear}))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		if v, _, _ := s.reads(key); v != "second" {
			t.Errorf("%s is %q", key, v)
		}
	}
}

// A key that is written again is guarded without reading its slot first. If another gateway has
// changed the slot, the slot is read.
func TestWrittenAgain(t *testing.T) {
	m := &reading{memory: newMemory(64)}
	s := &scene{t: t, endpoint: startEtcd(t), slots: m.memory}
	s.liveGateway = newLive(t, s.endpoint, m, nil)
	s.p = newPlacement(connect(t, s.endpoint), m.memory)
	other := newLive(t, s.endpoint, m.memory, nil)
	e := s.place("k")
	other.knows(t, e)
	s.put(putOf("k", "first"))
	s.settles(e, slotcodec.Value)
	for i, looks := range []int64{0, 0, 1, 0} {
		if looks > 0 {
			if _, err := other.Put(t.Context(), putOf("k", "another's")); err != nil {
				t.Fatal(err)
			}
			s.settles(e, slotcodec.Value)
		}
		before := m.reads.Load()
		want := fmt.Sprint(i)
		s.put(putOf("k", want))
		s.settles(e, slotcodec.Value)
		if n := m.reads.Load() - before; n != looks {
			t.Errorf("write %d: %d looks at the slot, want %d", i, n, looks)
		}
		if v, _, network := s.reads("k"); v != want || !network {
			t.Errorf("write %d: %q, by the network %v", i, v, network)
		}
	}
}

// reading provides slots and counts their reads.
type reading struct {
	*memory
	reads atomic.Int64
}

func (r *reading) Read(ctx context.Context, id wire.Key) ([]byte, wire.Version, error) {
	r.reads.Add(1)
	return r.memory.Read(ctx, id)
}

// late provides slots in which no guard is replaced until the channel `let` is closed.
type late struct {
	*memory
	let chan struct{}
}

func (l *late) CAS(ctx context.Context, id wire.Key, expected wire.Version, value []byte) (wire.Version, error) {
	if l.kind(id) == slotcodec.Guard {
		<-l.let
	}
	return l.memory.CAS(ctx, id, expected, value)
}

// A writer gets its answer before the slot has the written value. Until the slot has the value,
// etcd answers reads.
func TestPublishedLate(t *testing.T) {
	l := &late{memory: newMemory(64), let: make(chan struct{})}
	s := &scene{t: t, endpoint: startEtcd(t), slots: l.memory}
	s.liveGateway = newLive(t, s.endpoint, l, nil)
	s.p = newPlacement(connect(t, s.endpoint), l.memory)
	e := s.place("k")
	s.put(putOf("k", "v"))
	if v, _, network := s.reads("k"); v != "v" || network {
		t.Errorf("%q, by the network %v", v, network)
	}
	close(l.let)
	s.settles(e, slotcodec.Value)
	if v, _, network := s.reads("k"); v != "v" || !network {
		t.Errorf("%q, by the network %v", v, network)
	}
}
