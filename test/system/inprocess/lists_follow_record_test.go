package inprocess

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/test/system/lab"
)

// slowStore is a store whose Save can be delayed. A state is stored when Save returns.
type slowStore struct {
	saved.Memory
	mu    sync.Mutex
	holds func(*saved.State) bool // Save waits while holds returns true for the state
}

func (s *slowStore) hold(holds func(*saved.State) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = holds
}

func (s *slowStore) Save(st *saved.State) error {
	for {
		s.mu.Lock()
		wait := s.holds != nil && s.holds(st)
		s.mu.Unlock()
		if !wait {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// TestListsTellWhatIsOnRecord checks that a list of keys, like a lookup, contains a KEY_ID only
// after the store has it. The controller must answer only while it leads.
func TestListsTellWhatIsOnRecord(t *testing.T) {
	x := newTestbed(t, twoChains())
	top, err := topology.Load(x.file)
	if err != nil {
		t.Fatal(err)
	}
	store := &slowStore{}
	var led atomic.Int64
	var held atomic.Bool // while held is true, the controller gets no answer from the store
	c, err := controller.New(controller.Options{Topology: top, Store: store, Leading: 100 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler), Led: func() clock.Time {
			if !held.Load() {
				led.Store(int64(clock.Now()))
			}
			return clock.Time(led.Load())
		}})
	if err != nil {
		t.Fatal(err)
	}
	r := lab.Serve(t, c)
	t.Cleanup(func() { store.hold(nil) })
	r.WaitAllReady()
	// lists returns the KEY_IDs in both kinds of lists, by name.
	lists := func() map[string]uint32 {
		t.Helper()
		all, err := r.API.Directory(t.Context(), "", false)
		if err != nil {
			t.Fatal(err)
		}
		var each []admin.Key
		for _, name := range []string{"a", "b"} {
			keys, err := r.API.Keys(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			each = append(each, keys...)
		}
		// rest reports whether a key is the remainder of a moved key, which may disappear at any
		// time.
		rest := func(k admin.Key) bool { return strings.HasPrefix(k.Name, "moved:") }
		all, each = slices.DeleteFunc(all, rest), slices.DeleteFunc(each, rest)
		if !slices.EqualFunc(all, each, func(a, b admin.Key) bool { return a.Name == b.Name && a.KeyID == b.KeyID }) {
			t.Errorf("the directory has %+v, the chains %+v", all, each)
		}
		out := map[string]uint32{}
		for _, k := range all {
			out[k.Name] = k.KeyID
		}
		return out
	}
	// Now a key is being added. Its value may already be in the switches.
	placed := func(name string) func(*saved.State) bool {
		return func(s *saved.State) bool {
			return slices.ContainsFunc(s.Directory.Keys, func(k keyspace.Key) bool {
				return k.Name == name && k.State == "placed"
			})
		}
	}
	store.hold(placed("/x"))
	added := make(chan *admin.Key, 1)
	go func() {
		k, err := r.API.AddKey(t.Context(), "a", admin.KeySpec{Name: "/x", Value: []byte("v")})
		if err != nil {
			t.Error(err)
		}
		added <- k
	}()
	first := uint32(wire.MakeKey(1, 1))
	r.WaitUntil(func() bool {
		p, err := x.once(1, lab.ServiceAddrOf(1), first)
		return err == nil && string(p.Value) == "v"
	}, "the value to be in the switches")
	if got := lists(); len(got) != 0 {
		t.Errorf("a key that is not on record is listed: %v", got)
	}
	store.hold(nil)
	k := <-added
	if k == nil || k.KeyID != first {
		t.Fatal(k)
	}
	if got := lists(); len(got) != 1 || got["/x"] != first {
		t.Errorf("a key that is on record is not listed: %v", got)
	}
	// Now a key moves.
	time.Sleep(200 * time.Millisecond) // the controller moves no key earlier
	store.hold(func(s *saved.State) bool {
		return slices.ContainsFunc(s.Directory.Keys, func(k keyspace.Key) bool {
			return k.Name == "/x" && k.ID.Chain() == 2
		})
	})
	moved := make(chan *admin.Key, 1)
	go func() {
		k, err := r.API.MoveKey(t.Context(), "a", "/x", "b")
		if err != nil {
			t.Error(err)
		}
		moved <- k
	}()
	second := uint32(wire.MakeKey(2, 1))
	r.WaitUntil(func() bool {
		p, err := x.once(1, lab.ServiceAddrOf(2), second)
		return err == nil && string(p.Value) == "v"
	}, "the value to be in the other chain")
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if got := lists(); len(got) != 1 || got["/x"] != first {
			t.Fatalf("while it is not on record that it has moved: %v", got)
		}
	}
	store.hold(nil)
	if k := <-moved; k == nil || k.KeyID != second {
		t.Fatal(k)
	}
	if got := lists(); got["/x"] != second {
		t.Errorf("when it has moved: %v", got)
	}
	// Now the controller does not lead.
	held.Store(true)
	time.Sleep(150 * time.Millisecond)
	for what, ask := range map[string]func() error{
		"the directory": func() error { _, err := r.API.Directory(t.Context(), "", false); return err },
		"a chain":       func() error { _, err := r.API.Keys(t.Context(), "b"); return err },
		"a lookup":      func() error { _, err := r.API.Lookup(t.Context(), "/x"); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "has not heard from the store that it leads") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestEmptyValue checks that a key may have an empty value, or no value.
func TestEmptyValue(t *testing.T) {
	x := newTestbed(t, lab.Layout{N: 1, Chains: []lab.Chain{{ID: 1, Name: "a", Members: []int{1}, Lease: 200,
		Patience: 0}}})
	r := x.controller()
	r.WaitAllReady()
	for name, value := range map[string][]byte{"/empty": {}, "/none": nil} {
		k, err := r.API.AddKey(t.Context(), "a", admin.KeySpec{Name: name, Value: value})
		if err != nil {
			t.Fatal(err)
		}
		many, err := r.API.AddKeys(t.Context(), "a", []admin.KeySpec{{Name: name + " in a list", Value: value}})
		if err != nil || many[0].Error != nil {
			t.Fatal(many, err)
		}
		want, length := wire.OK, 0
		if value == nil {
			want, length = wire.NotFound, -1
		}
		for _, id := range []uint32{k.KeyID, many[0].KeyID} {
			p, err := x.read(lab.ServiceAddrOf(1), id)
			if err != nil || p.Status != want || p.Tombstone != (value == nil) || len(p.Value) != 0 {
				t.Errorf("%s reads %+v, %v", name, p, err)
			}
		}
		all, err := r.API.Directory(t.Context(), name, true)
		if err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		for _, k := range all {
			if s := k.State[0]; s.Length != length || (s.Value == nil) != (value == nil) {
				t.Errorf("%s is %+v", k.Name, s)
			}
		}
	}
}
