package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/controlplane/admin/api"
	"github.com/netcraq/netcraq/wire"
)

// This test kills switches of a chain under load, one after the other, and brings them back, with real switches, real clients and real time.
// NETCRAQ_SURVIVE_ENGINE chooses the switch (default interp; bmv2), NETCRAQ_SURVIVE_KEYS the number of keys, NETCRAQ_SURVIVE_OUT a file for the figures.

// call is one call of a client's. Times are Unix nanoseconds; all hosts are on one machine.
type call struct {
	Client     int
	Key        uint32
	Op         wire.Op
	Value      string
	Expected   wire.Version
	Begin, End int64
	Unknown    bool // whether it was executed
	Failed     bool // the CAS was
	Found      bool
	Got        string
	Version    wire.Version
	Nothing    bool // a read without an answer
}

// workload is what a host does until its input ends.
type workload struct {
	Client   int
	Service  netip.Addr
	Others   []netip.Addr
	Reads    bool // nothing else
	Keys     []uint32
	Session  api.Session
	Duration time.Duration
}

// run makes calls for a while, and gives the history.
func (l workload) run() ([]call, error) {
	cfg := client.Config{Sessions: client.StaticSessions(client.Session{ID: l.Session.ID, NextRequest: l.Session.NextRequest})}
	for _, a := range append([]netip.Addr{l.Service}, l.Others...) {
		cfg.Addresses = append(cfg.Addresses, netip.AddrPortFrom(a, wire.Port))
	}
	ctx := context.Background()
	c, err := client.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r := rand.New(rand.NewPCG(1, uint64(l.Client)))
	seen := map[uint32]wire.Version{}
	var history []call
	for n, end := 0, time.Now().Add(l.Duration); time.Now().Before(end); n++ {
		k := l.Keys[r.IntN(len(l.Keys))]
		x := call{Client: l.Client, Key: k, Op: wire.Read, Value: fmt.Sprintf("%d.%d", l.Client, n)}
		switch i := r.IntN(10); {
		case l.Reads:
		case i < 4:
			x.Op = wire.Write
		case i < 6:
			x.Op, x.Expected = wire.CAS, seen[k]
		}
		limit, cancel := context.WithTimeout(ctx, 3*time.Second)
		x.Begin = time.Now().UnixNano()
		req := client.Request{Op: x.Op, Key: wire.Key(k), Expected: x.Expected}
		if x.Op != wire.Read {
			req.Value = []byte(x.Value)
		}
		res := c.Batch(limit, []client.Request{req})[0]
		x.End = time.Now().UnixNano()
		cancel()
		x.Version, x.Got, x.Found = res.Version, string(res.Value), res.Err == nil
		var e *client.OpError
		if errors.As(res.Err, &e) {
			switch {
			case e.OutcomeUnknown:
				x.Unknown = true
			case errors.Is(e, client.ErrNotFound):
				x.Version = e.Version
			case errors.Is(e, client.ErrCASFailed):
				x.Failed, x.Version, x.Got, x.Found = true, e.Version, string(e.Value), e.Found
			case errors.Is(e, client.ErrTimeout):
				x.Nothing = true
			default:
				return history, e
			}
		}
		if x.Version != 0 {
			seen[k] = x.Version
		}
		history = append(history, x)
		time.Sleep(time.Duration(r.Int64N(int64(4 * time.Millisecond))))
	}
	return history, nil
}

// cell is a key's state in the checker. After a write of unknown outcome its version is open: some number above floor.
type cell struct {
	version, floor wire.Version
	open           bool
	value          string
}

// is says whether a version can be the cell's.
func (c cell) is(v wire.Version) bool {
	if c.open {
		return v > c.floor
	}
	return v == c.version
}

// below is a version that the next must be above.
func (c cell) below() wire.Version { return max(c.version, c.floor) }

