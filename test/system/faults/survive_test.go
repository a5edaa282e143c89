package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/test/system/lab"
)

// TestSurvive kills the head, a middle switch and the tail of a chain under load, one after the
// other, and brings each of them back. It also cuts a switch off from the controller, but not from
// its clients. It repeats these faults with real switches, clients and time, while the cables lose,
// double and reorder frames. `make survive` is the long run.
//
//	NETCRAQ_SURVIVE_ENGINES  kinds of switches, separated by commas: auto, interp, tc, xdp, bmv2 (default auto)
//	NETCRAQ_SURVIVE_SECONDS  duration of the load (default 16)
//	NETCRAQ_SURVIVE_KEYS     number of keys in the chain (default 200)
//	NETCRAQ_SURVIVE_SLOTS    number of keys when a last switch is brought in at the end, with writers only (default 0: it is not)
//	NETCRAQ_SURVIVE_LEASE    duration of leases in ms (default 500)
//	NETCRAQ_SURVIVE_SHORT    duration of leases in ms while everything is prompt; switches are killed only then (default 0: as LEASE)
//	NETCRAQ_SURVIVE_OUT      folder for the figures
func TestSurvive(t *testing.T) {
	engines := strings.Split(setting("ENGINES", "auto"), ",")
	if out := setting("OUT", ""); out != "" && os.Getenv(lab.EnvInside) == "" {
		for _, engine := range engines { // remove the files of an earlier run
			os.Remove(filepath.Join(out, "survive-"+engine+".json"))
		}
	}
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) { survive(t, engine) })
	}
	if out := setting("OUT", ""); out != "" && os.Getenv(lab.EnvInside) == "" {
		mergeFigures(t, out, engines)
	}
}

func setting(name, otherwise string) string {
	if v := os.Getenv("NETCRAQ_SURVIVE_" + name); v != "" {
		return v
	}
	return otherwise
}

func number(t *testing.T, name string, otherwise int) int {
	n := otherwise
	if v := setting(name, ""); v != "" {
		if _, err := fmt.Sscan(v, &n); err != nil || n < 0 {
			t.Fatalf("NETCRAQ_SURVIVE_%s is %q, and must be a number", name, v)
		}
	}
	return n
}

// These are the faults of the cables, and the duration of a lease.
const (
	surviveFaults = "seed=1; */rx: loss=0.01, dup=0.01, reorder=0.01"
	// milliseconds; longer than necessary, because this test runs at the same time as other tests
	surviveLease = 500
	clients      = 8
	hotKeys      = 16
)

