package guarded

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/guardedshell"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// scene is a gateway in front of an etcd with one member. Its slots are in memory, and it has a
// placement.
type scene struct {
	*liveGateway
	t        *testing.T
	endpoint string
	slots    *memory
	p        *testPlacement
}

func newScene(t *testing.T, size int, change func(*Config)) *scene {
	t.Helper()
	s := &scene{t: t, endpoint: startEtcd(t), slots: newMemory(size)}
	s.liveGateway = newLive(t, s.endpoint, s.slots, change)
	s.p = newPlacement(connect(t, s.endpoint), s.slots)
	return s
}

func (s *scene) place(key string) placement.Entry {
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

// reads reads a key. It returns the value, whether the key exists, and whether the slots answered.
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

// settles waits until a key's slot holds a cell of the given kind.
func (s *scene) settles(e placement.Entry, kind slotcodec.Kind) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("the slot of %v is %v", e.ID, kind), func() bool { return s.slots.kind(wire.Key(e.ID)) == kind })
}

// hushed provides slots that are reported as silent.
type hushed struct{ *memory }

func (hushed) Silent(wire.Key) bool { return true }

// While a slot counts as silent, reads do not ask it. Writes still guard the slot, because etcd
// cannot do that. Writes do not wait for an answer.
func TestSilent(t *testing.T) {
	s := &scene{t: t, endpoint: startEtcd(t), slots: newMemory(64)}
	s.liveGateway = newLive(t, s.endpoint, hushed{s.slots}, nil)
	s.p = newPlacement(connect(t, s.endpoint), s.slots)
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, slotcodec.Value)
	if v, _, network := s.reads("k"); v != "v" || network || s.misses[reasonSilent] != 1 {
		t.Errorf("%q, by the network %v, misses %v", v, network, s.misses)
	}
}

// When the slots do not answer, reads take a few milliseconds more, and keys that are not placed
// are not affected. Placed keys cannot be written until they are removed from the network.
func TestNetworkGone(t *testing.T) {
	s := newScene(t, 64, func(c *Config) {
		// Only the pauses between two attempts count as silence. On a busy machine, they are less
		// than half of the time.
		c.Patience = 4 * evictAfter
	})
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, slotcodec.Value)
	s.slots.down.Store(true)
	quickest := time.Hour
	for range 5 { // Other work on the machine may delay any single read.
		begun := time.Now()
		if v, _, network := s.reads("k"); v != "v" || network {
			t.Errorf("%q, by the network %v", v, network)
		}
		quickest = min(quickest, time.Since(begun))
	}
	if quickest > 500*time.Millisecond {
		t.Errorf("the quickest of five reads took %v", quickest)
	}
	s.put(putOf("other", "v"))
	begun := time.Now()
	_, err := s.Put(t.Context(), putOf("k", "w"))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the network") {
		t.Errorf("a write without a network: %v", err)
	}
	if d := time.Since(begun); d < evictAfter || d > 10*time.Second {
		t.Errorf("it was refused after %v", d)
	}
	s.counter.mu.Lock()
	if !slices.Contains(s.evict, "k") {
		t.Errorf("nobody was asked to take k out of the network, but %q", s.evict)
	}
	s.counter.mu.Unlock()
	// The key is removed from the network while a write waits.
	removed := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() {
		defer close(removed)
		s.p.remove(t, "k")
	})
	if _, err := s.Put(t.Context(), putOf("k", "x")); err != nil {
		t.Errorf("a write of a key that is taken out of the network: %v", err)
	}
	<-removed
	if v, _, _ := s.reads("k"); v != "x" {
		t.Errorf("%q; want x", v)
	}
}

// A slot is gone although its entry in the directory exists, because a process died after it had
// begun the removal. In this state, writes wait, reads go to etcd, and nothing is put into the
// slot.
func TestHalfRemoved(t *testing.T) {
	s := newScene(t, 64, func(c *Config) { c.Patience = 300 * time.Millisecond })
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, slotcodec.Value)
	s.slots.mu.Lock()
	s.slots.slots[wire.Key(e.ID)].gone = true
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

