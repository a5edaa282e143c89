package guarded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/client/etcd/guardedshell"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

const livePrefix = placement.DefaultPrefix

func startEtcd(t testing.TB) string {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{DataDir: t.TempDir(), LogOutput: filepath.Join(
		t.TempDir(), "log"), LogLevel: "error", Adjust: etcdtest.Quick})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Endpoint()
}

func connect(t testing.TB, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// memory provides slots in memory, for tests that need no network. A CAS may be executed without an
// answer, late, or not at all.
type memory struct {
	mu     sync.Mutex
	slots  map[wire.Key]*simSlot
	size   int
	faults float64     // probability of a fault
	down   atomic.Bool // while true, no slot answers
}

func newMemory(size int) *memory { return &memory{slots: map[wire.Key]*simSlot{}, size: size} }

var errSilent = errors.New("no answer")

func (m *memory) fault() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return rand.Float64() < m.faults
}

func (m *memory) setFaults(p float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = p
}

// Size returns 0 while no slot answers. In a real gateway, this happens before the controller has
// named a chain.
func (m *memory) Size(wire.Key) int {
	if m.down.Load() {
		return 0
	}
	return m.size
}

func (m *memory) Silent(wire.Key) bool { return false }

func (m *memory) Read(_ context.Context, id wire.Key) ([]byte, wire.Version, error) {
	if m.down.Load() || m.fault() {
		time.Sleep(2 * time.Millisecond)
		return nil, 0, errSilent
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[id]
	if s == nil || s.gone {
		return nil, 0, calls.ErrNotFound
	}
	return s.value, s.version, nil
}

func (m *memory) ReadNow(id wire.Key) ([]byte, wire.Version, bool) {
	if m.down.Load() || m.fault() {
		return nil, 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[id]
	if s == nil || s.gone {
		return nil, 0, false
	}
	return s.value, s.version, true
}

func (m *memory) CAS(_ context.Context, id wire.Key, expected wire.Version, value []byte) (wire.Version, error) {
	if m.down.Load() {
		time.Sleep(2 * time.Millisecond)
		return 0, errSilent
	}
	if m.fault() {
		switch rand.IntN(3) {
		case 0:
			m.cas(id, expected, value)
		case 1:
			time.AfterFunc(time.Duration(rand.IntN(30))*time.Millisecond, func() { m.cas(id, expected, value) })
		}
		return 0, errSilent
	}
	return m.cas(id, expected, value)
}

func (m *memory) cas(id wire.Key, expected wire.Version, value []byte) (wire.Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slots[id]
	switch {
	case s == nil || s.gone:
		return 0, calls.ErrNotFound
	case s.version != expected:
		return 0, calls.ErrCASFailed
	}
	s.value = value
	s.version++
	return s.version, nil
}

// add makes a slot, and returns its version.
func (m *memory) add(id wire.Key) wire.Version {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slots[id] = &simSlot{value: []byte(slotcodec.Unsealed), version: 1}
	return 1
}

// write writes a slot as a program that is not a gateway could.
func (m *memory) write(id wire.Key, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slots[id].value = value
	m.slots[id].version++
}

// bytes returns the content and the version of a slot.
func (m *memory) bytes(id wire.Key) ([]byte, wire.Version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slots[id].value, m.slots[id].version
}

// remove writes a tombstone into a slot, and then removes the slot.
func (m *memory) remove(id wire.Key) {
	m.mu.Lock()
	m.slots[id].version++
	m.slots[id].gone = true
	m.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	m.mu.Lock()
	delete(m.slots, id)
	m.mu.Unlock()
}

// kind returns the kind of the cell in a slot.
func (m *memory) kind(id wire.Key) slotcodec.Kind {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.slots[id]; s != nil && !s.gone {
		kind, _, _, err := slotcodec.ReadSlot(s.value)
		if err != nil {
			return 0
		}
		return slotcodec.Kind(kind)
	}
	return 0
}

// counter implements Newest and Observer, and counts events.
type counter struct {
	nobody
	newest atomic.Int64
	mu     sync.Mutex
	hits   int
	misses map[string]int
	evict  []string
	faults []placement.Fault
	found  int // number of forged slots
}

func (c *counter) Revision() int64 { return c.newest.Load() }

func (c *counter) Saw(revision int64) {
	for now := c.newest.Load(); now < revision && !c.newest.CompareAndSwap(now, revision); now = c.newest.Load() {
	}
}

func (c *counter) Hit() { c.mu.Lock(); c.hits++; c.mu.Unlock() }

func (c *counter) Miss(reason string) { c.mu.Lock(); c.misses[reason]++; c.mu.Unlock() }

func (c *counter) Forged() { c.mu.Lock(); c.found++; c.mu.Unlock() }

func (c *counter) Evict(k placement.Key, fault placement.Fault, _ string) {
	c.mu.Lock()
	c.evict = append(c.evict, k.Name)
	c.faults = append(c.faults, fault)
	c.mu.Unlock()
}

func (c *counter) hitCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits
}

// fixedSeals provides the sealing keys that all gateways of these tests know.
type fixedSeals struct{ ring *seal.Ring }

func (f fixedSeals) Ring() *seal.Ring                                { return f.ring }
func (f fixedSeals) Want(_ context.Context, id uint32) (bool, error) { return f.ring.Knows(id), nil }

var liveSeals = fixedSeals{newRing()}

// sealed returns a cell as a gateway writes it into a slot. The slot then has the given version.
func sealed(t testing.TB, e placement.Entry, key string, version wire.Version, c slotcodec.Cell) []byte {
	t.Helper()
	plain, err := simCodec.c.Encode(c, 1024)
	if err != nil {
		t.Fatal(err)
	}
	b, err := liveSeals.ring.Seal(plain, seal.Place{Name: key, ID: wire.Key(e.ID), Version: version})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// liveGateway is a server in front of a real etcd.
type liveGateway struct {
	*Server
	*counter
	client   *clientv3.Client
	follower *placement.Follower
	leases   *guardedshell.Leases
	run      *guardedshell.Goroutines
	// ends the gateway as a crash would: it closes the connection to etcd and completes nothing
	kill func()
}

func newLive(t testing.TB, endpoint string, slots Slots, change func(*Config)) *liveGateway {
	t.Helper()
	client := connect(t, endpoint)
	return newLiveAt(t, client, client, slots, change)
}

// newLiveAt makes a gateway that uses one etcd client for its own requests and another one for its
// clients' requests.
func newLiveAt(t testing.TB, own, client *clientv3.Client, slots Slots, change func(*Config)) *liveGateway {
	t.Helper()
	g := &liveGateway{counter: &counter{misses: map[string]int{}}, client: client, run: guardedshell.NewGoroutines()}
	var err error
	if g.follower, err = placement.Follow(t.Context(), own, livePrefix, nil); err != nil {
		t.Fatal(err)
	}
	g.leases = guardedshell.NewLeases(own, livePrefix, 2*time.Second, nil)
	cfg := Config{
		Etcd: pb.NewKVClient(client.ActiveConnection()), Slots: slots, Directory: g.follower,
		Sessions: g.leases, Newest: g.counter, Observer: g.counter, Evictor: g.counter,
		Codec: slotcodec.NewLibrary(own, livePrefix), Seals: liveSeals, Runtime: g.run, Prefix: livePrefix,
	}
	if change != nil {
		change(&cfg)
	}
	g.Server = New(cfg)
	var once sync.Once
	g.kill = func() {
		once.Do(func() {
			client.Close()
			g.run.Close()
			g.follower.Close()
			g.leases.Close()
		})
	}
	t.Cleanup(g.kill)
	if _, err := g.leases.Current(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

// testSlots are slots that a placement can add and remove.
type testSlots interface {
	add(wire.Key) wire.Version
	remove(wire.Key)
}

// testPlacement places keys in slots, as placement does.
type testPlacement struct {
	store placement.Store
	slots testSlots
	mu    sync.Mutex
	next  wire.Key
	at    map[string]placement.Entry
}

func newPlacement(c *clientv3.Client, slots testSlots) *testPlacement {
	return &testPlacement{store: placement.Store{KV: c, Prefix: livePrefix}, slots: slots,
		at: map[string]placement.Entry{}}
}

func (p *testPlacement) place(t testing.TB, key string) placement.Entry {
	p.mu.Lock()
	p.next++
	id := 0x01000000 | p.next
	p.mu.Unlock()
	e, err := p.store.Put(context.Background(), key, placement.Entry{ID: uint32(id), Chain: "0",
		Version: uint64(p.slots.add(id))})
	if err != nil {
		t.Errorf("placing %q: %v", key, err)
	}
	p.mu.Lock()
	p.at[key] = e
	p.mu.Unlock()
	return e
}

func (p *testPlacement) remove(t testing.TB, key string) {
	p.mu.Lock()
	e := p.at[key]
	delete(p.at, key)
	p.mu.Unlock()
	p.slots.remove(wire.Key(e.ID))
	if err := p.store.Delete(context.Background(), key, e.Mod); err != nil {
		t.Errorf("removing %q: %v", key, err)
	}
}

func until(t testing.TB, what string, so func() bool) {
	t.Helper()
	poll.Until(t, 15*time.Second, what, so)
}

// knows waits until a gateway knows a placement.
func (g *liveGateway) knows(t testing.TB, e placement.Entry) {
	until(t, fmt.Sprintf("the gateway knows revision %d", e.Mod), func() bool { return g.follower.Revision() >= e.Mod })
}

func rangeOf(key string) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte(key)} }

func putOf(key, value string) *pb.PutRequest {
	return &pb.PutRequest{Key: []byte(key), Value: []byte(value)}
}
