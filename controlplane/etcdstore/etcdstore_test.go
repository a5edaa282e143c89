package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/controller/statetest"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/sessions"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

func candidate(t *testing.T, etcd, name, admin string) *Candidate {
	t.Helper()
	return &Candidate{Client: etcdtest.Client(t, etcd), Prefix: "/test/", Identity: Identity{Name: name,
		Admin: admin}, Log: slog.New(slog.DiscardHandler)}
}

// elected waits until a candidate leads.
func elected(t *testing.T, c *Candidate) *Term {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	term, err := c.Campaign(ctx, func(Identity) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(term.Resign)
	return term
}

func stateOf(keys int, epoch uint16) *saved.State {
	s := &saved.State{Version: saved.Version, Chains: map[string]chain.Record{
		"main":  {Config: chain.Config{Epoch: epoch, Members: []string{"s1", "s2"}, Lease: time.Second}, Installed: true},
		"other": {Config: chain.Config{Epoch: 1, Members: []string{"s2"}}, Fence: []string{"s1"}, FenceLease: time.Second},
	}, Sessions: []sessions.Lease{{ID: "l", Owner: "o", IDs: []uint16{3, 4}}}, Avoided: []string{"s3"},
		Principals: map[string]uint16{"default": 1, "team": 2}}
	s.Directory.Next = map[uint8]uint32{0: uint32(keys)}
	for i := range keys {
		s.Directory.Keys = append(s.Directory.Keys, keyspace.Key{Name: fmt.Sprintf("key %d", i),
			ID: wire.Key(i), Slot: i, State: keyspace.Placed})
	}
	return s
}

func save(t *testing.T, term *Term, s *saved.State) {
	t.Helper()
	if err := term.Save(s); err != nil {
		t.Fatal(err)
	}
}

// loaded checks that a term loads the wanted state.
func loaded(t *testing.T, term *Term, want *saved.State) {
	t.Helper()
	got, err := term.Load()
	if err != nil {
		t.Fatal(err)
	}
	byID := cmpopts.SortSlices(func(a, b keyspace.Key) bool { return a.ID < b.ID })
	if diff := cmp.Diff(want, got, byID, cmpopts.IgnoreUnexported(sessions.Lease{})); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

// TestSaveLoad: the next leader loads the state that a leader saved, even if saving needs several
// transactions.
func TestSaveLoad(t *testing.T) {
	etcd := etcdtest.Start(t)
	first := elected(t, candidate(t, etcd, "a", ""))
	if s, err := first.Load(); s != nil || err != nil {
		t.Fatalf("nothing was saved: %v, %v", s, err)
	}
	save(t, first, stateOf(1000, 1))
	less := stateOf(777, 2)
	less.Directory.Keys[5].State = keyspace.Removing
	save(t, first, less)
	loaded(t, first, less)
	first.Resign()
	second := elected(t, candidate(t, etcd, "b", ""))
	if a, b := first.ElectionID(), second.ElectionID(); b.High <= a.High {
		t.Errorf("election ids %v, then %v", a, b)
	}
	loaded(t, second, less)
	save(t, second, stateOf(3, 3))
	loaded(t, second, stateOf(3, 3))
	// The topology has changed, so some parts and a chain are missing in this state.
	changed := stateOf(0, 4)
	changed.Switches = []saved.Switch{{Name: "s1", P4Runtime: "192.0.2.1:9559", DeviceID: 7, Address: "10.0.255.1", MAC: "02:00:00:00:00:01"}}
	changed.Spaces, changed.Epoch = []keyspace.Space{{Chain: 3, First: 100, Count: 50}}, 9
	clear(changed.Chains)
	save(t, second, changed)
	loaded(t, second, changed)
}

// TestDeposed: a leader whose lease in etcd is gone cannot save, and learns that its term is over,
// even if nobody else leads yet.
func TestDeposed(t *testing.T) {
	etcd := etcdtest.Start(t)
	old := elected(t, candidate(t, etcd, "old", ""))
	save(t, old, stateOf(1, 1))
	if _, err := old.c.Client.Revoke(t.Context(), old.session.Lease()); err != nil {
		t.Fatal(err)
	}
	if err := old.Save(stateOf(1, 2)); !errors.Is(err, saved.ErrNotLeading) {
		t.Errorf("saving: %v", err)
	}
	select {
	case <-old.Over():
	case <-time.After(10 * time.Second):
		t.Error("the term is not over")
	}
	next := elected(t, candidate(t, etcd, "next", ""))
	loaded(t, next, stateOf(1, 1))
	led := old.Led()
	time.Sleep(Leading / 2)
	if old.Led() != led || next.Led() <= led {
		t.Errorf("led: %v, then %v; the next %v", led, old.Led(), next.Led())
	}
}

// TestSomebodyElse: a leader notices a foreign write, and writes its own state over it.
func TestSomebodyElse(t *testing.T) {
	etcd := etcdtest.Start(t)
	term := elected(t, candidate(t, etcd, "a", ""))
	save(t, term, stateOf(2, 1))
	c := etcdtest.Client(t, etcd)
	for k, v := range map[string]string{"revision": "?", "chains/main": "{}", "keys/00000009": `{"name":"x","id":9}`} {
		if _, err := c.Put(t.Context(), "/test/"+k, v); err != nil {
			t.Fatal(err)
		}
	}
	save(t, term, stateOf(2, 2))
	loaded(t, term, stateOf(2, 2))
	if _, err := c.Put(t.Context(), "/test/of-tomorrow", "{}"); err != nil {
		t.Fatal(err)
	}
	if _, err := term.Load(); err == nil {
		t.Error("what a later version has written is read without a word")
	}
}

// TestNoTwoLeaders: many candidates come and go. Each write comes from only one leader, and builds
// on the previous write.
func TestNoTwoLeaders(t *testing.T) {
	etcd := etcdtest.Start(t)
	c := etcdtest.Client(t, etcd)
	const candidates, terms = 3, 4
	done := make(chan error, candidates)
	for i := range candidates {
		cand := candidate(t, etcd, fmt.Sprint("c", i), "")
		go func() {
			done <- func() error {
				for range terms {
					term, err := cand.Campaign(t.Context(), func(Identity) {})
					if err != nil {
						return err
					}
					s, err := term.Load()
					if err != nil {
						return err
					}
					if s == nil {
						s = stateOf(0, 0)
					}
					for n := 0; ; n++ {
						r := s.Chains["main"]
						r.Config.Epoch++
						s.Chains["main"] = r
						if err := term.Save(s); errors.Is(err, saved.ErrNotLeading) {
							break
						} else if err != nil {
							return err
						}
						// Revoke the leader's lease, as if the leader were dead. The leader itself
						// continues.
						if n == 10 {
							go c.Revoke(context.Background(), term.session.Lease())
						}
					}
					term.Resign()
				}
				return nil
			}()
		}()
	}
	for range candidates {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	// Each epoch must have been written only once.
	w := c.Watch(t.Context(), "/test/chains/main", clientv3.WithRev(1))
	last := elected(t, candidate(t, etcd, "last", ""))
	s, err := last.Load()
	if err != nil {
		t.Fatal(err)
	}
	events := 0
	for end := int(s.Chains["main"].Config.Epoch); events < end; {
		events += len((<-w).Events)
		if events > end {
			t.Fatalf("%d writes, and the epoch is %d: some were built on a record that was not the newest", events, end)
		}
	}
	if events < candidates*terms*10 {
		t.Errorf("only %d writes", events)
	}
}

// TestDeadLeader: a candidate does not wait for the lease of a leader whose process has ended.
func TestDeadLeader(t *testing.T) {
	etcd := etcdtest.Start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := candidate(t, etcd, "dead", l.Addr().String())
	server := &http.Server{Handler: Alive(dead.Identity)}
	go server.Serve(l)
	term := elected(t, dead)
	seen := make(chan Identity, 10)
	next := make(chan time.Time, 1)
	cand := candidate(t, etcd, "next", "")
	go func() {
		if x, err := cand.Campaign(t.Context(), func(id Identity) { seen <- id }); err == nil {
			next <- time.Now()
			x.Resign()
		}
	}()
	if id := <-seen; id != dead.Identity {
		t.Errorf("%+v leads, not %+v", id, dead.Identity)
	}
	time.Sleep(300 * time.Millisecond)
	if len(next) > 0 {
		t.Fatal("two lead")
	}
	killed := time.Now()
	server.Close() // like the end of the process, except that the lease stays alive
	select {
	case at := <-next:
		t.Logf("the next leads after %v", at.Sub(killed))
	case <-time.After(2 * time.Second):
		t.Error("the next waits for the lease")
	}
	<-term.Over()
}

// TestKeepsEverything: a state with a value in every field is loaded unchanged, by the leader that
// saved it and by the next leader. The same holds for a second state that is saved over the first.
func TestKeepsEverything(t *testing.T) {
	etcd := etcdtest.Start(t)
	first := elected(t, candidate(t, etcd, "a", ""))
	check := func(term *Term, seed int) {
		t.Helper()
		got, err := term.Load()
		if err != nil {
			t.Fatal(err)
		}
		if diff := statetest.Diff(statetest.Full(t, seed), got); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
	}
	save(t, first, statetest.Full(t, 1))
	check(first, 1)
	save(t, first, statetest.Full(t, 2))
	first.Resign()
	second := elected(t, candidate(t, etcd, "b", ""))
	check(second, 2)
}