// The guard of a dead gateway is broken only after its session has expired. In this test only
// readers break the guard.
func TestDeadGateway(t *testing.T) {
	s := newScene(t, 64, nil)
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, slotcodec.Value)
	g, err := s.client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Put(t.Context(), s.leases.Key(int64(g.ID)), "", clientv3.WithLease(g.ID)); err != nil {
		t.Fatal(err)
	}
	_, version, _ := s.slots.Read(t.Context(), wire.Key(e.ID))
	b := sealed(t, e, "k", version+1, slotcodec.Cell{Kind: slotcodec.Guard, Lease: int64(g.ID), Number: 5})
	if _, err := s.slots.CAS(t.Context(), wire.Key(e.ID), version, b); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if v, _, network := s.reads("k"); v != "v" || network || s.slots.kind(wire.Key(e.ID)) != slotcodec.Guard {
			t.Fatalf("%q, by the network %v, slot %v, while the session is there", v, network, s.slots.kind(wire.Key(e.ID)))
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

// mute is an etcd cluster with a member that does not answer. The next request about a session goes
// to that member.
type mute struct {
	pb.KVClient
	session string
	asked   atomic.Int64
}

func (m *mute) Range(ctx context.Context, r *pb.RangeRequest, o ...grpc.CallOption) (*pb.RangeResponse, error) {
	if string(r.Key) == m.session && m.asked.Add(1) == 1 {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return m.KVClient.Range(ctx, r, o...)
}

// If an etcd member does not answer, a guard is still broken, because the gateway asks etcd again.
func TestMuteMember(t *testing.T) {
	for _, who := range []string{"a write", "a reader"} {
		var m *mute
		s := newScene(t, 64, func(c *Config) {
			m = &mute{KVClient: c.Etcd, session: c.Sessions.Key(5)}
			c.Etcd = m
		})
		e := s.place("k")
		s.put(putOf("k", "v"))
		s.settles(e, slotcodec.Value)
		_, version, _ := s.slots.Read(t.Context(), wire.Key(e.ID))
		b := sealed(t, e, "k", version+1, slotcodec.Cell{Kind: slotcodec.Guard, Lease: 5, Number: 5})
		if _, err := s.slots.CAS(t.Context(), wire.Key(e.ID), version, b); err != nil {
			t.Fatal(err)
		}
		if who == "a write" {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			_, err := s.Put(ctx, putOf("k", "w"))
			cancel()
			if err != nil {
				t.Errorf("%s: %v", who, err)
			}
		}
		until(t, "the network answers again after "+who, func() bool {
			_, there, network := s.reads("k")
			return there && network
		})
		if m.asked.Load() < 2 {
			t.Errorf("%s: etcd was asked %d times", who, m.asked.Load())
		}
	}
}

// If it is not known whether etcd executed a write, the gateway ends its session. After that, etcd
// can no longer execute the write, and the key becomes usable again.
func TestUnknownOutcome(t *testing.T) {
	var held *hold
	s := newScene(t, 64, func(c *Config) {
		held = &hold{KVClient: c.Etcd}
		c.Etcd = held
	})
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, slotcodec.Value)
	lease, err := s.leases.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held.next = true
	if _, err := s.Put(t.Context(), putOf("k", "late")); status.Code(err) != codes.Unavailable {
		t.Fatalf("a write whose answer is lost: %v", err)
	}
	if s.slots.kind(wire.Key(e.ID)) != slotcodec.Guard {
		t.Errorf("the slot is %v; want a guard", s.slots.kind(wire.Key(e.ID)))
	}
	until(t, "there is another session", func() bool {
		now, err := s.leases.Current(t.Context())
		return err == nil && now != lease
	})
	s.put(putOf("k", "w"))
	if r, err := held.KVClient.Txn(t.Context(), held.request); err != nil || r.Succeeded {
		t.Errorf("the late write was executed: %v, %v", r, err)
	}
	s.settles(e, slotcodec.Value)
	if v, _, network := s.reads("k"); v != "w" || !network {
		t.Errorf("%q, by the network %v", v, network)
	}
}

// hold is an etcd client that delays a transaction.
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

// If clients give up early, no guard and no other trace of their requests remains.
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
	s.settles(e, slotcodec.Value)
	if v, _, network := s.reads("k"); v != "last" || !network {
		t.Errorf("%q, by the network %v", v, network)
	}
	until(t, "nobody waits for the key", func() bool {
		s.queues.mu.Lock()
		defer s.queues.mu.Unlock()
		return len(s.queues.keys) == 0
	})
}

// A gateway learns etcd's newest revision even if the slots answer all of its reads.
func TestRevisionFollows(t *testing.T) {
	s := newScene(t, 64, nil)
	everybody := guardedshell.NewEverybody(s.client, livePrefix, s.counter)
	t.Cleanup(everybody.Close)
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, slotcodec.Value)
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

