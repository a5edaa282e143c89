package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/test/system/lab"
)

// The tests in this file check that members come back automatically, without a command of an
// operator.

// comebackLoad is a load of clients at every host of a network.
type comebackLoad struct {
	t     *testing.T
	nw    *lab.Network
	c     *lab.Controller
	hot   []uint32
	ended string
	wg    sync.WaitGroup
	admin atomic.Pointer[admin.Client] // the controller that keeps the clients' sessions alive

	mu      sync.Mutex
	history []linearizable.Call
}

// startLoad places keys and starts n clients that use them.
func startLoad(t *testing.T, nw *lab.Network, c *lab.Controller, n int, most time.Duration) *comebackLoad {
	t.Helper()
	var specs []admin.KeySpec
	for i := range hotKeys {
		specs = append(specs, admin.KeySpec{Name: fmt.Sprint("hot", i)})
	}
	placed, err := c.API.AddKeys(t.Context(), "main", specs)
	if err != nil {
		t.Fatal(err)
	}
	l := &comebackLoad{t: t, nw: nw, c: c, ended: filepath.Join(t.TempDir(), "ended")}
	l.admin.Store(c.API)
	for _, k := range placed {
		l.hot = append(l.hot, k.KeyID)
	}
	for i := range n {
		s, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: 1, Owner: fmt.Sprint("load", i)})
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		l.wg.Go(func() {
			defer close(stop)
			w := lab.Workload{Client: i, Service: lab.ServiceAddr, Keys: l.hot, Session: s.Sessions[0],
				Duration: most, Until: l.ended, Reads: i%4 == 3}
			for n := range nw.Hosts {
				w.Others = append(w.Others, lab.SwitchAddr(1+(i+n)%len(nw.Hosts)))
			}
			h, err := nw.Hosts[i%len(nw.Hosts)].Work(w)
			if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.history = append(l.history, h...)
		})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(s.TTL() / 4):
					_, _ = l.admin.Load().KeepSessions(t.Context(), s.Lease)
				}
			}
		}()
	}
	return l
}

// moved makes the clients use the controller that now is in c, after another controller has
// replaced it.
func (l *comebackLoad) moved() { l.admin.Store(l.c.API) }

