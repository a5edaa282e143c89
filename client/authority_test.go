package client

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/internal/await"
	"github.com/netcraq/netcraq/client/refchain"
)

// slow is a retransmission time long enough that no packet is sent again merely because the machine
// is busy.
const slow = 5 * time.Second

// at returns a change of the configuration that makes the client send from an address. The address
// determines the client's principal.
func at(host string) func(*Config) {
	return func(c *Config) { c.Local, c.Retransmit = netip.AddrPortFrom(netip.MustParseAddr(host), 0), slow }
}

// TestDenied checks that an operation without a grant in the key's realm fails at once with
// ErrDenied.
func TestDenied(t *testing.T) {
	const owner, reader, writer, realm, session = 7, 8, 9, 7, 1
	for _, tc := range []struct {
		principal         uint16
		read, write, swap bool
	}{{principal: owner, read: true, write: true, swap: true}, {principal: reader, read: true},
		{principal: writer, write: true}, {principal: 10}, {}} {
		chain, c := start(t, refchain.Config{}, session, at("127.0.0.9"))
		chain.SetPrincipal(netip.MustParseAddr("127.0.0.9"), tc.principal)
		chain.SetRealm(key(1), realm)
		chain.Grant(reader, realm, true, false)
		chain.Grant(writer, realm, false, true)
		ctx := within(t, 5*time.Second)
		for what, step := range map[string]struct {
			may bool
			do  func(k wire.Key) error
		}{
			"get": {tc.read, func(k wire.Key) error { _, err := c.Get(ctx, k); return err }},
			"put": {tc.write, func(k wire.Key) error { _, err := c.Put(ctx, k, []byte("x")); return err }},
			"cas": {tc.swap, func(k wire.Key) error {
				// The key has a different version, so the swap fails if it is allowed at all.
				_, err := c.CompareAndSwap(ctx, k, wire.MakeVersion(9, 9), nil)
				return err
			}},
		} {
			if err := step.do(key(2)); errors.Is(err, ErrDenied) {
				t.Errorf("principal %d: %s of a key without a realm: %v", tc.principal, what, err)
			}
			before := c.Stats().Sent
			err := step.do(key(1))
			if errors.Is(err, ErrDenied) == step.may {
				t.Errorf("principal %d: %s: %v", tc.principal, what, err)
			}
			var e *OpError
			if errors.As(err, &e) && errors.Is(err, ErrDenied) && (e.OutcomeUnknown != (what != "get") ||
				c.Stats().Sent != before+1 || !strings.Contains(err.Error(), "ask the operator")) {
				t.Errorf("principal %d: %s was denied, and: %v (%d sent)", tc.principal, what, err, c.Stats().Sent-before)
			}
		}
		if n := chain.Counts().Denied; (n > 0) == (tc.principal == owner) {
			t.Errorf("principal %d: denied %d times", tc.principal, n)
		}
	}
}

// In TestRefusedCopy, a write is executed, its answer is lost, and a copy that the network made of
// it is refused. The client must not report that the write was not executed.
func TestRefusedCopy(t *testing.T) {
	for _, status := range []wire.Status{wire.NotFound, wire.Denied, wire.BadSession, wire.NoChain, wire.Full,
		wire.Dirty} {
		for name, do := range map[string]func(*Client) error{
			"put":    func(c *Client) error { _, err := c.Put(within(t, 5*time.Second), key(1), []byte("x")); return err },
			"delete": func(c *Client) error { _, err := c.Delete(within(t, 5*time.Second), key(1)); return err },
			"cas": func(c *Client) error {
				_, err := c.CompareAndSwap(within(t, 5*time.Second), key(1), 0, []byte("x"))
				return err
			},
		} {
			chain, c := start(t, refchain.Config{}, 1, func(cfg *Config) {
				cfg.Retransmit, cfg.Addresses = slow, cfg.Addresses[:1]
			})
			chain.Place(key(1))
			chain.RefuseSecond(status)
			err := do(c)
			var e *OpError
			if !errors.As(err, &e) || !e.OutcomeUnknown || e.Attempts != 1 ||
				!strings.Contains(err.Error(), "not known") || chain.Counts().Executed != 1 {
				t.Errorf("%s, its copy answered %v: %v; executed %d times", name, status, err, chain.Counts().Executed)
			}
		}
	}
}

