package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/internal/await"
	"github.com/netcraq/netcraq/client/refchain"
)

const chainID = 3

func key(n uint32) wire.Key { return wire.MakeKey(chainID, n) }

// start starts a chain with the keys 0 to 9. It also starts a client with the given number of
// sessions, whose ids begin with 1.
func start(t *testing.T, cfg refchain.Config, sessions int, change func(*Config)) (*refchain.Chain, *Client) {
	t.Helper()
	cfg.ChainID = chainID
	chain, err := refchain.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(chain.Close)
	for n := range uint32(10) {
		chain.Place(key(n))
	}
	var ids []Session
	for i := range sessions {
		ids = append(ids, Session{ID: uint16(i + 1), NextRequest: 1})
	}
	config := Config{Addresses: chain.Addresses(), Profile: cfg.Profile, Sessions: StaticSessions(ids...),
		Retransmit: 20 * time.Millisecond}
	if change != nil {
		change(&config)
	}
	c, err := New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, v := range chain.Violations() {
			t.Errorf("the client broke the protocol: %s", v)
		}
	})
	return chain, c
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestOperations(t *testing.T) {
	for _, profile := range wire.Profiles {
		t.Run(profile.String(), func(t *testing.T) {
			chain, c := start(t, refchain.Config{Profile: profile}, 1, nil)
			ctx := within(t, 5*time.Second)
			if _, err := c.Get(ctx, key(1)); !errors.Is(err, ErrNotFound) {
				t.Errorf("Get before the first write: %v", err)
			}
			value := bytes.Repeat([]byte("v"), profile.ValueBytes())
			put, err := c.Put(ctx, key(1), value)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Get(ctx, key(1))
			if err != nil || !bytes.Equal(got.Value, value) || got.Version != put.Version ||
				got.From != chain.Addresses()[0] || got.Attempts < 1 || got.RTT <= 0 {
				t.Errorf("Get = %+v, %v", got, err)
			}
			if got, err = c.Get(ctx, key(1), Eventual(), AskAddresses(chain.Addresses()[1])); err != nil ||
				!bytes.Equal(got.Value, value) {
				t.Errorf("eventual Get of a member = %+v, %v", got, err)
			}
			swapped, err := c.CompareAndSwap(ctx, key(1), put.Version, []byte("w"))
			if err != nil || swapped.Version <= put.Version {
				t.Errorf("CompareAndSwap = %+v, %v", swapped, err)
			}
			var e *OpError
			if _, err = c.CompareAndSwap(ctx, key(1), put.Version, []byte("x")); !errors.Is(err,
				ErrCASFailed) || !errors.As(err, &e) {
				t.Fatalf("second CompareAndSwap: %v", err)
			}
			if e.Version != swapped.Version || string(e.Value) != "w" || !e.Found || e.OutcomeUnknown {
				t.Errorf("second CompareAndSwap: %+v", e)
			}
			if _, err = c.CompareAndDelete(ctx, key(1), swapped.Version); err != nil {
				t.Error(err)
			}
			if _, err = c.Get(ctx, key(1)); !errors.Is(err, ErrNotFound) || !errors.As(err, &e) ||
				e.Version <= swapped.Version {
				t.Errorf("Get of a deleted key: %v, version %v", err, e.Version)
			}
			if _, err = c.CompareAndSwap(ctx, key(1), e.Version, []byte("again")); err != nil {
				t.Error(err)
			}
			if _, err = c.Delete(ctx, key(1)); err != nil {
				t.Error(err)
			}
			if _, err = c.Put(ctx, key(1), make([]byte, profile.ValueBytes()+1)); !errors.Is(err, ErrValueTooLarge) {
				t.Errorf("Put of too much: %v", err)
			}
			if _, err = c.Put(ctx, key(99), nil); !errors.Is(err, ErrNotFound) {
				t.Errorf("Put without a slot: %v", err)
			}
			if _, err = c.Get(ctx, wire.MakeKey(9, 1)); !errors.Is(err, ErrNoChain) {
				t.Errorf("Get of another chain's key: %v", err)
			}
		})
	}
}

