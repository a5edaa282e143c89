package p4rtserver

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// closedFirstFrom is the number from which on descriptors of connections are: above those of what
// takes time to close.
const closedFirstFrom = 4096

// closedFirst gives a connection a high descriptor. When a process dies, the kernel closes its
// files from the last number down, and removing a program from an interface takes it some ten
// milliseconds each. Otherwise, peers would hear that the switch is gone only after all of its
// ports: 40 to 60 ms later if it has four, and a controller relies on that.
//
// Without enough descriptors the connection stays as it was.
func closedFirst(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	high := -1
	if e := raw.Control(func(fd uintptr) {
		high, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, closedFirstFrom)
	}); e != nil || err != nil {
		return conn
	}
	// net.FileConn would copy it to the lowest number again.
	f := os.NewFile(uintptr(high), conn.RemoteAddr().String())
	_ = tcp.Close()
	return &fileConn{f, tcp.LocalAddr(), tcp.RemoteAddr()}
}

// fileConn is a connection whose descriptor is in an os.File.
type fileConn struct {
	*os.File
	local, remote net.Addr
}

// LocalAddr implements net.Conn.
func (c *fileConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *fileConn) RemoteAddr() net.Addr { return c.remote }
