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

// joinerLease is the duration of leases during the join, in milliseconds.
const joinerLease = 200

// joinerTries is the number of attempts for each moment. A defect causes a failure in each attempt,
// but a slow machine does not.
const joinerTries = 4

// joinerMoment is a moment in a join at which the joining switch stops answering.
type joinerMoment struct {
	name string
	// part returns whether the switch has got the role at which it stops answering. If part is nil,
	// the switch never answers.
	part func(role chain.Role, frozen, filling bool) bool
	// after is the delay until the switch stops. If it is 0, the switch stops before the controller
	// gets the answer.
	after time.Duration
	// alone means that this moment exists only when a chain of one grows; other means that it
	// exists only in a longer chain.
	alone, other bool
	// member means that the switch is a member at this moment, so the chain gives it up as a
	// member.
	member bool
	loaded bool // the switch stops when the controller loads the program into it, to empty it
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

// In TestBesideAJoiner, a switch that is joining a chain stops answering, in each stage of the
// join. It stops answering only packets, or everything. Meanwhile clients must be able to lease
// sessions, and to add, move and remove keys in all chains, in less time than they wait. No write
// may wait longer than a lease, and an operator must be able to end the join.
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
	const joiner = "s6" // s6 is at the end of the line, so no route leads through it
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
			if m.alone { // the head is frozen in these stages
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
		if m.part == nil && !m.loaded {
			// The chain must not change for a switch that does not answer.
			err := <-recovered
			if !errors.Is(err, &admin.Error{Code: admin.CodeDeadlineExceeded}) {
				t.Errorf("%s: %v", m.name, err)
			}
			recovered <- err
		} else {
			select {
			case <-silent:
			case err := <-recovered:
				// The join failed before the moment, so this attempt shows nothing.
				stop()
				recovered <- err
				bad = append(bad, fmt.Sprintf("the switch never came so far: %v", err))
			}
		}
		took := x.allOperations(t, r, fmt.Sprint(round))
		// Now an operator ends the join.
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
		// The limit allows for a slow machine, which can delay each step of an operation.
		for _, o := range took {
			if o.err != nil || o.took > patient+4*late {
				bad = append(bad, fmt.Sprintf("%v: %v", o, o.err))
			}
		}
		most := joinerLease * time.Millisecond
		if m.member || err == nil {
			// The switch is a member at this moment, and the chain gives it up as a member.
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
		for try := 1; ; try++ { // Several tries are needed, because a busy machine may be too slow.
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

// lateness is the delay that a busy machine may add.
const lateness = 150 * time.Millisecond

// machineHolds reads the clock every millisecond until the function that it returns is called. That
// function returns the longest time for which the machine did not run it.
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

// onPart sets a function that is called with each role in chain a that the switch gets.
func (s *bedSwitch) onPart(f func(role chain.Role, frozen, filling bool)) {
	if f == nil {
		s.OnWrite(nil)
		return
	}
	s.OnWrite(func(table string, e *target.TableEntry) {
		if !strings.HasSuffix(table, "chain_config") || number64(e.Match[0].Value) != 1 {
			return
		}
		// The parameters are role, frozen, lease_required, epoch, head, next and tail.
		p := e.Action.Params
		f(chain.Role(number64(p[0])), number64(p[1]) == 1, number64(p[4]) == number64(p[6]))
	})
}

// operationTook is an operation with its duration.
type operationTook struct {
	what string
	took time.Duration
	err  error
}

func (o operationTook) String() string {
	return fmt.Sprintf("%s %v", o.what, o.took.Round(time.Millisecond))
}

// allOperations makes all requests that clients make to a controller, concurrently, in the chains a
// and b.
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

// writing is a client that writes a key continuously.
type writing struct {
	done    chan struct{}
	over    sync.WaitGroup
	longest atomic.Int64
}

// startWriting starts a client that writes a key of chain a continuously, and repeats each write
// every few milliseconds until it gets an answer.
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

// stop stops the client, and returns the longest time that a write waited.
func (w *writing) stop() time.Duration {
	close(w.done)
	w.over.Wait()
	return time.Duration(w.longest.Load()).Round(time.Millisecond)
}
