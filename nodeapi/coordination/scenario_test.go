package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestScenarios runs the scenarios in testdata/scenarios, in simulated time. A scenario has servers
// of several nodes with one store, and programs that are connected to the servers. The lines of a
// scenario are:
//
//	serve SERVER [rate=R]             starts a server, whose clock runs R times as fast as time
//	kill SERVER                       its node loses its power
//	lose SERVER refuse|silent|nothing|late|none      what its store does with calls from now on
//	connect PROGRAM SERVER            a program gets a connection
//	disconnect PROGRAM
//	sleep D
//	keys                              prints the keys in the store
//	PROGRAM: FUNCTION ARGUMENT...     a call of the node API, for example: p: lock db wait=0
//	PROGRAM: &N FUNCTION ARGUMENT...  a call in the background; its answer is printed when it comes
//
// The word "secretly" hides a token in the transcript. It is needed where chance decides whether
// the lock of a dead holder is deleted or taken over. Times are truncated to a tenth of a second,
// because chance also decides the order of simultaneous reads. Leases are named L1, L2 and so on,
// in the order in which they appear. The name "granted" is the lease that was granted last.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			w := &story{store: store.NewMemory(16), servers: map[string]*server{}, programs: map[string]*program{},
				begin: time.Now()}
			defer func() {
				for _, p := range w.programs {
					p.stop()
				}
				for _, s := range w.servers {
					s.kill()
				}
			}()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				for line := range strings.Lines(d.Input) {
					w.line(t, strings.TrimSpace(line))
				}
				out := w.out.String()
				w.out.Reset()
				return out
			})
		})
	})
}

type story struct {
	store    *store.Memory
	servers  map[string]*server
	programs map[string]*program
	leases   []string
	granted  string // name of the lease that was granted last
	out      strings.Builder

	mu      sync.Mutex
	answers []answer

	begin time.Time
	said  time.Duration
}

type program struct {
	at    *server
	owner *Owner
	ctx   context.Context
	stop  context.CancelFunc
}

// answer is a line of the transcript, which may be printed later.
type answer struct {
	at         time.Time
	background bool
	text       string
}

// say records a line for the transcript. The line is printed after all other events of the same
// time.
func (w *story) say(background bool, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = append(w.answers, answer{time.Now(), background, fmt.Sprintf(format, args...)})
}

var leaseID = regexp.MustCompile(`\b[0-9a-f]{12}\b`)

// tell prints the recorded lines. Each line has the time if it differs from that of the preceding
// line.
func (w *story) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.answers, func(a, b answer) int {
		if c := a.at.Compare(b.at); c != 0 || a.background == b.background {
			return cmp.Or(c, strings.Compare(a.text, b.text)*bool01(a.background))
		}
		return bool01(a.background) - bool01(b.background)
	})
	for _, a := range w.answers {
		if now := a.at.Sub(w.begin).Truncate(100 * time.Millisecond); now != w.said {
			w.said = now
			fmt.Fprintf(&w.out, "%s:\n", now)
		}
		fmt.Fprintf(&w.out, "  %s\n", leaseID.ReplaceAllStringFunc(a.text, w.lease))
	}
	w.answers = nil
}

func bool01(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *story) line(t *testing.T, line string) {
	words := strings.Fields(line)
	if len(words) == 0 || strings.HasPrefix(line, "#") {
		return
	}
	switch p := w.programs[strings.TrimSuffix(words[0], ":")]; {
	case words[0] == "serve":
		rate := 1.0
		if len(words) > 2 {
			rate, _ = strconv.ParseFloat(strings.TrimPrefix(words[2], "rate="), 64)
		}
		w.servers[words[1]] = newServer(words[1], w.store, rate, 1, rand.New(rand.NewPCG(1, 2)))
	case words[0] == "kill":
		w.servers[words[1]].kill()
	case words[0] == "lose":
		w.servers[words[1]].view.set(map[string]faults{"refuse": {refuse: 1}, "silent": {silent: 1},
			"nothing": {nothing: 1}, "late": {late: 1, later: time.Second}, "none": {}}[words[2]])
	case words[0] == "connect":
		p := &program{at: w.servers[words[2]], owner: w.servers[words[2]].NewOwner()}
		p.ctx, p.stop = context.WithCancel(context.Background())
		w.programs[words[1]] = p
	case words[0] == "disconnect":
		w.programs[words[1]].stop()
		w.programs[words[1]].owner.Close()
	case words[0] == "sleep":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
	case words[0] == "keys":
		w.keys()
	case p != nil && words[1][0] == '&':
		go func() {
			a := w.call(p, words[2], words[3:])
			w.say(true, "%s %s: %s", words[0], words[1], a)
		}()
	case p != nil:
		w.say(false, "%s %s: %s", words[0], words[1], w.call(p, words[1], words[2:]))
	default:
		t.Fatalf("what is %q?", line)
	}
	synctest.Wait()
	w.tell()
}