// registers is what a key may do: a read tells the newest value and version; a write gives a higher version; a CAS is executed if the version is the
// expected one.
var registers = porcupine.Model{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		by := map[uint32][]porcupine.Operation{}
		for _, o := range h {
			k := o.Input.(call).Key
			by[k] = append(by[k], o)
		}
		var out [][]porcupine.Operation
		for _, ops := range by {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return cell{open: true} }, // adding a key writes it, with a version that no client was told
	Step: func(state, input, _ any) (bool, any) {
		s, x := state.(cell), input.(call)
		switch {
		case x.Op == wire.Read:
			return s.is(x.Version) && x.Got == s.value, cell{version: x.Version, value: x.Got}
		case x.Failed:
			return s.is(x.Version) && x.Got == s.value && x.Expected != x.Version, cell{version: x.Version, value: x.Got}
		case x.Op == wire.CAS && !s.is(x.Expected):
			return x.Unknown, s
		case x.Unknown: // executed now, with a version that nobody was told: the next who reads it says which. (One that is never executed comes last.)
			return true, cell{open: true, floor: s.below(), value: x.Value}
		}
		return x.Version > s.below(), cell{version: x.Version, value: x.Value}
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// figures is what a run measured, in milliseconds.
type figures struct {
	Engine   string             `json:"engine"`
	Calls    int                `json:"calls"`
	Keys     int                `json:"keys"`
	Unknown  int                `json:"unknown"`
	WriteGap map[string]float64 `json:"writeOutageMillis"` // after each kill
	ReadGap  map[string]float64 `json:"readOutageMillis"`
	Recovery map[string]float64 `json:"recoveryMillis"`
	Pause    map[string]float64 `json:"recoveryWritePauseMillis"` // as clients see it: retries wait 50 ms
	Frozen   map[string]float64 `json:"recoveryFrozenMillis"`     // from the decision to freeze to the last member's thaw
}

func TestSurvive(t *testing.T) {
	engine := "interp"
	if e := os.Getenv("NETCRAQ_SURVIVE_ENGINE"); e != "" {
		engine = e
	}
	if engine == "bmv2" {
		mustLook(t, "simple_switch_grpc")
	}
	if !inNamespace(t) {
		return
	}
	const lease, hot = 200, 4
	keys := 200
	if n, err := fmt.Sscan(os.Getenv("NETCRAQ_SURVIVE_KEYS"), &keys); n == 0 && os.Getenv("NETCRAQ_SURVIVE_KEYS") != "" {
		t.Fatal(err)
	}
	l := line(4, lease)
	l.links = append(l.links, [2]int{4, 1}, [2]int{1, 3}) // there is a way around each
	l.chains[0].patience = lease / 2
	nw := newNetwork(t, engine, l)
	c := nw.startController("state.json")
	c.waitReady()
	var specs []api.KeySpec
	for i := range keys {
		specs = append(specs, api.KeySpec{Name: fmt.Sprintf("k%d", i)})
	}
	placed, err := c.api.AddKeys(t.Context(), "main", specs)
	if err != nil {
		t.Fatal(err)
	}
	var ids []uint32
	for _, k := range placed[:hot] {
		ids = append(ids, k.KeyID)
	}
	s, err := c.api.NewSessions(t.Context(), 2*len(nw.hosts), "survive")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
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
	defer close(stop)

	const duration = 14 * time.Second
	var wg sync.WaitGroup
	var mu sync.Mutex
	var history []call
	for i := range 2 * len(nw.hosts) {
		w := workload{Client: i, Service: serviceAddr, Keys: ids, Session: s.Sessions[i], Duration: duration, Reads: i%3 == 2}
		for n := range nw.hosts {
			w.Others = append(w.Others, switchAddr(1+(i+n)%len(nw.hosts)))
		}
		wg.Go(func() {
			h, err := nw.hosts[i%len(nw.hosts)].work(w)
			if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			mu.Lock()
			history = append(history, h...)
			mu.Unlock()
		})
	}
	f := figures{Engine: engine, Keys: keys, WriteGap: map[string]float64{}, ReadGap: map[string]float64{}, Recovery: map[string]float64{}, Pause: map[string]float64{},
		Frozen: map[string]float64{}}
	type moment struct {
		name     string
		at, to   time.Time
		recovery bool
	}
	var moments []moment
	members := func() []string {
		var out []string
		for _, m := range c.chain().Members {
			out = append(out, m.Switch)
		}
		return out
	}
	time.Sleep(time.Second)
	for _, position := range []string{"head", "middle", "tail"} {
		m := members()
		name := map[string]string{"head": m[0], "middle": m[len(m)/2], "tail": m[len(m)-1]}[position]
		i := slices.Index([]string{"", "s1", "s2", "s3", "s4"}, name)
		moments = append(moments, moment{name: position, at: time.Now(), to: time.Now().Add(time.Second)})
		nw.killSwitch(i)
		c.waitUntil(func() bool { return !slices.Contains(members(), name) && c.api.Ready(t.Context()) == nil }, "the chain to go on without "+name)
		time.Sleep(500 * time.Millisecond)
		nw.startSwitch(i)
		c.waitUntil(func() bool {
			all, err := c.api.Switches(t.Context())
			return err == nil && all[i-1].Ready
		}, name+" to be set up")
		time.Sleep(300 * time.Millisecond)
		start := time.Now()
		ch, err := c.api.Recover(t.Context(), "main", name)
		if err != nil {
			t.Fatalf("recovering %s: %v\n%s", name, err, c.history())
		}
		f.Recovery[position] = millis(time.Since(start))
		moments = append(moments, moment{name: position, at: start, to: time.Now().Add(200 * time.Millisecond), recovery: true})
		f.Frozen[position] = millis(c.frozen())
		if got := ch.Members[len(ch.Members)-1].Switch; got != name {
			t.Fatalf("the tail is %s", got)
		}
		time.Sleep(500 * time.Millisecond)
	}
	wg.Wait()
	// The longest time without a write (or a read) done, from each moment on.
	gap := func(from, to time.Time, op func(call) bool) float64 {
		ends := []int64{from.UnixNano()}
		for _, x := range history {
			if op(x) && !x.Unknown && !x.Nothing && x.End > from.UnixNano() && x.End < to.UnixNano() {
				ends = append(ends, x.End)
			}
		}
		slices.Sort(ends)
		longest := int64(0)
		for i := 1; i < len(ends); i++ {
			longest = max(longest, ends[i]-ends[i-1])
		}
		return millis(time.Duration(longest))
	}
	for _, m := range moments {
		writes := gap(m.at, m.to, func(x call) bool { return x.Op == wire.Write })
		if m.recovery {
			f.Pause[m.name] = writes
		} else {
			f.WriteGap[m.name] = writes
			f.ReadGap[m.name] = gap(m.at, m.to, func(x call) bool { return x.Op == wire.Read })
		}
	}
	var ops []porcupine.Operation
	begun := history[0].Begin
	for _, x := range history {
		begun = min(begun, x.Begin)
	}
	for _, x := range history {
		f.Calls++
		if x.Nothing {
			continue
		}
		o := porcupine.Operation{ClientId: x.Client, Input: x, Call: x.Begin - begun, Return: x.End - begun}
		if x.Unknown {
			f.Unknown++
			o.Return, o.ClientId = math.MaxInt64, 1000+f.Unknown
		}
		ops = append(ops, o)
	}
	b, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", b)
	if out := os.Getenv("NETCRAQ_SURVIVE_OUT"); out != "" {
		if err := os.WriteFile(out, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if f.Calls < 2000 {
		t.Errorf("only %d calls: this says little", f.Calls)
	}
	if result := porcupine.CheckOperationsTimeout(registers, ops, 60*time.Second); result != porcupine.Ok {
		t.Errorf("the history is not linearizable: %v\n%s", result, c.history())
	}
	if t.Failed() || os.Getenv("NETCRAQ_SURVIVE_EVENTS") != "" {
		t.Logf("events:\n%s", c.history())
	}
}

// work has the host run a workload.
func (h *host) work(w workload) ([]call, error) {
	r, err := h.request(hostRequest{Work: &w})
	return r.History, err
}

func millis(d time.Duration) float64 { return math.Round(d.Seconds()*1e5) / 100 }

// frozen is how long the last recovery had the chain frozen.
func (r *running) frozen() time.Duration {
	var from, to time.Time
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
	return to.Sub(from)
}

// waitUntil waits for something to become true.
func (r *running) waitUntil(done func() bool, what string) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("waiting for %s:\n%s", what, r.history())
		}
	}
}
