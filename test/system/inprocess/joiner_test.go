package inprocess

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/switch/target"
	"github.com/netcraq/netcraq/test/system/lab"
)

// joinerLease is how long the leases are alongside a joiner, in milliseconds.
const joinerLease = 200

// joinerTries is how often a moment is tried. A fault shows each time, a late machine does not.
const joinerTries = 4

// A joinerMoment is when a switch that is brought in stops answering.
type joinerMoment struct {
	name string
	// part says which part of a chain it is given then; nil: it has not answered from the start.
	part func(role chain.Role, frozen, filling bool) bool
	// after is how long after it has taken that; 0: before the controller hears of it.
	after time.Duration
	// alone: in a chain of one only, and other: in a longer one only.
	alone, other bool
	// member: it is a member by then, and given up as one.
	member bool
	loaded bool // it is when it loads the program, to be emptied
}

var joinerMoments = []joinerMoment{
	{name: "from the start"},
	{name: "when it is to be filled", part: isShadow},
	{name: "when it is to be emptied", loaded: true},
	{name: "while it is filled", part: isShadow, after: 3 * time.Millisecond},
	{name: "when writes are to pass it", part: isFilling, other: true},
	{name: "while writes pass it", part: isFilling, after: 3 * time.Millisecond, other: true},
	{name: "when it is to be compared", part: isFrozen, alone: true},
	{name: "while it is compared", part: isFrozen, after: 3 * time.Millisecond, alone: true},
	{name: "when it is to be a member", part: func(role chain.Role, _, filling bool) bool { return role.Member() && !filling }, member: true},
}

func isShadow(role chain.Role, _, _ bool) bool            { return role == chain.Shadow }
func isFilling(role chain.Role, _, filling bool) bool     { return role == chain.Replica && filling }
func isFrozen(role chain.Role, frozen, filling bool) bool { return frozen }

// TestBesideAJoiner: a switch that is brought in stops answering, packets alone or all that comes,
// in each stage. Beside it sessions are leased, and keys added, moved and removed in all chains, in
// less time than clients wait for that; no write waits for longer than a lease; and an operator can
// end it.
func TestBesideAJoiner(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		for _, how := range []string{"mute", "stopped"} {
			t.Run(fmt.Sprintf("%s beside %d", how, n), func(t *testing.T) {
				besideAJoiner(t, n, how == "mute")
			})
		}
	}
}

