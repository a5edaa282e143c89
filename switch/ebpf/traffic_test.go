package ebpf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// host moves the far end of a veth pair to a new namespace. It gives this end an address and makes
// the other hosts' addresses known. As with Mininet's hosts, the namespace has no name. Unless
// hidden is set, a process is in the namespace.
func (c *cables) host(t *testing.T, n uint32, hidden bool) netns.NsHandle {
	t.Helper()
	l, err := netlink.LinkByName(fmt.Sprintf("h%d", n))
	check(t, err)
	space, err := netns.New()
	check(t, err)
	t.Cleanup(func() { space.Close() })
	noIPv6()
	if !hidden {
		inside := exec.Command("sleep", "60")
		check(t, inside.Start())
		t.Cleanup(func() { _ = inside.Process.Kill(); _ = inside.Wait() })
	}
	check(t, netns.Set(c.space))
	check(t, netlink.LinkSetNsFd(l, int(space)))
	check(t, netns.Set(space))
	check(t, netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, byte(n)}))
	check(t, netlink.AddrAdd(l,
		&netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 0, 0, byte(n)),
			Mask: net.CIDRMask(24, 32)}}))
	check(t, netlink.LinkSetUp(l))
	for other := uint32(1); other < 4; other++ {
		check(t, netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index,
			State: netlink.NUD_PERMANENT, IP: net.IPv4(10, 0, 0, byte(other)),
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, byte(other)}}))
	}
	check(t, netns.Set(c.space))
	return space
}

// inside runs f on a thread in a namespace. Sockets that f opens stay in that namespace.
func inside[T any](t *testing.T, space netns.NsHandle, f func() (T, error)) T {
	t.Helper()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		// The goroutine never unlocks the thread, so the thread ends with it.
		runtime.LockOSThread()
		if err := netns.Set(space); err != nil {
			done <- result{err: err}
			return
		}
		value, err := f()
		done <- result{value, err}
	}()
	r := <-done
	check(t, r.err)
	return r.value
}

// TestTCP lets two hosts send each other some megabytes through a switch. The hosts' sockets leave
// checksums and segmentation to the interface. All data must still arrive intact.
func TestTCP(t *testing.T) {
	const size = 4 << 20
	for _, c := range []struct {
		name   string
		opts   Options
		hidden bool
		xdp    int
	}{
		{"tc", Options{Hook: HookTC}, false, 0}, {"clsact", Options{Hook: HookTC, clsact: true},
			false, 0}, {"xdp", Options{Hook: HookXDP}, false, 2},
		{"mixed", Options{Hook: HookXDP}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cables := newCables(t, []uint32{1, 2})
			one, two := cables.host(t, 1, false), cables.host(t, 2, c.hidden)
			d := startHooks(t, c.opts, 1, 2)
			at := 0
			for _, q := range d.ports {
				if q.At == HookXDP {
					at++
				}
			}
			if at != c.xdp {
				t.Fatalf("%d ports are at XDP, not %d", at, c.xdp)
			}
			listener := inside(t, one, func() (net.Listener,
				error) {
				return net.Listen("tcp", "10.0.0.1:7000")
			})
			defer listener.Close()
			client := inside(t, two, func() (net.Conn,
				error) {
				return net.DialTimeout("tcp", "10.0.0.1:7000", 5*time.Second)
			})
			defer client.Close()
			server, err := listener.Accept()
			check(t, err)
			defer server.Close()
			data := make([]byte, size)
			r := rand.NewChaCha8([32]byte{1})
			_, _ = r.Read(data)
			errs := make(chan error, 4)
			for _, conn := range []net.Conn{client, server} {
				check(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
				go func() {
					_, err := conn.Write(data)
					errs <- err
				}()
				go func() {
					got := make([]byte, size)
					_, err := io.ReadFull(conn, got)
					if err == nil && !bytes.Equal(got, data) {
						err = errors.New("other bytes came than were sent")
					}
					errs <- err
				}()
			}
			for range 4 {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
		})
	}
}
