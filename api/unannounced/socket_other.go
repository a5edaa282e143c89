//go:build !linux && !windows

package unannounced

import (
	"net"
	"syscall"
)

// Conn returns the connection unchanged, because only Linux is supported.
func Conn(nc net.Conn) net.Conn { return nc }

// Arrived reports whether the socket has unread bytes.
func Arrived(fd uintptr) bool {
	n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == nil && n > 0
}

// Write writes to a nonblocking socket with write(2), as [syscall.Write] does.
func Write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
