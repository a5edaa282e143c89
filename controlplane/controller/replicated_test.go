package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/poll"
)

// team is two netcraq-controller processes that share an etcd. One leads.
type team struct {
	nw     *network
	binary string
	server string
	etcd   *clientv3.Client
	flags  []string                    // more of them
	cmds   [2]atomic.Pointer[exec.Cmd] // nil: it does not run
	seen   string                      // why something that is waited for is not so, where that is known
}

func (t *team) admin(i int) string { return fmt.Sprintf("127.0.0.1:%d", 9151+i) }

func (t *team) socket(i int) string { return fmt.Sprintf("unix://%s/c%d.sock", t.nw.dir, i) }

func startTeam(nw *network, flags ...string) *team {
	nw.t.Helper()
	t := &team{nw: nw, flags: flags, binary: filepath.Join(nw.dir, "netcraq-controller"), server: etcdtest.Start(nw.t)}
	t.etcd = etcdtest.Client(nw.t, t.server)
	sh(nw.t, "go", "build", "-o", t.binary, "github.com/netcraq/netcraq/controlplane/cmd/netcraq-controller")
	for i := range t.cmds {
		t.start(i)
	}
	nw.t.Cleanup(func() {
		for i := range t.cmds {
			t.kill(i)
			if nw.t.Failed() {
				b, _ := os.ReadFile(t.log(i))
				nw.t.Logf("controller %d's log:\n%s", i, tail(b, 150))
			}
		}
	})
	return t
}

func (t *team) log(i int) string { return filepath.Join(t.nw.dir, fmt.Sprintf("controller%d.log", i)) }