// atOnce runs try up to ten times until it succeeds, because other work on the machine may delay
// any single try.
func atOnce(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for range 10 {
		if err = try(); err == nil {
			return
		}
	}
	t.Errorf("ten times: %v", err)
}

func TestRedirect(t *testing.T) {
	chain, c := start(t, refchain.Config{Members: 2}, 1, nil)
	ctx := within(t, 5*time.Second)
	chain.SetDown(0, true)
	r, err := c.Put(ctx, key(1), []byte("x"))
	if err != nil || r.Attempts != 2 || r.RTT < 20*time.Millisecond {
		t.Errorf("Put with the service address down = %+v, %v: want the answer to the second packet, after the retransmission time", r, err)
	}
	if n := chain.Counts().Executed; n != 1 {
		t.Errorf("executed %d times", n)
	}
	chain.SetDown(0, false)
	chain.Refuse(0, wire.NotServing)
	atOnce(t, func() error {
		if r, err = c.Get(ctx, key(1)); err != nil || string(r.Value) != "x" {
			t.Fatalf("Get with the service address not serving = %+v, %v", r, err)
		}
		if r.RTT > 15*time.Millisecond {
			return fmt.Errorf("Get with the service address not serving = %+v: want it from the next, at once", r)
		}
		return nil
	})
}

// TestLostSwitch checks a client whose switch stops answering. Another switch answers the call
// within 50 ms plus the time that the client waits for an answer. That time follows the measured
// round trips, and is at least 10 ms. While the first switch stays away, later calls do not wait
// for it.
func TestLostSwitch(t *testing.T) {
	const retransmit, aim = 10 * time.Millisecond, 50 * time.Millisecond
	for _, write := range []bool{false, true} {
		t.Run(map[bool]string{false: "read", true: "write"}[write], func(t *testing.T) {
			atOnce(t, func() error {
				chain, c := start(t, refchain.Config{Members: 3}, 1, func(cfg *Config) {
					cfg.Retransmit, cfg.MaxRetransmit = 0, 0
				})
				ctx := within(t, 10*time.Second)
				call := func() Result {
					t.Helper()
					r, err := c.Get(ctx, key(1))
					if write {
						r, err = c.Put(ctx, key(1), []byte("x"))
					}
					if err != nil && !errors.Is(err, ErrNotFound) {
						t.Fatal(err)
					}
					return r
				}
				call()
				chain.SetDown(0, true)
				r := call()
				if r.Attempts < 2 || r.RTT < retransmit {
					t.Errorf("answered after %v, to the packet %d, by a switch that is away", r.RTT, r.Attempts)
				}
				if r.Attempts != 2 || r.RTT > retransmit+aim {
					return fmt.Errorf("answered after %v, to the packet %d; want it from another switch, %v to %v after it was sent",
						r.RTT, r.Attempts, retransmit, retransmit+aim)
				}
				t.Logf("answered %v after the %v that a switch is given", (r.RTT - retransmit).Round(time.Microsecond), retransmit)
				waits := 0
				for range 20 {
					if call().Attempts > 1 {
						waits++
					}
				}
				if waits > 3 {
					return fmt.Errorf("%d of 20 calls asked the switch that is away first", waits)
				}
				return nil
			})
		})
	}
}

func TestFrozenChain(t *testing.T) {
	chain, c := start(t, refchain.Config{}, 1, nil)
	chain.SetFrozen(true)
	time.AfterFunc(60*time.Millisecond, func() {
		// On a busy machine the client may not have sent anything yet.
		for c.Stats().Refusals < 3 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		chain.SetFrozen(false)
	})
	r, err := c.Put(within(t, 10*time.Second), key(1), []byte("x"))
	if err != nil || r.RTT < 50*time.Millisecond {
		t.Errorf("Put = %+v, %v", r, err)
	}
	if s := c.Stats(); s.Refusals < 3 || s.Refusals > 200 {
		t.Errorf("%d refusals in %v: want a pause between tries that grows", s.Refusals, r.RTT)
	}
}