// noLease is the name of a lease that never existed.
const noLease = "000000000000"

// lease returns the name of a lease in the transcript.
func (w *story) lease(id string) string {
	if id == noLease {
		return id
	}
	i := slices.Index(w.leases, id)
	if i < 0 {
		w.leases = append(w.leases, id)
		i = len(w.leases) - 1
	}
	return fmt.Sprint("L", i+1)
}

func (w *story) keys() {
	all := kept(w.store, "ns")
	var lines []string
	for name, c := range all {
		s := map[cell.Kind]string{cell.Plain: "plain", cell.Bound: "bound", cell.Lease: "lease", cell.Lock: "lock",
			cell.Instance: "instance"}[c.Kind]
		if c.Hangs() {
			s += " " + c.Lease.String()
		}
		if c.Kind == cell.Lease {
			s += fmt.Sprintf(" %d ms", c.TTLMillis)
		}
		if len(c.Value) > 0 {
			s += fmt.Sprintf(" %q", c.Value)
		}
		lines = append(lines, name+" "+s)
	}
	known := func(line string) string {
		return leaseID.ReplaceAllStringFunc(line, func(id string) string {
			if slices.Contains(w.leases, id) {
				return w.lease(id)
			}
			return "new"
		})
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(known(a), known(b)) })
	for _, l := range lines {
		w.say(false, "%s", l)
	}
	if len(lines) == 0 {
		w.say(false, "no keys")
	}
}

