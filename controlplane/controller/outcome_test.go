package controller_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/p4rt/p4rttest"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// These tests check the controller's behavior after a call of unknown outcome, and with a switch
// that was emptied while its connection stayed up.

// leasing makes the switches answer LEASEs according to their tables, like the program.
type leasing struct {
	*fakes
	mu      sync.Mutex
	born    []time.Time
	granted []wire.Packet // the last LEASE that each switch granted
	keys    []int         // each switch's number of key_index entries when it granted that LEASE
}

func newLeasing(f *fakes) *leasing {
	l := &leasing{fakes: f, born: make([]time.Time, len(f.servers)), granted: make([]wire.Packet, len(f.servers)),
		keys: make([]int, len(f.servers))}
	for i, s := range f.servers {
		l.born[i] = time.Now().Add(-time.Minute)
		answering(s, func(p wire.Packet) *wire.Packet {
			if p.Op == wire.Lease {
				return l.answer(i, p)
			}
			return records(p)
		})
	}
	return l
}

func (l *leasing) answer(i int, p wire.Packet) *wire.Packet {
	epoch, keys := uint16(0), 0
	for _, te := range l.servers[i].Entries() {
		e, err := l.info.Decode(te)
		switch {
		case err != nil:
		case e.Table == "chain_config":
			epoch = uint16(e.Param("epoch").Uint64())
		case e.Table == "key_index":
			keys++
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := p
	r.Op, r.Version, r.Request, r.Epoch = wire.LeaseReply, wire.Version(time.Since(l.born[i]).Microseconds()), 0, epoch
	if r.Status = wire.NotServing; epoch == p.Epoch && epoch != 0 {
		r.Status, r.Request = wire.OK, p.Request
		l.granted[i], l.keys[i] = p, keys
	}
	return &r
}

// start runs a controller with a short timeout for requests to switches.
func (l *leasing) start(t *testing.T) *controller.Controller {
	t.Helper()
	top, err := topology.Load(l.file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := controller.New(controller.Options{Topology: top, Store: l.store, RPCTimeout: 300 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// withKeys stores a directory with five keys.
func (f *fakes) withKeys() {
	d, err := keyspace.New([]keyspace.Space{{Chain: 0, Count: 9}}, keyspace.Snapshot{})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		k, err := d.Add(0, name, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		d.SetState(k.ID, keyspace.Placed)
	}
	if err := f.store.Save(&saved.State{Version: saved.Version, Directory: d.Snapshot()}); err != nil {
		f.t.Fatal(err)
	}
}

// chainOf changes the lease and the members of the topology's chain.
func chainOf(lease time.Duration, members ...string) func(map[string]any) {
	return func(m map[string]any) {
		ch := m["chains"].([]map[string]any)[0]
		ch["members"], ch["leaseMillis"], ch["rejoinMillis"] = members, int(lease.Milliseconds()), 0
	}
}

// writesOf reports whether a request writes to a table.
func (f *fakes) writesOf(request any, table string) bool {
	w, ok := request.(*v1.WriteRequest)
	return ok && slices.ContainsFunc(w.Updates, func(u *v1.Update) bool {
		e, err := f.info.Decode(u.GetEntity().GetTableEntry())
		return u.GetEntity().GetTableEntry() != nil && err == nil && e.Table == table
	})
}

// TestHeldConfiguration: a Write of the chain's configuration times out. It arrives late, after a
// later configuration was installed. The switch keeps the later configuration.
func TestHeldConfiguration(t *testing.T) {
	f := newFakes(t, nil)
	var hold atomic.Bool
	f.servers[0].Hold = func(r any) error {
		if hold.Load() && f.writesOf(r, "chain_config") {
			hold.Store(false)
			return p4rttest.ErrSilent
		}
		return nil
	}
	c := newLeasing(f).start(t)
	ready(t, c)
	hold.Store(true)
	frozen := true
	if ch, err := c.ChangeChain(t.Context(), "main", admin.ChainChange{Frozen: &frozen}); err != nil || ch.Epoch != 2 {
		t.Fatal(ch, err)
	}
	if f.servers[0].Held() != 1 {
		t.Fatal("nothing was held")
	}
	waitText(t, c, "switch.disconnected", p4rt.ErrOutcomeUnknown.Error())
	frozen = false
	if ch, err := c.ChangeChain(t.Context(), "main", admin.ChainChange{Frozen: &frozen}); err != nil || ch.Epoch != 3 {
		t.Fatal(ch, err)
	}
	want := f.tables(0, "chain_config")
	if answers := f.servers[0].Deliver(); status.Code(answers[0]) != codes.PermissionDenied {
		t.Errorf("what arrived late was answered %v", answers)
	}
	if got := f.tables(0, "chain_config"); !slices.Equal(got, want) || len(got) != 1 ||
		!strings.Contains(got[0], "epoch=0x03") {
		t.Errorf("s1 has %v, and had %v before a late write", got, want)
	}
}

// TestHeldProgram: loading the program into the only member times out. The request arrives late,
// after the switch was set up. The switch keeps its content.
func TestHeldProgram(t *testing.T) {
	f := newFakes(t, chainOf(200*time.Millisecond, "s1"))
	f.withKeys()
	var loads atomic.Int64
	f.servers[0].Hold = func(r any) error {
		if _, ok := r.(*v1.SetForwardingPipelineConfigRequest); ok && loads.Add(1) == 1 {
			return p4rttest.ErrSilent
		}
		return nil
	}
	c := newLeasing(f).start(t)
	ready(t, c)
	until(t, c, "s1 has the keys", func() bool { return len(f.tables(0, "key_index")) == 5 })
	if answers := f.servers[0].Deliver(); len(answers) != 1 || status.Code(answers[0]) != codes.PermissionDenied {
		t.Errorf("what arrived late was answered %v", answers)
	}
	if n := len(f.tables(0, "key_index")); n != 5 {
		t.Errorf("s1 has entries of %d keys after a late load of the program", n)
	}
}

// TestEmptied: somebody empties a switch while the controller's stream to it stays up. The switch
// does not get its former part in the chain, and an event reports the loss. The controller gives no
// lease to a switch that has a part but lacks the keys.
func TestEmptied(t *testing.T) {
	for _, members := range [][]string{{"s1"}, {"s2", "s1"}, {"s1", "s2", "s3"}} {
		t.Run(strings.Join(members, " "), func(t *testing.T) {
			f := newFakes(t, chainOf(200*time.Millisecond, members...))
			f.withKeys()
			l := newLeasing(f)
			c := l.start(t)
			ready(t, c)
			until(t, c, "s1 has the keys", func() bool { return len(f.tables(0, "key_index")) == 5 })
			before, err := c.Chain(t.Context(), "main")
			if err != nil {
				t.Fatal(err)
			}
			connected := f.servers[0].Streams()
			f.servers[0].Empty()
			kind, text := "chain.lost-member", "it has lost its values"
			if len(members) == 1 {
				kind, text = "chain.lost", "the values of all keys are lost"
			}
			waitText(t, c, "lease.refused", "it has epoch 0")
			waitText(t, c, kind, text)
			ready(t, c)
			until(t, c, "s1 is set up again", func() bool {
				all, err := c.Switches(t.Context())
				return err == nil && all[0].Ready
			})
			if n := f.servers[0].Streams(); n <= connected {
				t.Errorf("s1 was not connected anew")
			}
			after, err := c.Chain(t.Context(), "main")
			if err != nil || after.Epoch == before.Epoch {
				t.Errorf("%+v, %v: want another configuration than %+v", after, err, before)
			}
			member := slices.ContainsFunc(after.Members, func(m admin.Member) bool { return m.Switch == "s1" })
			if member != (len(members) == 1) {
				t.Errorf("s1 is a member again: %v", after.Members)
			}
			if len(members) == 1 {
				until(t, c, "s1 has the keys again", func() bool { return len(f.tables(0, "key_index")) == 5 })
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if g := l.granted[0]; !member && g.Epoch != before.Epoch {
				t.Errorf("s1 was granted a lease of epoch %d after it was emptied, with entries of %d keys", g.Epoch, l.keys[0])
			}
		})
	}
}

// TestEmptiedBeforeAnInstallation: a switch is emptied, and the controller tries to install another
// configuration before it notices. That fails, because the entries to change are missing.
func TestEmptiedBeforeAnInstallation(t *testing.T) {
	f := newFakes(t, nil) // this chain has no leases, so only the installation reveals the loss
	f.withKeys()
	c, _ := f.start()
	ready(t, c)
	until(t, c, "s2 has the keys", func() bool { return len(f.tables(1, "key_index")) == 5 })
	f.servers[1].Empty()
	frozen := true
	if _, err := c.ChangeChain(t.Context(), "main", admin.ChainChange{Frozen: &frozen}); err == nil {
		t.Error("the chain was frozen, with a member that has lost everything")
	}
	waitText(t, c, "chain.lost-member", "it has lost its values")
	ready(t, c)
	ch, err := c.Chain(t.Context(), "main")
	if err != nil || len(ch.Members) != 2 {
		t.Errorf("%+v, %v", ch, err)
	}
}
