package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/internal/poll"
	"github.com/netcraq/netcraq/wire"
)

// TestSurvive kills the head, a middle switch and the tail of a chain under load, one after the other, brings each back, and cuts one off from the controller but not from its
// clients, over and over, with real switches, clients and time, while the cables lose, double and reorder frames. `make survive` is the long run.
//
//	NETCRAQ_SURVIVE_ENGINES  which switches, with commas: auto, interp, tc, xdp, bmv2 (default auto)
//	NETCRAQ_SURVIVE_SECONDS  of load (default 16)
//	NETCRAQ_SURVIVE_KEYS     how many keys the chain has (default 200)
//	NETCRAQ_SURVIVE_SLOTS    how many it has when, at the end, a last switch is brought in with little load beside it (default 0: none is)
//	NETCRAQ_SURVIVE_OUT      a folder for the figures
func TestSurvive(t *testing.T) {
	engines := strings.Split(setting("ENGINES", "auto"), ",")
	if out := setting("OUT", ""); out != "" && os.Getenv(envInside) == "" {
		for _, engine := range engines { // of an earlier run
			os.Remove(filepath.Join(out, "survive-"+engine+".json"))
		}
	}
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) { survive(t, engine) })
	}
	if out := setting("OUT", ""); out != "" && os.Getenv(envInside) == "" {
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

// What the cables do, and how long a lease is.
const (
	surviveFaults = "seed=1; */rx: loss=0.01, dup=0.01, reorder=0.01"
	surviveLease  = 200 // milliseconds
	clients       = 8
	hotKeys       = 16
)

func survive(t *testing.T, engine string) {
	if engine == "bmv2" {
		mustLook(t, "simple_switch_grpc")
	}
	if !inNamespace(t) {
		return
	}
	duration := time.Duration(number(t, "SECONDS", 16)) * time.Second
	keys := number(t, "KEYS", 200)
	l := line(4, surviveLease)
	l.links = append(l.links, [2]int{4, 1}, [2]int{1, 3}) // there is a way around each
	l.chains[0].patience = surviveLease / 2
	l.faults = surviveFaults
	nw := newNetwork(t, engine, l)
	c := nw.startController("state.json")
	c.waitReady()
	quiet := "never written again"
	specs := []api.KeySpec{{Name: "quiet", Value: []byte(quiet)[:16]}}
	for i := range keys - 1 {
		specs = append(specs, api.KeySpec{Name: fmt.Sprintf("k%d", i)})
	}
	placed, err := c.api.AddKeys(t.Context(), "main", specs)
	if err != nil {
		t.Fatal(err)
	}
	var hot []uint32
	for _, k := range placed[1 : 1+hotKeys] {
		hot = append(hot, k.KeyID)
	}
	s, err := c.api.NewSessions(t.Context(), api.SessionsRequest{Count: clients + 1, Owner: "survive"})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() { // the leases of the sessions
		for {
			select {
			case <-stop:
				return
			case <-time.After(s.TTL() / 4):
				c.api.KeepSessions(context.Background(), s.Lease)
			}
		}
	}()

	var wg sync.WaitGroup
	var mu sync.Mutex
	var history []call
	run := func(i int, d time.Duration) {
		w := workload{Client: i, Service: serviceAddr, Keys: hot, Session: s.Sessions[i], Duration: d, Reads: i%4 == 3}
		for n := range nw.hosts {
			w.Others = append(w.Others, switchAddr(1+(i+n)%len(nw.hosts)))
		}
		h, err := nw.hosts[i%len(nw.hosts)].work(w)
		if err != nil {
			t.Errorf("client %d: %v", i, err)
		}
		mu.Lock()
		defer mu.Unlock()
		history = append(history, h...)
	}
	for i := range clients {
		wg.Go(func() { run(i, duration) })
	}
	answers := make([][]int64, len(nw.hosts)) // of each switch
	for i := range nw.hosts {
		wg.Go(func() {
			r, err := nw.hosts[i].request(hostRequest{Watch: &watch{Switch: switchAddr(i + 1), Key: placed[0].KeyID, Value: quiet[:16], Duration: duration}})
			if answers[i] = r.Answers; err != nil {
				t.Errorf("the reader at switch %d: %v", i+1, err)
			}
		})
	}
	f := figures{Engine: engine, Seconds: int(duration.Seconds()), Keys: keys, Faults: surviveFaults, Lease: surviveLease}
	trouble, unasked := causeTrouble(t, nw, c, time.Now().Add(duration-time.Second))
	wg.Wait()
	run(clients, 300*time.Millisecond) // what all agree on in the end
	f.Unasked = unasked
	f.Done = checkNothingLost(t, nw, history, hot)
	if n := number(t, "SLOTS", 0); n > keys {
		f.Large = recoverLarge(t, nw, c, n, keys, s.Sessions[:clients], hot)
	}

	for _, m := range trouble {
		writes := longestGap(writesDone(history), m.from, m.to)
		if m.joined != 0 {
			f.Joining = append(f.Joining, join{Switch: m.name, All: millis(m.joined), Frozen: millis(m.frozen), Writes: writes})
			continue
		}
		x := loss{Position: m.position, Switch: m.name, Writes: writes, Reads: longestGap(readsDone(history), m.from, m.to)}
		for i := range answers {
			if fmt.Sprintf("s%d", i+1) != m.name && slices.Contains(m.members, fmt.Sprintf("s%d", i+1)) {
				x.Survivors = max(x.Survivors, longestGap(answers[i], m.from, m.to))
			}
		}
		f.Failure = append(f.Failure, x)
	}
	for _, a := range answers {
		f.Watched += len(a)
	}
	f.Calls, f.Unknown = checkHistory(t, "the chain", history, 100*f.Seconds, c.history)
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
	// Reads at switches that are left must not wait for the failover, which takes more than half a lease, nor writes for more of a recovery than the freeze and a
	// retransmission. One gap can be the machine's, most of them cannot.
	if gap := middle(f.Failure, func(x loss) float64 { return x.Survivors }); gap > surviveLease/2 {
		t.Errorf("when a switch was lost, those that were left mostly did not answer reads of a clean key for %.0f ms", gap)
	}
	if gap := middle(f.Joining, func(x join) float64 { return x.Writes - x.Frozen }); gap > surviveLease/2 {
		t.Errorf("when a switch was brought in, there was mostly no write for %.0f ms more than the chain was frozen", gap)
	}
	for _, x := range f.Failure {
		if x.Survivors > 2*surviveLease {
			t.Errorf("%s (%s) lost: a switch that was left did not answer a read of a clean key for %.0f ms", x.Switch, x.Position, x.Survivors)
		}
	}
	for _, x := range f.Joining {
		if x.Writes > x.Frozen+2*surviveLease {
			t.Errorf("%s recovered: no write was done for %.0f ms, and the chain was frozen for %.0f ms only", x.Switch, x.Writes, x.Frozen)
		}
	}
	if t.Failed() || setting("EVENTS", "") != "" {
		t.Logf("events:\n%s", c.history())
	}
}

// checkNothingLost asks every switch for every key that was written: none may have a version older than one that was acknowledged. It gives the number of those.
func checkNothingLost(t *testing.T, nw *network, history []call, hot []uint32) (acknowledged int) {
	newest := map[uint32]wire.Version{}
	for _, x := range history {
		if x.Op != wire.Read && !x.Unknown && !x.Failed && !x.Nothing {
			acknowledged++
			newest[x.Key] = max(newest[x.Key], x.Version)
		}
	}
	for i, h := range nw.hosts {
		for _, k := range hot {
			var got *wire.Packet
			var err error
			for try := uint32(1); try <= 50; try++ { // the cables lose frames
				if got, err = h.ask(switchAddr(i+1), &wire.Packet{Op: wire.Read, Key: wire.Key(k), Request: try}, 200*time.Millisecond); err == nil && got.Status == wire.OK {
					break
				}
			}
			if err != nil || got.Status != wire.OK || got.Version < newest[k] {
				t.Errorf("s%d has %v (%v) of the key %#x; %v was acknowledged", i+1, got, err, k, newest[k])
			}
		}
	}
	return acknowledged
}

// recoverLarge gives the chain many keys, takes its tail away and brings it back, with writers only: what is measured is the pause.
func recoverLarge(t *testing.T, nw *network, c *running, slots, have int, sessions []api.Session, hot []uint32) *large {
	var specs []api.KeySpec
	for i := range slots - have {
		specs = append(specs, api.KeySpec{Name: fmt.Sprintf("large%d", i), Value: []byte("x")})
	}
	for part := range slices.Chunk(specs, 2048) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, err := c.api.AddKeys(ctx, "main", part); err != nil {
			t.Fatalf("adding %d keys: %v", len(part), err)
		}
	}
	c.heal()
	all := c.chain().Members
	name := all[len(all)-1].Switch
	i := slices.Index([]string{"", "s1", "s2", "s3", "s4"}, name)
	nw.killSwitch(i)
	c.waitUntil(func() bool { return len(c.chain().Members) == len(all)-1 && c.api.Ready(t.Context()) == nil }, "the chain to go on without "+name)
	nw.startSwitch(i)
	c.waitUntil(func() bool {
		all, err := c.api.Switches(t.Context())
		return err == nil && all[i-1].Ready
	}, name+" to be set up")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var history []call
	for n := range 4 { // in short pieces, for how long it takes is not known
		if n+1 == i {
			continue
		}
		wg.Go(func() {
			session := sessions[n]
			for piece := 0; ; piece++ {
				select {
				case <-stop:
					return
				default:
				}
				session.NextRequest += 1 << 20 // above those of the load, and of the piece before
				h, err := nw.hosts[n].work(workload{Client: 100*(piece+1) + n, Service: serviceAddr, Keys: hot, Session: session, Duration: 2 * time.Second, Writes: true})
				if err != nil {
					t.Errorf("a writer beside the large recovery: %v", err)
					return
				}
				mu.Lock()
				history = append(history, h...)
				mu.Unlock()
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	recovery, frozen := c.bringIn(name)
	out := &large{slots, join{Switch: name, All: millis(recovery), Frozen: millis(frozen)}}
	from, to := c.frozenSpan()
	close(stop)
	wg.Wait()
	// Around the freeze: a piece's end is no pause.
	out.Writes = longestGap(writesDone(history), from.Add(-100*time.Millisecond), to.Add(200*time.Millisecond))
	return out
}

// moment is a span of time in which something was done to a switch.
type moment struct {
	position, name string
	from, to       time.Time
	members        []string      // of the chain before
	joined, frozen time.Duration // of a recovery
}

// causeTrouble takes one switch after the other away and brings it back, until there is no time left for another.
func causeTrouble(t *testing.T, nw *network, c *running, end time.Time) (all []moment, unasked int) {
	members := func() []string {
		var out []string
		for _, m := range c.chain().Members {
			out = append(out, m.Switch)
		}
		return out
	}
	defer func() {
		if late := time.Since(end); late > time.Second {
			t.Errorf("the load ended %v before the last switch was back: give NETCRAQ_SURVIVE_SECONDS more", late)
		}
	}()
	time.Sleep(time.Second)
	took := 3 * time.Second
	for n := 0; n < 4 || time.Now().Add(took).Before(end); n++ {
		begun := time.Now()
		m := members()
		position := []string{"head", "middle", "tail", "cut off"}[n%4]
		name := map[string]string{"head": m[0], "middle": m[len(m)/2], "tail": m[len(m)-1], "cut off": m[(n/4)%len(m)]}[position]
		i := slices.Index([]string{"", "s1", "s2", "s3", "s4"}, name)
		lost := moment{position: position, name: name, from: time.Now(), members: m}
		if position == "cut off" {
			nw.proxies[i].setCut(true)
		} else {
			nw.killSwitch(i)
		}
		c.waitUntil(func() bool { return !slices.Contains(members(), name) && c.api.Ready(t.Context()) == nil }, "the chain to go on without "+name)
		time.Sleep(500 * time.Millisecond)
		lost.to = time.Now()
		all = append(all, lost)
		if position == "cut off" {
			nw.proxies[i].setCut(false)
		} else {
			nw.startSwitch(i)
		}
		c.waitUntil(func() bool {
			all, err := c.api.Switches(t.Context())
			return err == nil && all[i-1].Ready
		}, name+" to be set up")
		time.Sleep(200 * time.Millisecond)
		start := time.Now()
		recovery, frozen := c.bringIn(name)
		back := moment{position: position, name: name, from: start, joined: recovery, frozen: frozen}
		time.Sleep(300 * time.Millisecond)
		back.to = time.Now()
		all = append(all, back)
		took = max(took, time.Since(begun))
		unasked += c.heal()
	}
	return all, unasked
}

// bringIn brings a switch in, and says how long that took and for how long the chain was frozen. It is asked for again where another member was lost meanwhile, as an
// operator would.
func (r *running) bringIn(name string) (took, frozen time.Duration) {
	r.t.Helper()
	for try := 1; ; try++ {
		start := time.Now()
		ch, err := r.api.Recover(r.t.Context(), "main", name)
		if err == nil {
			if got := ch.Members[len(ch.Members)-1].Switch; got != name {
				r.t.Fatalf("the tail is %s", got)
			}
			return time.Since(start), r.frozen()
		}
		if try == 10 || !errors.Is(err, &api.Error{Code: api.CodeUnavailable}) {
			r.t.Fatalf("recovering %s: %v\n%s", name, err, r.history())
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// heal brings in what is no member although nobody took it away: a machine that has no processor left for a switch, or for the controller, for longer than a lease loses
// members. It says how many there were.
func (r *running) heal() (lost int) {
	r.t.Helper()
	switches, err := r.api.Switches(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range switches {
		if len(s.Chains) == 0 {
			r.waitUntil(func() bool {
				all, err := r.api.Switches(r.t.Context())
				return err == nil && slices.ContainsFunc(all, func(x api.Switch) bool { return x.Name == s.Name && x.Ready })
			}, s.Name+" to be set up")
			r.bringIn(s.Name)
			lost++
		}
	}
	return lost
}

// work has the host run a workload.
func (h *host) work(w workload) ([]call, error) {
	r, err := h.request(hostRequest{Work: &w})
	return r.History, err
}

// frozen is how long the last recovery had the chain frozen.
func (r *running) frozen() time.Duration {
	from, to := r.frozenSpan()
	return to.Sub(from)
}

func (r *running) frozenSpan() (from, to time.Time) {
	frozen := false
	r.api.Events(r.t.Context(), 0, false, func(e api.Event) error {
		switch {
		case e.Type == "chain.installing" && strings.HasSuffix(e.Message, ", frozen"):
			from, frozen = e.Time, true
		case e.Type == "chain.installed" && frozen && !strings.HasSuffix(e.Message, ", frozen"):
			to, frozen = e.Time, false
		}
		return nil
	})
	return from, to
}

// waitUntil waits for something to become true.
func (r *running) waitUntil(done func() bool, what string) {
	r.t.Helper()
	poll.Until(r.t, 60*time.Second, what, done, r.history)
}