// Many writers of one key at two gateways all get their turns. After they have finished, the slot
// answers reads of the key.
func TestContention(t *testing.T) {
	s := newScene(t, 64, nil)
	gateways := []*liveGateway{s.liveGateway, newLive(t, s.endpoint, s.slots, nil)}
	e := s.place("k")
	gateways[1].knows(t, e)
	const writers = 12
	var counts [writers]int
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for ctx.Err() == nil {
				// The test's time limit only stops new writes. A write that has begun is completed.
				if _, err := gateways[i%2].Put(t.Context(), putOf("k", fmt.Sprint(i))); err != nil {
					t.Error(err)
					return
				}
				counts[i]++
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	t.Logf("%d writes by %d writers: %v", total, writers, counts)
	if least := slices.Min(counts[:]); least*2*writers < total {
		t.Errorf("a writer had %d turns of %d", least, total)
	}
	r, err := gateways[0].Range(t.Context(), rangeOf("k"))
	if err != nil || r.Kvs[0].Version != int64(total) {
		t.Errorf("%v, %v; want version %d", r, err, total)
	}
	until(t, "the network answers", func() bool {
		v, _, network := s.reads("k")
		return network && v == string(r.Kvs[0].Value)
	})
}

// If etcd checks users' permissions, etcd answers all reads, so that no user can bypass the check.
func TestAuthentication(t *testing.T) {
	var everybody *guardedshell.Everybody
	s := &scene{t: t, endpoint: startEtcd(t), slots: newMemory(64)}
	// The user does not exist yet, and etcd does not check users yet.
	own := etcdtest.ClientWith(t, clientv3.Config{Endpoints: []string{s.endpoint}, Username: "gateway", Password: "g"})
	s.liveGateway = newLiveAt(t, own, connect(t, s.endpoint), s.slots, func(c *Config) {
		c.Open = func() bool { return everybody.Open() }
	})
	s.p = newPlacement(own, s.slots)
	everybody = guardedshell.NewEverybody(s.client, livePrefix, s.counter)
	t.Cleanup(everybody.Close)
	until(t, "everybody may read", everybody.Open)
	e := s.place("k")
	s.put(putOf("k", "v"))
	s.settles(e, slotcodec.Value)
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
	must(s.client.RoleGrantPermission(ctx, "gateway", livePrefix, clientv3.GetPrefixRangeEnd(livePrefix),
		clientv3.PermissionType(clientv3.PermReadWrite)))
	must(s.client.UserGrantRole(ctx, "gateway", "gateway"))
	must(s.client.AuthEnable(ctx)) // This request goes directly to etcd, and not through a gateway.
	enabled := time.Now()
	until(t, "not everybody may read", func() bool { return !everybody.Open() })
	if d := time.Since(enabled); d > guardedshell.AuthHolds*3/4 {
		t.Errorf("it took %v until nobody was answered by the network any more: etcd's answer was not heeded", d)
	}
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
	// A write is conditional on keys under the prefix, so its user must be allowed to read them.
	if _, err := s.Put(asUser, putOf("k", "w")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a write by who may not read the prefix: %v", err)
	}
	// The user may read these keys, but not the keys with which cells are sealed.
	for _, part := range []string{"placed/", "sessions/"} {
		must(root.RoleGrantPermission(asRoot, "writer", livePrefix+part, clientv3.GetPrefixRangeEnd(
			livePrefix+part), clientv3.PermissionType(clientv3.PermRead)))
	}
	if _, err := s.Put(asUser, putOf("k", "w")); err != nil {
		t.Errorf("a write by who may: %v", err)
	}
	if r, err := s.Range(asUser, rangeOf("k")); err != nil || string(r.Kvs[0].Value) != "w" {
		t.Errorf("a read by who may: %v, %v", r, err)
	}
	if s.slots.kind(wire.Key(e.ID)) == slotcodec.Guard {
		t.Error("the guard was left")
	}
	must(root.AuthDisable(ctx))
	until(t, "the network answers again", func() bool {
		v, _, network := s.reads("k")
		return v == "w" && network
	})
}

// While etcd has no leader or no quorum, the slots answer reads of placed keys, and writes fail
// within their time. Afterwards all keys have correct values.
func TestCluster(t *testing.T) {
	cluster := etcdtest.New(t, 3, etcdtest.Options{})
	slots := newMemory(64)
	client := etcdtest.Client(t, cluster.Endpoints()...)
	g := newLiveAt(t, client, client, slots, nil)
	s := &scene{liveGateway: g, t: t, slots: slots, p: newPlacement(client, slots)}
	e := s.place("k")
	s.put(putOf("k", "0"))
	s.settles(e, slotcodec.Value)

	last := "0"
	write := func(value string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := s.Put(ctx, putOf("k", value))
		if d := time.Since(begun); d > 6*time.Second {
			t.Errorf("a write took %v", d)
		}
		return err
	}
	// After the leader dies, writes soon succeed again. Writes that were not acknowledged may or
	// may not have been executed.
	leader := cluster.Leader()
	cluster.Stop(leader)
	written := 1
	until(t, "a write is done with another leader", func() bool {
		last = fmt.Sprint(written)
		written++
		return write(last) == nil
	})
	s.settles(e, slotcodec.Value)
	if v, _, network := s.reads("k"); v != last || !network {
		t.Errorf("%q, by the network %v; want %s", v, network, last)
	}

	// When a second member dies, etcd has no quorum.
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