func (t *team) start(i int) {
	t.nw.t.Helper()
	log, err := os.OpenFile(t.log(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.nw.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(t.binary, append([]string{"--topology", t.nw.file, "--etcd", t.server, "--admin", t.admin(i) + "," + t.socket(i), "--admin-token", t.nw.dir + "/token", "--admin-read-token", t.nw.dir + "/read"}, t.flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.nw.t.Fatal(err)
	}
	t.cmds[i].Store(cmd)
}

// kill is kill -9.
func (t *team) kill(i int) {
	if cmd := t.cmds[i].Swap(nil); cmd != nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// leader is which one leads, by etcd.
func (t *team) leader() int {
	t.nw.t.Helper()
	leads := -1
	t.until("a controller to lead", func() bool {
		r, err := t.etcd.Get(t.nw.t.Context(), "/netcraq/leader", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil || len(r.Kvs) == 0 {
			return false
		}
		var id etcdstore.Identity
		if err := json.Unmarshal(r.Kvs[0].Value, &id); err != nil {
			t.nw.t.Fatal(err)
		}
		for i := range t.cmds {
			if id.Admin == t.admin(i) && t.cmds[i].Load() != nil {
				leads = i
			}
		}
		return leads >= 0
	})
	return leads
}

// api is the admin API of a controller that runs, whether or not it leads.
func (t *team) api() *api.Client {
	for i := range t.cmds {
		if t.cmds[i].Load() != nil {
			return api.NewClient(t.socket(i))
		}
	}
	t.nw.t.Fatal("no controller runs")
	return nil
}

func (t *team) until(what string, done func() bool) {
	t.nw.t.Helper()
	poll.Until(t.nw.t, 25*time.Second, what, done, func() string { return fmt.Sprint(t.seen) })
}

// killAt kills the leader when it says that something has happened, and gives its number then.
func (t *team) killAt(point string) chan int {
	i := t.leader()
	c := api.NewClient(t.socket(i))
	var last uint64
	c.Events(t.nw.t.Context(), 0, false, func(e api.Event) error { last = e.ID; return nil })
	kind, with, _ := strings.Cut(point, " ")
	done := make(chan int, 1)
	go func() {
		c.Events(t.nw.t.Context(), last, true, func(e api.Event) error {
			if e.Type == kind && strings.Contains(e.Message, with) {
				t.cmds[i].Load().Process.Kill()
				return errors.New("that is all")
			}
			return nil
		})
		t.kill(i)
		done <- i
	}()
	return done
}

// members is the chain as the leader has it, nil while it is not ready.
func (t *team) members() []string {
	ctx, cancel := context.WithTimeout(t.nw.t.Context(), 2*time.Second)
	defer cancel()
	ch, err := t.api().Chain(ctx, "main")
	if err != nil || !ch.Ready {
		return nil
	}
	var out []string
	for _, m := range ch.Members {
		out = append(out, m.Switch)
	}
	return out
}

// TestReplicated kills switches of a chain under load, and at some step of each failover, and of each recovery, the controller that leads. The other goes on
// with it. The history must be linearizable, and of no epoch may there have been two configurations.
func TestReplicated(t *testing.T) {
	mustLook(t, "etcd")
	if !inNamespace(t) {
		return
	}
	l := line(4, 200)
	l.links = append(l.links, [2]int{4, 1}, [2]int{1, 3}) // there is a way around each
	l.chains[0].patience = 100
	nw := newNetwork(t, "auto", l)
	team := startTeam(nw)
	team.until("the chain to be ready", func() bool { return len(team.members()) == 4 })
	placed, err := team.api().AddKeys(t.Context(), "main", []api.KeySpec{{Name: "a"}, {Name: "b"}, {Name: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	var keys []uint32
	for _, k := range placed {
		keys = append(keys, k.KeyID)
	}
	const clients = 6
	s, err := team.api().NewSessions(t.Context(), api.SessionsRequest{Count: clients, Owner: "replicated"})
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
	var history []call
	for i := range clients {
		w := workload{Client: i, Service: serviceAddr, Keys: keys, Session: s.Sessions[i], Duration: length, Reads: i%3 == 2}
		for n := range nw.hosts {
			w.Others = append(w.Others, switchAddr(1+(i+n)%len(nw.hosts)))
		}
		wg.Go(func() {
			h, err := nw.hosts[i%len(nw.hosts)].work(w)
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
		killed := team.killAt(point)
		cause()
		var i int
		select {
		case i = <-killed:
		case <-time.After(20 * time.Second):
			t.Fatalf("the leader did not come to %q", point)
		}
		if n := team.leader(); n == i {
			t.Fatalf("controller %d leads, and is dead", i)
		}
		team.until("the chain to be whole after "+point, func() bool { m := team.members(); return m != nil && whole(m) })
		spans = append(spans, span{point, from, time.Now()})
		team.start(i)
	}
	for n, round := range rounds {
		members := team.members()
		if len(members) != 4 {
			t.Fatalf("the chain has the members %v", members)
		}
		name := members[n%4]
		i := slices.Index([]string{"", "s1", "s2", "s3", "s4"}, name)
		without := func(m []string) bool { return !slices.Contains(m, name) }
		dies(round.failover, func() { nw.killSwitch(i) }, without)
		nw.startSwitch(i)
		team.until(name+" to be set up", func() bool {
			all, err := team.api().Switches(t.Context())
			return err == nil && all[i-1].Ready
		})
		dies(round.recovery, func() { go team.api().Recover(t.Context(), "main", name) }, func([]string) bool { return true })
		team.until(name+" to be brought in", func() bool {
			if m := team.members(); m != nil && without(m) {
				team.api().Recover(t.Context(), "main", name)
			}
			return len(team.members()) == 4
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
				longestGap(readsDone(history), x.from, x.to), longestGap(writesDone(history), x.from, x.to))
		}
	}
	checkRecords(team)
	checkHistory(t, "the chain", history, 1000*len(rounds))
}

// checkRecords reads all that was ever recorded of the chain: one configuration an epoch, epochs that only grow, and leaders that do not come back.
func checkRecords(t *team) {
	tt := t.nw.t
	tt.Helper()
	now, err := t.etcd.Get(tt.Context(), "/netcraq/", clientv3.WithPrefix())
	if err != nil {
		tt.Fatal(err)
	}
	configs := map[uint16]string{}
	var epoch uint16
	leader, leaders := "", 0
	for w := range t.etcd.Watch(tt.Context(), "/netcraq/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
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
