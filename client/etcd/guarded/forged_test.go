package guarded

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// forgery is a cell that a host puts into a slot. The host may write every slot, has seen the
// content of all slots, and does not know the sealing keys.
type forgery struct {
	name string
	make func(t *testing.T, s *scene, e placement.Entry) []byte
}

func unsealed(t *testing.T, c slotcodec.Cell) []byte {
	t.Helper()
	b, err := simCodec.c.Encode(c, 1024)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var forgeries = []forgery{
	{"a value", func(t *testing.T, s *scene, _ placement.Entry) []byte {
		return unsealed(t, slotcodec.Cell{Kind: slotcodec.Value, Create: 1, Mod: s.Revision(), Version: 1,
			Value: []byte("forged")})
	}},
	{"a value of revision 2^63-1", func(t *testing.T, _ *scene, _ placement.Entry) []byte {
		return unsealed(t, slotcodec.Cell{Kind: slotcodec.Value, Create: 1, Mod: math.MaxInt64, Version: 1,
			Value: []byte("forged")})
	}},
	{"an absence of revision 2^63-1", func(t *testing.T, _ *scene, _ placement.Entry) []byte {
		return unsealed(t, slotcodec.Cell{Kind: slotcodec.Absent, Revision: math.MaxInt64})
	}},
	{"an absence", func(t *testing.T, s *scene, _ placement.Entry) []byte {
		return unsealed(t, slotcodec.Cell{Kind: slotcodec.Absent, Revision: s.Revision()})
	}},
	{"a guard", func(t *testing.T, _ *scene, _ placement.Entry) []byte {
		return unsealed(t, slotcodec.Cell{Kind: slotcodec.Guard, Lease: 1, Number: 1})
	}},
	{"unfit", func(t *testing.T, _ *scene, _ placement.Entry) []byte {
		return unsealed(t, slotcodec.Cell{Kind: slotcodec.Unfit})
	}},
	{"clear, as placement writes it", func(*testing.T, *scene, placement.Entry) []byte { return []byte(slotcodec.Unsealed) }},
	{"nothing", func(*testing.T, *scene, placement.Entry) []byte { return []byte{} }},
	{"rubbish", func(*testing.T, *scene, placement.Entry) []byte { return bytes.Repeat([]byte{0xa5}, 60) }},
	{"what it had before", func(_ *testing.T, s *scene, e placement.Entry) []byte {
		b, _ := s.slots.bytes(wire.Key(e.ID))
		return b
	}},
	{"a bit changed", func(_ *testing.T, s *scene, e placement.Entry) []byte {
		b, _ := s.slots.bytes(wire.Key(e.ID))
		b = bytes.Clone(b)
		b[len(b)-20] ^= 4
		return b
	}},
	{"cut", func(_ *testing.T, s *scene, e placement.Entry) []byte {
		b, _ := s.slots.bytes(wire.Key(e.ID))
		return b[:len(b)-1]
	}},
	{"another key's, for this version", func(t *testing.T, s *scene, e placement.Entry) []byte {
		_, version := s.slots.bytes(wire.Key(e.ID))
		return sealed(t, e, "other", version+1, slotcodec.Cell{Kind: slotcodec.Value, Create: 1, Mod: 1,
			Version: 1, Value: []byte("forged")})
	}},
	{"of another placement, for this version", func(t *testing.T, s *scene, e placement.Entry) []byte {
		_, version := s.slots.bytes(wire.Key(e.ID))
		return sealed(t, placement.Entry{ID: e.ID + 1}, "k", version+1, slotcodec.Cell{Kind: slotcodec.Value,
			Create: 1, Mod: 1, Version: 1, Value: []byte("forged")})
	}},
	{"sealed with a key of the forger's", func(t *testing.T, s *scene, e placement.Entry) []byte {
		_, version := s.slots.bytes(wire.Key(e.ID))
		b, err := newRing().Seal(unsealed(t, slotcodec.Cell{Kind: slotcodec.Value, Create: 1, Mod: 1,
			Version: 1, Value: []byte("forged")}), seal.Place{Name: "k", ID: wire.Key(e.ID), Version: version + 1})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}},
}

// Whatever a host that is not a gateway writes into a slot, etcd answers reads of the key, with
// etcd's value and revision. The controller is asked to remove the key from the network. No gateway
// overwrites the forged cell, and a write waits until the key is removed.
func TestForgeries(t *testing.T) {
	s := newScene(t, 128, nil)
	for _, f := range forgeries {
		t.Run(f.name, func(t *testing.T) {
			s.t = t
			e := s.place("k")
			defer func() {
				if _, ok := s.p.at["k"]; ok {
					s.p.remove(t, "k")
				}
			}()
			s.put(putOf("k", "of etcd"))
			s.settles(e, slotcodec.Value)
			if v, _, network := s.reads("k"); v != "of etcd" || !network {
				t.Fatalf("%q, by the network %v", v, network)
			}
			s.counter.mu.Lock()
			s.evict, s.faults, s.found = nil, nil, 0
			s.counter.mu.Unlock()
			s.slots.write(wire.Key(e.ID), f.make(t, s, e))
			for range 5 {
				before := s.hitCount()
				r, err := s.Range(t.Context(), rangeOf("k"))
				if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "of etcd" || s.hitCount() > before {
					t.Fatalf("%v, %v, by the network %v", r, err, s.hitCount() > before)
				}
				direct, err := s.client.Get(t.Context(), "k")
				if err != nil || r.Header.Revision != direct.Header.Revision {
					t.Fatalf("the gateway says revision %d, and etcd %v, %v", r.Header.Revision, direct.Header, err)
				}
			}
			until(t, "the controller is asked to take it out", func() bool {
				s.counter.mu.Lock()
				defer s.counter.mu.Unlock()
				return slices.Contains(s.evict, "k") && slices.Contains(s.faults, placement.Forged)
			})
			s.counter.mu.Lock()
			if s.found != 1 {
				t.Errorf("counted %d times", s.found)
			}
			s.counter.mu.Unlock()
			_, before := s.slots.bytes(wire.Key(e.ID))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := s.Put(ctx, putOf("k", "too early")); status.Code(err) != codes.DeadlineExceeded &&
				status.Code(err) != codes.Unavailable {
				t.Errorf("a write: %v", err)
			}
			if _, now := s.slots.bytes(wire.Key(e.ID)); now != before {
				t.Errorf("version %v, and before the write %v: somebody has put something over it", now, before)
			}
			time.AfterFunc(50*time.Millisecond, func() { s.p.remove(t, "k") })
			s.put(putOf("k", "after that"))
			if v, _, _ := s.reads("k"); v != "after that" {
				t.Errorf("%q is read", v)
			}
		})
	}
}

// gate is an etcd client that holds back a gateway's transactions while it is shut.
type gate struct {
	pb.KVClient
	shut    atomic.Bool
	waiting atomic.Int32
}

func (g *gate) Txn(ctx context.Context, r *pb.TxnRequest, o ...grpc.CallOption) (*pb.TxnResponse, error) {
	g.waiting.Add(1)
	for g.shut.Load() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	g.waiting.Add(-1)
	return g.KVClient.Txn(ctx, r, o...)
}

// A guard that a forger has overwritten still keeps its slot unread. If a reader treated the slot
// as clear, it would put the state from before the write into the slot. The slot would then have an
// old state after the write.
func TestForgedGuard(t *testing.T) {
	for _, f := range []forgery{forgeries[6], forgeries[8]} {
		t.Run(f.name, func(t *testing.T) {
			g := &gate{}
			s := newScene(t, 128, func(c *Config) {
				g.KVClient = c.Etcd
				c.Etcd = g
			})
			e := s.place("k")
			s.put(putOf("k", "old"))
			s.settles(e, slotcodec.Value)
			g.shut.Store(true)
			done := make(chan error)
			go func() {
				_, err := s.Put(t.Context(), putOf("k", "new"))
				done <- err
			}()
			s.settles(e, slotcodec.Guard)
			until(t, "the write is on its way to etcd", func() bool { return g.waiting.Load() > 0 })
			s.slots.write(wire.Key(e.ID), f.make(t, s, e))
			for range 3 {
				if v, _, network := s.reads("k"); v != "old" || network {
					t.Errorf("%q, by the network %v, before the write", v, network)
				}
				// A reader would have time to put a cell into the slot.
				time.Sleep(10 * time.Millisecond)
			}
			g.shut.Store(false)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if v, _, network := s.reads("k"); v != "new" || network {
					t.Errorf("%q, by the network %v, after the write", v, network)
				}
			}
		})
	}
}

