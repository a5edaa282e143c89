package unannounced

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// Conn returns a TCP or Unix connection whose reads and writes use such system calls. It returns
// any other connection unchanged. Under the race detector it returns every connection unchanged,
// because the detector derives the order of events from the runtime's own calls.
func Conn(nc net.Conn) net.Conn {
	if raceDetector {
		return nc
	}
	return conn(nc)
}

func conn(nc net.Conn) net.Conn {
	c, ok := nc.(syscall.Conn)
	if !ok {
		return nc
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nc
	}
	s := &socket{Conn: nc, raw: raw}
	s.in.do = func(fd uintptr) bool { return s.in.call(syscall.SYS_READ, fd) }
	s.out.do = func(fd uintptr) bool { return s.out.call(syscall.SYS_WRITE, fd) }
	return s
}

// Write writes to a nonblocking socket with write(2), as [syscall.Write] does.
func Write(fd uintptr, b []byte) (int, error) {
	if raceDetector {
		return syscall.Write(int(fd), b)
	}
	n, errno := transferBytes(syscall.SYS_WRITE, fd, b)
	if errno != 0 {
		return 0, errno
	}
	return n, nil
}

// Arrived reports whether the socket has unread bytes.
func Arrived(fd uintptr) bool {
	var b [1]byte
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), 1,
		syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	return errno == 0 && n > 0
}

func transferBytes(which, fd uintptr, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(which, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// socket is a connection that Conn returns. At most one goroutine reads it at a time, and at most
// one writes it.
type socket struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer
}

// transfer is one read or write of a socket.
type transfer struct {
	do  func(fd uintptr) bool
	b   []byte
	n   int
	err syscall.Errno
}

// call makes a system call without waiting for the socket. It reports whether the call is done.
func (t *transfer) call(which, fd uintptr) bool {
	for {
		n, err := transferBytes(which, fd, t.b)
		switch err {
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			t.n, t.err = n, err
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