func TestTimeout(t *testing.T) {
	_, c := start(t, refchain.Config{Loss: 1}, 1, nil)
	before := time.Now()
	_, err := c.Put(within(t, 70*time.Millisecond), key(1), []byte("x"))
	var e *OpError
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) ||
		!e.OutcomeUnknown || e.Attempts < 2 {
		t.Errorf("Put over a dead network: %v", err)
	}
	if d := time.Since(before); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
	if _, err = c.Get(within(t, 30*time.Millisecond), key(1)); !errors.As(err, &e) || e.OutcomeUnknown ||
		!errors.Is(err, ErrTimeout) {
		t.Errorf("Get over a dead network: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(30*time.Millisecond, cancel)
	if _, err = c.Put(ctx, key(1), nil); !errors.Is(err, ErrCanceled) || !errors.Is(err, context.Canceled) ||
		!errors.As(err, &e) || !e.OutcomeUnknown {
		t.Errorf("canceled Put: %v", err)
	}
	sent := c.Stats().Sent
	if _, err = c.Put(ctx, key(1), nil); !errors.Is(err, ErrCanceled) || c.Stats().Sent != sent {
		t.Errorf("Put that was canceled before: %v", err)
	}
}

// TestNothingLeaves checks that if the system sends no packet of a write, the write is reported as
// not executed. The client of this test is bound to a loopback address and sends to an address that
// is not a loopback address.
func TestNothingLeaves(t *testing.T) {
	_, c := start(t, refchain.Config{}, 1, func(cfg *Config) {
		cfg.Local = netip.MustParseAddrPort("127.0.0.1:0")
		cfg.Addresses = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:20035")}
	})
	_, err := c.CompareAndSwap(within(t, 200*time.Millisecond), key(1), 0, []byte("x"))
	var e *OpError
	if !errors.Is(err, ErrTimeout) || !errors.As(err, &e) || e.OutcomeUnknown || e.Attempts != 0 {
		t.Errorf("CompareAndSwap that cannot be sent: %v", err)
	}
	for _, want := range []string{"no packet could be sent", "sending fails: "} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("the error is %v, without %q", err, want)
		}
	}
}