// A gateway uses another gateway's cell only after etcd has answered the gateway with the cell's
// revision or a newer revision. A thief of the sealing keys cannot make a gateway report a revision
// that etcd has not reached.
func TestAhead(t *testing.T) {
	s := newScene(t, 128, nil)
	other := newLive(t, s.endpoint, s.slots, nil)
	e := s.place("k")
	other.knows(t, e)
	s.put(putOf("k", "1"))
	s.settles(e, slotcodec.Value)
	read := func() (*pb.RangeResponse, bool) {
		t.Helper()
		before := other.hitCount()
		r, err := other.Range(t.Context(), rangeOf("k"))
		if err != nil || len(r.Kvs) != 1 {
			t.Fatalf("%v, %v", r, err)
		}
		return r, other.hitCount() > before
	}
	read()
	for i := range 5 {
		if r, network := read(); !network || r.Header.Revision < r.Kvs[0].ModRevision {
			t.Errorf("read %d: by the network %v, %v", i, network, r)
		}
		s.put(putOf("k", fmt.Sprint("more", i)))
		s.settles(e, slotcodec.Value)
		if r, network := read(); network || string(r.Kvs[0].Value) != fmt.Sprint("more", i) {
			t.Errorf("a value of a revision that etcd has not told: by the network %v, %v", network, r)
		}
	}
	other.counter.mu.Lock()
	if other.misses[reasonAhead] != 5 {
		t.Errorf("misses: %v", other.misses)
	}
	other.counter.mu.Unlock()
	for _, c := range []slotcodec.Cell{
		{Kind: slotcodec.Value, Create: 1, Mod: math.MaxInt64, Version: 1, Value: []byte("forged")},
		{Kind: slotcodec.Absent, Revision: math.MaxInt64},
	} {
		_, version := s.slots.bytes(wire.Key(e.ID))
		s.slots.write(wire.Key(e.ID), sealed(t, e, "k", version+1, c))
		for range 3 {
			r, network := read()
			direct, err := s.client.Get(t.Context(), "k")
			if err != nil || network || r.Header.Revision != direct.Header.Revision || string(r.Kvs[0].Value) != "more4" {
				t.Errorf("by the network %v, %v; etcd has revision %d, %v", network, r, direct.Header.Revision, err)
			}
		}
		if other.Revision() == math.MaxInt64 {
			t.Error("the gateway believes it")
		}
	}
	other.counter.mu.Lock()
	defer other.counter.mu.Unlock()
	if !slices.Contains(other.faults, placement.Forged) || other.found != 2 {
		t.Errorf("asked to evict %q for %q; counted %d", other.evict, other.faults, other.found)
	}
}

