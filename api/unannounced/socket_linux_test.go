package unannounced

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestConn checks that a connection reads and writes as Go's own does. A write that does not fit
// waits. The end of the stream is io.EOF. Deadlines and Close end a waiting read or write. Errors
// have the kernel's number.
func TestConn(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			pair := func() (ours, peer net.Conn) {
				t.Helper()
				l, err := net.Listen(network, address)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if peer, err = net.Dial(network, l.Addr().String()); err != nil {
					t.Fatal(err)
				}
				nc, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				ours = conn(nc)
				t.Cleanup(func() {
					ours.Close()
					peer.Close()
				})
				return ours, peer
			}
			ours, peer := pair()
			const size = 20 << 20 // more bytes than the kernel buffers
			sent := make([]byte, size)
			rand.Read(sent)
			for _, way := range []struct{ from, to net.Conn }{{ours, peer}, {peer, ours}} {
				written := make(chan error, 1)
				go func() {
					n, err := way.from.Write(sent)
					if err == nil && n != size {
						err = io.ErrShortWrite
					}
					written <- err
				}()
				got := make([]byte, size)
				time.Sleep(20 * time.Millisecond) // give the write time to wait
				if _, err := io.ReadFull(way.to, got); err != nil || !bytes.Equal(got, sent) {
					t.Fatalf("what came is not what was sent: %v", err)
				}
				if err := <-written; err != nil {
					t.Fatal(err)
				}
			}
			if n, err := ours.Read(nil); n != 0 || err != nil {
				t.Errorf("nothing is read with %d, %v", n, err)
			}
			ours.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a read whose time is over: %v", err)
			}
			ours.SetReadDeadline(time.Time{})
			arrived := func() (there bool) {
				raw, err := ours.(syscall.Conn).SyscallConn()
				if err == nil {
					err = raw.Control(func(fd uintptr) { there = Arrived(fd) })
				}
				if err != nil {
					t.Fatal(err)
				}
				return there
			}
			if arrived() {
				t.Error("something has arrived before it was sent")
			}
			if _, err := peer.Write([]byte("last")); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(10 * time.Second); !arrived(); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("what was sent does not arrive")
				}
			}
			peer.Close()
			if b, err := io.ReadAll(ours); err != nil || string(b) != "last" {
				t.Errorf("before the end came %q, %v", b, err)
			}
			for err := error(nil); ; _, err = ours.Write([]byte("x")) { // the first write may succeed
				if err != nil {
					if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("a write to nobody: %v", err)
					}
					break
				}
			}
			waits, other := pair()
			ended := make(chan error, 1)
			go func() {
				_, err := waits.Read(make([]byte, 1))
				ended <- err
			}()
			time.Sleep(20 * time.Millisecond)
			waits.Close()
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("a read of a connection that is closed: %v", err)
			}
			other.Close()
		})
	}
	one, other := net.Pipe()
	defer other.Close()
	if conn(one) != one {
		t.Error("what is no socket is another one")
	}
}