func TestNoSession(t *testing.T) {
	_, c := start(t, refchain.Config{}, 0, func(cfg *Config) { cfg.Sessions = nil })
	ctx := within(t, 5*time.Second)
	if _, err := c.Put(ctx, key(1), nil); !errors.Is(err, ErrNoSession) {
		t.Errorf("Put: %v", err)
	}
	_, c = start(t, refchain.Config{}, 0, func(cfg *Config) { cfg.Sessions, cfg.AtLeastOnce = nil, true })
	if _, err := c.Put(ctx, key(1), []byte("x")); err != nil {
		t.Errorf("Put, at least once: %v", err)
	}
	_, c = start(t, refchain.Config{Sessions: 5}, 0, func(cfg *Config) {
		cfg.Sessions = StaticSessions(Session{ID: 5, NextRequest: 1})
	})
	if _, err := c.Put(ctx, key(1), []byte("x")); !errors.Is(err, ErrBadSession) {
		t.Errorf("Put with a session beyond the table: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	here := netip.MustParseAddrPort("127.0.0.1:20035")
	for name, cfg := range map[string]Config{
		"no address":             {},
		"IPv6":                   {Addresses: []netip.AddrPort{netip.MustParseAddrPort("[::1]:20035")}},
		"no port":                {Addresses: []netip.AddrPort{netip.AddrPortFrom(here.Addr(), 0)}},
		"a service without port": {Addresses: []netip.AddrPort{here}, Services: []netip.AddrPort{netip.AddrPortFrom(here.Addr(), 0)}},
		"no such profile":        {Addresses: []netip.AddrPort{here}, Profile: 100},
		"session 0":              {Addresses: []netip.AddrPort{here}, Sessions: StaticSessions(Session{ID: 0, NextRequest: 1})},
		"two equal sessions": {Addresses: []netip.AddrPort{here}, Sessions: StaticSessions(
			Session{ID: 1, NextRequest: 1}, Session{ID: 1, NextRequest: 1})},
		"an address not our own":  {Addresses: []netip.AddrPort{here}, Local: netip.MustParseAddrPort("192.0.2.1:0")},
		"sessions not to be had":  {Addresses: []netip.AddrPort{here}, Sessions: LeasedSessions(&leaser{refuse: true}, 1, "test")},
		"a negative retransmit":   {Addresses: []netip.AddrPort{here}, Retransmit: -1},
		"sessions without any id": {Addresses: []netip.AddrPort{here}, Sessions: LeasedSessions(&leaser{}, 0, "test")},
	} {
		if c, err := New(t.Context(), cfg); err == nil {
			c.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

func TestClose(t *testing.T) {
	_, c := start(t, refchain.Config{Loss: 1}, 1, nil)
	failed := make(chan error)
	for range 3 {
		go func() {
			_, err := c.Put(t.Context(), key(1), nil)
			failed <- err
		}()
	}
	await.Until(t, 10*time.Second, "three requests are under way", func() bool { return c.Stats().Started >= 3 })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-failed; !errors.Is(err, ErrClosed) {
			t.Errorf("Put while the client closes: %v", err)
		}
	}
	if _, err := c.Get(t.Context(), key(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("Get after Close: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestDoAndBatch(t *testing.T) {
	chain, c := start(t, refchain.Config{}, 4, nil)
	ctx := within(t, 10*time.Second)
	var requests []Request
	for i := range 200 {
		requests = append(requests, Request{Op: wire.Write, Key: key(uint32(i % 10)), Value: fmt.Append(nil, i)})
	}
	versions := map[wire.Key]map[wire.Version]bool{}
	for i, r := range c.Batch(ctx, requests) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		k := requests[i].Key
		if versions[k] == nil {
			versions[k] = map[wire.Version]bool{}
		}
		if versions[k][r.Version] {
			t.Errorf("version %v of %v was given twice", r.Version, k)
		}
		versions[k][r.Version] = true
	}
	if n := chain.Counts().Executed; n != len(requests) {
		t.Errorf("executed %d writes of %d", n, len(requests))
	}

	// In this closed loop, the done function of each request starts the next request.
	var left atomic.Int64
	left.Store(5000)
	finished := make(chan struct{})
	var running atomic.Int64
	var next func(Result)
	next = func(r Result) {
		if r.Err != nil {
			t.Error(r.Err)
		}
		if left.Add(-1) < 0 {
			if running.Add(-1) == 0 {
				close(finished)
			}
			return
		}
		c.Do(ctx, Request{Op: wire.Read, Key: key(1)}, next)
	}
	running.Store(32)
	for range 32 {
		next(Result{})
	}
	<-finished
	if s := c.Stats(); s.Completed != s.Started || s.Started < 5000 {
		t.Errorf("stats %+v", s)
	}

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for _, r := range c.Batch(canceled, requests[:3]) {
		if !errors.Is(r.Err, ErrCanceled) {
			t.Errorf("canceled batch: %v", r.Err)
		}
	}
}

func TestDoIsCanceled(t *testing.T) {
	_, c := start(t, refchain.Config{Loss: 1}, 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan Result, 1)
	c.Do(ctx, Request{Op: wire.Write, Key: key(1)}, func(r Result) { results <- r })
	cancel()
	if r := <-results; !errors.Is(r.Err, ErrCanceled) {
		t.Errorf("got %+v", r)
	}
}

func TestSendFailureIsSaid(t *testing.T) {
	// A socket bound to a loopback address cannot send to other addresses: the kernel refuses, and
	// nothing leaves the machine.
	c, err := New(t.Context(), Config{Addresses: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:20035")},
		Local: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = c.Get(within(t, 60*time.Millisecond), key(1)); !errors.Is(err, ErrTimeout) ||
		!strings.Contains(err.Error(), "sending fails") {
		t.Errorf("Get: %v", err)
	}
}

// leaser is a controller that leases sessions.
type leaser struct {
	refuse bool

	// lease is called for each leased session and returns its first request number. If lease is
	// nil, request numbers begin with 1.
	lease func(session uint16, host netip.Addr) (next uint32)

	mu       sync.Mutex
	next     uint16
	ttl      time.Duration
	gone     map[string]bool
	failing  bool
	kept     int
	returned []string
}

func (l *leaser) NewSessions(_ context.Context, count int, _ string, host netip.Addr) (SessionLease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse {
		return SessionLease{}, errors.New("no session left")
	}
	lease := SessionLease{Name: fmt.Sprintf("lease-%d", l.next), TTL: l.ttl}
	for range count {
		l.next++
		s := Session{ID: l.next, NextRequest: 1}
		if l.lease != nil {
			s.NextRequest = l.lease(s.ID, host)
		}
		lease.Sessions = append(lease.Sessions, s)
	}
	return lease, nil
}

func (l *leaser) KeepSessions(_ context.Context, lease string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.gone[lease]:
		return fmt.Errorf("lease %s: %w", lease, ErrLeaseGone)
	case l.failing:
		return errors.New("the controller is away")
	}
	l.kept++
	return nil
}

func (l *leaser) CloseSessions(_ context.Context, lease string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.returned = append(l.returned, lease)
	return nil
}

func (l *leaser) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func TestLeasedSessions(t *testing.T) {
	l := &leaser{ttl: time.Second, gone: map[string]bool{}}
	_, c := start(t, refchain.Config{}, 0, func(cfg *Config) { cfg.Sessions = LeasedSessions(l, 2, "test") })
	ctx := within(t, 20*time.Second)
	sessionOf := func() (session uint16) {
		t.Helper()
		await.Until(t, 10*time.Second, "there is a session", func() bool {
			r, err := c.Put(ctx, key(1), []byte("x"))
			if err == nil {
				session = r.Session
			} else if !errors.Is(err, ErrNoSession) && !errors.Is(err, ErrSessionLost) {
				// A write may fail because it falls between two leases or at the end of a lease.
				t.Fatal(err)
			}
			return err == nil
		})
		return session
	}
	if s := sessionOf(); s != 1 && s != 2 {
		t.Errorf("session %d of the first lease", s)
	}
	time.Sleep(1200 * time.Millisecond)
	if s := sessionOf(); s != 1 && s != 2 {
		t.Errorf("session %d after the lease's time: it should have been kept", s)
	}
	l.set(func() {
		if l.kept == 0 {
			t.Error("the lease was never kept")
		}
		l.gone["lease-0"] = true
	})
	await.Until(t, 10*time.Second, "there is a session of the second lease", func() bool { return sessionOf() >= 3 })
	// While the controller is away, the sessions are dropped before the lease expires. When the
	// controller is back, the client leases new sessions.
	l.set(func() { l.failing, l.refuse = true, true })
	before := time.Now()
	for {
		_, err := c.Put(ctx, key(1), nil)
		if errors.Is(err, ErrNoSession) || errors.Is(err, ErrSessionLost) {
			break
		}
		if err != nil || time.Since(before) > l.ttl {
			t.Fatalf("%v after the controller went away, writes go on (%v)", time.Since(before), err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.set(func() { l.failing, l.refuse = false, false })
	if s := sessionOf(); s < 5 {
		t.Errorf("session %d after the second lease", s)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	l.set(func() {
		if n := len(l.returned); n == 0 || l.returned[n-1] != "lease-4" {
			t.Errorf("given back: %v", l.returned)
		}
	})
}
