package relay

import (
	"net"
	"syscall"
	"unsafe"

	"github.com/soheilhy/cmux"
	"golang.org/x/sys/unix"
)

// writableOf returns a function that reports whether a small write to a connection would not block.
// It returns nil if that cannot be known. The kernel reports room in a socket when a third of its
// buffer is free (tcp(7), unix(7)). The smallest buffers have some tens of kilobytes.
func writableOf(nc net.Conn) func() bool {
	for {
		switch c := nc.(type) {
		case *cmux.MuxConn:
			nc = c.Conn
		case interface{ NetConn() net.Conn }: // *tls.Conn implements this interface
			nc = c.NetConn()
		case syscall.Conn:
			raw, err := c.SyscallConn()
			if err != nil {
				return nil
			}
			fds, now := make([]unix.PollFd, 1), unix.Timespec{}
			var n uintptr
			look := func(fd uintptr) { // ppoll(2) does not wait here; see package unannounced
				fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
				n, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), 1,
					uintptr(unsafe.Pointer(&now)), 0, 0, 0)
			}
			return func() bool { // calls of this function never overlap, because the caller holds mu
				return raw.Control(look) == nil && n == 1 && fds[0].Revents == unix.POLLOUT
			}
		default:
			return nil
		}
	}
}
