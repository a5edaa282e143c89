package p4rtserver

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// closedFirstFrom is the lowest descriptor for connections. It is above the descriptors of objects
// that take long to close.
const closedFirstFrom = 4096

// closedFirst gives a connection a high descriptor. When a process dies, the kernel closes its
// files from the highest number down, and removing a program from an interface takes about ten
// milliseconds for each. With low descriptors, the kernel would close connections only after all
// programs: 40 to 60 ms later with four ports. A controller needs to know at once that the switch
// has died.
//
// If there are not enough descriptors, the connection stays unchanged.
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
	// net.FileConn would copy the descriptor to the lowest free number again.
	f := os.NewFile(uintptr(high), conn.RemoteAddr().String())
	_ = tcp.Close()
	return &fileConn{f, tcp.LocalAddr(), tcp.RemoteAddr()}
}

// fileConn is a connection whose descriptor belongs to an os.File.
type fileConn struct {
	*os.File
	local, remote net.Addr
}

// LocalAddr implements net.Conn.
func (c *fileConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *fileConn) RemoteAddr() net.Addr { return c.remote }
