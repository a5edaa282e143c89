package p4rtserver

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClosedFirst checks that a connection's descriptor is above all others. The connection must
// still work: both addresses, deadlines, the end of the stream, and Close during a Read.
func TestClosedFirst(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pair := func() (ours, theirs net.Conn) {
		t.Helper()
		theirs, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { theirs.Close() })
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ours = closedFirst(conn)
		t.Cleanup(func() { ours.Close() })
		return ours, theirs
	}
	ours, theirs := pair()
	if limit.Cur <= closedFirstFrom {
		t.Skipf("a process may have %d descriptors here: connections stay as they are", limit.Cur)
	}
	raw, err := ours.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if fd < closedFirstFrom {
			t.Errorf("the descriptor is %d, want %d or more", fd, closedFirstFrom)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if ours.RemoteAddr().String() != theirs.LocalAddr().String() ||
		ours.LocalAddr().String() != theirs.RemoteAddr().String() {
		t.Errorf("%v to %v, and its other end %v to %v", ours.LocalAddr(), ours.RemoteAddr(), theirs.LocalAddr(), theirs.RemoteAddr())
	}
	buf := make([]byte, 8)
	if err := ours.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read with nothing to read until its deadline: %v", err)
	}
	if err := ours.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if n, err := io.ReadFull(ours, buf[:4]); err != nil || string(buf[:n]) != "ping" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	if _, err := ours.Write([]byte("pong")); err != nil {
		t.Fatal(err)
	}
	if n, err := io.ReadFull(theirs, buf[:4]); err != nil || string(buf[:n]) != "pong" {
		t.Errorf("the other end read %q, %v", buf[:n], err)
	}
	theirs.Close()
	if _, err := ours.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("the other end has closed: %v", err)
	}

	ours, theirs = pair()
	read := make(chan error)
	go func() {
		_, err := ours.Read(buf)
		read <- err
	}()
	time.Sleep(5 * time.Millisecond)
	ours.Close()
	select {
	case err := <-read:
		if err == nil {
			t.Error("read from a closed connection")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("it is read from after Close")
	}
	if _, err := theirs.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("closed here, and the other end reads: %v", err)
	}
}