// TestOwnAddress checks that sessions are leased to the address from which the client sends.
func TestOwnAddress(t *testing.T) {
	for local, want := range map[string]string{"": "127.0.0.1", "0.0.0.0:0": "127.0.0.1", "127.0.0.9:0": "127.0.0.9"} {
		hosts := make(chan netip.Addr, 2)
		l := &leaser{ttl: time.Minute, lease: func(session uint16, host netip.Addr) uint32 {
			hosts <- host
			return 1
		}}
		chain, c := start(t, refchain.Config{}, 0, func(cfg *Config) {
			if cfg.Sessions = LeasedSessions(l, 1, "test"); local != "" {
				cfg.Local = netip.MustParseAddrPort(local)
			}
		})
		host := <-hosts
		if host != netip.MustParseAddr(want) {
			t.Errorf("bound to %q: sessions are leased to %v, want %v", local, host, want)
		}
		chain.Lease(1, host, 0)
		if _, err := c.Put(within(t, 5*time.Second), key(1), []byte("x")); err != nil {
			t.Errorf("bound to %q: %v", local, err)
		}
	}
	if a := HostAddress(netip.MustParseAddrPort("[::1]:1")); a.IsValid() {
		t.Errorf("own IPv4 address towards an IPv6 address: %v", a)
	}
}

