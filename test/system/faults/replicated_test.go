package faults

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/test/system/lab"
)

// TestReplicated kills switches of a chain under load, and the leading controller at some step of
// each failover and of each recovery. The other controller must complete the failover or the
// recovery. The history must be linearizable, and no epoch may have two configurations.
func TestReplicated(t *testing.T) {
	lab.MustLook(t, "etcd")
	if !lab.InNamespace(t) {
		return
	}
	l := lab.Line(4, surviveLease)
	// These links make a second path around each switch.
	l.Links = append(l.Links, [2]int{4, 1}, [2]int{1, 3})
	l.Chains[0].Patience = surviveLease / 2
	nw := lab.NewNetwork(t, "auto", l)
	team := lab.StartTeam(nw)
	team.Until("the chain to be ready", func() bool { return len(team.Members()) == 4 })
	placed, err := team.API().AddKeys(t.Context(), "main", []admin.KeySpec{{Name: "a"}, {Name: "b"}, {Name: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	var keys []uint32
	for _, k := range placed {
		keys = append(keys, k.KeyID)
	}
	const clients = 6
	s, err := team.API().NewSessions(t.Context(), admin.SessionsRequest{Count: clients, Owner: "replicated"})
	if err != nil {
		t.Fatal(err)
	}
	rounds := []struct{ failover, recovery string }{
		{"chain.failover", "chain.recovering it is filled"},
		{"chain.installing", "chain.copied"},
		{"chain.fenced", "chain.compared"},
		{"chain.installed", "chain.recovered"},
	}
	if testing.Short() {
		rounds = rounds[:1]
	}
	length := time.Duration(len(rounds)) * 4 * time.Second
	var wg sync.WaitGroup
	var mu sync.Mutex
	var history []linearizable.Call
	for i := range clients {
		w := lab.Workload{Client: i, Service: lab.ServiceAddr, Keys: keys, Session: s.Sessions[i],
			Duration: length, Reads: i%3 == 2}
		for n := range nw.Hosts {
			w.Others = append(w.Others, lab.SwitchAddr(1+(i+n)%len(nw.Hosts)))
		}
		wg.Go(func() {
			h, err := nw.Hosts[i%len(nw.Hosts)].Work(w)
			if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			history = append(history, h...)
		})
	}
	began := time.Now()
	type span struct {
		what     string
		from, to time.Time
	}
	var spans []span
	dies := func(point string, cause func(), whole func([]string) bool) {
		t.Helper()
		from := time.Now()
		killed := team.KillAt(point)
		cause()
		var i int
		select {
		case i = <-killed:
		case <-time.After(20 * time.Second):
			t.Fatalf("the leader did not come to %q", point)
		}
		if n := team.Leader(); n == i {
			t.Fatalf("controller %d leads, and is dead", i)
		}
		team.Until("the chain to be whole after "+point, func() bool { m := team.Members(); return m != nil && whole(m) })
		spans = append(spans, span{point, from, time.Now()})
		team.Start(i)
	}
	for n, round := range rounds {
		members := team.Members()
		if len(members) != 4 {
			t.Fatalf("the chain has the members %v", members)
		}
		name := members[n%4]
		i := slices.Index([]string{"", "s1", "s2", "s3", "s4"}, name)
		without := func(m []string) bool { return !slices.Contains(m, name) }
		dies(round.failover, func() { nw.KillSwitch(i) }, without)
		nw.StartSwitch(i)
		team.Until(name+" to be set up", func() bool {
			all, err := team.API().Switches(t.Context())
			return err == nil && all[i-1].Ready
		})
		dies(round.recovery, func() {
			go team.API().Recover(t.Context(), "main", name)
		}, func([]string) bool { return true })
		team.Until(name+" to be brought in", func() bool {
			m := team.Members()
			// On an overloaded machine, the chain may also have lost another member.
			for _, missing := range members {
				if m != nil && !slices.Contains(m, missing) {
					team.API().Recover(t.Context(), "main", missing)
				}
			}
			return len(team.Members()) == 4
		})
	}
	t.Logf("%d rounds in %v", len(rounds), time.Since(began))
	wg.Wait()
	end := began.Add(length)
	for _, x := range spans {
		if x.to.After(end) {
			x.to = end
		}
		if x.from.Before(x.to) {
			t.Logf("leader killed at %s: whole after %v; longest time without a read done %.0f ms, without a write %.0f ms", x.what, x.to.Sub(x.from).Round(time.Millisecond),
				lab.LongestGap(lab.ReadsDone(history), x.from, x.to), lab.LongestGap(lab.WritesDone(history),
					x.from, x.to))
		}
	}
	checkRecords(team)
	lab.CheckHistory(t, "the chain", history, 1000*len(rounds))
}

// checkRecords checks all configurations of the chain that were ever recorded. Each epoch must have
// only one configuration, epochs must only grow, and a replaced leader must not record anything.
func checkRecords(t *lab.Team) {
	tt := t.Network.T
	tt.Helper()
	now, err := t.Etcd.Get(tt.Context(), "/netcraq/", clientv3.WithPrefix())
	if err != nil {
		tt.Fatal(err)
	}
	configs := map[uint16]string{}
	var epoch uint16
	leader, leaders := "", 0
	for w := range t.Etcd.Watch(tt.Context(), "/netcraq/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		for _, e := range w.Events {
			switch string(e.Kv.Key) {
			case "/netcraq/revision":
				if v := string(e.Kv.Value); v != leader {
					if len(v) < len(leader) || len(v) == len(leader) && v < leader {
						tt.Errorf("the leader of revision %s wrote after the one of revision %s", v, leader)
					}
					leader = v
					leaders++
				}
			case "/netcraq/chains/main":
				var r chain.Record
				if err := json.Unmarshal(e.Kv.Value, &r); err != nil {
					tt.Fatal(err)
				}
				if r.Config.Filling {
					// The next record of this epoch may differ, because it may say that the shadow
					// is filled.
					r.Config.Members, r.Config.Shadow, r.Config.Filling = r.Config.Learners(), "", false
				}
				text := r.Config.String()
				if old, ok := configs[r.Config.Epoch]; ok && old != text {
					tt.Errorf("two configurations of one epoch: %s; %s", old, text)
				}
				if configs[r.Config.Epoch] = text; r.Config.Epoch < epoch {
					tt.Errorf("epoch %d after epoch %d", r.Config.Epoch, epoch)
				}
				epoch = r.Config.Epoch
			}
		}
		if w.Header.Revision >= now.Header.Revision {
			break
		}
	}
	tt.Logf("%d configurations by %d leaders", len(configs), leaders)
	if leaders < 3 {
		tt.Errorf("only %d leaders have written", leaders)
	}
}
