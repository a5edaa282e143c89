package relay

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/racedetector"
)

// Unannounced returns a TCP or Unix connection whose system calls for reads and writes are hidden
// from Go's scheduler. They do not block, because the socket is non-blocking, and take some
// microseconds. If the scheduler knew of each call, it would wake its monitor whenever the process
// becomes active. The monitor would then check every 20 µs for goroutines in a system call, which
// costs a wake-up for each request on an idle machine, and a sixth of a busy gateway's processor
// time. Unannounced returns any other connection unchanged. It does so for every connection under
// the race detector, which derives the order of events from the runtime's own calls.
func Unannounced(nc net.Conn) net.Conn {
	if racedetector.Enabled {
		return nc
	}
	return unannounced(nc)
}

func unannounced(nc net.Conn) net.Conn {
	c, ok := nc.(syscall.Conn)
	if !ok {
		return nc
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nc
	}
	s := &socket{Conn: nc, raw: raw}
	s.in.do = func(fd uintptr) bool { return s.in.call(unix.SYS_READ, fd) }
	s.out.do = func(fd uintptr) bool { return s.out.call(unix.SYS_WRITE, fd) }
	return s
}

// socket is a connection of Unannounced. At most one goroutine reads it, and one writes it.
type socket struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer
}

// transfer is a read or a write.
type transfer struct {
	do  func(fd uintptr) bool
	b   []byte
	n   int
	err unix.Errno
}

// call makes a system call, and reports whether it is done, without waiting for the socket.
func (t *transfer) call(which, fd uintptr) bool {
	for {
		n, _, err := unix.RawSyscall(which, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.b))), uintptr(len(t.b)))
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			t.n, t.err = int(n), err
			return true
		}
	}
}

// SyscallConn implements [syscall.Conn].
func (s *socket) SyscallConn() (syscall.RawConn, error) { return s.raw, nil }

// Read implements [net.Conn].
func (s *socket) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	s.in.b = b
	err := s.raw.Read(s.in.do)
	s.in.b = nil
	switch {
	case err != nil:
		return 0, err
	case s.in.err != 0:
		return 0, s.failed("read", s.in.err)
	case s.in.n == 0:
		return 0, io.EOF
	}
	return s.in.n, nil
}

// Write implements [net.Conn].
func (s *socket) Write(b []byte) (written int, err error) {
	for len(b) > 0 {
		s.out.b = b
		err := s.raw.Write(s.out.do)
		s.out.b = nil
		switch {
		case err != nil:
			return written, err
		case s.out.err != 0:
			return written, s.failed("write", s.out.err)
		}
		b, written = b[s.out.n:], written+s.out.n
	}
	return written, nil
}

func (s *socket) failed(what string, err error) error {
	return &net.OpError{Op: what, Net: s.LocalAddr().Network(), Source: s.LocalAddr(), Addr: s.RemoteAddr(),
		Err: os.NewSyscallError(what, err)}
}
