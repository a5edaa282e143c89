package calls

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// TestInvariants drives machines with random events and checks that the invariants hold.
func TestInvariants(t *testing.T) {
	for seed := range uint64(300) {
		if err := walk(seed, 2000); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestSameEventsSameActions checks that a machine's actions depend only on the events and the seed,
// so that the simulator can replay a failing seed.
func TestSameEventsSameActions(t *testing.T) {
	trace := func() string {
		var log bytes.Buffer
		r := rand.New(rand.NewPCG(7, 7))
		m, err := New(Config{Profile: wire.Profile128, Addresses: []netip.AddrPort{address("1"), address("2")}, Seed: 42})
		if err != nil {
			t.Fatal(err)
		}
		for id := range uint16(3) {
			if err := m.AddSession(0, Session{id + 1, 1}); err != nil {
				t.Fatal(err)
			}
		}
		var now time.Duration
		for range 3000 {
			now += time.Duration(r.Int64N(int64(3 * time.Millisecond)))
			m.Start(now, Request{Op: []wire.Op{wire.Read, wire.Write, wire.CAS}[r.IntN(3)],
				Key: wire.Key(r.IntN(4)), Deadline: now + time.Duration(1+r.Int64N(int64(time.Second)))})
			m.Tick(now)
			sends, completions := m.Take()
			for _, s := range sends {
				fmt.Fprintf(&log, "%v %v %x\n", now, s.To, s.Packet)
				if r.IntN(3) == 0 {
					reply := bytes.Clone(s.Packet)
					reply[0]++ // The op of a reply is the op of its request plus one.
					reply[1] = uint8(r.IntN(6))
					m.Receive(now, s.To, reply)
				}
			}
			for _, c := range completions {
				fmt.Fprintf(&log, "%v %v\n", c.ID, c.Result.Err)
			}
		}
		m.AbortAll(now, ErrClosed)
		_, completions := m.Take()
		for _, c := range completions {
			fmt.Fprintf(&log, "%v %v\n", c.ID, c.Result.Err)
		}
		return log.String()
	}
	if a, b := trace(), trace(); a != b || len(a) < 100000 {
		t.Errorf("two runs differ, or did little (%d and %d bytes)", len(a), len(b))
	}
}

// walk makes a machine and sends it random events.
func walk(seed uint64, steps int) error {
	r := rand.New(rand.NewPCG(seed, 1))
	addresses := []netip.AddrPort{address("1"), address("2"), address("3")}[:1+r.IntN(3)]
	m, err := New(Config{Profile: wire.Profile128, Addresses: addresses, Seed: seed, AtLeastOnce: r.IntN(2) == 0})
	if err != nil {
		return err
	}
	type key struct {
		session uint16
		request uint32
	}
	var (
		now time.Duration
		// the calls that were started; the value is true if the call has completed
		started = map[CallID]bool{}
		// calls that were sent again because the switches rejected their session
		begun = map[CallID]bool{}
		// the first content that was sent under each number; reads are left out, because their
		// numbers repeat after 2^32
		content = map[key][]byte{}
		newest  = map[uint16]uint32{} // the newest number of each session
		// copies of requests; each may still be answered, and more than once
		inFlight [][]byte
		ids      []CallID
		nextID   = uint16(1)
	)
	drain := func() error {
		sends, completions := m.Take()
		for _, s := range sends {
			var p wire.Packet
			if err := p.Unmarshal(s.Packet, wire.Profile128); err != nil {
				return err
			}
			k := key{p.Session, p.Request}
			if first, ok := content[k]; ok && !bytes.Equal(first, s.Packet) {
				return fmt.Errorf("number %+v is sent with other content:\n%x\n%x", k, first, s.Packet)
			}
			content[k] = bytes.Clone(s.Packet)
			if p.Session != 0 {
				if p.Request < newest[p.Session] {
					return fmt.Errorf("request %+v after %d: the head would drop it", k, newest[p.Session])
				}
				newest[p.Session] = p.Request
			}
			inFlight = append(inFlight, bytes.Clone(s.Packet))
		}
		for _, c := range completions {
			if done, known := started[c.ID]; done || !known {
				return fmt.Errorf("call %d completes twice, or was never started", c.ID)
			}
			started[c.ID] = true
			if e, ok := c.Result.Err.(*OpError); ok {
				if e.OutcomeUnknown && (e.Op == wire.Read || e.Attempts == 0) {
					return fmt.Errorf("the outcome of %v is said to be unknown", e)
				}
				if !e.OutcomeUnknown && e.Op != wire.Read && e.Attempts > 0 && (e.Err != ErrCASFailed ||
					c.Result.Session == 0 || begun[c.ID]) {
					return fmt.Errorf("the outcome of %v is said to be known", e)
				}
			}
		}
		return nil
	}
	for range steps {
		switch n := r.IntN(100); {
		case n < 30:
			req := Request{Op: []wire.Op{wire.Read, wire.Write, wire.CAS}[r.IntN(3)], Key: wire.Key(r.IntN(3))}
			if r.IntN(2) == 0 {
				req.Deadline = now + time.Duration(r.Int64N(int64(400*time.Millisecond)))
			}
			if req.Op != wire.Read {
				req.Value = []byte{byte(r.IntN(256))}
			}
			id := m.lastID + 1
			started[id] = false
			ids = append(ids, id)
			m.Start(now, req)
		// Some request, sent recently or long ago, gets an answer.
		case n < 60 && len(inFlight) > 0:
			b := bytes.Clone(inFlight[r.IntN(len(inFlight))])
			b[0]++
			b[1] = []uint8{0, 0, 0, 0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10}[r.IntN(17)]
			from := addresses[r.IntN(len(addresses))]
			if r.IntN(8) == 0 {
				from = address("66")
			}
			before, calls := m.Stats(), m.Outstanding()
			var p wire.Packet
			if err := p.Unmarshal(b, wire.Profile128); err != nil {
				return err
			}
			if c := m.pending[pendingKey{p.Session, p.Request}]; c != nil && p.Status == wire.BadSession &&
				from != address("66") {
				begun[c.id] = true
			}
			m.Receive(now, from, b)
			if after := m.Stats(); from == address("66") && (after.Foreign != before.Foreign+1 ||
				m.Outstanding() != calls || len(m.sends) > 0 || len(m.completions) > 0) {
				return fmt.Errorf("an answer from nobody that was asked made something happen: %+v, then %+v", before, after)
			}
		case n < 85:
			now += time.Duration(r.Int64N(int64(30 * time.Millisecond)))
			m.Tick(now)
			if at, ok := m.NextTick(); ok && at <= now {
				return fmt.Errorf("after a tick at %v the next is due at %v", now, at)
			}
		case n < 90 && len(ids) > 0:
			m.Abort(now, ids[r.IntN(len(ids))], ErrCanceled)
		case n < 95:
			if err := m.AddSession(now, Session{nextID, 1 + r.Uint32N(1000)}); err != nil {
				return err
			}
			nextID++
		case n < 96:
			m.AwaitSessions(now, r.IntN(2) == 0)
		case n < 98 && nextID > 1:
			m.DropSession(now, 1+uint16(r.IntN(int(nextID))))
		}
		if err := drain(); err != nil {
			return err
		}
		users := map[uint16]int{}
		for _, c := range m.pending {
			if c.packet.Session != 0 {
				if users[c.packet.Session]++; users[c.packet.Session] > 1 {
					return fmt.Errorf("session %d has two writes on their way", c.packet.Session)
				}
			}
		}
	}
	m.AbortAll(now, ErrClosed)
	if err := drain(); err != nil {
		return err
	}
	for id, done := range started {
		if !done {
			return fmt.Errorf("call %d never completes", id)
		}
	}
	if m.Outstanding() != 0 || len(m.pending) != 0 || len(m.timers) != 0 {
		return fmt.Errorf("left behind: %d calls, %d pending, %d timers", m.Outstanding(), len(m.pending), len(m.timers))
	}
	return nil
}

// BenchmarkRead measures the machine's cost of a read, with 64 outstanding.
func BenchmarkRead(b *testing.B) {
	m, err := New(Config{Profile: wire.Profile128, Addresses: []netip.AddrPort{address("1")}})
	if err != nil {
		b.Fatal(err)
	}
	var now time.Duration
	for range 64 {
		m.Start(now, Request{Op: wire.Read, Key: 7})
	}
	b.ReportAllocs()
	for n := 0; n < b.N; {
		sends, _ := m.Take()
		for _, s := range sends {
			s.Packet[0]++
			now += time.Microsecond
			m.Receive(now, s.To, s.Packet)
			m.Start(now, Request{Op: wire.Read, Key: 7})
			n++
		}
	}
}