// end ends the load, checks that no write was lost and that the clients' history is linearizable,
// and logs the longest waits.
func (l *comebackLoad) end(from, to time.Time, calls int) {
	l.t.Helper()
	if err := os.WriteFile(l.ended, nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.wg.Wait()
	acknowledged := checkNothingLost(l.t, l.nw, l.history, l.hot)
	all, unknown := lab.CheckHistory(l.t, "the chain", l.history, calls, l.c.History)
	l.t.Logf("%d calls (%d of unknown outcome), %d writes acknowledged, none lost; the longest without a write %.0f ms, without a read %.0f ms",
		all, unknown, acknowledged, lab.LongestGap(lab.WritesDone(l.history), from, to),
		lab.LongestGap(lab.ReadsDone(l.history), from, to))
}

// whole returns whether the chain has all its members and serves.
func whole(c *lab.Controller) bool {
	ch := c.Chain()
	return ch.Short() == 0 && ch.Ready
}

// In TestComesBack, the chain gives up three switches in turn. One is stopped for a while, one is
// killed and restarted, and one is cut off from the controller. Each must become a member again
// without a command. Meanwhile the chain must report that a member is missing. A switch that an
// operator has excluded must stay out.
func TestComesBack(t *testing.T) {
	for _, engine := range []string{"interp", "auto"} {
		t.Run(engine, func(t *testing.T) { comesBack(t, engine) })
	}
}

func comesBack(t *testing.T, engine string) {
	if !lab.InNamespace(t) {
		return
	}
	l := lab.Line(3, surviveLease)
	l.Links = append(l.Links, [2]int{3, 1})
	l.Chains[0].Patience, l.Chains[0].Rejoin = surviveLease/2, 300
	nw := lab.NewNetwork(t, engine, l)
	c := nw.StartController("state.json")
	c.WaitReady()
	load := startLoad(t, nw, c, 4, 3*time.Minute)
	from, taken := time.Now(), 0 // taken is the number of failovers so far.
	for i, f := range []struct {
		what         string
		begin, after func(sw int)
	}{
		{"stopped", func(sw int) { nw.PauseSwitch(sw, true) }, func(sw int) { nw.PauseSwitch(sw, false) }},
		{"killed", nw.KillSwitch, nw.StartSwitch},
		{"cut off", func(sw int) { nw.Proxies[sw].SetCut(true) }, func(sw int) { nw.Proxies[sw].SetCut(false) }},
	} {
		members := c.Chain().Members
		// The first switch is the head, the next one is in the middle, and the last one is the
		// tail.
		name := members[i].Switch
		sw := slices.Index([]string{"", "s1", "s2", "s3"}, name)
		f.begin(sw)
		c.WaitUntil(func() bool { return len(c.Chain().Members) == 2 }, "the chain to go on without "+name)
		ch := c.Chain()
		if ch.Length != 3 || ch.Short() != 1 || len(ch.Missing) != 1 ||
			ch.Missing[0].Switch != name || ch.Missing[0].Why == "" {
			t.Errorf("%s was %s, and the chain says %+v", name, f.what, ch)
		}
		c.WaitUntil(func() bool { return c.API.Ready(t.Context()) == nil }, "the shorter chain to serve")
		if m := lab.Metric(t, c.URL, `netcraq_chain_missing_members{chain="main"}`); m != 1 {
			t.Errorf("netcraq_chain_missing_members is %v", m)
		}
		f.after(sw)
		began := time.Now()
		c.WaitUntil(func() bool { return whole(c) }, name+" to be a member again")
		t.Logf("%s was %s, and is a member again %v after it was there", name, f.what, time.Since(began).Round(time.Millisecond))
		// The switch must join before the tail. It may only be elsewhere if the machine also lost
		// the other member, so that the chain had only one member.
		before := taken
		taken = strings.Count(c.History(), "chain.failover")
		if ch := c.Chain(); ch.Members[1].Switch != name && taken <= before+1 || len(ch.Missing) > 0 {
			t.Errorf("the chain is %+v", ch)
		}
	}
	if m := lab.Metric(t, c.URL, `netcraq_chain_missing_members{chain="main"}`); m != 0 {
		t.Errorf("netcraq_chain_missing_members is %v", m)
	}
	c.WaitEvent("chain.full", "")

	// An operator now excludes a switch.
	var members []string
	for _, m := range c.Chain().Members[1:] {
		members = append(members, m.Switch)
	}
	c.WaitUntil(func() bool {
		_, err := c.API.ChangeChain(t.Context(), "main", admin.ChainChange{Members: &members})
		return err == nil
	}, "a member to be left out")
	time.Sleep(2 * time.Second)
	if ch := c.Chain(); len(ch.Members) != 2 || ch.Short() != 0 || len(ch.Missing) != 0 {
		t.Errorf("a switch that was left out by hand: the chain is %+v", ch)
	}
	load.end(from, time.Now(), 200)
}

// TestComesBackAfterANewController checks that members also come back when the controller is
// replaced. The new controller must find the lost and the excluded switches in its record.
func TestComesBackAfterANewController(t *testing.T) {
	if !lab.InNamespace(t) {
		return
	}
	l := lab.Line(4, surviveLease)
	l.Chains[0].Patience, l.Chains[0].Rejoin = surviveLease/2, 300
	nw := lab.NewNetwork(t, "auto", l)
	c := nw.StartController("state.json")
	c.WaitReady()
	if _, err := c.API.AddKeys(t.Context(), "main", []admin.KeySpec{{Name: "k", Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	three := []string{"s1", "s2", "s3"}
	c.WaitUntil(func() bool {
		_, err := c.API.ChangeChain(t.Context(), "main", admin.ChainChange{Members: &three})
		return err == nil
	}, "s4 to be left out")
	nw.KillSwitch(2)
	c.WaitUntil(func() bool { return len(c.Chain().Members) == 2 && c.API.Ready(t.Context()) == nil }, "the chain to go on without s2")
	c.Stop()
	nw.StartSwitch(2)
	c = nw.StartController("state.json")
	c.WaitReady()
	c.WaitUntil(func() bool { return whole(c) && len(c.Chain().Members) == 3 }, "s2 to be a member again")
	time.Sleep(time.Second)
	for _, m := range c.Chain().Members {
		if m.Switch == "s4" {
			t.Errorf("s4 was left out, and is a member")
		}
	}
}

// In TestComesBackInOneOfTwoChains, one chain has given up a switch that is still a member of
// another chain. The switch still has old values of the first chain, and can only be emptied as a
// whole. So the other chain must give it up for a moment.
func TestComesBackInOneOfTwoChains(t *testing.T) {
	if !lab.InNamespace(t) {
		return
	}
	l := lab.Layout{N: 3, Links: [][2]int{{1, 2}, {2, 3}, {3, 1}}, Chains: []lab.Chain{
		{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: surviveLease, Patience: surviveLease, Rejoin: 300},
		{ID: 4, Name: "side", Members: []int{3, 1, 2}, Lease: 30_000, Patience: 60_000, Rejoin: 300},
	}}
	nw := lab.NewNetwork(t, "auto", l)
	c := nw.StartController("state.json")
	c.WaitAllReady()
	for _, chain := range []string{"main", "side"} {
		keys := []admin.KeySpec{{Name: chain, Value: []byte(chain)}}
		if _, err := c.API.AddKeys(t.Context(), chain, keys); err != nil {
			t.Fatal(err)
		}
	}
	nw.Proxies[2].SetCut(true)
	c.WaitUntil(func() bool { return len(c.Chain().Members) == 2 }, "main to go on without s2")
	nw.Proxies[2].SetCut(false)
	c.WaitUntil(func() bool {
		all, err := c.API.Chains(t.Context())
		lacks := func(ch admin.Chain) bool { return len(ch.Members) != 3 || !ch.Ready }
		return err == nil && !slices.ContainsFunc(all, lacks)
	}, "s2 to be a member of both again")
	keys, err := c.API.Directory(t.Context(), "", true)
	if err != nil || len(keys) != 2 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for _, k := range keys {
		for _, s := range k.State {
			if string(s.Value) != k.Name {
				t.Errorf("%s has %+v of %s", s.Switch, s, k.Name)
			}
		}
	}
	if !strings.Contains(c.History(), "chain.recovered side s2") {
		t.Errorf("side never did without s2:\n%s", c.History())
	}
}

// TestOverload gives a machine four times the work that it can do, for a while. Chains may give up
// members and bring them in again. No write may be lost, and all chains must have their full length
// within a minute after the overload. `make overload` is the long run, in which processes keep all
// CPUs busy, so it also slows other tests. By default, only this test's switches are slowed, as a
// CPU quota of a cgroup would do. Each switch is stopped for three quarters of the time.
//
//	NETCRAQ_OVERLOAD_SECONDS  duration of the overload (default 6)
//	NETCRAQ_OVERLOAD_ENGINES  kinds of switches, separated by commas: auto, interp, tc, xdp (default interp)
//	NETCRAQ_OVERLOAD_BY       kinds of overload, separated by commas: quota, or the nice value of
//	                          processes that keep the CPUs busy (default quota)
func TestOverload(t *testing.T) {
	set := func(name, otherwise string) string {
		if v := os.Getenv("NETCRAQ_OVERLOAD_" + name); v != "" {
			return v
		}
		return otherwise
	}
	seconds, err := strconv.Atoi(set("SECONDS", "6"))
	if err != nil || seconds < 1 {
		t.Fatalf("NETCRAQ_OVERLOAD_SECONDS: give a number of seconds: %v", err)
	}
	for engine := range strings.SplitSeq(set("ENGINES", "interp"), ",") {
		for by := range strings.SplitSeq(set("BY", "quota"), ",") {
			t.Run(engine+"_"+by, func(t *testing.T) { overload(t, engine, by, seconds) })
		}
	}
}

// tooMuch overloads the machine, or the switches, by a factor of four until relieve is called.
func tooMuch(t *testing.T, nw *lab.Network, by string) (relieve func()) {
	t.Helper()
	if nice, err := strconv.Atoi(by); err == nil {
		return lab.Busy(t, 4*runtime.NumCPU(), nice)
	}
	if by != "quota" {
		t.Fatalf("NETCRAQ_OVERLOAD_BY=%s: give quota, or nice values", by)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := 1; i <= nw.Layout.N; i++ {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			for pause := true; ; pause = !pause {
				nw.PauseSwitch(i, pause)
				d := time.Duration(50+r.IntN(350)) * time.Millisecond
				if pause {
					d *= 3
				}
				select {
				case <-time.After(d):
				case <-stop:
					nw.PauseSwitch(i, false)
					return
				}
			}
		})
	}
	return sync.OnceFunc(func() { close(stop); wg.Wait() })
}

func overload(t *testing.T, engine, by string, seconds int) {
	if !lab.InNamespace(t) {
		return
	}
	l := lab.Layout{N: 4, Links: [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 1}, {1, 3}}, Chains: []lab.Chain{
		{ID: 3, Name: "main", Members: []int{1, 2, 3, 4}, Lease: surviveLease, Patience: surviveLease / 2, Rejoin: 1000},
		{ID: 4, Name: "side", Members: []int{4, 2}, Lease: surviveLease, Patience: surviveLease / 2, Rejoin: 1000},
	}}
	if seconds >= 30 {
		l.Chains[0].Rejoin, l.Chains[1].Rejoin = 3000, 3000 // 3 s is the default
	}
	nw := lab.NewNetwork(t, engine, l)
	c := nw.StartController("state.json")
	c.WaitAllReady()
	if _, err := c.API.AddKeys(t.Context(), "side", []admin.KeySpec{{Name: "side", Value: []byte("side")}}); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	load := startLoad(t, nw, c, clients, time.Duration(seconds)*time.Second+3*time.Minute)
	time.Sleep(time.Second)
	relieve := tooMuch(t, nw, by)
	shortest := 4
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for ; time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if all, err := c.API.Chains(t.Context()); err == nil {
			shortest = min(shortest, len(all[0].Members))
		}
	}
	relieve()
	relieved := time.Now()
	for ; ; time.Sleep(100 * time.Millisecond) {
		all, err := c.API.Chains(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(all, func(ch admin.Chain) bool { return ch.Short() > 0 || !ch.Ready }) {
			break
		}
		if time.Since(relieved) > time.Minute {
			t.Fatalf("a minute after there is still one that is not whole: %+v\n%s", all, c.History())
		}
	}
	back := time.Since(relieved)
	lost, epoch := 0, c.Chain().Epoch
	_ = c.API.Events(t.Context(), 0, false, func(e admin.Event) error {
		switch e.Type {
		case "chain.failover", "chain.lost-member":
			lost++
		case "chain.rejoining", "chain.not-rejoined", "chain.recovered", "chain.full":
			if after := e.Time.Sub(relieved); after > 0 {
				t.Logf("%5.1f s after: %s %s %s %s", after.Seconds(), e.Type, e.Chain, e.Switch, e.Message)
			}
		}
		return nil
	})
	t.Logf("%s, %d s of four times too much on %d processors, by %s: members were given up %d times; the chain of 4 had %d at the least, and has had %d epochs; all were at full length %v after",
		engine, seconds, runtime.NumCPU(), by, lost, shortest, epoch, back.Round(time.Millisecond))
	if by == "quota" && lost == 0 {
		t.Errorf("nobody was given up, so nothing was seen")
	}
	load.end(from, time.Now(), 100)
	keys, err := c.API.Directory(t.Context(), "side", true)
	if err != nil || len(keys) != 1 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for _, s := range keys[0].State {
		if string(s.Value) != "side" {
			t.Errorf("%s has %+v", s.Switch, s)
		}
	}
}
