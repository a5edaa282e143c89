package kube

import (
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// TestAPIServersNodeIsGone checks connections to a node that has lost power. They must end soon,
// with or without data in flight, and a new connection must soon fail. A connection to a server
// that does not answer must continue while the server's node is alive.
func TestAPIServersNodeIsGone(t *testing.T) {
	t.Parallel()
	listener, cut := apiServersNode(t)
	dial := func() net.Conn {
		c, err := DialAPIServer(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	idle, asking := dial(), dial()
	time.Sleep(goneAfter + 2*time.Second)
	for name, c := range map[string]net.Conn{"idle": idle, "asking": asking} {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the connection %s to a silent server on a node that is there has ended: %v", name, err)
		}
		_ = c.SetReadDeadline(time.Time{})
	}
	cut()
	begin := time.Now()
	if _, err := asking.Write([]byte("GET")); err != nil {
		t.Fatal(err)
	}
	const enough = 4 * goneAfter // with the kernel's defaults, the connections would continue for minutes
	for name, c := range map[string]net.Conn{"idle": idle, "asking": asking} {
		_ = c.SetReadDeadline(begin.Add(enough))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection %s has not ended after %v: %v", name, enough, err)
		}
		t.Logf("%s: ended after %v", name, time.Since(begin).Round(time.Millisecond))
	}
	begin = time.Now()
	if c, err := DialAPIServer(t.Context(), "tcp", listener.Addr().String()); err == nil {
		c.Close()
		t.Error("a node without power takes a connection")
	} else if took := time.Since(begin); took > enough {
		t.Errorf("after %v: %v", took, err)
	}
}

// apiServersNode makes a network namespace for this test's thread, and a second one that is
// connected to it. In the second one, the kernel accepts connections to the listener, and no
// process serves them. cut simulates a power failure of the second one.
func apiServersNode(t *testing.T) (listener net.Listener, cut func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for network namespaces")
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	home, err := netns.Get()
	check(err)
	t.Cleanup(func() {
		if netns.Set(home) == nil { // a thread that cannot return to its namespace stays locked and ends
			runtime.UnlockOSThread()
		}
		home.Close()
	})
	other, err := netns.New()
	check(err)
	there, err := netlink.NewHandleAt(other, unix.NETLINK_ROUTE)
	check(err)
	here, err := netns.New()
	check(err)
	t.Cleanup(func() { there.Close(); other.Close(); here.Close() })
	check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b",
		PeerNamespace: netlink.NsFd(int(other))}))
	a, err := netlink.LinkByName("a")
	check(err)
	b, err := there.LinkByName("b")
	check(err)
	mask := net.CIDRMask(24, 32)
	check(netlink.AddrAdd(a, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 0, 0, 1), Mask: mask}}))
	check(there.AddrAdd(b, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 0, 0, 2), Mask: mask}}))
	check(errors.Join(netlink.LinkSetUp(a), there.LinkSetUp(b)))
	check(netns.Set(other))
	listener, err = net.Listen("tcp", "10.0.0.2:0")
	check(errors.Join(err, netns.Set(here)))
	t.Cleanup(func() { listener.Close() })
	return listener, func() { check(there.LinkSetDown(b)) }
}