// call makes a call of the node API, and returns its answer as text.
func (w *story) call(p *program, function string, args []string) string {
	var free []string
	var hidden bool
	d := nodeapi.LockData{}
	timeout := time.Minute
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		n, _ := strconv.Atoi(value)
		switch {
		case !ok:
			free = append(free, a)
		case name == "lease":
			d.Lease = value
			if value == "granted" {
				d.Lease = w.granted
			}
			if i, err := strconv.Atoi(strings.TrimPrefix(value, "L")); err == nil && value[0] == 'L' {
				d.Lease = w.leases[i-1]
			}
		case name == "wait":
			d.WaitMillis = &n
		case name == "ttl":
			d.TTLMillis = n
		case name == "permits":
			d.Permits = n
		case name == "value":
			d.Value = value
		case name == "timeout":
			timeout = time.Duration(n) * time.Millisecond
		}
	}
	if hidden = slices.Contains(free, "secretly"); hidden {
		free = slices.DeleteFunc(free, func(s string) bool { return s == "secretly" })
	}
	free = append(free, "", "", "")
	d.Name = free[0]
	ctx, stop := context.WithTimeout(p.ctx, timeout)
	defer stop()
	token := free[1]
	if v, err := wire.ParseVersion(token); err == nil && strings.Contains(token, ".") {
		token = strconv.FormatUint(uint64(v), 10)
	}
	unlock := nodeapi.UnlockData{Name: d.Name, Token: token}
	outcome := func(s string, err error) string {
		var e *nodeapi.Error
		switch {
		case errors.As(err, &e):
			return fmt.Sprintf("%s: %s", e.Code, e.Message)
		case err != nil:
			return err.Error()
		}
		return s
	}
	lock := func(a nodeapi.LockAnswer, err error) string {
		if !a.Held {
			return outcome("not held", err)
		}
		n, _ := strconv.ParseUint(a.Token, 10, 64)
		if hidden {
			return outcome("held by "+a.Lease, err)
		}
		return outcome(fmt.Sprintf("held by %s, token %s", a.Lease, wire.Version(n)), err)
	}
	key := store.Key{Namespace: "ns", Name: free[0]}
	switch function {
	case "grant":
		a, err := p.at.Grant(ctx, "ns", nodeapi.GrantData{TTLMillis: d.TTLMillis})
		w.mu.Lock()
		w.granted = a.Lease
		w.mu.Unlock()
		return outcome(a.Lease, err)
	case "keepAlive":
		a, err := p.at.KeepAlive(ctx, "ns", nodeapi.LeaseData{Lease: d.Lease})
		return outcome(fmt.Sprintf("for %d ms", a.TTLMillis), err)
	case "revoke":
		return outcome("done", p.at.Revoke(ctx, "ns", nodeapi.LeaseData{Lease: d.Lease}))
	case "lock":
		return lock(p.at.Lock(ctx, "ns", p.owner, d))
	case "unlock":
		return outcome("done", p.at.Unlock(ctx, "ns", unlock))
	case "campaign":
		return lock(p.at.Campaign(ctx, "ns", p.owner, d))
	case "resign":
		return outcome("done", p.at.Resign(ctx, "ns", unlock))
	case "leader":
		a, err := p.at.Leader(ctx, "ns", nodeapi.LeaderData{Name: d.Name})
		if !a.Found {
			return outcome("nobody", err)
		}
		n, _ := strconv.ParseUint(a.Token, 10, 64)
		return outcome(fmt.Sprintf("%q, token %s", a.Value, wire.Version(n)), err)
	case "acquire":
		return lock(p.at.Acquire(ctx, "ns", p.owner, d))
	case "release":
		return outcome("done", p.at.Release(ctx, "ns", unlock))
	case "register":
		a, err := p.at.RegisterService(ctx, "ns", p.owner, nodeapi.ServiceData{Service: free[0], Instance: free[1],
			Address: d.Value, Lease: d.Lease, TTLMillis: d.TTLMillis})
		return outcome(fmt.Sprintf("%s at %s, %s", a.Address, a.Node, a.Lease), err)
	case "deregister":
		return outcome("done", p.at.DeregisterService(ctx, "ns", p.owner, nodeapi.ServiceData{Service: free[0],
			Instance: free[1], Lease: d.Lease}))
	case "service":
		a, err := p.at.GetService(ctx, "ns", nodeapi.GetServiceData{Service: free[0], Order: free[1]})
		return outcome(instances(a), err)
	case "watch":
		return outcome("", p.at.WatchService(ctx, "ns", free[0], func(a nodeapi.ServiceAnswer) {
			w.say(true, "%s is told: %s", free[0], instances(a))
		}))
	case "follow":
		err := p.at.Watch(ctx, store.Watch{Namespace: "ns", Keys: free[:1]}, func(changes []store.Change) {
			for _, c := range changes {
				v, err := p.at.Resolve(ctx, c.Item, true)
				w.say(true, "%s is told: %s", free[0], outcome(fmt.Sprintf("%q at %s", v.Value, v.Version), err))
			}
		})
		return outcome("", err)
	case "get":
		v, err := p.at.Get(ctx, key, free[1] == "eventual")
		switch {
		case err == nil && v.Lease != "":
			return fmt.Sprintf("%q at %s, bound to %s", v.Value, v.Version, v.Lease)
		case err == nil && v.Found:
			return fmt.Sprintf("%q at %s", v.Value, v.Version)
		}
		return outcome(fmt.Sprintf("nothing at %s", v.Version), err)
	case "put":
		v, err := p.at.Put(ctx, key, []byte(free[1]), d.Lease)
		return outcome("at "+v.String(), err)
	case "cas":
		at, _ := wire.ParseVersion(free[2])
		v, ok, err := p.at.CompareAndSwap(ctx, key, at, []byte(free[1]), d.Lease)
		return outcome(fmt.Sprintf("%v: %q at %s %s", ok, v.Value, v.Version, v.Lease), err)
	}
	return "what is " + function + "?"
}

func instances(a nodeapi.ServiceAnswer) string {
	s := make([]string, len(a.Instances))
	for i, x := range a.Instances {
		s[i] = fmt.Sprintf("%s=%s@%s", x.Instance, x.Address, x.Node)
	}
	return fmt.Sprintf("%q", s)
}