func besideAJoiner(t *testing.T, n int, mute bool) {
	const joiner = "s6" // at the end of the line: no way leads through it
	a := lab.Chain{ID: 1, Name: "a", Lease: joinerLease, Patience: joinerLease / 2}
	for i := 1; i <= n; i++ {
		a.Members = append(a.Members, i)
	}
	x := newTestbed(t, lab.Layout{N: 6, Chains: []lab.Chain{a, {ID: 2, Name: "b", Members: []int{5, 1},
		Lease: joinerLease, Patience: joinerLease / 2}}})
	x.change(func(top map[string]any) {
		for _, c := range top["chains"].([]any) {
			c.(map[string]any)["rejoinMillis"] = 0
		}
	})
	r := x.controller()
	r.WaitAllReady()
	for i := range 20 {
		if _, err := r.API.AddKey(t.Context(), "a", admin.KeySpec{Name: fmt.Sprint("k", i), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	key, err := r.API.AddKey(t.Context(), "a", admin.KeySpec{Name: "written", Value: []byte("v")})
	if err != nil {
		t.Fatal(err)
	}
	s := x.switches[5]
	silence := func(on bool) {
		if mute {
			s.SetMute(on)
		} else if on {
			s.Suspend()
		} else {
			s.Resume()
		}
	}
	round := 0
	once := func(m joinerMoment) (bad []string) {
		round++
		silent := make(chan struct{})
		var once sync.Once
		stop := func() { once.Do(func() { silence(true); close(silent) }) }
		switch {
		case m.loaded:
			s.OnLoad(stop)
		case m.part == nil:
			stop()
		default:
			at := s
			if m.alone { // the head is frozen
				at = x.switches[0]
			}
			at.onPart(func(role chain.Role, frozen, filling bool) {
				if !m.part(role, frozen, filling) {
					return
				}
				if m.after == 0 {
					stop()
				} else {
					time.AfterFunc(m.after, stop)
				}
			})
		}
		w, held := x.startWriting(r, key.KeyID), machineHolds()
		recovered := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_, err := r.API.Recover(ctx, "a", joiner)
			recovered <- err
		}()
		if m.part == nil && !m.loaded { // nothing is changed for a switch that does not answer
			err := <-recovered
			if !errors.Is(err, &admin.Error{Code: admin.CodeDeadlineExceeded}) {
				t.Errorf("%s: %v", m.name, err)
			}
			recovered <- err
		} else {
			select {
			case <-silent:
			case err := <-recovered: // given up before: this shows nothing
				stop()
				recovered <- err
				bad = append(bad, fmt.Sprintf("the switch never came so far: %v", err))
			}
		}
		took := x.allOperations(t, r, fmt.Sprint(round))
		// An operator ends it.
		members := lab.Names(a.Members)
		began := time.Now()
		_, err := r.API.ChangeChain(t.Context(), "a", admin.ChainChange{Members: &members})
		took = append(took, operationTook{"change of the members", time.Since(began), err})
		waited, late := w.stop(), held()
		silence(false)
		s.onPart(nil)
		s.OnLoad(nil)
		x.switches[0].onPart(nil)
		err = <-recovered
		t.Logf("%s: %v; a write waited for %v; recover: %v; the machine held all up for %v at most", m.name, took, waited, err, late)
		for _, o := range took { // an operation is several steps, and each can be held up
			if o.err != nil || o.took > patient+4*late {
				bad = append(bad, fmt.Sprintf("%v: %v", o, o.err))
			}
		}
		most := joinerLease * time.Millisecond
		if m.member || err == nil { // by then it is a member, and given up as one
			most = most * 9 / 4
		}
		if waited > most+lateness+2*late {
			bad = append(bad, fmt.Sprintf("a write waited for %v", waited))
		}
		r.WaitUntil(func() bool {
			ch, err := r.API.Chain(t.Context(), "a")
			all, err2 := r.API.Switches(t.Context())
			return err == nil && err2 == nil && ch.Ready && len(ch.Members) == n && all[5].Ready
		}, "the chain to be as it was, and the switch to be there")
		return bad
	}
	for _, m := range joinerMoments {
		if m.alone && n > 1 || m.other && n == 1 {
			continue
		}
		for try := 1; ; try++ { // a machine that has other things to do may be too late
			bad := once(m)
			if len(bad) == 0 {
				break
			}
			t.Logf("%s: %v", m.name, bad)
			if try == joinerTries {
				t.Fatalf("%s: %v\n%s", m.name, bad, r.History())
			}
		}
	}
	if _, err := r.API.Recover(t.Context(), "a", joiner); err != nil {
		t.Fatalf("%v\n%s", err, r.History())
	}
}

// lateness is what a machine that has other things to do may add.
const lateness = 150 * time.Millisecond

// machineHolds looks at the clock every millisecond until it is called, and says then for how long
// the machine kept it from that at most.
func machineHolds() func() time.Duration {
	done, longest := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for {
			began := time.Now()
			select {
			case <-done:
				longest <- most
				return
			case <-time.After(time.Millisecond):
				most = max(most, time.Since(began)-time.Millisecond)
			}
		}
	}()
	return func() time.Duration {
		close(done)
		return (<-longest).Round(time.Millisecond)
	}
}

// onPart sets who is told about each part in chain a that the switch is given.
func (s *bedSwitch) onPart(f func(role chain.Role, frozen, filling bool)) {
	if f == nil {
		s.OnWrite(nil)
		return
	}
	s.OnWrite(func(table string, e *target.TableEntry) {
		if !strings.HasSuffix(table, "chain_config") || number64(e.Match[0].Value) != 1 {
			return
		}
		p := e.Action.Params // role, frozen, lease_required, epoch, head, next, tail
		f(chain.Role(number64(p[0])), number64(p[1]) == 1, number64(p[4]) == number64(p[6]))
	})
}

// operationTook is how long an operation took.
type operationTook struct {
	what string
	took time.Duration
	err  error
}

func (o operationTook) String() string {
	return fmt.Sprintf("%s %v", o.what, o.took.Round(time.Millisecond))
}

// allOperations does, at once, what clients ask a controller for in chains a and b.
func (x *testbed) allOperations(t *testing.T, r *lab.Controller, name string) (out []operationTook) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	do := func(what string, f func(context.Context) error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := f(ctx)
		mu.Lock()
		defer mu.Unlock()
		out = append(out, operationTook{what, time.Since(began), err})
	}
	for _, c := range []string{"a", "b"} {
		wg.Go(func() {
			do("addition in "+c, func(ctx context.Context) error {
				_, err := r.API.AddKey(ctx, c, admin.KeySpec{Name: "new" + c + name, Value: []byte("v")})
				return err
			})
			do("removal from "+c, func(ctx context.Context) error { return r.API.RemoveKey(ctx, c, "new"+c+name) })
		})
	}
	wg.Go(func() {
		for _, way := range [][2]string{{"a", "b"}, {"b", "a"}} {
			do("move from "+way[0]+" to "+way[1], func(ctx context.Context) error {
				_, err := r.API.MoveKey(ctx, way[0], "k0", way[1])
				return err
			})
		}
	})
	wg.Go(func() {
		var leased *admin.Sessions
		do("sessions", func(ctx context.Context) (err error) {
			leased, err = r.API.NewSessions(ctx, admin.SessionsRequest{Count: 4})
			return err
		})
		if leased != nil {
			_ = r.API.CloseSessions(t.Context(), leased.Lease)
		}
	})
	wg.Wait()
	return out
}

// writing is a client that writes a key all the time.
type writing struct {
	done    chan struct{}
	over    sync.WaitGroup
	longest atomic.Int64
}

// startWriting starts a client that writes a key of chain a all the time, and sends each write
// again every few milliseconds until it is answered.
func (x *testbed) startWriting(r *lab.Controller, key uint32) *writing {
	x.t.Helper()
	leased, err := r.API.NewSessions(x.t.Context(), admin.SessionsRequest{Count: 1})
	if err != nil {
		x.t.Fatal(err)
	}
	s := leased.Sessions[0]
	w := &writing{done: make(chan struct{})}
	w.over.Go(func() {
		for n := 0; ; n++ {
			p := &wire.Packet{Op: wire.Write, Key: wire.Key(key), Session: s.ID, Request: s.NextRequest,
				Value: fmt.Append(nil, n)}
			s.NextRequest++
			for began := time.Now(); ; time.Sleep(2 * time.Millisecond) {
				reply, err := x.askFor(5*time.Millisecond, 1, lab.ServiceAddrOf(1), p)
				w.longest.Store(max(w.longest.Load(), int64(time.Since(began))))
				if err == nil && (reply.Status == wire.OK || reply.Status == wire.Superseded) {
					break
				}
				select {
				case <-w.done:
					return
				default:
				}
			}
			select {
			case <-w.done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	return w
}

// stop ends it, and says for how long a write waited at most.
func (w *writing) stop() time.Duration {
	close(w.done)
	w.over.Wait()
	return time.Duration(w.longest.Load()).Round(time.Millisecond)
}
