package devnet

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestLoopback: two networks on one machine have different addresses. A datagram of a program
// enters the network from 127.0.0.1, and the network's answer comes from the address to which the
// program sent it.
func TestLoopback(t *testing.T) {
	a, err := ListenLoopback(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := ListenLoopback(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if a.Addr(100) == b.Addr(100) || !a.Addr(100).IsLoopback() {
		t.Fatalf("addresses %v and %v", a.Addr(100), b.Addr(100))
	}
	program, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	from := netip.AddrPortFrom(a.Host(), program.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	f := wire.Frame{Src: netip.AddrPortFrom(a.Addr(1), wire.Port), Dst: from}
	frame, err := f.AppendTo(nil, []byte("an answer"))
	if err != nil {
		t.Fatal(err)
	}
	a.Send(frame[:20]) // the datagram is too short, so it is ignored
	a.Send(frame)
	_ = program.SetReadDeadline(time.Now().Add(20 * time.Second))
	buf := make([]byte, 100)
	size, at, err := program.ReadFromUDPAddrPort(buf)
	if err != nil || string(buf[:size]) != "an answer" || at != f.Src {
		t.Fatalf("%q from %v, %v; want it from %v", buf[:size], at, err, f.Src)
	}
}

// TestLife: a switch has no program at first, and keeps its address when it starts again. Closing
// the network ends all P4Runtime servers.
func TestLife(t *testing.T) {
	n := New(func(Port, []byte) {})
	defer n.Close()
	s, err := n.AddSwitch()
	if err != nil {
		t.Fatal(err)
	}
	before := s.Address()
	s.Suspend()
	s.Kill()
	if err := s.Start(); err != nil || s.Address() != before || s.Number() != 1 || n.Switch(1) != s {
		t.Fatalf("%v, at %s, before at %s", err, s.Address(), before)
	}
	if s.Pipeline() != nil {
		t.Error("it has a program")
	}
	for range 2 * maxWaiting { // send more frames than may wait, so that the network drops some
		n.Inject(Port{1, 1}, make([]byte, 60))
	}
	n.Close()
	poll.Until(t, 20*time.Second, "nobody listens", func() bool {
		c, err := net.Dial("tcp", before)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}