// counted is an etcd client that counts the requests for sealing keys.
type counted struct {
	clientv3.KV
	gets atomic.Int32
}

func (c *counted) Get(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	c.gets.Add(1)
	return c.KV.Get(ctx, key, o...)
}

// A gateway asks etcd for a sealing key that it does not know, and then reads cells sealed with it.
// If etcd does not have the key, a forger has made the cell. A forger cannot make the gateway ask
// etcd at an unlimited rate.
func TestUnknownKey(t *testing.T) {
	endpoint, slots := startEtcd(t), newMemory(128)
	client := connect(t, endpoint)
	with := func(kv clientv3.KV) *seal.Keys {
		k := seal.NewKeys(kv, livePrefix)
		if err := k.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		return k
	}
	mine, others := with(client), &counted{KV: client}
	a := newLive(t, endpoint, slots, func(c *Config) { c.Seals = mine })
	b := newLive(t, endpoint, slots, func(c *Config) { c.Seals = with(others) })
	p := newPlacement(client, slots)
	e := p.place(t, "k")
	a.knows(t, e)
	b.knows(t, e)
	before := others.gets.Load()
	for i := range 3 {
		if _, err := mine.Rotate(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Put(t.Context(), putOf("k", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		until(t, "the other gateway reads it from the network", func() bool {
			hits := b.hitCount()
			r, err := b.Range(t.Context(), rangeOf("k"))
			if err != nil || string(r.Kvs[0].Value) != fmt.Sprint(i) {
				t.Fatalf("%v, %v; want %d", r, err, i)
			}
			return b.hitCount() > hits
		})
		if _, err := b.Put(t.Context(), putOf("k", fmt.Sprint("b", i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := others.gets.Load() - before; n != 3 {
		t.Errorf("etcd was asked for keys %d times; want once for each new one", n)
	}
	if b.found+a.found != 0 {
		t.Error("a key that was not known yet was taken for a forger's")
	}
	before = others.gets.Load()
	began := time.Now()
	for time.Since(began) < 500*time.Millisecond {
		_, version := slots.bytes(wire.Key(e.ID))
		strange, err := newRing().Seal([]byte{byte(slotcodec.Unfit)}, seal.Place{Name: "k", ID: wire.Key(e.ID),
			Version: version + 1})
		if err != nil {
			t.Fatal(err)
		}
		slots.write(wire.Key(e.ID), strange)
		for range 3 {
			if r, err := b.Range(t.Context(), rangeOf("k")); err != nil || string(r.Kvs[0].Value) != "b2" {
				t.Fatalf("%v, %v", r, err)
			}
		}
	}
	until(t, "it is found out", func() bool {
		b.counter.mu.Lock()
		defer b.counter.mu.Unlock()
		return b.found > 0 && slices.Contains(b.faults, placement.Forged)
	})
	if n, most := others.gets.Load()-before, int32(time.Since(began)/(100*time.Millisecond))+2; n == 0 || n > most {
		t.Errorf("etcd was asked for keys %d times in %v", n, time.Since(began))
	}
}

// While sealing keys are replaced as fast as possible, reads and writes continue. Afterwards all
// cells are resealed, and the old keys can be deleted.
func TestRotation(t *testing.T) {
	endpoint, slots := startEtcd(t), newMemory(128)
	client := connect(t, endpoint)
	var gateways [2]*liveGateway
	var keys [2]*seal.Keys
	for i := range gateways {
		keys[i] = seal.NewKeys(client, livePrefix)
		if err := keys[i].Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		gateways[i] = newLive(t, endpoint, slots, func(c *Config) { c.Seals = keys[i] })
	}
	p := newPlacement(client, slots)
	entries := map[string]placement.Entry{}
	for i := range 10 {
		name := fmt.Sprint("k", i)
		entries[name] = p.place(t, name)
		for _, g := range gateways {
			g.knows(t, entries[name])
		}
	}
	stop := make(chan struct{})
	rotating := make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				rotating <- n
				return
			default:
				if _, err := keys[n%2].Rotate(t.Context(), false); err != nil {
					t.Error(err)
				}
				n++
				time.Sleep(20 * time.Millisecond)
			}
		}
	}()
	hits := 0
	last := map[string]string{}
	for i := range 200 {
		name := fmt.Sprint("k", i%9) // One of the nine keys is never written.
		last[name] = fmt.Sprint(i)
		if _, err := gateways[i%2].Put(t.Context(), putOf(name, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			for _, g := range gateways {
				before := g.hitCount()
				if r, err := g.Range(t.Context(), rangeOf(name)); err != nil ||
					string(r.Kvs[0].Value) != fmt.Sprint(i) {
					t.Fatalf("%v, %v; want %d", r, err, i)
				}
				hits += g.hitCount() - before
			}
		}
	}
	gateways[0].Range(t.Context(), rangeOf("k9"))
	close(stop)
	t.Logf("%d new keys; of 2000 reads %d by the network", <-rotating, hits)
	if gateways[0].found+gateways[1].found != 0 || hits == 0 {
		t.Errorf("%d and %d slots were taken for forged; %d reads by the network", gateways[0].found, gateways[1].found, hits)
	}
	// Either gateway may have made the newest sealing key. The other gateway learns the key when it
	// reads a cell that is sealed with it. The test deletes all older keys at once, whereas a
	// gateway waits a day.
	for i := range keys {
		newest, _ := keys[1-i].Ring().Primary()
		if known, err := keys[i].Want(t.Context(), newest); !known {
			t.Fatal(err)
		}
	}
	until(t, "everything is sealed anew", func() bool {
		with, _ := keys[1].Ring().Primary()
		used, whole := gateways[1].Reseal(t.Context())
		after, _ := keys[1].Ring().Primary() // This gateway may have learned a newer key meanwhile.
		return whole && len(used) == 0 && after == with
	})
	primary, _ := keys[1].Ring().Primary()
	for name, e := range entries {
		b, version := slots.bytes(wire.Key(e.ID))
		if k := seal.Key(b); k != primary && string(b) != slotcodec.Unsealed {
			t.Errorf("%s: sealed with %d in version %v; the newest is %d", name, k, version, primary)
		}
	}
	if err := keys[1].Prune(t.Context(), nil, time.Now().Add(seal.Kept+time.Minute)); err != nil ||
		len(keys[1].Ring().Keys()) != 1 {
		t.Errorf("%v, %v", keys[1].Ring().Keys(), err)
	}
	for name, want := range last {
		for _, g := range gateways {
			if r, err := g.Range(t.Context(), rangeOf(name)); err != nil || len(r.Kvs) != 1 ||
				string(r.Kvs[0].Value) != want {
				t.Errorf("%s: %v, %v; want %s", name, r, err, want)
			}
		}
	}
	if gateways[0].found+gateways[1].found != 0 {
		t.Error("without the old keys slots are taken for forged")
	}
}

// BenchmarkRead measures the gateway's own cost of a read of a placed key, without the network. Run
// it with: go test ./client/etcd/guarded -run xxx -bench Read
func BenchmarkRead(b *testing.B) {
	for _, bytes := range []int{128, 512, 1024} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) {
			slots := newMemory(bytes)
			g := newLive(b, startEtcd(b), slots, nil)
			p := newPlacement(g.client, slots)
			e := p.place(b, "/registry/pods/default/p")
			g.knows(b, e)
			value := make([]byte, bytes-48)
			rand.NewChaCha8([32]byte{1}).Read(value) // Random bytes cannot be compressed.
			r := &pb.RangeRequest{Key: []byte("/registry/pods/default/p")}
			if _, err := g.Put(b.Context(), &pb.PutRequest{Key: r.Key, Value: value}); err != nil {
				b.Fatal(err)
			}
			until(b, "it is in the network", func() bool { return slots.kind(wire.Key(e.ID)) == slotcodec.Value })
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Range(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
			if g.hitCount() < b.N {
				b.Errorf("%d of %d by the network: %v", g.hitCount(), b.N, g.misses)
			}
		})
	}
}

// A host with an ordinary UDP socket writes a cell into a slot of a chain. A gateway that does not
// check seals would answer reads with that cell.
func TestForgedOverUDP(t *testing.T) {
	c := newUDPChain(t)
	endpoint := startEtcd(t)
	g := newLive(t, endpoint, c.network(t), func(cfg *Config) { cfg.Patience = 2 * time.Second })
	p := newPlacement(g.client, c)
	e := p.place(t, "k")
	g.knows(t, e)
	if _, err := g.Put(t.Context(), putOf("k", "subjects: [alice]")); err != nil {
		t.Fatal(err)
	}
	read := func() (string, bool) {
		t.Helper()
		before := g.hitCount()
		r, err := g.Range(t.Context(), rangeOf("k"))
		if err != nil || len(r.Kvs) != 1 || r.Header.Revision > 1000 {
			t.Fatalf("%v, %v", r, err)
		}
		return string(r.Kvs[0].Value), g.hitCount() > before
	}
	until(t, "the network answers", func() bool { _, network := read(); return network })
	forged := unsealed(t, slotcodec.Cell{Kind: slotcodec.Value, Create: 1, Mod: math.MaxInt64, Version: 1,
		Value: []byte("subjects: [alice, mallory]")})
	c.until("writing a slot as a host may", func(ctx context.Context) error {
		_, err := c.admin.Put(ctx, wire.Key(e.ID), forged)
		return err
	})
	for range 20 {
		if v, network := read(); v != "subjects: [alice]" || network {
			t.Fatalf("%q, by the network %v", v, network)
		}
	}
	until(t, "the controller is asked to take it out", func() bool {
		read()
		g.counter.mu.Lock()
		defer g.counter.mu.Unlock()
		return slices.Contains(g.faults, placement.Forged)
	})
	p.remove(t, "k")
	if _, err := g.Put(t.Context(), putOf("k", "subjects: []")); err != nil {
		t.Fatal(err)
	}
	if v, _ := read(); v != "subjects: []" {
		t.Errorf("%q", v)
	}
}
