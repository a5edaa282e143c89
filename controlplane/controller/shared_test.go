package controller_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// These are tests of switches that two chains use.

// twoChains adds a second chain to the chain main, and more chains.
func twoChains(main, other []string, more ...map[string]any) func(map[string]any) {
	return func(m map[string]any) {
		ch := m["chains"].([]map[string]any)[0]
		ch["members"], ch["rejoinMillis"], ch["slots"] = main, 0, 100
		m["chains"] = append([]map[string]any{ch, {"id": 1, "name": "other", "address": "10.0.254.2", "members": other,
			"leaseMillis": 0, "patienceMillis": 0, "slots": 100}}, more...)
	}
}

// busy is a chain with the only member s1, for twoChains.
var busy = map[string]any{"id": 2, "name": "busy", "address": "10.0.254.3", "members": []string{"s1"},
	"leaseMillis": 0, "patienceMillis": 0, "slots": 100}

// occupies makes it possible to keep s1 busy. occupy changes the chain busy, and returns when s1
// holds back the Write. s1 continues when the test ends.
func (f *fakes) occupies() (occupy func(*controller.Controller)) {
	var slow atomic.Bool
	held, leave := make(chan bool, 1), make(chan bool)
	f.servers[0].Refuse = func(u *v1.Update) error {
		e, err := f.info.Decode(u.GetEntity().GetTableEntry())
		if err == nil && e.Table == "chain_config" && slow.CompareAndSwap(true, false) {
			held <- true
			<-leave
		}
		return nil
	}
	return func(c *controller.Controller) {
		f.t.Cleanup(func() { close(leave) }) // s1 continues before the controller and the switches end
		slow.Store(true)
		go func() {
			frozen := true
			c.ChangeChain(f.t.Context(), "busy", admin.ChainChange{Frozen: &frozen})
		}()
		<-held
	}
}

// countLoads counts how often a program is loaded into a switch.
func (f *fakes) countLoads(i int) *atomic.Int64 {
	loads := new(atomic.Int64)
	f.servers[i].Hold = func(r any) error {
		if _, ok := r.(*v1.SetForwardingPipelineConfigRequest); ok {
			loads.Add(1)
		}
		return nil
	}
	return loads
}

// epoch returns the epoch of a chain's configuration at a switch.
func (f *fakes) epoch(i int, chain uint8) (epoch uint16) {
	for _, te := range f.servers[i].Entries() {
		e, err := f.info.Decode(te)
		if err == nil && e.Table == "chain_config" && uint8(e.Exact("chain").Uint64()) == chain {
			epoch = uint16(e.Param("epoch").Uint64())
		}
	}
	return epoch
}

// answerLeases makes a switch answer LEASEs according to its chain_config entry. It answers other
// packets by calling the function also.
func (f *fakes) answerLeases(i int, also func(wire.Packet) *wire.Packet) {
	born := time.Now().Add(-time.Minute)
	answering(f.servers[i], func(p wire.Packet) *wire.Packet {
		if p.Op != wire.Lease {
			return also(p)
		}
		epoch := f.epoch(i, p.Key.Chain())
		granted := epoch == p.Epoch && epoch != 0
		p.Op, p.Epoch, p.Status = wire.LeaseReply, epoch, wire.OK
		p.Version = wire.Version(time.Since(born).Microseconds())
		if !granted {
			p.Request, p.Status = 0, wire.NotServing
		}
		return &p
	})
}

// TestTakenBeforeItIsEmptied: a chain requests that a switch be emptied. Before the program is
// loaded, the switch becomes the only member of another chain. So the switch is not emptied.
func TestTakenBeforeItIsEmptied(t *testing.T) {
	f := newFakes(t, twoChains([]string{"s1", "s2"}, []string{"s2"}, busy))
	f.withKeys()
	loads := f.countLoads(2)
	occupy := f.occupies()
	c, stop := f.start()
	ready(t, c)
	stop()
	c, _ = f.start() // s3 may hold old values of the chain
	ready(t, c)
	until(t, c, "s3 is set up", func() bool {
		all, err := c.Switches(t.Context())
		return err == nil && all[2].Ready
	})
	before := loads.Load()
	occupy(c)
	recovered := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	go func() {
		_, err := c.Recover(ctx, "main", "s3")
		recovered <- err
	}()
	waitText(t, c, "switch.avoided", "it is being emptied")
	f.take(c)
	err := <-recovered
	if n := loads.Load() - before; n > 0 {
		t.Errorf("the program was loaded %d times into the only member of another chain (%v)\n%s", n, err, eventText(c))
	}
	if err == nil || !strings.Contains(err.Error(), "chain other needs it as it is") {
		t.Errorf("it was brought in: %v", err)
	}
}

