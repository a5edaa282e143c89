package client

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// forger is a switch on loopback together with an attacker. The attacker knows all requests,
// including their numbers, and is faster than the switch. Before each answer of the switch, each of
// the attacker's sockets sends a forged answer.
type forger struct {
	// the sockets of the switch: for the service address and for its own address
	service, own *net.UDPConn
	forgers      []*net.UDPConn
}

// newForger starts a forger. One socket of the attacker has the right port and a wrong address;
// another has the right address and a wrong port.
func newForger(t *testing.T) *forger {
	t.Helper()
	listen := func(address string) *net.UDPConn {
		conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	f := &forger{service: listen("127.0.0.1:0")}
	port := addressOf(f.service).Port()
	at := func(ip string) string { return netip.AddrPortFrom(netip.MustParseAddr(ip), port).String() }
	f.own = listen(at("127.0.0.2"))
	f.forgers = []*net.UDPConn{listen(at("127.0.0.66")), listen("127.0.0.1:0"), listen("127.0.0.2:0")}
	for _, conn := range []*net.UDPConn{f.service, f.own} {
		go f.serve(t, conn)
	}
	return f
}

func addressOf(conn *net.UDPConn) netip.AddrPort { return conn.LocalAddr().(*net.UDPAddr).AddrPort() }

func (f *forger) serve(t *testing.T, conn *net.UDPConn) {
	buf := make([]byte, 2048)
	for {
		n, client, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return // the socket is closed
		}
		var p wire.Packet
		if err := p.Unmarshal(buf[:n], wire.Profile128); err != nil {
			t.Error(err)
			continue
		}
		send := func(from *net.UDPConn, value string) {
			reply := wire.Packet{Epoch: 1, Session: p.Session, Request: p.Request, Key: p.Key,
				Version: wire.MakeVersion(1, 1), Value: []byte(value)}
			reply.Op, _ = p.Op.Reply()
			b, err := reply.Marshal(wire.Profile128)
			if err != nil {
				t.Error(err)
			}
			_, _ = from.WriteToUDPAddrPort(b, client)
		}
		for _, from := range f.forgers {
			send(from, "forged")
		}
		// A switch answers from the service address, whatever address the request was sent to.
		send(f.service, "true")
	}
}

// TestForgedReplies checks that an attacker that knows the requests cannot forge answers. The
// attacker cannot send from an address that the client sent to, nor from the chain's service
// address.
func TestForgedReplies(t *testing.T) {
	f := newForger(t)
	service, own := addressOf(f.service), addressOf(f.own)
	for name, tc := range map[string]struct {
		addresses, services []netip.AddrPort
		at                  []Option
	}{
		"the service address is asked":               {addresses: []netip.AddrPort{service, own}},
		"a switch is asked, and the service is told": {addresses: []netip.AddrPort{own}, services: []netip.AddrPort{service}},
		"a request has an address of its own":        {addresses: []netip.AddrPort{service}, at: []Option{AskAddresses(own)}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(t.Context(), Config{Addresses: tc.addresses, Services: tc.services,
				Sessions: StaticSessions(Session{ID: 1, NextRequest: 1}), Retransmit: slow})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx := within(t, 5*time.Second)
			const calls = 50
			for range calls {
				r, err := c.Get(ctx, key(1), tc.at...)
				if err != nil || string(r.Value) != "true" || r.From != service {
					t.Fatalf("got %q from %v (%v), which was forged", r.Value, r.From, err)
				}
				if r, err = c.Put(ctx, key(1), []byte("x"), tc.at...); err != nil || r.From != service {
					t.Fatalf("put: the answer came from %v (%v)", r.From, err)
				}
			}
			if s := c.Stats(); s.Foreign != 2*calls*uint64(len(f.forgers)) || s.Strays+s.Malformed != 0 {
				t.Errorf("counted %+v, want %d foreign packets", s, 2*calls*len(f.forgers))
			}
		})
	}
	t.Run("a switch alone is known", func(t *testing.T) {
		c, err := New(t.Context(), Config{Addresses: []netip.AddrPort{own}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// The client must not learn the service address from the first answer, which is forged.
		if r, err := c.Get(within(t, 300*time.Millisecond), key(1)); !errors.Is(err, ErrTimeout) ||
			!strings.Contains(err.Error(), "the chain's service address") {
			t.Errorf("got %q, %v", r.Value, err)
		}
	})
}

// TestReadNumbers checks that the first number of reads is unpredictable, because a client
// recognizes an answer by its number.
func TestReadNumbers(t *testing.T) {
	listener, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var seen []uint32
	var ones, all [32]int
	const clients = 64
	for range clients {
		c, err := New(t.Context(), Config{Addresses: []netip.AddrPort{addressOf(listener)}})
		if err != nil {
			t.Fatal(err)
		}
		ctx := within(t, 5*time.Second)
		c.Do(ctx, Request{Op: wire.Read, Key: key(1)}, func(Result) {})
		buf := make([]byte, 2048)
		if err := listener.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, from, err := listener.ReadFromUDPAddrPort(buf)
		var p wire.Packet
		if err != nil || p.Unmarshal(buf[:n], wire.Profile128) != nil || from.Port() != c.socket.local().Port() {
			t.Fatal(err, from)
		}
		seen = append(seen, p.Request)
		for bit := range 32 {
			all[bit]++
			ones[bit] += int(p.Request >> bit & 1)
		}
		c.Close()
	}
	for bit := range 32 {
		// A random bit is the same in all clients by chance once in 2^58 runs.
		if ones[bit] == 0 || ones[bit] == all[bit] {
			t.Errorf("bit %d of the first number is the same in %d clients", bit, clients)
		}
	}
	slices.Sort(seen)
	if n := len(slices.Compact(seen)); n < clients-1 {
		t.Errorf("%d clients begin with %d numbers", clients, n)
	}
}