// TestBadSessions checks that if the switches reject the present sessions, writes continue with
// other sessions, and are executed once.
func TestBadSessions(t *testing.T) {
	other := netip.MustParseAddr("127.0.0.5")
	type world struct {
		chain *refchain.Chain
		c     *Client
		l     *leaser
	}
	begin := func(t *testing.T, count int) *world {
		w := &world{l: &leaser{ttl: time.Minute, gone: map[string]bool{}}}
		w.chain, w.c = start(t, refchain.Config{}, 0, func(cfg *Config) {
			cfg.Sessions, cfg.Retransmit = LeasedSessions(w.l, count, "test"), slow
		})
		w.l.set(func() {
			w.l.lease = func(session uint16, host netip.Addr) uint32 {
				w.chain.Lease(session, host, 5000)
				return 5001
			}
		})
		return w
	}
	// swap writes by CAS. It begins with a key that was never written.
	version := map[*world]wire.Version{}
	swap := func(t *testing.T, w *world, ctx context.Context) Result {
		t.Helper()
		r, err := w.c.CompareAndSwap(ctx, key(1), version[w], []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		version[w] = r.Version
		return r
	}
	t.Run("one of them", func(t *testing.T) {
		w := begin(t, 3)
		w.chain.Lease(1, other, 0)
		if r := swap(t, w, within(t, 5*time.Second)); r.Attempts != 2 || r.Session == 1 {
			t.Errorf("%+v, want it done by the second packet, with another session", r)
		}
		for range 6 {
			if r := swap(t, w, within(t, 5*time.Second)); r.Attempts != 1 || r.Session == 1 {
				t.Errorf("%+v, with a session that is not taken", r)
			}
		}
		if n := w.chain.Counts(); n.Executed != 7 || n.BadSession != 1 || w.c.Stats().Refusals != 1 {
			t.Errorf("%+v, %+v", n, w.c.Stats())
		}
	})
	t.Run("all of them", func(t *testing.T) {
		w := begin(t, 2)
		w.chain.Lease(1, other, 0)
		w.chain.Lease(2, other, 0)
		results := w.c.Batch(within(t, 5*time.Second), []Request{{Op: wire.CAS, Key: key(2)},
			{Op: wire.CAS, Key: key(3)}, {Op: wire.CAS, Key: key(4), Value: []byte("y")}})
		for _, r := range results {
			if r.Err != nil || r.Session < 3 || r.Request <= 5000 {
				t.Errorf("%+v, want it done with the next lease", r)
			}
		}
		if n := w.chain.Counts(); n.Executed != 3 {
			t.Errorf("executed %d writes, want 3", n.Executed)
		}
		w.l.set(func() {
			if len(w.l.returned) != 1 || w.l.returned[0] != "lease-0" {
				t.Errorf("given back: %v", w.l.returned)
			}
		})
	})
	t.Run("a WRITE is not done twice", func(t *testing.T) {
		w := begin(t, 2)
		w.chain.Lease(1, other, 0)
		for _, write := range []func() (Result, error){
			func() (Result, error) { return w.c.Put(within(t, 5*time.Second), key(1), []byte("x")) },
			func() (Result, error) { return w.c.Delete(within(t, 5*time.Second), key(1)) },
		} {
			var e *OpError
			if _, err := write(); !errors.Is(err, ErrBadSession) || !errors.As(err, &e) || !e.OutcomeUnknown ||
				e.Attempts != 1 {
				t.Errorf("got %v, want it ended, since a copy may have been executed", err)
			}
			if r, err := write(); err != nil || r.Session != 2 {
				t.Errorf("%+v, %v", r, err)
			}
			w = begin(t, 2)
			w.chain.Lease(1, other, 0)
		}
	})
	t.Run("numbers of another lease", func(t *testing.T) {
		w := begin(t, 1)
		w.chain.Lease(1, other, 0)
		w.l.set(func() {
			w.l.lease = func(session uint16, host netip.Addr) uint32 {
				last := uint32(1000)
				w.chain.Lease(session, host, last)
				if session == 2 {
					return last + wire.RequestWindow + 1
				}
				return last + wire.RequestWindow
			}
		})
		if r := swap(t, w, within(t, 5*time.Second)); r.Session != 3 || r.Attempts != 3 {
			t.Errorf("%+v, want it done with the third lease: the first is another's, the second's numbers are beyond the window", r)
		}
		if n := w.chain.Counts(); n.Executed != 1 || n.BadSession != 2 {
			t.Errorf("%+v", n)
		}
	})
	t.Run("every lease anew", func(t *testing.T) {
		w := begin(t, 1)
		w.chain.Lease(1, other, 0)
		var leases atomic.Int64
		w.l.set(func() {
			w.l.lease = func(session uint16, _ netip.Addr) uint32 {
				leases.Add(1)
				w.chain.Lease(session, other, 0)
				return 1
			}
		})
		// The client leases sessions at about 0, 10, 30, 70, 150 and 310 ms.
		_, err := w.c.CompareAndSwap(within(t, 230*time.Millisecond), key(1), 0, nil)
		var e *OpError
		if !errors.Is(err, ErrTimeout) || !errors.As(err, &e) || !e.OutcomeUnknown || e.Attempts < 2 ||
			!strings.Contains(err.Error(), "did not take session") {
			t.Errorf("put: %v", err)
		}
		if n := leases.Load(); n < 2 || n > 12 {
			t.Errorf("%d leases in 230 ms: want a pause between them that grows", n)
		}
		if n := w.chain.Counts().Executed; n != 0 {
			t.Errorf("executed %d writes", n)
		}
	})
	t.Run("no lease to be had", func(t *testing.T) {
		w := begin(t, 1)
		w.chain.Lease(1, other, 0)
		w.l.set(func() { w.l.refuse = true })
		_, err := w.c.Put(within(t, 5*time.Second), key(1), nil)
		var e *OpError
		if !errors.Is(err, ErrBadSession) || !errors.As(err, &e) || !e.OutcomeUnknown ||
			!strings.Contains(err.Error(), "not leased to this host") {
			t.Errorf("put: %v", err)
		}
		if _, err = w.c.Put(within(t, 5*time.Second), key(1), nil); !errors.Is(err, ErrNoSession) {
			t.Errorf("the next put: %v", err)
		}
		w.l.set(func() { w.l.refuse = false })
		await.Until(t, 5*time.Second, "a session is leased again", func() bool {
			_, err := w.c.Put(t.Context(), key(1), nil)
			return err == nil
		})
	})
	t.Run("sessions that were set aside", func(t *testing.T) {
		chain, c := start(t, refchain.Config{}, 2, nil)
		chain.Lease(1, other, 0)
		if r, err := c.CompareAndSwap(within(t, 5*time.Second), key(1), 0, nil); err != nil || r.Session != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		chain.Lease(2, other, 0)
		if _, err := c.Put(within(t, 5*time.Second), key(1), nil); !errors.Is(err, ErrBadSession) {
			t.Error(err)
		}
		if _, err := c.Put(within(t, 5*time.Second), key(1), nil); !errors.Is(err, ErrNoSession) {
			t.Error(err)
		}
	})
}