// TestRecordsOfAJoiner: a switch is being filled for one chain, and already has a session's record.
// Then another chain, of which it is a member, gets its first key. The record must not go back,
// because otherwise a late copy of a request would be executed again.
func TestRecordsOfAJoiner(t *testing.T) {
	f := newFakes(t, twoChains([]string{"s1", "s2"}, []string{"s3"}))
	f.withKeys()
	for _, s := range f.servers {
		s.PI = true // s3 has no readable registers and answers no FETCH of a slot, so the copy does not end
	}
	var mu sync.Mutex
	recorded, lowest := map[uint16]uint32{}, map[uint16]uint32{}
	for i := range f.servers {
		f.answerLeases(i, func(p wire.Packet) *wire.Packet {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case p.Flags&wire.Session == 0 || p.Op != wire.Fetch && p.Op != wire.Sync:
				return nil
			case p.Op == wire.Fetch:
				r := records(p)
				if r.Epoch = f.epoch(i, p.Key.Chain()); i == 2 {
					r.Request = recorded[p.Session]
				}
				return r
			}
			r := p
			r.Op, r.Flags, r.Status = wire.SyncReply, 0, wire.OK
			if has := recorded[p.Session]; i == 2 && (p.Flags&wire.Newest == 0 || has-p.Request > wire.RequestWindow) {
				recorded[p.Session] = p.Request
			}
			if i == 2 && recorded[p.Session] < lowest[p.Session] {
				lowest[p.Session] = recorded[p.Session]
			}
			return &r
		})
	}
	c, _ := f.start()
	ready(t, c)
	until(t, c, "s3 is set up", func() bool {
		all, err := c.Switches(t.Context())
		return err == nil && all[2].Ready
	})
	s, err := c.OpenSessions(t.Context(), admin.SessionsRequest{Count: 1, Address: "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	id, last := s.Sessions[0].ID, s.Sessions[0].NextRequest+7
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go c.Recover(ctx, "main", "s3")
	until(t, c, "s3 is being filled", func() bool {
		ch, err := c.Chain(t.Context(), "main")
		return err == nil && ch.Epoch > 1 && len(f.tables(2, "key_index")) == 5
	})
	mu.Lock() // s3 has forwarded a write of the session
	recorded[id], lowest[id] = last, last
	mu.Unlock()
	ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = c.AddKeys(ctx, "other", []admin.KeySpec{{Name: "new"}})
	mu.Lock()
	defer mu.Unlock()
	if lowest[id] != last {
		t.Errorf("the record of session %d was set from %d to %d (%v)\n%s", id, last, lowest[id], err, eventText(c))
	}
}

// keepingStore is a Store that can fail.
type keepingStore struct {
	saved.Store
	fails atomic.Bool
}

func (s *keepingStore) Save(st *saved.State) error {
	if s.fails.Load() {
		return errors.New("the disk is full")
	}
	return s.Store.Save(st)
}

// TestRefusedChangeIsNotRecorded: if a change could not be recorded, and its operator got that
// error, a later save does not record it either.
func TestRefusedChangeIsNotRecorded(t *testing.T) {
	f := newFakes(t, nil)
	store := &keepingStore{Store: f.store}
	f.store = store
	c, stop := f.start()
	ready(t, c)
	store.fails.Store(true)
	if _, err := c.ChangeChain(t.Context(), "main", admin.ChainChange{Members: &[]string{"s1"}}); err == nil {
		t.Fatal("it was changed")
	}
	store.fails.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	c.AddKeys(ctx, "main", []admin.KeySpec{{Name: "k"}})
	stop()
	st, err := store.Load()
	if err != nil {
		t.Fatal(err)
	}
	if r := st.Chains["main"]; len(r.Config.Members) != 3 || len(r.Fence) > 0 {
		t.Errorf("on record is %v, to fence %v", r.Config, r.Fence)
	}
}

// TestTakenBeforeItIsLoaded: a switch is to get another program. Before the program is loaded, the
// switch becomes the only member of a chain. So it keeps its program.
func TestTakenBeforeItIsLoaded(t *testing.T) {
	f := newFakes(t, twoChains([]string{"s1", "s2"}, []string{"s2"}, busy))
	f.loadKin(2)
	loads := f.countLoads(2)
	occupy := f.occupies()
	f.servers[2].Stop()
	c, _ := f.start()
	ready(t, c)
	occupy(c)
	if err := f.servers[2].Start(); err != nil {
		t.Fatal(err)
	}
	waitText(t, c, "switch.avoided", "its program is being replaced")
	f.take(c)
	time.Sleep(1500 * time.Millisecond)
	if n := loads.Load(); n > 0 {
		t.Errorf("the program was loaded %d times into the only member of a chain\n%s", n, eventText(c))
	}
}

// loadKin makes a switch run a program that is compatible with the controller's, and lacks watches.
func (f *fakes) loadKin(i int) {
	f.t.Helper()
	p4 := proto.Clone(f.info.P4Info).(*configv1.P4Info)
	p4.Tables = slices.DeleteFunc(p4.Tables, func(t *configv1.Table) bool { return t.Preamble.Alias == "watcher" })
	info, err := p4rt.NewInfo(p4)
	if err != nil {
		f.t.Fatal(err)
	}
	kin, err := p4rt.NewPipeline(info, []byte("{}"))
	if err != nil {
		f.t.Fatal(err)
	}
	client, err := p4rt.New(p4rt.Options{Name: "kin", Target: f.servers[i].Addr, DeviceID: uint64(i + 1),
		ElectionID: p4rt.ElectionID{Low: 1}, Info: info}, p4rt.Handler{})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() { client.Run(ctx); close(done) }()
	primary(f.t, client)
	if err := client.ReloadIn(ctx, client.State().Stream, kin); err != nil {
		f.t.Fatal(err)
	}
	cancel()
	<-done
}

// take makes s3 the only member of the chain other. It must finish within the second in which the
// other switches learn to avoid s3.
func (f *fakes) take(c *controller.Controller) {
	f.t.Helper()
	began := time.Now()
	if _, err := c.ChangeChain(f.t.Context(), "other", admin.ChainChange{Members: &[]string{"s3"}}); err != nil {
		f.t.Fatal(err)
	}
	if took := time.Since(began); took > 900*time.Millisecond {
		f.t.Skipf("it took %v, so this says nothing", took)
	}
}