func survive(t *testing.T, engine string) {
	if engine == "bmv2" {
		lab.MustLook(t, "simple_switch_grpc")
	}
	if !lab.InNamespace(t) {
		return
	}
	duration := time.Duration(number(t, "SECONDS", 16)) * time.Second
	keys := number(t, "KEYS", 200)
	lease := number(t, "LEASE", surviveLease)
	l := lab.Line(4, lease)
	// These links make a second path around each switch.
	l.Links = append(l.Links, [2]int{4, 1}, [2]int{1, 3})
	l.Chains[0].Patience = lease / 2
	l.Chains[0].Short = number(t, "SHORT", 0)
	l.Faults = surviveFaults
	nw := lab.NewNetwork(t, engine, l)
	c := nw.StartController("state.json")
	c.WaitReady()
	quiet := "never written again"
	specs := []admin.KeySpec{{Name: "quiet", Value: []byte(quiet)[:16]}}
	for i := range keys - 1 {
		specs = append(specs, admin.KeySpec{Name: fmt.Sprintf("k%d", i)})
	}
	placed, err := c.API.AddKeys(t.Context(), "main", specs)
	if err != nil {
		t.Fatal(err)
	}
	var hot []uint32
	for _, k := range placed[1 : 1+hotKeys] {
		hot = append(hot, k.KeyID)
	}
	s, err := c.API.NewSessions(t.Context(), admin.SessionsRequest{Count: clients + 1, Owner: "survive"})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() { // keep the sessions' leases alive
		for {
			select {
			case <-stop:
				return
			case <-time.After(s.TTL() / 4):
				c.API.KeepSessions(context.Background(), s.Lease)
			}
		}
	}()

	var wg sync.WaitGroup
	var mu sync.Mutex
	var history []linearizable.Call
	// The load ends when the last switch is back. Each client has one uninterrupted load, because a
	// pause between two loads would look like an outage.
	ended, over := filepath.Join(t.TempDir(), "ended"), make(chan struct{})
	end := sync.OnceFunc(func() {
		close(over)
		if err := os.WriteFile(ended, nil, 0o600); err != nil {
			t.Error(err)
		}
	})
	defer end()
	longest := duration + mostLate + mostAwaited
	run := func(i int, w lab.Workload) {
		w.Client, w.Service, w.Keys, w.Session = i, lab.ServiceAddr, hot, s.Sessions[i]
		for n := range nw.Hosts {
			w.Others = append(w.Others, lab.SwitchAddr(1+(i+n)%len(nw.Hosts)))
		}
		h, err := nw.Hosts[i%len(nw.Hosts)].Work(w)
		if err != nil {
			t.Errorf("client %d: %v", i, err)
		}
		mu.Lock()
		defer mu.Unlock()
		history = append(history, h...)
	}
	for i := range clients {
		wg.Go(func() { run(i, lab.Workload{Duration: longest, Until: ended, Reads: i%4 == 3}) })
	}
	answers := make([][]int64, len(nw.Hosts)) // times of the answers of each switch
	for i := range nw.Hosts {
		wg.Go(func() {
			r, err := nw.Hosts[i].Request(lab.HostRequest{Watch: &lab.Watch{Switch: lab.SwitchAddr(i + 1),
				Key: placed[0].KeyID, Value: quiet[:16], Duration: longest, Until: ended}})
			if answers[i] = r.Answers; err != nil {
				t.Errorf("the reader at switch %d: %v", i+1, err)
			}
		})
	}
	var looks []int64 // times at which a goroutine without requests ran
	wg.Go(func() {
		for looking := time.NewTicker(5 * time.Millisecond); ; {
			looks = append(looks, time.Now().UnixNano())
			select {
			case <-looking.C:
			case <-over:
				looking.Stop()
				return
			}
		}
	})
	f := figures{Engine: engine, Seconds: int(duration.Seconds()), Keys: keys, Faults: surviveFaults,
		Lease: lease}
	trouble, unasked := causeTrouble(t, nw, c, time.Now().Add(duration-time.Second), l.Chains[0].Short > 0)
	end()
	wg.Wait()
	// these reads get the final values, on which all clients must agree
	run(clients, lab.Workload{Duration: 300 * time.Millisecond})
	f.Unasked = unasked
	f.Done = checkNothingLost(t, nw, history, hot)
	if n := number(t, "SLOTS", 0); n > keys {
		f.Large = recoverLarge(t, nw, c, n, keys, s.Sessions[:clients], hot)
	}

	for _, m := range trouble {
		writes, machine := lab.LongestGap(lab.WritesDone(history), m.from, m.to), lab.LongestGap(looks, m.from, m.to)
		if m.joined != 0 {
			f.Joining = append(f.Joining, join{Switch: m.name, All: lab.Millis(m.joined),
				Changed: lab.Millis(m.changed), Writes: writes, Machine: machine})
			continue
		}
		x := loss{Position: m.position, Switch: m.name, Writes: writes, Machine: machine,
			Reads: lab.LongestGap(lab.ReadsDone(history), m.from, m.to)}
		for i := range answers {
			if fmt.Sprintf("s%d", i+1) != m.name && slices.Contains(m.members, fmt.Sprintf("s%d", i+1)) {
				x.Survivors = max(x.Survivors, lab.LongestGap(answers[i], m.from, m.to))
			}
		}
		f.Failure = append(f.Failure, x)
	}
	for _, a := range answers {
		f.Watched += len(a)
	}
	f.Calls, f.Unknown = lab.CheckHistory(t, "the chain", history, 100*f.Seconds, c.History)
	f.missed()
	b, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", b)
	if out := setting("OUT", ""); out != "" {
		if err := os.WriteFile(filepath.Join(out, "survive-"+engine+".json"), append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s", f.summary())
	for _, m := range f.Missed {
		t.Logf("AIM MISSED: %s", m)
	}
	// Reads at the remaining switches must not wait for the failover, which takes more than half a
	// lease. During a recovery, writes must wait only for the change of the chain and for a
	// retransmission. A busy machine may cause a single gap, but not most of them. Known pauses of
	// the machine are subtracted. If the chain lost a member without a fault, switches had no CPU
	// time for longer than a lease. In that case, the gaps say more about the machine than about
	// the chain.
	length := float64(lease)
	gap := middle(f.Failure, func(x loss) float64 { return x.Survivors - x.Machine })
	if gap > length/2 && f.Unasked == 0 {
		t.Errorf("when a switch was lost, those that were left mostly did not answer reads of a clean key for %.0f ms", gap)
	}
	if gap := middle(f.Joining, func(x join) float64 { return x.Writes - x.Changed - x.Machine }); gap > length {
		t.Errorf("when a switch was brought in, there was mostly no write for %.0f ms more than the chain was changed in", gap)
	}
	for _, x := range f.Failure {
		if x.Survivors > 2*length+x.Machine && f.Unasked == 0 {
			t.Errorf("%s (%s) lost: a switch that was left did not answer a read of a clean key for %.0f ms, of which the machine held all up for %.0f at most",
				x.Switch, x.Position, x.Survivors, x.Machine)
		}
	}
	for _, x := range f.Joining {
		if x.Writes > x.Changed+2*length {
			t.Logf("AIM MISSED: %s recovered: no write was done for %.0f ms, and the chain was changed in %.0f ms",
				x.Switch, x.Writes, x.Changed)
		}
		if x.Writes > x.Changed+5*length+x.Machine {
			t.Errorf("%s recovered: no write was done for %.0f ms, of which the machine held all up for %.0f at most",
				x.Switch, x.Writes, x.Machine)
		}
	}
	if t.Failed() || setting("EVENTS", "") != "" {
		t.Logf("events:\n%s", c.History())
	}
}

// checkNothingLost reads every written key at every switch. No switch may have a version that is
// older than an acknowledged version. It returns the number of acknowledged writes.
func checkNothingLost(t *testing.T, nw *lab.Network, history []linearizable.Call, hot []uint32) (acknowledged int) {
	newest := map[uint32]wire.Version{}
	for _, x := range history {
		if x.Op != wire.Read && !x.Unknown && !x.Failed && !x.Nothing {
			acknowledged++
			newest[x.Key] = max(newest[x.Key], x.Version)
		}
	}
	for i, h := range nw.Hosts {
		for _, k := range hot {
			var got *wire.Packet
			var err error
			// repeat the read, because the cables lose frames
			for try := uint32(1); try <= 50; try++ {
				if got, err = h.Ask(lab.SwitchAddr(i+1), &wire.Packet{Op: wire.Read, Key: wire.Key(k),
					Request: try}, 200*time.Millisecond); err == nil && got.Status == wire.OK {
					break
				}
				if err == nil {
					// For a moment, the switch has no valid lease, because the machine is busy.
					time.Sleep(50 * time.Millisecond)
				}
			}
			if err != nil || got.Status != wire.OK || got.Version < newest[k] {
				t.Errorf("s%d has %v (%v) of the key %#x; %v was acknowledged", i+1, got, err, k, newest[k])
			}
		}
	}
	return acknowledged
}

// recoverLarge gives the chain many keys, removes its tail and brings it back, with writers only,
// to measure the pause of writes.
func recoverLarge(t *testing.T, nw *lab.Network, c *lab.Controller, slots, have int, sessions []admin.Session,
	hot []uint32) *large {
	var specs []admin.KeySpec
	for i := range slots - have {
		specs = append(specs, admin.KeySpec{Name: fmt.Sprintf("large%d", i), Value: []byte("x")})
	}
	for part := range slices.Chunk(specs, 2048) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, err := c.API.AddKeys(ctx, "main", part); err != nil {
			t.Fatalf("adding %d keys: %v", len(part), err)
		}
	}
	c.Heal()
	all := c.Chain().Members
	name := all[len(all)-1].Switch
	i := slices.Index([]string{"", "s1", "s2", "s3", "s4"}, name)
	nw.KillSwitch(i)
	c.WaitUntil(func() bool { return len(c.Chain().Members) == len(all)-1 && c.API.Ready(t.Context()) == nil }, "the chain to go on without "+name)
	nw.StartSwitch(i)
	c.WaitUntil(func() bool {
		all, err := c.API.Switches(t.Context())
		return err == nil && all[i-1].Ready
	}, name+" to be set up")
	ended := filepath.Join(t.TempDir(), "ended")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var history []linearizable.Call
	for n := range 4 {
		if n+1 == i {
			continue
		}
		wg.Go(func() {
			session := sessions[n]
			session.NextRequest += 1 << 20 // greater than the request numbers of the load
			h, err := nw.Hosts[n].Work(lab.Workload{Client: 100 + n, Service: lab.ServiceAddr, Keys: hot,
				Session: session, Duration: 10 * time.Minute, Until: ended, Writes: true})
			if err != nil {
				t.Errorf("a writer beside the large recovery: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			history = append(history, h...)
		})
	}
	time.Sleep(300 * time.Millisecond)
	recovery, changed := c.BringIn(name)
	out := &large{slots, join{Switch: name, All: lab.Millis(recovery), Changed: lab.Millis(changed)}}
	from, to := c.ChangedSpan()
	if err := os.WriteFile(ended, nil, 0o600); err != nil {
		t.Error(err)
	}
	wg.Wait()
	out.Writes = lab.LongestGap(lab.WritesDone(history), from.Add(-100*time.Millisecond), to.Add(200*time.Millisecond))
	return out
}

// moment is a fault of a switch, and its time.
type moment struct {
	position, name  string
	from, to        time.Time
	members         []string      // members of the chain before the fault
	joined, changed time.Duration // times in a recovery
}

// mostLate is the maximum time for which the load may run longer than planned.
const mostLate = time.Minute

// mostAwaited bounds the total time for which the test waits until leases are short.
const mostAwaited = 5 * time.Minute

// awaitShort waits until leases are short, which they are while messages arrive promptly. So the
// test measures a loss in a network in its usual state. Just after a loss, four switches recompile
// their programs on the same machine.
func awaitShort(t *testing.T, c *lab.Controller, most time.Duration) time.Duration {
	begun := time.Now()
	for c.Chain().LeaseGivenMillis == 0 {
		if waited := time.Since(begun); waited > most {
			t.Logf("leases have not become short within %v: something is late all the time", most)
			return waited
		}
		time.Sleep(50 * time.Millisecond)
	}
	// after this time, earlier leases have expired
	time.Sleep(time.Duration(c.Chain().LeaseMillis) * 11 / 10 * time.Millisecond)
	return time.Since(begun)
}

// causeTrouble removes one switch after the other and brings it back, until the time is over.
func causeTrouble(t *testing.T, nw *lab.Network, c *lab.Controller, end time.Time,
	short bool) (all []moment, unasked int) {
	members := func() []string {
		var out []string
		for _, m := range c.Chain().Members {
			out = append(out, m.Switch)
		}
		return out
	}
	var awaited time.Duration
	defer func() {
		if late := time.Since(end) - awaited; late > mostLate {
			t.Errorf("the last switch was back %v after it should have been", late)
		}
	}()
	time.Sleep(time.Second)
	took := 3 * time.Second
	for n := 0; n < 4 || time.Now().Add(took).Before(end); n++ {
		if short {
			awaited += awaitShort(t, c, mostAwaited-awaited)
		}
		begun := time.Now()
		m := members()
		position := []string{"head", "middle", "tail", "cut off"}[n%4]
		name := map[string]string{"head": m[0], "middle": m[len(m)/2], "tail": m[len(m)-1], "cut off": m[(n/4)%len(m)]}[position]
		i := slices.Index([]string{"", "s1", "s2", "s3", "s4"}, name)
		lost := moment{position: position, name: name, from: time.Now(), members: m}
		if position == "cut off" {
			nw.Proxies[i].SetCut(true)
		} else {
			nw.KillSwitch(i)
		}
		c.WaitUntil(func() bool {
			return !slices.Contains(members(), name) && c.API.Ready(t.Context()) == nil
		}, "the chain to go on without "+name)
		time.Sleep(500 * time.Millisecond)
		lost.to = time.Now()
		all = append(all, lost)
		if position == "cut off" {
			nw.Proxies[i].SetCut(false)
		} else {
			nw.StartSwitch(i)
		}
		c.WaitUntil(func() bool {
			all, err := c.API.Switches(t.Context())
			return err == nil && all[i-1].Ready
		}, name+" to be set up")
		time.Sleep(200 * time.Millisecond)
		start := time.Now()
		recovery, changed := c.BringIn(name)
		back := moment{position: position, name: name, from: start, joined: recovery, changed: changed}
		time.Sleep(300 * time.Millisecond)
		back.to = time.Now()
		all = append(all, back)
		took = max(took, time.Since(begun))
		unasked += c.Heal()
	}
	return all, unasked
}
