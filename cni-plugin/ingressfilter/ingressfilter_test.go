package ingressfilter

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// pair makes two namespaces with a cable between them. filtered is for the filter and has the
// address 10.0.0.1. other has 10.0.0.2.
func pair(t *testing.T) (filtered, other netns.NsHandle, ifindex int) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, for network namespaces")
	}
	runtime.LockOSThread()
	home, err := netns.Get()
	check(t, err)
	t.Cleanup(func() {
		if netns.Set(home) == nil { // a thread that cannot return to its namespace stays locked and ends
			runtime.UnlockOSThread()
		}
		home.Close()
	})
	other, err = netns.New()
	check(t, err)
	filtered, err = netns.New() // the thread is now in the new namespace
	check(t, err)
	t.Cleanup(func() { other.Close(); filtered.Close() })
	check(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b",
		PeerNamespace: netlink.NsFd(int(other))}))
	inside, err := netlink.NewHandleAt(other, unix.NETLINK_ROUTE)
	check(t, err)
	defer inside.Close()
	here, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	check(t, err)
	defer here.Close()
	for i, x := range []struct {
		h    *netlink.Handle
		name string
	}{{here, "a"}, {inside, "b"}} {
		l, err := x.h.LinkByName(x.name)
		check(t, err)
		check(t, x.h.AddrAdd(l,
			&netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 0, 0, byte(i+1)),
				Mask: net.CIDRMask(24, 32)}}))
		check(t, x.h.LinkSetUp(l))
		if i == 0 {
			ifindex = l.Attrs().Index
		}
	}
	return filtered, other, ifindex
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// passes sends datagrams from the other namespace to a port of the filtered one, and reports
// whether one arrives. If it expects this, it tries for a long time, because the machine may be
// busy. Otherwise it tries twice.
func passes(t *testing.T, filtered, other netns.NsHandle, from, to int, expected bool) bool {
	t.Helper()
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: to})
	check(t, err)
	defer server.Close()
	check(t, netns.Set(other))
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 0, 0, 2), Port: from},
		&net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: to})
	check(t, netns.Set(filtered))
	check(t, err)
	defer c.Close()
	tries := 2
	if expected {
		tries = 50
	}
	for range tries {
		_, _ = c.Write([]byte("x"))
		check(t, server.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		if _, err := server.Read(make([]byte, 10)); err == nil {
			return true
		}
	}
	return false
}

// TestFilter attaches the filter, changes its rules, and removes it. It does so at tcx and with
// clsact.
func TestFilter(t *testing.T) {
	for name, old := range map[string]bool{"tcx": false, "clsact": true} {
		t.Run(name, func(t *testing.T) {
			filtered, other, ifindex := pair(t)
			withoutTCX = old
			defer func() { withoutTCX = false }()
			expect := func(what string, from, to int, want bool) {
				t.Helper()
				if got := passes(t, filtered, other, from, to, want); got != want {
					t.Errorf("%s: %d to %d passes: %v", what, from, to, got)
				}
			}
			there := func(want bool) {
				t.Helper()
				if got, err := Attached(ifindex); err != nil || got != want {
					t.Errorf("there is a filter: %v (%v)", got, err)
				}
			}
			there(false)
			check(t, Detach(ifindex)) // there is no filter to remove
			expect("no filter", 7, 20035, true)
			check(t, Attach(ifindex, Rules{Port: 20035, Destination: 20037}))
			there(true)
			expect("filter", 7, 20035, false)
			expect("filter", 20035, 7, false)
			expect("filter", 7, 20037, false)
			expect("filter", 20037, 7, true)
			expect("filter", 7, 8, true)
			check(t, Attach(ifindex, Rules{Port: 99})) // replaces the first filter
			expect("other rules", 7, 20035, true)
			expect("other rules", 7, 99, false)
			check(t, Detach(ifindex))
			there(false)
			expect("taken off", 7, 99, true)
		})
	}
}
